// regard attend: the operator on files.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "checks.h"
#include "commands.h"
#include "notes.h"
#include "regard/attend.h"
#include "regard/plan.h"
#include "regard/safetensors.h"

namespace regard::cli {
namespace {

struct Arguments {
  std::string in, out;
  bool causal = false;
  std::string align = "bottom-right";
  std::string window;  // "L,R", empty: open on both sides
  std::optional<double> scale;
  std::optional<double> softcap;
  std::string dtype;  // empty: that of q
  bool lse = false, grad = false, explain = false;
  // What to look at; ranges and sizes as they were written.
  bool row_max = false, entropy = false, distance = false, key_mass = false, diagonals = false, weights = false;
  Index top_k = 0;
  std::string queries, pool;
};

const std::vector<std::string> known_names{"q",    "k",    "v",          "k_scales", "v_scales", "bias",
                                           "mask", "sink", "kv_lengths", "dout",     "dlse"};

// q, k, v or dout as the kernels read it: in its storage type.
struct Operand {
  AnyTensor numbers;
  Tensor<float> scales;  // of int8 numbers
  const Shape& shape() const { return numbers.shape; }
  InputView view(const std::string& name) const {
    if (numbers.dtype != DType::i8) return input_view(numbers, name);
    const auto& s = numbers.shape;
    return {{reinterpret_cast<const std::int8_t*>(numbers.bytes.data()), {s[0], s[1], s[2], s[3]}}, scales.view<3>()};
  }
};

template <class T>
using Numbers = std::conditional_t<std::is_same_v<T, double>, Tensor<double>, Operand>;

// What the file holds, in the type to compute in; what is absent stays empty,
// with `has` telling it from a tensor of size 0.
template <class T>
struct Inputs {
  Numbers<T> q, k, v, dout;
  Tensor<T> bias, sink, dlse;
  Tensor<std::uint8_t> mask;
  Tensor<Index> kv_lengths;
  bool has_bias = false, has_mask = false, has_sink = false, has_kv_lengths = false, has_dlse = false;
};

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void check_names(const TensorFile& file) {
  for (const auto& [name, tensor] : file.tensors)
    if (std::find(known_names.begin(), known_names.end(), name) == known_names.end())
      throw ArgumentError(file.path + " holds a tensor '" + name + "' that attend does not know; it reads " +
                          joined(known_names));
}

void check_rank(const TensorFile& file, const std::string& name, std::size_t rank, const std::string& axes) {
  const AnyTensor& tensor = file.at(name);
  if (tensor.shape.size() != rank)
    throw ArgumentError(file.path + ": " + name + " has shape " + shape_text(tensor.shape) + " but needs " +
                        std::to_string(rank) + (rank == 1 ? " dimension " : " dimensions ") + axes);
}

// The type that --dtype names, if it was given.
std::optional<DType> wanted_type(const Arguments& arguments) {
  if (arguments.dtype.empty()) return {};
  return arguments.dtype == "f64"    ? DType::f64
         : arguments.dtype == "f32"  ? DType::f32
         : arguments.dtype == "bf16" ? DType::bf16
                                     : DType::f16;
}

// `narrow`: a type was asked for by name, so float64 numbers may be rounded.
Tensor<float> float_numbers(const AnyTensor& tensor, const std::string& what, bool narrow) {
  if (!narrow || tensor.dtype != DType::f64) return to_float(tensor, what);
  const auto wide = to_double(tensor, what);
  auto rounded = Tensor<float>::uninitialised(wide.shape());
  for (Index i = 0; i < wide.count(); ++i) rounded[i] = static_cast<float>(wide[i]);
  return rounded;
}

template <class T>
Tensor<T> numbers(const TensorFile& file, const std::string& name, const Arguments& arguments) {
  const std::string what = file.path + ": " + name;
  if constexpr (std::is_same_v<T, double>)
    return to_double(file.at(name), what);
  else
    return float_numbers(file.at(name), what, wanted_type(arguments).has_value());
}

// int8 needs its scales; every other type stays as it is, or becomes what
// --dtype names.
Operand read_operand(const TensorFile& file, const std::string& name, const Arguments& arguments) {
  const AnyTensor& tensor = file.at(name);
  const std::string what = file.path + ": " + name;
  if (tensor.dtype == DType::i8 && (name == "k" || name == "v")) {
    if (!file.has(name + "_scales"))
      throw ArgumentError(what + " is I8 and needs " + name + "_scales [batch,kv_heads,kv_len] beside it");
    check_rank(file, name + "_scales", 3, "[batch,kv_heads,kv_len]");
    return {tensor, to_float(file.at(name + "_scales"), what + "_scales")};
  }
  if (file.has(name + "_scales"))
    throw ArgumentError(file.path + ": " + name + "_scales belong to I8, but " + name + " is " +
                        dtype_name(tensor.dtype));
  const auto wanted = wanted_type(arguments);
  if (wanted && *wanted != tensor.dtype) return {any_tensor(float_numbers(tensor, what, true), *wanted), {}};
  input_view(tensor, what);  // refuses other types
  return {tensor, {}};
}

void read_numbers(const TensorFile& file, const std::string& name, const Arguments& arguments, Operand& to) {
  to = read_operand(file, name, arguments);
}
void read_numbers(const TensorFile& file, const std::string& name, const Arguments& arguments, Tensor<double>& to) {
  to = file.at(name).dtype == DType::i8
           ? to_double(any_tensor(to_float(read_operand(file, name, arguments).view(name))), file.path + ": " + name)
           : numbers<double>(file, name, arguments);
}

template <class T>
Inputs<T> read_inputs(const TensorFile& file, const Arguments& arguments) {
  const auto read = [&](const char* name, std::size_t rank, const char* axes) {
    check_rank(file, name, rank, axes);
    return numbers<T>(file, name, arguments);
  };
  const auto read_into = [&](Numbers<T>& to, const char* name, const char* axes) {
    check_rank(file, name, 4, axes);
    read_numbers(file, name, arguments, to);
  };
  Inputs<T> in;
  read_into(in.q, "q", "[batch,q_heads,q_len,head_dim]");
  read_into(in.k, "k", "[batch,kv_heads,kv_len,head_dim]");
  read_into(in.v, "v", "[batch,kv_heads,kv_len,value_dim]");
  if ((in.has_bias = file.has("bias"))) in.bias = read("bias", 4, "that broadcast to [batch,q_heads,q_len,kv_len]");
  if ((in.has_sink = file.has("sink"))) in.sink = read("sink", 1, "[q_heads]");
  if ((in.has_mask = file.has("mask"))) in.mask = to_boolean(file.at("mask"), file.path + ": mask");
  if ((in.has_kv_lengths = file.has("kv_lengths"))) {
    check_rank(file, "kv_lengths", 1, "[batch]");
    in.kv_lengths = to_int64(file.at("kv_lengths"), file.path + ": kv_lengths");
  }
  if (!arguments.grad) return in;
  read_into(in.dout, "dout", "[batch,q_heads,q_len,value_dim]");
  if ((in.has_dlse = file.has("dlse"))) in.dlse = read("dlse", 3, "[batch,q_heads,q_len]");
  return in;
}

// "255,0" as two numbers; nothing where it is not two whole numbers from `least`
// up with `between` in the middle.
std::optional<std::pair<Index, Index>> two_numbers(const std::string& text, char between, Index least) {
  std::pair<Index, Index> numbers;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, numbers.first);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != between) return {};
  const auto second = std::from_chars(first.ptr + 1, end, numbers.second);
  if (second.ec != std::errc{} || second.ptr != end || std::min(numbers.first, numbers.second) < least) return {};
  return numbers;
}

