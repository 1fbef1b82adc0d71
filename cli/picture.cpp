// regard picture: a line of text as a picture that a picture-to-text model can read.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "checks.h"
#include "commands.h"
#include "picture_data.h"
#include "regard/drawn_strings.h"
#include "regard/file.h"
#include "regard/picture.h"
#include "regard/text_width.h"

namespace regard::cli {
namespace {

struct Arguments {
  std::string text, out, strings;
  TextStyle style;
  std::optional<double> size;
  double distortion = 0;
  std::uint64_t seed = 1;
  std::optional<Index> number;
};

void settle(const CLI::App& command, const Arguments& a) {
  if (a.text.empty() == a.strings.empty()) throw UsageError("give a TEXT to draw, or --strings FILE and --number N");
  if (!names_picture(a.out)) throw UsageError("-o: " + printable(a.out) + " does not end in .png, the format it gets");
  if (!a.strings.empty() != a.number.has_value()) throw UsageError("--strings and --number go together");
  for (const char* flag : {"--font", "--height", "--size", "--distortion", "--seed"})
    if (!a.strings.empty() && command.count(flag) > 0)
      throw UsageError(std::string(flag) + " is the plan's: it does not go with --strings");
}

DrawnText planned(const Arguments& a) {
  const DrawnStrings strings(read_string_plan(a.strings), Part::test);
  const TextStyle style = strings.style(*a.number, 0);
  DrawnText drawn = strings.draw(*a.number, 0);
  fmt::print("\"{}\" in {}\n", printable(strings.texts()[static_cast<std::size_t>(*a.number)]), printable(style.font));
  return drawn;
}

DrawnText asked_for(const Arguments& a) {
  const TextDrawer drawer;
  drawer.require(a.style.font);
  Random random(a.seed);
  TextStyle style = random_style(a.style.font, a.distortion, random);
  style.height = a.style.height;
  // Other heights get letters in proportion.
  const double scale = static_cast<double>(style.height) / static_cast<double>(TextStyle{}.height);
  style.size = a.size ? *a.size : style.size * scale;
  return drawer.draw(a.text, style);
}

void picture(const CLI::App& command, const Arguments& a) {
  settle(command, a);
  refuse_same_file(a.strings, a.out, "-o");
  const DrawnText drawn = a.strings.empty() ? asked_for(a) : planned(a);
  write_file(a.out, picture_png(drawn.picture));
  fmt::print("wrote {} ({} x {} pixels)\n", printable(a.out), drawn.picture.size(1), drawn.picture.size(0));
}

}  // namespace

void add_picture(CLI::App& program) {
  CLI::App& command =
      *program.add_subcommand("picture", "Draw a line of text as a PNG that a picture-to-text model can read");
  const auto a = std::make_shared<Arguments>();
  command.add_option("TEXT", a->text, "What to draw");
  command.add_option("-o,--out", a->out, "PNG file")->required()->check(output_path())->type_name("FILE");
  command.add_option("--font", a->style.font, "Installed family and style, such as 'DejaVu Serif Bold Italic'")
      ->capture_default_str();
  command.add_option("--height", a->style.height, "Of the picture, in pixels")
      ->check(CLI::Range(4, 4096))
      ->capture_default_str();
  command
      .add_option("--size", a->size, "Of the letters, in pixels (default: 20 at a height of 32, or by --distortion)")
      ->check(between(1, 4096));
  command
      .add_option("--distortion", a->distortion,
                  "0: none, to 1: size, place, slant, angle, contrast, blur and noise at random, as in training")
      ->check(between(0, 1))
      ->capture_default_str();
  command.add_option("--seed", a->seed, "Of the distortion")->check(unsigned_number())->capture_default_str();
  command.add_option("--strings", a->strings, "Draw a string of this plan's test set instead")->type_name("FILE");
  command.add_option("--number", a->number, "Which one, from 0")->check(at_least(0));
  set_example(command,
              "  regard picture regard7 --font 'DejaVu Serif' --distortion 0.7 -o regard7.png\n"
              "  regard run regard7.png\n"
              "  regard view regard7.png");
  command.callback([a, &command] { picture(command, *a); });
}

}  // namespace regard::cli
