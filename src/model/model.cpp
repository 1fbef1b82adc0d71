#include "regard/model.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "io/json_file.h"
#include "model/model_json.h"
#include "regard/error.h"
#include "regard/file.h"
#include "regard/safetensors.h"

namespace regard {
namespace detail {
namespace {

const char* name_of(NormPlace place) { return place == NormPlace::pre ? "pre" : "post"; }
const char* name_of(Activation kind) {
  switch (kind) {
    case Activation::none: return "none";
    case Activation::relu: return "relu";
    case Activation::gelu: return "gelu";
    case Activation::gelu_tanh: return "gelu-tanh";
  }
  return "relu";
}

template <class E>
E from_name(const std::string& name, std::initializer_list<E> choices) {
  for (E choice : choices)
    if (name == name_of(choice)) return choice;
  throw ArgumentError("unknown value '" + name + "'");
}

Index positive(const nlohmann::json& json, const char* key) {
  const Index value = json.at(key).get<Index>();
  if (value < 1 || value > 1'000'000) throw ArgumentError(std::string(key) + " is " + std::to_string(value));
  return value;
}

constexpr const char* text_format = "regard sequence-to-sequence 1";
constexpr const char* picture_format = "regard picture-to-text 1";

// The kind that the format names; older descriptions without one are of text.
bool format_reads_pictures(const nlohmann::json& json) {
  const auto format = json.value("format", std::string(text_format));
  if (format != text_format && format != picture_format)
    throw ArgumentError("format is '" + format + "', this program reads '" + text_format + "' and '" + picture_format +
                        "'");
  return format == picture_format;
}

PatchSizes patches_from(const nlohmann::json& json) {
  const PatchSizes sizes{positive(json, "height"), positive(json, "patch_height"), positive(json, "patch_width")};
  check_patches(sizes);
  return sizes;
}

Seq2SeqConfig config_from(const nlohmann::json& json) {
  Seq2SeqConfig config;
  config.layer.model_dim = positive(json, "model_dim");
  config.layer.heads = positive(json, "heads");
  config.layer.hidden = positive(json, "hidden");
  config.layer.norm = from_name(json.at("norm").get<std::string>(), {NormPlace::pre, NormPlace::post});
  config.layer.activation =
      from_name(json.at("activation").get<std::string>(), {Activation::relu, Activation::gelu, Activation::gelu_tanh});
  config.layer.dropout = json.at("dropout").get<double>();
  config.layer.attention_dropout = json.at("attention_dropout").get<double>();
  config.encoder_layers = positive(json, "encoder_layers");
  config.decoder_layers = positive(json, "decoder_layers");
  config.positions = position_kind(json.at("positions").get<std::string>());
  config.max_length = positive(json, "max_length");
  config.shared_vocabulary = json.value("shared_vocabulary", false);  // older models do not say
  return config;
}

}  // namespace

nlohmann::json model_json(const Model& model) {
  const Seq2SeqConfig& config = model.config;
  nlohmann::json json = {{"format", config.reads_pictures() ? picture_format : text_format},
                         {"name", model.name},
                         {"words", model.words},
                         {"source_symbols", model.source.own_symbols()},
                         {"target_symbols", model.target.own_symbols()},
                         {"config",
                          {{"model_dim", config.layer.model_dim},
                           {"heads", config.layer.heads},
                           {"hidden", config.layer.hidden},
                           {"norm", name_of(config.layer.norm)},
                           {"activation", name_of(config.layer.activation)},
                           {"dropout", config.layer.dropout},
                           {"attention_dropout", config.layer.attention_dropout},
                           {"encoder_layers", config.encoder_layers},
                           {"decoder_layers", config.decoder_layers},
                           {"positions", position_name(config.positions)},
                           {"max_length", config.max_length},
                           {"shared_vocabulary", config.shared_vocabulary}}}};
  if (config.reads_pictures())
    json["config"]["patches"] = {{"height", config.patches.height},
                                 {"patch_height", config.patches.patch_height},
                                 {"patch_width", config.patches.patch_width}};
  return json;
}

Model model_from_json(const nlohmann::json& json, const std::string& path) {
  try {
    Model model;
    model.name = json.at("name").get<std::string>();
    model.words = json.at("words").get<bool>();
    model.source = Vocabulary(json.at("source_symbols").get<std::vector<std::string>>());
    model.target = Vocabulary(json.at("target_symbols").get<std::vector<std::string>>());
    model.config = config_from(json.at("config"));
    if (format_reads_pictures(json)) model.config.patches = patches_from(json.at("config").at("patches"));
    if (model.config.shared_vocabulary && model.source.own_symbols() != model.target.own_symbols())
      throw ArgumentError("shared_vocabulary, but the symbols of source and target differ");
    model.make_network(0);
    return model;
  } catch (const nlohmann::json::exception& error) {
    throw FileError(path + ": not a model description (" + json_reason(error) + ")");
  } catch (const ArgumentError& error) {
    throw FileError(path + ": not a model description (" + error.what() + ")");
  }
}

Tensor<float> load_tensor(const TensorFile& file, const std::string& name, const Shape& shape) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) throw FileError(file.path + ": tensor " + name + " is missing");
  if (found->second.shape != shape)
    throw FileError(file.path + ": tensor " + name + " has shape " + shape_text(found->second.shape) +
                    " but the model needs " + shape_text(shape));
  try {
    return to_float(found->second, file.path + ": tensor " + name);
  } catch (const ArgumentError& error) {
    throw FileError(error.what());
  }
}