Mask window_from(const std::string& text) {
  const auto sides = two_numbers(text, ',', -1);
  if (!sides)
    throw UsageError("--window needs L,R with whole numbers from -1 (open) up, such as 255,0; got '" + text + "'");
  return window(sides->first, sides->second);
}

Observe observe_from(const Arguments& arguments) {
  Observe observe{.lse = arguments.lse || arguments.grad,
                  .entropy = arguments.entropy,
                  .row_max = arguments.row_max,
                  .distance = arguments.distance,
                  .top_k = arguments.top_k,
                  .weights = arguments.weights};
  if (arguments.key_mass) observe.key_mass = QueryRange{};
  if (!arguments.queries.empty()) {
    const auto range = two_numbers(arguments.queries, ',', 0);
    if (!range)
      throw UsageError("--queries needs BEGIN,END with whole numbers, such as 0,16; got '" + arguments.queries + "'");
    observe.key_mass = QueryRange{range->first, range->second};
  }
  if (!arguments.pool.empty()) {
    const auto size = two_numbers(arguments.pool, 'x', 1);
    if (!size)
      throw UsageError("--pool needs RxC with whole numbers from 1 up, such as 64x64; got '" + arguments.pool + "'");
    observe.pooled_sum = observe.pooled_max = MapSize{size->first, size->second};
  }
  if (arguments.diagonals) observe.diagonals = OffsetRange{};
  return observe;
}

