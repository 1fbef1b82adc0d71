// A trained model on disk: a folder with model.safetensors (weights) and
// model.json (its kind, sizes, vocabularies, how text is split). There are two
// kinds: sequence-to-sequence models read text, picture-to-text models pictures.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "regard/decoding.h"
#include "regard/dtype.h"
#include "regard/reading_places.h"
#include "regard/seq2seq.h"
#include "regard/trace.h"

namespace regard {

struct Model {
  std::string name;  // for captions
  bool words = false;
  Vocabulary source, target;
  Seq2SeqConfig config;
  std::unique_ptr<Seq2Seq<float>> network;

  // A fresh network for these vocabularies.
  void make_network(std::uint64_t seed);
  // The source's ids, and the symbols the model does not know, in order. Throws
  // ArgumentError for a text that is longer than the model takes.
  std::vector<std::int64_t> source_ids(const std::string& text, std::vector<std::string>* unknown = nullptr) const;
  std::vector<std::string> target_symbols(const std::vector<std::int64_t>& ids) const;

  bool reads_pictures() const { return config.reads_pictures(); }
  // Of a picture at the height the model reads (config.patches): its patches.
  // Throws ArgumentError as patches_of does, and for a picture wider than
  // widest_picture().
  Tensor<float> patches(const Tensor<float>& picture) const;
  Index widest_picture() const;  // in pixels
  // An answer as people read it: characters one after the other where pictures are
  // read and every target symbol is one character, else symbols between spaces.
  std::string answer_text(const std::vector<std::string>& symbols) const;
};

// Each file is written whole or not at all, weights first. dtype f32, bf16 or
// f16. Throws FileError.
void save_model(const Model& model, const std::string& folder, DType dtype = DType::f32);

// Throws FileError naming the file and what is wrong with it: missing,
// truncated, a tensor missing, superfluous or of the wrong shape.
Model load_model(const std::string& folder);

// Answers for many texts, `batch` at a time; texts of about equal length are
// decoded together.
std::vector<Hypothesis> answer(const Model& model, const std::vector<std::vector<std::int64_t>>& sources,
                               const DecodingOptions& options, Index batch = 256);

// The same for pictures, as Model::patches gives them.
std::vector<Hypothesis> answer_pictures(const Model& model, const std::vector<const Tensor<float>*>& pictures,
                                        const DecodingOptions& options, Index batch = 256);

// The questions of a data set of pictures (group_references), drawn as for epoch 0. Throws
// ArgumentError naming the example whose picture the model can't read.
std::vector<Question> picture_questions(const Model& model, const Dataset& data);

// Decodes every question and counts errors against its references.
ErrorCounts evaluate_answers(const Model& model, const std::vector<Question>& questions,
                             const DecodingOptions& options);

struct TraceOptions {
  bool weights = true;  // else only what is linear in the lengths: patterns and entropies
  // norms: shares of each row's summed sizes; in cross-attention the residual
  // takes part in the sum of all heads together.
  MapQuantity quantity = MapQuantity::weights;
};

// Runs the model on one text and its answer and records every layer, head and
// kind of attention; patterns are named by observers in the same pass. Throws
// ArgumentError for norms or rollout without weights. `output` are target ids without begin and end; the last
// row of the decoder's maps is the one that produced the end.
Trace record_trace(const Model& model, const std::string& text, const std::vector<std::int64_t>& output,
                   const TraceOptions& options = {});

// The same for a picture at the height the model reads, which the trace keeps. Keys
// are patches, labelled by the pixel column in which they begin, and their row
// where there are several: "12", "12,16".
Trace record_picture_trace(const Model& model, const Tensor<float>& picture, const std::vector<std::int64_t>& output,
                           const TraceOptions& options = {});

// Where cross-attention looks in a picture of which is known what it says and where,
// while the model is given that, whatever it would read itself: adds to `places`. Throws
// ArgumentError for a symbol that the model can't write and where there is not one place
// for each symbol.
void add_reading_places(const Model& model, const Tensor<float>& picture, const std::vector<std::string>& symbols,
                        const std::vector<PixelSpan>& where, ReadingPlaces& places);

}  // namespace regard