void load_parameters(const TensorFile& file, const std::string& prefix, const Parameters<float>& parameters) {
  for (Parameter<float>* parameter : parameters)
    parameter->value = load_tensor(file, prefix + parameter->name, parameter->value.shape());
}

void refuse_strangers(const TensorFile& file, const Parameters<float>& parameters) {
  for (const auto& [name, tensor] : file.tensors)
    if (std::none_of(parameters.begin(), parameters.end(), [&name = name](const auto* p) { return p->name == name; }))
      throw FileError(file.path + ": tensor " + name + " is none of the model's");
}

}  // namespace detail

void Model::make_network(std::uint64_t seed) {
  const Index source_size = reads_pictures() ? 0 : source.size();
  network = std::make_unique<Seq2Seq<float>>(config, source_size, target.size(), seed);
}

std::vector<std::int64_t> Model::source_ids(const std::string& text, std::vector<std::string>* unknown) const {
  std::vector<std::int64_t> ids;
  const Example example{text, source_symbols(text, words), {}};
  refuse_longer(example, {.source = config.max_length});
  for (const std::string& symbol : example.source) {
    ids.push_back(source.id(symbol));
    if (unknown && ids.back() == Vocabulary::unknown) unknown->push_back(symbol);
  }
  return ids;
}

std::vector<std::string> Model::target_symbols(const std::vector<std::int64_t>& ids) const {
  std::vector<std::string> symbols;
  symbols.reserve(ids.size());
  for (std::int64_t id : ids) symbols.push_back(target.symbol(id));
  return symbols;
}

Index Model::widest_picture() const { return regard::widest_picture(config.patches, config.max_length); }

Tensor<float> Model::patches(const Tensor<float>& picture) const {
  if (picture.rank() == 2 && picture.size(1) > widest_picture())
    throw ArgumentError("the picture is " + std::to_string(picture.size(1)) + " pixels wide at the model's height of " +
                        std::to_string(config.patches.height) + "; it reads up to " + std::to_string(widest_picture()));
  return patches_of(picture, config.patches);
}

std::string Model::answer_text(const std::vector<std::string>& symbols) const {
  const auto all = target.own_symbols();
  const bool characters_only = reads_pictures() && std::all_of(all.begin(), all.end(), [](const std::string& symbol) {
                                 return characters(symbol).size() == 1;
                               });
  std::string text;
  for (const std::string& symbol : symbols) text += (text.empty() || characters_only ? "" : " ") + symbol;
  return text;
}

