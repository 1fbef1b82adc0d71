#include "regard/drawn_strings.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "picture/surface.h"
#include "regard/error.h"
#include "regard/file.h"

namespace regard {
namespace {

using Json = nlohmann::json;

// Streams of random numbers: strings are drawn from the first, styles from one for
// each part, epoch (up to 2^28) and number.
std::uint64_t strings_stream(Part part) { return static_cast<std::uint64_t>(part); }
std::uint64_t style_stream(Part part, std::uint64_t epoch, Index number) {
  return std::uint64_t{1} << 62 | static_cast<std::uint64_t>(part) << 60 | epoch << 32 |
         static_cast<std::uint64_t>(number);
}

std::vector<std::string> code_points(const std::string& text) {
  std::vector<std::string> all;
  for (const char* at = text.c_str(); *at; at = g_utf8_next_char(at)) all.emplace_back(at, g_utf8_next_char(at) - at);
  return all;
}

StringPlan plan_from(const Json& json) {
  static const std::unordered_set<std::string> known{"alphabet", "shortest", "longest", "fonts", "distortion",
                                                     "seed",     "height",   "train",   "dev",   "test"};
  for (const auto& [name, value] : json.items())
    if (!known.contains(name)) throw ArgumentError("there is no entry \"" + name + "\"");
  StringPlan plan;
  const auto alphabet = json.at("alphabet").get<std::string>();
  if (!g_utf8_validate(alphabet.data(), static_cast<gssize>(alphabet.size()), nullptr))
    throw ArgumentError("\"alphabet\" is not valid UTF-8");
  plan.alphabet = code_points(alphabet);
  json.at("shortest").get_to(plan.shortest);
  json.at("longest").get_to(plan.longest);
  json.at("fonts").get_to(plan.fonts);
  json.at("distortion").get_to(plan.distortion);
  json.at("seed").get_to(plan.seed);
  json.at("height").get_to(plan.height);
  json.at("train").get_to(plan.train);
  json.at("dev").get_to(plan.dev);
  json.at("test").get_to(plan.test);
  return plan;
}

void check_plan(const StringPlan& plan) {
  if (plan.alphabet.empty()) throw ArgumentError("strings: the alphabet is empty");
  if (plan.fonts.empty()) throw ArgumentError("strings: there are no fonts");
  if (plan.shortest < 1 || plan.longest < plan.shortest || plan.longest > 1000)
    throw ArgumentError("strings: lengths " + std::to_string(plan.shortest) + " to " + std::to_string(plan.longest) +
                        " must be within 1 to 1000");
  for (Index count : {plan.train, plan.dev, plan.test})
    if (count < 0 || count > 100'000'000)
      throw ArgumentError("strings: a part of " + std::to_string(count) + " must have 0 to 100 million");
}

Index count_of(const StringPlan& plan, Part part) {
  return part == Part::train ? plan.train : part == Part::dev ? plan.dev : plan.test;
}

std::string random_text(const StringPlan& plan, Random& random) {
  std::string text;
  const auto lengths = static_cast<std::uint64_t>(plan.longest - plan.shortest + 1);
  for (Index left = plan.shortest + static_cast<Index>(random.below(lengths)); left > 0; --left)
    text += plan.alphabet[random.below(plan.alphabet.size())];
  return text;
}

std::vector<std::string> texts_of(const StringPlan& plan, Part part) {
  constexpr Index most_misses = 100'000;  // in a row: there are no more
  Random random(plan.seed, strings_stream(part));
  std::vector<std::string> texts;
  std::unordered_set<std::string> seen;
  Index misses = 0;
  while (static_cast<Index>(texts.size()) < count_of(plan, part)) {
    std::string text = random_text(plan, random);
    if (part_of(text) != part || (part != Part::train && !seen.insert(text).second)) {
      if (++misses > most_misses)
        throw ArgumentError("strings: the alphabet has only " + std::to_string(texts.size()) +
                            " strings for a part of " + std::to_string(count_of(plan, part)));
      continue;
    }
    misses = 0;
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace

StringPlan read_string_plan(const std::string& path) {
  const std::string text = read_file(path);
  try {
    StringPlan plan = plan_from(Json::parse(text));
    check_plan(plan);
    return plan;
  } catch (const Json::parse_error& error) {
    throw FileError(path + ": not valid JSON at byte " + std::to_string(error.byte));
  } catch (const Json::exception& error) {
    const std::string reason = error.what();
    throw FileError(path + ": not a plan of strings (" + reason.substr(reason.find("] ") + 2) + ")");
  } catch (const ArgumentError& error) {
    throw FileError(path + ": " + error.what());
  }
}

Part part_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (unsigned char byte : text) hash = (hash ^ byte) * 1099511628211u;
  const std::uint32_t word = philox({0, 0, 0, 0}, hash)[0] >> 29;
  return word == 0 ? Part::test : word == 1 ? Part::dev : Part::train;
}

DrawnStrings::DrawnStrings(StringPlan plan, Part part) : plan_(std::move(plan)), part_(part) {
  check_plan(plan_);
  for (const std::string& font : plan_.fonts) drawer_.require(font);
  texts_ = texts_of(plan_, part_);
}

TextStyle DrawnStrings::style(Index number, std::uint64_t epoch) const {
  Random random(plan_.seed, style_stream(part_, epoch, number));
  const std::string& font = plan_.fonts[random.below(plan_.fonts.size())];
  TextStyle style = random_style(font, plan_.distortion * random.uniform_double(), random);
  style.height = plan_.height;
  return style;
}

DrawnText DrawnStrings::draw(Index number, std::uint64_t epoch) const {
  if (number < 0 || number >= static_cast<Index>(texts_.size()))
    throw ArgumentError("strings: there is no string " + std::to_string(number) + " of " +
                        std::to_string(texts_.size()));
  return drawer_.draw(texts_[static_cast<std::size_t>(number)], style(number, epoch));
}

}  // namespace regard