Mask boolean_from(const Tensor<std::uint8_t>& allowed, const std::string& path) {
  switch (allowed.rank()) {
    case 2: return boolean(allowed.view<2>());
    case 3: return boolean(allowed.view<3>());
    case 4: return boolean(allowed.view<4>());
    default:
      throw ArgumentError(path + ": mask has shape " + allowed.text() +
                          " but needs 2 dimensions [q_len,kv_len], 3 [batch,q_len,kv_len] or 4 "
                          "[batch,q_heads,q_len,kv_len]");
  }
}

template <class T>
BasicAttendOptions<T> options_from(const Arguments& arguments, const Inputs<T>& in) {
  BasicAttendOptions<T> options;
  if (in.has_mask) options.mask = boolean_from(in.mask, arguments.in);
  if (arguments.causal) options.mask = options.mask & causal();
  if (!arguments.window.empty()) options.mask = options.mask & window_from(arguments.window);
  if (arguments.softcap) options.score = softcap(*arguments.softcap);
  if (in.has_bias) options.bias = in.bias.template view<4>();
  if (arguments.scale) options.scale = static_cast<T>(*arguments.scale);
  if (arguments.align == "top-left") options.q_start = top_left();
  options.kv_lengths = in.kv_lengths.values();
  options.sink = in.sink.values();
  options.observe = observe_from(arguments);
  return options;
}

// An empty span means "none" to the operator, so a tensor of size 0 that was
// given must fit here.
template <class T>
void check_counts(const Arguments& arguments, const Inputs<T>& in) {
  const auto check = [&](bool given, const char* name, Index count, const char* axis, Index wanted) {
    if (given && count != wanted)
      throw ArgumentError(fmt::format("{}: {} has {} entries but {} is {} (q {})", arguments.in, name, count, axis,
                                      wanted, shape_text(in.q.shape())));
  };
  check(in.has_sink, "sink", in.sink.count(), "q_heads", in.q.shape()[1]);
  check(in.has_kv_lengths, "kv_lengths", in.kv_lengths.count(), "batch", in.q.shape()[0]);
}

AnyTensor any_zeros(DType dtype, const Shape& shape) {
  AnyTensor zeros{dtype, shape, {}};
  zeros.bytes.resize(static_cast<std::size_t>(element_count(shape)) * dtype_size(dtype));
  return zeros;
}

// The result, and `out` as the file gets it.
template <class T>
struct Forward {
  BasicAttendResult<T> result;
  AnyTensor out;
};

Forward<float> forward(const Inputs<float>& in, const AttendOptions& options) {
  const Shape &q = in.q.shape(), &v = in.v.shape();
  AnyTensor out = any_zeros(in.q.numbers.dtype, {q[0], q[1], q[2], v[3]});
  auto result = attend_into(output_view(out, "out"), in.q.view("q"), in.k.view("k"), in.v.view("v"), options);
  return {std::move(result), std::move(out)};
}
Forward<double> forward(const Inputs<double>& in, const reference::Options& options) {
  auto result = reference::attend(in.q, in.k, in.v, options);
  AnyTensor out = any_tensor(result.out);
  return {std::move(result), std::move(out)};
}

// Gradients have their inputs' types; int8 has none, which the operator says.
BasicAttendGradients<float> backward(const Inputs<float>& in, const Forward<float>& before,
                                     const AttendOptions& options, TensorFile& written) {
  const auto zeros = [&](const char* name, const Operand& like) -> AnyTensor& {
    const DType dtype = like.numbers.dtype == DType::i8 ? DType::f32 : like.numbers.dtype;
    return written.tensors[name] = any_zeros(dtype, like.shape());
  };
  AnyTensor &dq = zeros("dq", in.q), &dk = zeros("dk", in.k), &dv = zeros("dv", in.v);
  return attend_backward_into({output_view(dq, "dq"), output_view(dk, "dk"), output_view(dv, "dv")},
                              in.dout.view("dout"), in.q.view("q"), in.k.view("k"), in.v.view("v"),
                              {input_view(before.out, "out"), before.result.lse.view<3>()}, options,
                              in.has_dlse ? in.dlse.view<3>() : View<const float, 3>{});
}
reference::Gradients backward(const Inputs<double>& in, const Forward<double>& before,
                              const reference::Options& options, TensorFile& written) {
  auto gradients =
      reference::attend_backward(in.dout, in.q, in.k, in.v, {before.result.out.view<4>(), before.result.lse.view<3>()},
                                 options, in.has_dlse ? in.dlse.view<3>() : View<const double, 3>{});
  written.tensors["dq"] = any_tensor(gradients.dq);
  written.tensors["dk"] = any_tensor(gradients.dk);
  written.tensors["dv"] = any_tensor(gradients.dv);
  return gradients;
}

