// regard view: what attends to what, in the terminal, as a figure or as JSON.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checks.h"
#include "commands.h"
#include "notes.h"
#include "picture_data.h"
#include "regard/figure.h"
#include "regard/file.h"
#include "regard/model.h"
#include "regard/overlay.h"
#include "regard/pattern_view.h"
#include "regard/rollout.h"
#include "regard/terminal.h"
#include "regard/text_width.h"
#include "regard/view_json.h"
#include "screen.h"

namespace regard::cli {
namespace {

struct Arguments {
  std::vector<std::string> texts, kinds, methods{"weights"};
  std::string model, load, save, head, format = "term", out, scale = "auto";
  std::optional<Index> layer, query;
  Index beam = 1;
  int width = 0;
  double inches = column_inches;
  bool transparent = false, lines = false, contents = false, patterns = false;
};

HeatMapOptions map_options(const Arguments& a) {
  if (a.scale == "linear") return {.scale = Scale::linear};
  if (a.scale == "lift") return {.scale = Scale::lift};
  if (a.scale == "log") return {.scale = Scale::logarithmic};
  return {};
}

// A head's number, or nothing for "mean" and "all".
std::optional<Index> head_number(const std::string& head) {
  if (head.empty() || head == "mean" || head == "all") return std::nullopt;
  std::size_t used = 0;
  Index number = -1;
  try {
    number = std::stol(head, &used);
  } catch (const std::exception&) {
  }
  if (number < 0 || used != head.size()) throw UsageError("--head takes a number, mean or all, not '" + head + "'");
  return number;
}

// One trace a method, in the order in which they were named; `record` makes one.
template <class Record>
std::vector<Trace> traces_by_method(const Arguments& a, Record record) {
  // Patterns are named in the pass: no matrix is kept unless the trace is.
  const bool weights = !a.patterns || !a.save.empty();
  std::vector<Trace> all;
  for (const std::string& method : a.methods)
    all.push_back(record(TraceOptions{.weights = weights, .quantity = quantity_from_name(method)}));
  return all;
}

std::vector<Trace> traces_of_picture(const Arguments& a, const Model& model, const std::string& path) {
  const Tensor<float> picture = picture_for(model, path), patches = model.patches(picture);
  const Hypothesis found = answer_pictures(model, {&patches}, {.beam = a.beam}).front();
  note_truncated("view", path, found);
  return traces_by_method(
      a, [&](const TraceOptions& options) { return record_picture_trace(model, picture, found.symbols, options); });
}

std::vector<Trace> traces_of(const Arguments& a, const Model& model, const std::string& text) {
  if (model.reads_pictures()) return traces_of_picture(a, model, text);
  std::vector<std::string> strangers;
  const auto ids = model.source_ids(text, &strangers);
  if (ids.empty()) throw UsageError("the text is empty");
  const Hypothesis found = answer(model, {ids}, {.beam = a.beam}).front();
  note_unknown("view", text, strangers);
  note_truncated("view", text, found);
  return traces_by_method(
      a, [&](const TraceOptions& options) { return record_trace(model, text, found.symbols, options); });
}

std::vector<Trace> loaded_traces(const Arguments& a) {
  const Trace loaded = load_trace(a.load);
  std::vector<Trace> all;
  for (const std::string& method : a.methods) {
    const MapQuantity quantity = quantity_from_name(method);
    if (quantity == MapQuantity::norms)
      throw UsageError("--method norms needs the values a model computes: give a TEXT instead of --trace");
    all.push_back(quantity == MapQuantity::rollout ? rollout_trace(loaded) : loaded);
  }
  return all;
}

std::vector<Trace> traces(const Arguments& a) {
  if (!a.load.empty()) {
    if (!a.texts.empty()) throw UsageError("give TEXT or --trace, not both");
    return loaded_traces(a);
  }
  if (a.texts.empty()) throw UsageError("give a TEXT to run the model on, or --trace PATH");
  const Model model = model_for(a.model, a.texts);
  std::vector<Trace> all;
  for (const std::string& text : a.texts)
    for (Trace& trace : traces_of(a, model, text)) all.push_back(std::move(trace));
  return all;
}

// The layer asked for, else the last.
Index layer_of(const Arguments& a, const Trace& trace, AttentionKind kind) {
  return a.layer ? *a.layer : trace.layers(kind) - 1;
}

std::vector<HeatMap> maps_of(const Arguments& a, const Trace& trace, AttentionKind kind) {
  const MapChoice choice{.kind = kind, .layer = layer_of(a, trace, kind)};
  const AttentionMap* found = trace.find(kind, choice.layer);
  if (a.head != "all" || !found) {
    const auto number = head_number(a.head);
    return {heat_map(trace, {kind, choice.layer, number ? *number : mean_of_heads}, map_options(a))};
  }
  std::vector<HeatMap> maps;
  for (Index head = 0; head < found->weights.size(0); ++head)
    maps.push_back(heat_map(trace, {kind, choice.layer, head}, map_options(a)));
  return maps;
}

std::vector<AttentionKind> kinds_of(const Arguments& a, const Trace& trace) {
  std::vector<AttentionKind> kinds;
  for (const std::string& name : a.kinds) kinds.push_back(kind_from_name(name));
  if (!kinds.empty()) return kinds;
  for (AttentionKind kind : {AttentionKind::encoder, AttentionKind::decoder, AttentionKind::cross})
    if (trace.layers(kind) > 0) kinds.push_back(kind);
  return kinds;
}

// What was read and what came of it, where the trace says so.
std::string answer_text(const Trace& trace, int width) {
  if (trace.produced.empty()) return "";
  const std::string source = trace.picture ? fmt::format("picture of {} x {} pixels", trace.picture->pixels.size(1),
                                                         trace.picture->pixels.size(0))
                                           : fmt::format("{}", fmt::join(trace.source, " "));
  return terminal_wrapped(source + "  ->  " + trace.answer, width) + "\n";
}

// Of the layer asked for, if one was.
PatternGrid patterns_of(const Arguments& a, const Trace& trace, AttentionKind kind) {
  PatternGrid grid = pattern_grid(trace, kind);
  if (!a.layer) return grid;
  std::erase_if(grid.layers, [&](const LayerPatterns& layer) { return layer.layer != *a.layer; });
  if (grid.layers.empty())
    throw UsageError(
        fmt::format("--layer {}: {} has layers 0 to {}", *a.layer, kind_title(kind), trace.layers(kind) - 1));
  return grid;
}

std::string patterns_text(const Arguments& a, const Trace& trace) {
  const TerminalOptions options{.width = terminal_width(a.width), .depth = terminal_depth()};
  std::string text = answer_text(trace, options.width);
  for (AttentionKind kind : kinds_of(a, trace)) {
    const PatternGrid grid = patterns_of(a, trace, kind);
    text += terminal_patterns(grid, options) + "\n";
    if (a.layer) text += terminal_pattern_scores(grid, options) + "\n";
  }
  return text;
}

// A picture's own view: cross-attention below the pixels it reads.
std::string picture_text(const Arguments& a, const Trace& trace) {
  const TerminalOptions options{.width = terminal_width(a.width), .depth = terminal_depth()};
  const std::string what =
      trace.quantity == MapQuantity::weights ? "" : std::string(": ") + quantity_title(trace.quantity);
  return answer_text(trace, options.width) +
         terminal_wrapped("Where each symbol was read, by cross-attention" + what, options.width) +
         terminal_overlay(maps_of(a, trace, AttentionKind::cross), *trace.picture, options);
}

// Only cross-attention says where on the picture something was read.
bool shows_overlay(const Arguments& a, const Trace& trace) {
  return trace.picture && !a.lines && !a.patterns && (a.kinds.empty() || a.kinds == std::vector<std::string>{"cross"});
}

std::string terminal_text(Arguments a, const Trace& trace) {
  if (a.patterns) return patterns_text(a, trace);
  if (shows_overlay(a, trace) && !a.query) return picture_text(a, trace);
  const int width = terminal_width(a.width);
  const ColourDepth depth = terminal_depth();
  std::string text = answer_text(trace, width);
  const std::string what =
      trace.quantity == MapQuantity::weights ? "" : std::string(": ") + quantity_title(trace.quantity);
  if (a.methods.size() > 1) text += terminal_wrapped(std::string("Method: ") + quantity_title(trace.quantity), width);
  ScreenOptions screen{.width = width,
                       .depth = depth,
                       .layer = a.layer,
                       .head = head_number(a.head),
                       .query = a.query,
                       .map = map_options(a)};
  if (a.kinds.size() == 1) screen.kind = kind_from_name(a.kinds.front());
  if (a.kinds.size() <= 1) text += terminal_first_screen(trace, screen) + "\n";
  if (a.head.empty()) a.head = "all";
  for (AttentionKind kind : kinds_of(a, trace)) {
    text += terminal_wrapped(fmt::format("{}, layer {}{}", kind_title(kind), layer_of(a, trace, kind), what), width);
    text += terminal_heat_maps(maps_of(a, trace, kind), {.width = width, .depth = depth}) + "\n";
  }
  return text;
}

// A figure shows one kind: the one asked for, else cross-attention if there is any.
AttentionKind figure_kind(const Arguments& a, const Trace& trace) {
  if (a.kinds.size() > 1) throw UsageError("a figure shows one kind of attention: give one --kind");
  return a.kinds.empty() ? kinds_of(a, trace).back() : kind_from_name(a.kinds.front());
}

// One word of a command as a shell reads it back.
std::string quoted(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_./:=@%+,-").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string text = "'";
  for (char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

// What the picture was made from. A text that looks like a flag goes behind "--".
std::string source_words(const Arguments& a) {
  if (!a.load.empty()) return " --trace " + quoted(a.load);
  std::string words;
  if (!a.model.empty()) words += " --model " + quoted(a.model);
  if (a.beam != 1) words += fmt::format(" --beam {}", a.beam);
  return words;
}

// The command that draws the picture again, for its caption.
std::string command_line(const Arguments& a, AttentionKind kind, const Trace& trace) {
  const std::string text = a.texts.empty() ? "" : a.texts.front();
  const bool like_a_flag = text.starts_with('-');
  std::string command = "regard view";
  if (!text.empty() && !like_a_flag) command += " " + quoted(text);
  command += source_words(a) + fmt::format(" --kind {}", kind_name(kind));
  if (a.patterns)
    command += " --patterns" + (a.layer ? fmt::format(" --layer {}", *a.layer) : "");
  else if (a.head == "all")
    command += " --head all";
  else
    command += fmt::format(" --layer {} --head {}", layer_of(a, trace, kind), a.head.empty() ? "mean" : a.head);
  if (trace.quantity != MapQuantity::weights) command += std::string(" --method ") + quantity_name(trace.quantity);
  if (a.scale != "auto") command += " --scale " + a.scale;
  if (a.lines) command += " --lines";
  return like_a_flag ? command + " -- " + quoted(text) : command;
}

std::string figure(const Arguments& a, const Trace& trace, AttentionKind kind) {
  const FigureFormat format = figure_format("." + a.format);
  const FigureOptions options{.width_inches = a.inches, .transparent = a.transparent};
  const std::string command = "; " + command_line(a, kind, trace);
  if (a.patterns) {
    const PatternGrid grid = patterns_of(a, trace, kind);
    return figure_patterns(grid, pattern_caption(grid) + command, format, options);
  }
  if (a.head == "all") {
    HeatGrid grid = heat_grid(trace, kind, map_options(a));
    grid.caption += command;
    return figure_grid(grid, format, options);
  }
  HeatMap map = maps_of(a, trace, kind).front();
  map.caption += command;
  if (shows_overlay(a, trace)) return figure_overlay(map, *trace.picture, format, options);
  return a.lines ? figure_lines(map, format, options) : figure_matrix(map, format, options);
}

bool is_figure(const Arguments& a) { return a.format != "term" && a.format != "json"; }

// The file that a figure or JSON is written to; "": the screen.
std::string output_of(const Arguments& a, const Trace& trace) {
  if (!a.out.empty() || !is_figure(a)) return a.out;
  return fmt::format("{}-{}.{}", a.patterns ? "patterns" : "attention", kind_name(figure_kind(a, trace)), a.format);
}

void write_figure(const Arguments& a, const Trace& trace) {
  const AttentionKind kind = figure_kind(a, trace);
  if (a.head == "all" && a.layer) throw UsageError("--head all draws every layer: leave --layer out, or name one head");
  if (a.head == "all" && a.lines) throw UsageError("--lines draws one head: name it, or say --head mean");
  const std::string bytes = figure(a, trace, kind), path = output_of(a, trace);
  write_file(path, bytes);
  fmt::print("wrote {} ({}{}{}, {} bytes)\n", printable(path), a.patterns ? "patterns of " : "", kind_title(kind),
             a.head == "all" ? ", all layers and heads" : "", bytes.size());
}

void print_contents(const Arguments& a, const Trace& trace) {
  fmt::print("{}\n", a.format == "json" ? trace_contents_json(trace) : terminal_contents(trace));
}

std::string json_text(const Arguments& a, const Trace& trace) {
  std::vector<HeatMap> maps;
  std::vector<PatternGrid> grids;
  for (AttentionKind kind : kinds_of(a, trace)) {
    if (a.patterns)
      grids.push_back(patterns_of(a, trace, kind));
    else
      for (HeatMap& map : maps_of(a, trace, kind)) maps.push_back(std::move(map));
  }
  return a.patterns ? patterns_json(grids) : heat_maps_json(maps);
}

void write_json(const Arguments& a, const Trace& trace) {
  const std::string text = json_text(a, trace);
  if (a.out.empty())
    fmt::print("{}\n", text);
  else
    write_file(a.out, text + "\n");
}

// Flags that this call has no use for are mistakes: nobody gives one to see it ignored.
void refuse_useless_flags(const CLI::App& command, const Arguments& a) {
  const auto refuse = [&](bool useless, std::initializer_list<const char*> flags, const std::string& why) {
    for (const char* flag : flags)
      if (useless && command.count(flag) > 0) throw UsageError(std::string(flag) + " " + why);
  };
  refuse(!a.load.empty(), {"--model", "--beam"}, "goes with a TEXT: --trace runs no model");
  refuse(a.contents, {"--kind", "--layer", "--head", "--query", "--scale", "--width", "--method"},
         "does not go with --contents, which lists all there is");
  refuse(a.patterns, {"--head", "--query", "--scale", "--lines", "--contents", "--method"},
         "does not go with --patterns, which names every head's pattern");
  const bool rollout = std::find(a.methods.begin(), a.methods.end(), "rollout") != a.methods.end();
  refuse(rollout && head_number(a.head).has_value(), {"--head"},
         "does not go with --method rollout, which has no heads");
  refuse(a.contents && is_figure(a), {"--contents"}, "goes with --format term or json");
  refuse(a.contents, {"-o"}, "does not go with --contents, which is printed");
  if (a.format == "term" && !a.out.empty())
    throw UsageError("-o: " + a.out +
                     " says no format: end it in .svg, .png, .pdf or .json, or give --format svg, png, pdf or json");
  refuse(!is_figure(a), {"--lines", "--inches", "--transparent"}, "goes with --format svg, png or pdf");
  refuse(a.lines, {"--scale"}, "does not go with --lines, which draws weights, not colours");
  refuse(a.format != "term", {"--query", "--width"}, "goes with --format term");
  refuse(a.kinds.size() > 1, {"--query"}, "is a row of one kind of attention: give one --kind");
}

constexpr std::initializer_list<const char*> trace_endings{".json", ".safetensors"};

// The files that the traces come from: of the model or the saved trace, and the pictures.
std::vector<std::string> files_read(const Arguments& a, const Trace& trace) {
  std::vector<std::string> files;
  if (a.load.empty() && trace.picture) files = a.texts;
  for (const char* ending : trace_endings)
    files.push_back(a.load.empty() ? folder_for(a.model, a.texts) + "/model" + ending : a.load + ending);
  return files;
}

// Nothing that is written takes the place of what was read, or of what else is written.
void refuse_files_in_use(const Arguments& a, const Trace& trace) {
  const std::string out = output_of(a, trace);
  std::vector<std::string> saved;
  if (!a.save.empty())
    for (const char* ending : trace_endings) saved.push_back(a.save + ending);
  for (const std::string& file : files_read(a, trace)) {
    refuse_same_file(file, out, "-o");
    for (const std::string& one : saved) refuse_same_file(file, one, "--save-trace");
  }
  for (const std::string& one : saved)
    if (!out.empty() && std::filesystem::weakly_canonical(one) == std::filesystem::weakly_canonical(out))
      throw UsageError("-o: --save-trace writes " + out + " itself: name another");
}

// Nothing is printed before all of it could be made.
void print_terminal(const Arguments& a, const std::vector<Trace>& all) {
  std::string text;
  for (const Trace& trace : all) text += terminal_text(a, trace);
  fmt::print("{}", text);
}

void show(const Arguments& a, const std::vector<Trace>& all) {
  if (a.format == "term" && !a.contents) return print_terminal(a, all);
  for (const Trace& trace : all) {
    if (a.contents)
      print_contents(a, trace);
    else if (a.format == "json")
      write_json(a, trace);
    else
      write_figure(a, trace);
  }
}

std::string ending_of(const std::string& path) {
  std::string ending = std::filesystem::path(path).extension().string();
  for (char& letter : ending) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return ending.empty() ? "" : ending.substr(1);
}

// A trace is two files: who names one of them means both.
void drop_trace_ending(std::string& path) {
  for (const std::string ending : trace_endings)
    if (path.size() > ending.size() && path.ends_with(ending) && !std::filesystem::exists(path + ending))
      return path.resize(path.size() - ending.size());
}

// The file's ending is the format, unless --format says it: they must not disagree.
void settle_format(const CLI::App& command, Arguments& a) {
  const std::string ending = ending_of(a.out);
  const bool known = ending == "svg" || ending == "png" || ending == "pdf" || ending == "json";
  if (command.count("--format") == 0) {
    if (known) a.format = ending;
    return;
  }
  if (known && a.format != "term" && ending != a.format)
    throw UsageError("--format " + a.format + " does not fit -o " + a.out);
}

void view(const CLI::App& command, Arguments& a) {
  settle_format(command, a);
  drop_repeats(a.kinds);
  drop_repeats(a.methods);
  refuse_useless_flags(command, a);
  drop_trace_ending(a.load);
  drop_trace_ending(a.save);
  head_number(a.head);
  const auto all = traces(a);
  if (all.size() > 1 && (a.format != "term" || !a.save.empty()))
    throw UsageError("figures, JSON and --save-trace take one TEXT and one --method at a time");
  if (!a.save.empty() && a.methods.front() != "weights")
    throw UsageError("--save-trace saves weights, from which --method rollout can be read off again");
  for (const Trace& trace : all) refuse_files_in_use(a, trace);
  try {
    show(a, all);
  } catch (const ArgumentError& error) {
    // The traces are whole: what is wrong is the layer, head or row asked for.
    throw UsageError(error.what());
  }
  if (!a.save.empty()) save_trace(all.front(), a.save);
}

void add_looks(CLI::App& command, Arguments& a) {
  command.add_option("--format", a.format, "What to make of it")
      ->check(CLI::IsMember({"term", "svg", "png", "pdf", "json"}))
      ->capture_default_str();
  command
      .add_option("-o,--out", a.out,
                  "File for a figure or JSON; its ending says the format (default: attention-KIND.FORMAT; JSON is "
                  "printed)")
      ->check(output_path())
      ->type_name("FILE");
  command
      .add_option(
          "--method", a.methods,
          "weights; norms: the size of what each key contributes; rollout: weights followed through all layers; "
          "or several with commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"weights", "norms", "rollout"}))
      ->capture_default_str();
  command
      .add_option("--scale", a.scale,
                  "Colours: linear 0 to 1, lift over uniform attention, log; auto: linear up to 64 keys")
      ->check(CLI::IsMember({"auto", "linear", "lift", "log"}))
      ->capture_default_str();
  command.add_option("--width", a.width, "Columns to use (default: the terminal's, 100 in a pipe)")
      ->check(CLI::Range(narrowest_terminal, 10000));
  command
      .add_option("--inches", a.inches,
                  "Width of a figure, more where its labels need it: 3.25 is one column of a paper, 6.75 both")
      ->check(between(1, 100))
      ->capture_default_str();
  command.add_flag("--lines", a.lines, "Figure of lines between queries and keys instead of a matrix");
  command.add_flag("--patterns", a.patterns,
                   "Name every head's pattern, with its score; with --layer all scores of that layer");
  command.add_flag("--contents", a.contents, "Only list which layers and heads there are");
  command.add_flag("--transparent", a.transparent, "Figure without a white ground");
}

}  // namespace

void add_view(CLI::App& program) {
  CLI::App& command =
      *program.add_subcommand("view", "Run a model on a text or a picture and show what attends to what");
  const auto a = std::make_shared<Arguments>();
  command.add_option("TEXT", a->texts,
                     "Texts to run the model on, one argument each; PNG files for a model of pictures");
  command
      .add_option("--model", a->model, "Folder of the model (default: the shipped one, for PNG files that of pictures)")
      ->type_name("DIR");
  command
      .add_option(
          "--kind", a->kinds,
          "encoder, decoder, cross, or several with commas (default: all; of a picture, and in a figure, cross, "
          "or what there is)")
      ->delimiter(',')
      ->check(CLI::IsMember({"encoder", "decoder", "cross"}));
  command.add_option("--layer", a->layer, "Layer, from 0 (default: the last)")->check(at_least(0));
  command.add_option("--head", a->head, "Head from 0, mean, or all")->type_name("N");
  command.add_option("--query", a->query, "Row to explain, from 0 (default: the first produced symbol)")
      ->check(at_least(0));
  command.add_option("--beam", a->beam, "Hypotheses kept while decoding")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--trace", a->load, "Show a saved trace instead of running a model")->type_name("PATH");
  command.add_option("--save-trace", a->save, "Also save the run as PATH.safetensors and PATH.json")
      ->check(output_path())
      ->type_name("PATH");
  add_looks(command, *a);
  add_threads_option(command);
  set_example(command,
              "  regard view thought\n"
              "  regard view thought --kind cross --head mean --format svg -o thought.svg\n"
              "  regard view thought --patterns\n"
              "  regard view regard7.png -o regard7.svg\n"
              "  regard view thought --kind cross --method weights,norms,rollout");
  command.callback([a, &command] { view(command, *a); });
}

}  // namespace regard::cli
