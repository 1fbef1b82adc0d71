#include "regard/drawn_strings.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "io/json_file.h"
#include "regard/characters.h"
#include "regard/digest.h"
#include "regard/error.h"

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

// A number of this entry. JSON's own conversions would cut fractions off, wrap what is
// negative and take true for 1.
Index whole(const Json& json, const char* name) {
  const Json& value = json.at(name);
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() >> 63 != 0))
    throw ArgumentError("\"" + std::string(name) + "\" is " + value.dump() + ", must be a whole number");
  return value.get<Index>();
}

double number(const Json& json, const char* name) {
  const Json& value = json.at(name);
  if (!value.is_number())
    throw ArgumentError("\"" + std::string(name) + "\" is " + value.dump() + ", must be a number");
  return value.get<double>();
}

std::uint64_t seed_of(const Json& json) {
  const Json& value = json.at("seed");
  if (!value.is_number_unsigned())
    throw ArgumentError("\"seed\" is " + value.dump() + ", must be a whole number from 0 to 2^64 - 1");
  return value.get<std::uint64_t>();
}

StringPlan plan_from(const Json& json) {
  static const std::unordered_set<std::string> known{"alphabet", "shortest", "longest", "fonts", "distortion",
                                                     "seed",     "height",   "train",   "dev",   "test"};
  for (const auto& [name, value] : json.items())
    if (!known.contains(name)) throw ArgumentError("there is no entry \"" + name + "\"");
  StringPlan plan;
  plan.alphabet = characters(json.at("alphabet").get<std::string>());
  plan.shortest = whole(json, "shortest");
  plan.longest = whole(json, "longest");
  json.at("fonts").get_to(plan.fonts);
  plan.distortion = number(json, "distortion");
  plan.seed = seed_of(json);
  plan.height = whole(json, "height");
  plan.train = whole(json, "train");
  plan.dev = whole(json, "dev");
  plan.test = whole(json, "test");
  return plan;
}

void check_plan(const StringPlan& plan) {
  if (plan.alphabet.empty()) throw ArgumentError("strings: the alphabet is empty");
  if (plan.fonts.empty()) throw ArgumentError("strings: there are no fonts");
  if (plan.shortest < 1 || plan.longest < plan.shortest || plan.longest > 1000)
    throw ArgumentError("strings: lengths " + std::to_string(plan.shortest) + " to " + std::to_string(plan.longest) +
                        " must be within 1 to 1000");
  if (!(plan.distortion >= 0 && plan.distortion <= 1))
    throw ArgumentError("strings: distortion is " + std::to_string(plan.distortion) + ", must be 0 to 1");
  if (plan.height < 1 || plan.height > 4096)
    throw ArgumentError("strings: height is " + std::to_string(plan.height) + ", must be 1 to 4096");
  for (Index count : {plan.train, plan.dev, plan.test})
    if (count < 0 || count > 100'000'000)
      throw ArgumentError("strings: a part of " + std::to_string(count) + " must have 0 to 100 million");
}

// What a string needs at the least: letters of this size, which are up to one and a half
// as wide as high with all distortions, between the widest margins.
constexpr double smallest_letters = 4;
Index room_for(Index characters) {
  constexpr double widest_letter = 1.5 * smallest_letters, margins = 20;
  return static_cast<Index>(widest_letter * static_cast<double>(characters) + margins);
}

const char* name_of(Part part) { return part == Part::train ? "train" : part == Part::dev ? "dev" : "test"; }

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
  const Json json = detail::read_json(path);
  try {
    StringPlan plan = plan_from(json);
    check_plan(plan);
    return plan;
  } catch (const Json::exception& error) {
    throw FileError(path + ": not a plan of strings (" + detail::json_reason(error) + ")");
  } catch (const ArgumentError& error) {
    throw FileError(path + ": " + error.what());
  }
}

Part part_of(const std::string& text) {
  const std::uint32_t word = philox({0, 0, 0, 0}, fnv1a(text))[0] >> 29;
  return word == 0 ? Part::test : word == 1 ? Part::dev : Part::train;
}

DrawnStrings::DrawnStrings(StringPlan plan, Part part, Index widest)
    : plan_(std::move(plan)), part_(part), widest_(widest) {
  check_plan(plan_);
  if (count_of(plan_, part_) == 0)
    throw ArgumentError(std::string("strings: the plan has none of this part (\"") + name_of(part_) + "\" is 0)");
  if (widest_ > 0 && widest_ < room_for(plan_.longest))
    throw ArgumentError("strings: pictures of at most " + std::to_string(widest_) + " pixels are too narrow for " +
                        std::to_string(plan_.longest) + " characters (\"longest\"), which need " +
                        std::to_string(room_for(plan_.longest)));
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
  return fitted(texts_[static_cast<std::size_t>(number)], style(number, epoch));
}

// Smaller letters between the same margins, where the picture would be too wide.
DrawnText DrawnStrings::fitted(const std::string& text, TextStyle style) const {
  DrawnText drawn = drawer_.draw(text, style);
  while (widest_ > 0 && drawn.picture.size(1) > widest_) {
    const double margins = style.left + style.right;
    const double part =
        0.99 * (static_cast<double>(widest_) - margins) / (static_cast<double>(drawn.picture.size(1)) - margins);
    if (style.size * part < smallest_letters / 2)
      throw ArgumentError("strings: \"" + text + "\" does not fit into a picture of " + std::to_string(widest_) +
                          " pixels");
    style.size *= part;
    style.spacing *= part;
    drawn = drawer_.draw(text, style);
  }
  return drawn;
}

}  // namespace regard