std::string plan_text(const Inputs<float>& in, const AttendOptions& options) {
  return explain(plan_attend(in.q.view("q"), in.k.view("k"), in.v.view("v"), options));
}
std::string plan_text(const Inputs<double>&, const reference::Options&) {
  return "kernel      the reference: plain loops in double precision, no tiles\n";
}

template <class T>
void write_observations(const Arguments& arguments, const BasicObservations<T>& seen, TensorFile& written) {
  const auto write = [&](bool asked, const char* name, const auto& tensor) {
    if (asked) written.tensors[name] = any_tensor(tensor);
  };
  write(arguments.lse, "lse", seen.lse);
  write(arguments.row_max, "row_max", seen.row_max);
  write(arguments.entropy, "entropy", seen.entropy);
  write(arguments.distance, "distance", seen.distance);
  write(arguments.top_k > 0, "top_keys", seen.top_keys);
  write(arguments.top_k > 0, "top_weights", seen.top_weights);
  write(arguments.key_mass, "key_mass", seen.key_mass);
  write(!arguments.pool.empty(), "pooled_sum", seen.pooled_sum);
  write(!arguments.pool.empty(), "pooled_max", seen.pooled_max);
  write(arguments.weights, "weights", seen.weights);
  if (!arguments.diagonals) return;
  Tensor<Index> offsets({seen.diagonal_mass.size(2)});
  for (Index n = 0; n < offsets.count(); ++n) offsets[n] = seen.first_offset + n;
  write(true, "diagonal_mass", seen.diagonal_mass);
  write(true, "diagonal_offsets", offsets);
}

// With --explain the plan comes first on stdout; without an OUT it is all.
template <class T>
TensorFile compute(const TensorFile& file, const Arguments& arguments) {
  const Inputs<T> in = read_inputs<T>(file, arguments);
  check_counts(arguments, in);
  const auto options = options_from(arguments, in);
  if (arguments.explain) fmt::print("{}", plan_text(in, options));
  TensorFile written;
  if (arguments.out.empty()) return written;
  const auto before = forward(in, options);
  written.tensors["out"] = before.out;
  write_observations<T>(arguments, before.result, written);
  if (!arguments.grad) return written;
  const auto gradients = backward(in, before, options, written);
  if (in.has_bias) written.tensors["dbias"] = any_tensor(gradients.dbias);
  if (in.has_sink) written.tensors["dsink"] = any_tensor(gradients.dsink);
  return written;
}

