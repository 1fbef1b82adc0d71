#include "regard/dataset.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "regard/error.h"
#include "regard/file.h"
#include "regard/random.h"

namespace regard {
namespace {

// A model could never read or write a symbol that is spelled like <unk> or </s>.
void refuse_specials(const std::vector<std::string>& symbols) {
  for (const std::string& special : Vocabulary::specials())
    if (std::find(symbols.begin(), symbols.end(), special) != symbols.end())
      throw ArgumentError("the symbol " + special + " is kept for the model's own use");
}

// Throws ArgumentError saying what is wrong with the line.
Example parse_line(const std::string& line, const TsvOptions& options) {
  const auto tab = line.find('\t');
  if (tab == std::string::npos) throw ArgumentError("no tab between source and target");
  if (line.find('\t', tab + 1) != std::string::npos) throw ArgumentError("more than one tab");
  Example example{line.substr(0, tab), {}, {}};
  if (!options.pictures) example.source = source_symbols(example.text, options.words);
  const std::string target = line.substr(tab + 1);
  characters(target);  // refuses invalid UTF-8
  example.target = split_spaces(target);
  if (example.text.empty() || (example.source.empty() && !options.pictures)) throw ArgumentError("the source is empty");
  if (example.target.empty()) throw ArgumentError("the target is empty");
  refuse_specials(example.source);
  refuse_specials(example.target);
  refuse_longer(example, options.longest);
  return example;
}

}  // namespace

void refuse_longer(const Example& example, const LengthLimits& longest) {
  const auto check = [](const char* side, std::size_t count, Index most) {
    if (most > 0 && static_cast<Index>(count) > most)
      throw ArgumentError(std::string("the ") + side + " needs " + std::to_string(count) +
                          " symbols but the model's longest sequence is " + std::to_string(most));
  };
  check("source", example.source.size(), longest.source);
  check("target with its end", example.target.size() + 1, longest.target);
}

Dataset read_tsv(const std::string& path, const TsvOptions& options) {
  const std::string text = read_file(path);
  Dataset data;
  Index number = 0;
  const std::string byte_order_mark = "\xEF\xBB\xBF";
  for (std::size_t at = text.starts_with(byte_order_mark) ? 3 : 0; at < text.size();) {
    const std::size_t stop = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, stop - at);
    at = stop + 1;
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    try {
      Example example = parse_line(line, options);
      if (options.check) options.check(example);
      data.examples.push_back(std::move(example));
    } catch (const Error& error) {
      if (!options.skip_bad)
        throw FileError(path + ", line " + std::to_string(number) + ": " + error.what() +
                        " (--skip-bad goes on without such lines)");
      ++data.skipped;
    }
  }
  if (data.examples.empty()) throw FileError(path + ": holds no examples (lines are source<TAB>target symbols)");
  return data;
}

std::vector<Question> group_references(const Dataset& data) {
  std::vector<Question> questions;
  std::unordered_map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < data.examples.size(); ++i) {
    const Example& example = data.examples[i];
    const auto [place, fresh] = known.try_emplace(example.text, questions.size());
    if (fresh) questions.push_back({example.text, example.source, {}, static_cast<Index>(i)});
    questions[place->second].references.push_back(example.target);
  }
  return questions;
}

Encoded encode(const Example& example, const Vocabulary& source, const Vocabulary& target) {
  Encoded encoded;
  for (const std::string& symbol : example.source) encoded.source.push_back(source.id(symbol));
  for (const std::string& symbol : example.target) encoded.target.push_back(target.id(symbol));
  return encoded;
}

Tensor<std::int64_t> padded_ids(const std::vector<std::vector<std::int64_t>>& rows) {
  std::size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  Tensor<std::int64_t> ids({static_cast<Index>(rows.size()), static_cast<Index>(longest)}, Vocabulary::pad);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].begin(), rows[i].end(), ids.data() + static_cast<Index>(i * longest));
  return ids;
}

PaddedPatches padded_patches(const std::vector<const Tensor<float>*>& pictures) {
  Index most = 0;
  for (const auto* picture : pictures) {
    if (picture->rank() != 2 || picture->size(1) != pictures.front()->size(1))
      throw ArgumentError("padded_patches: patches of a picture are " + picture->text() + " beside " +
                          pictures.front()->text() + ", need [patches, patch size] of one patch size");
    most = std::max(most, picture->size(0));
  }
  const Index size = pictures.empty() ? 0 : pictures.front()->size(1);
  const auto batch = static_cast<Index>(pictures.size());
  PaddedPatches padded{Tensor<std::int64_t>({batch, most}, Vocabulary::pad), Tensor<float>({batch, most, size})};
  for (Index i = 0; i < batch; ++i) {
    const Tensor<float>& picture = *pictures[static_cast<std::size_t>(i)];
    std::fill_n(padded.present.data() + i * most, picture.size(0), Vocabulary::begin);
    std::copy_n(picture.data(), picture.count(), padded.patches.data() + i * most * size);
  }
  return padded;
}

Batch make_batch(const std::vector<const Encoded*>& examples) {
  std::vector<std::vector<std::int64_t>> source, input, target;
  std::vector<const Tensor<float>*> pictures;
  for (const Encoded* example : examples) {
    source.push_back(example->source);
    if (!example->patches.empty()) pictures.push_back(&example->patches);
    input.push_back(example->target);
    input.back().insert(input.back().begin(), Vocabulary::begin);
    target.push_back(example->target);
    target.back().push_back(Vocabulary::end);
  }
  Batch batch{padded_ids(source), padded_ids(input), padded_ids(target)};
  if (pictures.empty()) return batch;
  if (pictures.size() != examples.size())
    throw ArgumentError("make_batch: " + std::to_string(pictures.size()) + " of " + std::to_string(examples.size()) +
                        " examples have patches, need all or none");
  PaddedPatches padded = padded_patches(pictures);
  batch.source = std::move(padded.present);
  batch.patches = std::move(padded.patches);
  return batch;
}

std::vector<std::vector<Index>> plan_batches(const std::vector<Encoded>& data, Index batch, std::uint64_t seed,
                                             std::uint64_t epoch) {
  if (batch < 1) throw ArgumentError("plan_batches: batch must be at least 1, got " + std::to_string(batch));
  Random random(seed, epoch);
  std::vector<Index> order(data.size());
  std::iota(order.begin(), order.end(), Index{0});
  shuffle(order, random);
  const auto length = [&](Index i) {
    const Encoded& example = data[static_cast<std::size_t>(i)];
    return std::pair(
        example.patches.empty() ? example.source.size() : static_cast<std::size_t>(example.patches.size(0)),
        example.target.size());
  };
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return length(a) < length(b); });
  std::vector<std::vector<Index>> batches;
  for (std::size_t at = 0; at < order.size(); at += static_cast<std::size_t>(batch)) {
    const std::size_t stop = std::min(order.size(), at + static_cast<std::size_t>(batch));
    batches.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(at),
                         order.begin() + static_cast<std::ptrdiff_t>(stop));
  }
  std::vector<Index> sequence(batches.size());
  std::iota(sequence.begin(), sequence.end(), Index{0});
  shuffle(sequence, random);
  std::vector<std::vector<Index>> shuffled;
  shuffled.reserve(sequence.size());
  for (Index i : sequence) shuffled.push_back(std::move(batches[static_cast<std::size_t>(i)]));
  return shuffled;
}

}  // namespace regard