void save_model(const Model& model, const std::string& folder, DType dtype) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw FileError(folder + ": can't make this folder (" + failure.message() + ")");
  TensorFile file;
  for (const Parameter<float>* parameter : model.network->parameters())
    file.tensors[parameter->name] = any_tensor(parameter->value, dtype);
  write_safetensors(folder + "/model.safetensors", file);
  write_file(folder + "/model.json", detail::json_text(detail::model_json(model)));
}

Model load_model(const std::string& folder) {
  const std::string path = folder + "/model.json";
  Model model = detail::model_from_json(detail::read_json(path), path);
  const TensorFile file = read_safetensors(folder + "/model.safetensors");
  detail::load_parameters(file, "", model.network->parameters());
  detail::refuse_strangers(file, model.network->parameters());
  return model;
}

namespace {

// Sources of about equal length are decoded together.
template <class Source, class Length, class Decode>
std::vector<Hypothesis> in_batches(const std::vector<Source>& sources, Index batch, Length length, Decode decode_part) {
  if (batch < 1) throw ArgumentError("answer: batch must be at least 1, got " + std::to_string(batch));
  std::vector<std::size_t> order(sources.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return length(sources[a]) < length(sources[b]); });
  std::vector<Hypothesis> answers(sources.size());
  for (std::size_t at = 0; at < order.size(); at += static_cast<std::size_t>(batch)) {
    const std::size_t stop = std::min(order.size(), at + static_cast<std::size_t>(batch));
    std::vector<Source> part;
    for (std::size_t i = at; i < stop; ++i) part.push_back(sources[order[i]]);
    auto found = decode_part(part);
    for (std::size_t i = at; i < stop; ++i) answers[order[i]] = std::move(found[i - at]);
  }
  return answers;
}

}  // namespace

std::vector<Hypothesis> answer(const Model& model, const std::vector<std::vector<std::int64_t>>& sources,
                               const DecodingOptions& options, Index batch) {
  return in_batches(
      sources, batch, [](const auto& ids) { return ids.size(); },
      [&](const auto& part) { return decode(*model.network, part, options); });
}

std::vector<Hypothesis> answer_pictures(const Model& model, const std::vector<const Tensor<float>*>& pictures,
                                        const DecodingOptions& options, Index batch) {
  return in_batches(
      pictures, batch, [](const Tensor<float>* patches) { return patches->size(0); },
      [&](const auto& part) { return decode_pictures(*model.network, part, options); });
}

std::vector<Question> picture_questions(const Model& model, const Dataset& data) {
  if (!data.picture) throw ArgumentError("picture_questions: the data has no pictures");
  std::vector<Question> questions = group_references(data);
  for (Question& question : questions) {
    try {
      question.patches = model.patches(data.picture(question.example, 0));
    } catch (const ArgumentError& error) {
      throw ArgumentError(question.text + ": " + error.what());
    }
  }
  return questions;
}

namespace {

std::vector<Hypothesis> answers_to(const Model& model, const std::vector<Question>& questions,
                                   const DecodingOptions& options) {
  std::vector<std::vector<std::int64_t>> sources;
  std::vector<const Tensor<float>*> pictures;
  for (const Question& question : questions) {
    if (model.reads_pictures()) {
      pictures.push_back(&question.patches);
      continue;
    }
    sources.emplace_back();
    for (const std::string& symbol : question.source) sources.back().push_back(model.source.id(symbol));
  }
  return model.reads_pictures() ? answer_pictures(model, pictures, options) : answer(model, sources, options);
}

}  // namespace

ErrorCounts evaluate_answers(const Model& model, const std::vector<Question>& questions,
                             const DecodingOptions& options) {
  const auto answers = answers_to(model, questions, options);
  ErrorCounts counts;
  for (std::size_t i = 0; i < questions.size(); ++i)
    count_errors(model.target_symbols(answers[i].symbols), questions[i].references, counts);
  return counts;
}

}  // namespace regard