// q decides in which precision all is computed.
bool computes_in_double(const TensorFile& file, const Arguments& arguments) {
  const DType stored = file.at("q").dtype;
  const DType known[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
  if (std::find(std::begin(known), std::end(known), stored) == std::end(known))
    throw ArgumentError(file.path + ": q has dtype " + dtype_name(stored) + " where F64, F32, BF16 or F16 is needed");
  return wanted_type(arguments).value_or(stored) == DType::f64;
}

// Files that serve both passes hold what the forward pass alone has no use for.
void note_gradients(const TensorFile& file, const Arguments& arguments) {
  if (arguments.grad) return;
  std::vector<std::string> unread;
  for (const char* name : {"dout", "dlse"})
    if (file.has(name)) unread.emplace_back(name);
  note_unread("attend", arguments.in, unread, "--grad");
}

void run(const Arguments& arguments) {
  if (arguments.out.empty() && !arguments.explain)
    throw UsageError("--out is required: name the safetensors file to write with -o OUT.safetensors");
  if (!arguments.out.empty()) refuse_same_file(arguments.in, arguments.out);
  if (!arguments.window.empty()) window_from(arguments.window);
  observe_from(arguments);
  if (arguments.scale && !std::isfinite(*arguments.scale)) throw UsageError("--scale must be a finite number");
  const TensorFile file = read_safetensors(arguments.in);
  check_names(file);
  if (arguments.grad && !file.has("dout"))
    throw UsageError("--grad needs a tensor dout, the gradient of out, and " + arguments.in + " has none");
  if (arguments.grad)
    for (const char* name : {"k", "v"})
      if (file.at(name).dtype == DType::i8)
        throw ArgumentError(file.path + ": " + name + " is I8, which has no gradient");
  note_gradients(file, arguments);
  const TensorFile written =
      computes_in_double(file, arguments) ? compute<double>(file, arguments) : compute<float>(file, arguments);
  if (!arguments.out.empty()) write_safetensors(arguments.out, written);
  for (const auto& [name, tensor] : written.tensors)
    fmt::print("{} {} {}\n", name, shape_text(tensor.shape), dtype_name(tensor.dtype));
}

void add_observers(CLI::App& command, Arguments& arguments) {
  command.add_flag("--lse", arguments.lse, "Write lse, the log-sum-exp of every row, too");
  command.add_flag("--row-max", arguments.row_max, "Write row_max, the largest score that each query sees");
  command.add_flag("--entropy", arguments.entropy, "Write entropy, that of each query's weights, in nats");
  command.add_flag("--distance", arguments.distance, "Write distance, how far each query looks on average");
  command.add_option("--top-k", arguments.top_k, "Write top_keys and top_weights: the K largest of each query")
      ->check(at_least(1))
      ->type_name("K");
  auto* mass = command.add_flag("--key-mass", arguments.key_mass, "Write key_mass, what each key receives");
  command.add_option("--queries", arguments.queries, "Count queries BEGIN to END - 1 in key_mass, no others")
      ->needs(mass)
      ->type_name("BEGIN,END");
  command.add_option("--pool", arguments.pool, "Write pooled_sum and pooled_max: all weights as a map of R x C cells")
      ->type_name("RxC");
  command.add_flag("--diagonals", arguments.diagonals,
                   "Write diagonal_mass, the weight at each offset query - key, and diagonal_offsets");
  command.add_flag("--weights", arguments.weights, "Write weights [batch,q_heads,q_len,kv_len] too");
}

}  // namespace

void add_attend(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("attend", "Run the attention operator on a safetensors file");
  const auto arguments = std::make_shared<Arguments>();
  command
      .add_option(
          "IN", arguments->in,
          "safetensors file with q, k, v (4-D; k and v may be I8 with k_scales, v_scales) and, where wanted, "
          "bias, mask (BOOL, true = may attend), sink, kv_lengths (I64 [batch], the keys that exist), dout, dlse")
      ->required();
  command.add_option("-o,--out", arguments->out, "safetensors file to write; only --explain does without")
      ->check(output_path())
      ->type_name("OUT");
  command.add_flag("--causal", arguments->causal, "A query sees keys up to its own position");
  command
      .add_option(
          "--align", arguments->align,
          "Where queries stand: bottom-right (default): the last at the last key of the tensor, whatever kv_lengths "
          "says; or top-left: the first at the first key")
      ->check(CLI::IsMember({"bottom-right", "top-left"}))
      ->type_name("CORNER");
  command.add_option("--window", arguments->window, "See L keys before and R keys after the own position; -1 = open")
      ->type_name("L,R");
  command.add_option("--scale", arguments->scale, "Factor on q.k (default 1/sqrt(head_dim))")->type_name("X");
  command.add_option("--softcap", arguments->softcap, "Scores become C * tanh(score / C)")
      ->check(above(0))
      ->type_name("C");
  command
      .add_option("--dtype", arguments->dtype,
                  "f64 (the reference), f32, bf16 or f16: what q, k, v and dout are rounded to; default: as stored")
      ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}))
      ->type_name("TYPE");
  add_observers(command, *arguments);
  command.add_flag("--grad", arguments->grad, "Write dq, dk, dv, dbias, dsink for the given dout (and dlse)");
  command.add_flag("--explain", arguments->explain, "Print what the kernels will do: tiles, coverage, threads, memory");
  add_threads_option(command);
  set_example(command, "  regard attend in.safetensors -o out.safetensors --causal --window 255,0 --lse");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace regard::cli
