// Endless pictures of random strings: the data of the shipped picture-to-text model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/drawn_text.h"

namespace regard {

// Which strings, and drawn how.
struct StringPlan {
  std::vector<std::string> alphabet;  // characters, all equally likely
  Index shortest = 1, longest = 8;    // all lengths equally likely
  std::vector<std::string> fonts;     // all equally likely
  double distortion = 1;              // each picture's is uniform from 0 to this (random_style)
  std::uint64_t seed = 1;
  Index height = 32;
  Index train = 0, dev = 0, test = 0;  // strings of each part
};

// A JSON object: "alphabet" (a text), "shortest", "longest", "fonts" (a list),
// "distortion", "seed", "height", and how many strings "train", "dev" and "test" have.
// Throws FileError naming the file and the entry: missing, unknown, of another type, out of
// range (distortion 0 to 1, height 1 to 4096, lengths 1 to 1000, counts 0 to 100 million).
StringPlan read_string_plan(const std::string& path);

enum class Part { train, dev, test };

// A string belongs to a part by its characters alone, whatever the plan: an eighth of
// all strings is the test set's, an eighth the development set's, the rest is for
// training. Hence no string of one part is ever drawn for another.
Part part_of(const std::string& text);

class DrawnStrings {
 public:
  // Strings whose pictures would be wider than `widest` pixels (0: any width) are drawn with
  // smaller letters. Throws ArgumentError for a plan out of range, a part of which it has
  // none, a font that is not installed, an alphabet too small for as many different
  // strings, and a `widest` that has no room for the longest.
  DrawnStrings(StringPlan plan, Part part, Index widest = 0);

  // Different from each other in the development and test sets; those of a part are
  // the same in all plans of one alphabet, lengths, number and seed, whatever the fonts.
  const std::vector<std::string>& texts() const { return texts_; }
  // Font and style follow from seed, part, number and epoch; the size is that before
  // letters are made smaller to fit.
  TextStyle style(Index number, std::uint64_t epoch) const;
  DrawnText draw(Index number, std::uint64_t epoch) const;

  const StringPlan& plan() const { return plan_; }

 private:
  DrawnText fitted(const std::string& text, TextStyle style) const;

  StringPlan plan_;
  Part part_;
  Index widest_;
  TextDrawer drawer_;
  std::vector<std::string> texts_;
};

}  // namespace regard
