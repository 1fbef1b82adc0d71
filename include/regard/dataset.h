// Pairs of sequences from TSV files, source<TAB>target symbols with spaces, and of
// pictures and sequences.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "regard/tensor.h"
#include "regard/vocabulary.h"

namespace regard {

struct Example {
  std::string text;                 // the source as written
  std::vector<std::string> source;  // its symbols
  std::vector<std::string> target;
};

// Most symbols of a source, and of a target with its end; 0: any number.
struct LengthLimits {
  Index source = 0, target = 0;
};

// What a model takes must be known before the work begins: throws ArgumentError
// for a pair that is longer.
void refuse_longer(const Example& example, const LengthLimits& longest);

struct TsvOptions {
  bool words = false;     // see source_symbols
  bool skip_bad = false;  // count bad lines instead of refusing the file
  bool pictures = false;  // sources name pictures: they have no symbols
  LengthLimits longest = {};
  // What else makes an example bad: throws Error saying so. Called in the file's order.
  std::function<void(const Example&)> check = {};
};

// The picture (patches.h) of an example, by its number; the epoch counts from 0 and
// is 0 outside training. Same arguments, same picture.
using PictureMaker = std::function<Tensor<float>(Index example, std::uint64_t epoch)>;

struct Dataset {
  std::vector<Example> examples;
  Index skipped = 0;  // bad lines, with skip_bad
  // Set: sources are pictures. Examples of one text are of one picture outside training.
  PictureMaker picture = {};
  // How pictures come about, and a digest of the files they are read from: what differs
  // is other data.
  std::string origin = {}, contents = {};
};

// A bad line (no tab or two, an empty side, invalid UTF-8, a symbol spelled like
// a special one, more symbols than `longest`, refused by `check`) throws FileError naming file and
// line; empty lines and a byte order mark are passed over. Several lines with one
// source are several references for it.
Dataset read_tsv(const std::string& path, const TsvOptions& options = {});

// One source and everything that counts as right for it.
struct Question {
  std::string text;
  std::vector<std::string> source;
  std::vector<std::vector<std::string>> references;
  Index example = 0;           // the number of the first of this source
  Tensor<float> patches = {};  // of a picture, which has no symbols
};

// In order of first appearance.
std::vector<Question> group_references(const Dataset& data);

// A padded batch of ids.
struct Batch {
  Tensor<std::int64_t> source;  // [batch, source length]; of pictures see SourceBatch
  Tensor<std::int64_t> input;   // [batch, target length + 1]: begin, then the target
  Tensor<std::int64_t> target;  // the target, then end
  Tensor<float> patches = {};   // [batch, source length, patch size]; empty: symbols
};

struct Encoded {
  std::vector<std::int64_t> source, target;  // without begin and end
  Tensor<float> patches = {};                // [patches, patch size] in the place of source ids
};

Encoded encode(const Example& example, const Vocabulary& source, const Vocabulary& target);

// Pads with Vocabulary::pad on the right. Throws ArgumentError for pictures beside symbols.
Batch make_batch(const std::vector<const Encoded*>& examples);
Tensor<std::int64_t> padded_ids(const std::vector<std::vector<std::int64_t>>& rows);

// Patches of several pictures, [patches, patch size] each, as SourceBatch takes them. Throws
// ArgumentError naming both shapes where patches are not of one size.
struct PaddedPatches {
  Tensor<std::int64_t> present;  // [batch, most patches]
  Tensor<float> patches;         // [batch, most patches, patch size], 0 behind a picture's last
};
PaddedPatches padded_patches(const std::vector<const Tensor<float>*>& pictures);

// Cuts a data set into batches of about equal lengths: shuffled by (seed,
// epoch), sorted by length, cut, and the batches shuffled. Returns indices;
// the same for the same arguments.
std::vector<std::vector<Index>> plan_batches(const std::vector<Encoded>& data, Index batch, std::uint64_t seed,
                                             std::uint64_t epoch);

}  // namespace regard
