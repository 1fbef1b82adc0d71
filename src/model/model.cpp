#include "regard/model.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "model/model_json.h"
#include "regard/contributions.h"
#include "regard/error.h"
#include "regard/file.h"
#include "regard/rollout.h"
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
const char* name_of(PositionKind kind) { return kind == PositionKind::learned ? "learned" : "sinusoidal"; }

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
  config.positions =
      from_name(json.at("positions").get<std::string>(), {PositionKind::sinusoidal, PositionKind::learned});
  config.max_length = positive(json, "max_length");
  config.shared_vocabulary = json.value("shared_vocabulary", false);  // older models do not say
  return config;
}

}  // namespace

nlohmann::json model_json(const Model& model) {
  const Seq2SeqConfig& config = model.config;
  return {{"format", "regard sequence-to-sequence 1"},
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
            {"positions", name_of(config.positions)},
            {"max_length", config.max_length},
            {"shared_vocabulary", config.shared_vocabulary}}}};
}

Model model_from_json(const nlohmann::json& json, const std::string& path) {
  try {
    Model model;
    model.name = json.at("name").get<std::string>();
    model.words = json.at("words").get<bool>();
    model.source = Vocabulary(json.at("source_symbols").get<std::vector<std::string>>());
    model.target = Vocabulary(json.at("target_symbols").get<std::vector<std::string>>());
    model.config = config_from(json.at("config"));
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

nlohmann::json read_json(const std::string& path) {
  const std::string text = read_file(path);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception&) {
    throw FileError(path + ": not valid JSON, or cut off");
  }
}

std::string json_reason(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const auto end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
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

// Names come from command lines and folders, which need not be UTF-8.
std::string json_text(const nlohmann::json& json) {
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void refuse_strangers(const TensorFile& file, const Parameters<float>& parameters) {
  for (const auto& [name, tensor] : file.tensors)
    if (std::none_of(parameters.begin(), parameters.end(), [&name = name](const auto* p) { return p->name == name; }))
      throw FileError(file.path + ": tensor " + name + " is none of the model's");
}

}  // namespace detail

void Model::make_network(std::uint64_t seed) {
  network = std::make_unique<Seq2Seq<float>>(config, source.size(), target.size(), seed);
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

std::vector<Hypothesis> answer(const Model& model, const std::vector<std::vector<std::int64_t>>& sources,
                               const DecodingOptions& options, Index batch) {
  if (batch < 1) throw ArgumentError("answer: batch must be at least 1, got " + std::to_string(batch));
  std::vector<std::size_t> order(sources.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sources[a].size() < sources[b].size(); });
  std::vector<Hypothesis> answers(sources.size());
  for (std::size_t at = 0; at < order.size(); at += static_cast<std::size_t>(batch)) {
    const std::size_t stop = std::min(order.size(), at + static_cast<std::size_t>(batch));
    std::vector<std::vector<std::int64_t>> part;
    for (std::size_t i = at; i < stop; ++i) part.push_back(sources[order[i]]);
    auto found = decode(*model.network, part, options);
    for (std::size_t i = at; i < stop; ++i) answers[order[i]] = std::move(found[i - at]);
  }
  return answers;
}

ErrorCounts evaluate_answers(const Model& model, const std::vector<Question>& questions,
                             const DecodingOptions& options) {
  std::vector<std::vector<std::int64_t>> sources;
  for (const Question& question : questions) {
    sources.emplace_back();
    for (const std::string& symbol : question.source) sources.back().push_back(model.source.id(symbol));
  }
  const auto answers = answer(model, sources, options);
  ErrorCounts counts;
  for (std::size_t i = 0; i < questions.size(); ++i)
    count_errors(model.target_symbols(answers[i].symbols), questions[i].references, counts);
  return counts;
}

namespace {

// [1, ...] without the batch axis.
template <class T>
Tensor<T> first_of_batch(Tensor<T>&& x) {
  if (x.rank() > 1) x.reshape(Shape(x.shape().begin() + 1, x.shape().end()));
  return std::move(x);
}

// What patterns are named from, and the weights if wanted.
Observe asked_of(const PatternSetting& setting, bool weights) {
  constexpr Index window = PatternOptions{}.window;
  return {.entropy = true,
          .distance = true,
          .top_k = 1,
          .key_mass = QueryRange{},
          .segment_sum = SegmentBounds{setting.q_bounds, setting.kv_bounds},
          .diagonals = OffsetRange{-window, window},
          .weights = weights};
}

// Rows of `keys` as shares of their sum and what else takes part.
void share_rows(Tensor<float>& rows, Index keys, const Tensor<float>* others = nullptr) {
  for (Index row = 0; row < rows.count() / std::max<Index>(1, keys); ++row) {
    float* values = rows.data() + row * keys;
    const double sum = std::accumulate(values, values + keys, others ? static_cast<double>((*others)[row]) : 0.0);
    for (Index key = 0; key < keys && sum > 0; ++key) values[key] = static_cast<float>(values[key] / sum);
  }
}

// A layer's contribution norms in the place of its weights.
AttentionMap norm_map(const AttentionPlace& place, const HeadWeights<float>& seen) {
  const bool self = place.kind != AttentionKind::cross;
  Contributions<float> norms = contribution_norms(seen, self);
  const Index keys = norms.joint.size(2);
  share_rows(norms.heads, keys);
  share_rows(norms.joint, keys, self ? nullptr : &norms.residual);
  AttentionMap map{.kind = place.kind, .layer = place.layer};
  map.weights = first_of_batch(std::move(norms.heads));
  map.joint = first_of_batch(std::move(norms.joint));
  return map;
}

AttentionMap map_of(const AttentionPlace& place, HeadWeights<float>&& seen, const PatternSetting& setting) {
  AttentionMap map{.kind = place.kind, .layer = place.layer};
  seen.top_weights.reshape(seen.entropy.shape());
  const HeadObservations observed{
      first_of_batch(std::move(seen.diagonal_mass)), first_of_batch(std::move(seen.key_mass)),
      first_of_batch(std::move(seen.distance)),      first_of_batch(Tensor<float>(seen.entropy)),
      first_of_batch(std::move(seen.top_weights)),   first_of_batch(std::move(seen.segment_sum))};
  map.patterns = name_patterns(observed, setting);
  map.entropy = first_of_batch(std::move(seen.entropy));
  map.weights = first_of_batch(std::move(seen.weights));
  return map;
}

void add_maps(Trace& trace, AttentionKind kind, std::vector<HeadWeights<float>>& seen, const PatternSetting& setting) {
  for (std::size_t layer = 0; layer < seen.size(); ++layer)
    trace.maps.push_back(trace.quantity == MapQuantity::norms
                             ? norm_map({kind, static_cast<Index>(layer)}, seen[layer])
                             : map_of({kind, static_cast<Index>(layer)}, std::move(seen[layer]), setting));
}

Tensor<std::uint8_t> lower_triangle(Index length) {
  Tensor<std::uint8_t> visible({length, length});
  causal().fill({0, 0, 0, length, 0, length, 0}, visible.data(), length);
  return visible;
}

}  // namespace

Trace record_trace(const Model& model, const std::string& text, const std::vector<std::int64_t>& output,
                   const TraceOptions& options) {
  if (options.quantity != MapQuantity::weights && !options.weights)
    throw ArgumentError(std::string("record_trace: ") + quantity_title(options.quantity) + " need the weights");
  if (options.quantity == MapQuantity::rollout) return rollout_trace(record_trace(model, text, output));
  Trace trace;
  trace.model = model.name;
  trace.quantity = options.quantity;
  trace.source = source_symbols(text, model.words);
  if (trace.source.empty()) throw ArgumentError("record_trace: the text is empty");
  std::vector<std::int64_t> input{Vocabulary::begin}, produced = output;
  input.insert(input.end(), output.begin(), output.end());
  produced.push_back(Vocabulary::end);
  trace.target = model.target_symbols(input);
  trace.produced = model.target_symbols(produced);

  const PatternSetting encoder = pattern_setting(trace, AttentionKind::encoder),
                       cross = pattern_setting(trace, AttentionKind::cross);
  PatternSetting decoder = pattern_setting(trace, AttentionKind::decoder);
  decoder.visible = [&decoder](Index query, std::uint8_t* visible) {
    for (Index key = 0; key < decoder.kv_len; ++key) visible[key] = key <= query;
  };
  SeenAttention<float> seen{.asked = {asked_of(encoder, options.weights), asked_of(decoder, options.weights),
                                      asked_of(cross, options.weights)}};
  Tape<float> tape;
  const auto source = padded_ids({model.source_ids(text)});
  const auto memory = model.network->encode(tape, source, {&seen});
  model.network->decode(tape, memory, source, padded_ids({input}), {&seen});
  add_maps(trace, AttentionKind::encoder, seen.encoder, encoder);
  add_maps(trace, AttentionKind::decoder, seen.decoder, decoder);
  for (AttentionMap& map : trace.maps)
    if (map.kind == AttentionKind::decoder && options.weights) map.visible = lower_triangle(decoder.q_len);
  add_maps(trace, AttentionKind::cross, seen.cross, cross);
  return trace;
}

}  // namespace regard
