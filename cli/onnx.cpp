// regard onnx: one ONNX operator node on a file.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "checks.h"
#include "commands.h"
#include "regard/onnx.h"
#include "regard/safetensors.h"

namespace regard::cli {
namespace {

struct Arguments {
  onnx::Node node;
  std::string in, out;
};

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// What the command line alone can have wrong, before the file is read.
void check_node(const onnx::Node& node) {
  if (const Index since = onnx::since(node.op); node.opset < since)
    throw UsageError("--opset: " + node.op + " exists from " + std::to_string(since) + " on, not in " +
                     std::to_string(node.opset));
  try {
    onnx::check_attributes(node);
  } catch (const ArgumentError& error) {
    throw UsageError(std::string("--attributes: ") + error.what());
  }
  const auto known = onnx::outputs(node.op);
  for (const std::string& name : node.outputs)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UsageError("--outputs: " + node.op + " has no output '" + name + "'; it has " + joined(known));
}

// "Attention (opset 23 on), ..."
std::string operators_text() {
  std::vector<std::string> all;
  for (const std::string& op : onnx::operators())
    all.push_back(op + " (opset " + std::to_string(onnx::since(op)) + " on)");
  return joined(all);
}

void run(const Arguments& arguments) {
  check_node(arguments.node);
  refuse_same_file(arguments.in, arguments.out);
  const TensorFile file = read_safetensors(arguments.in);
  TensorFile written;
  written.tensors = onnx::run(arguments.node, file.tensors);
  write_safetensors(arguments.out, written);
  for (const auto& [name, tensor] : written.tensors)
    fmt::print("{} {} {}\n", name, shape_text(tensor.shape), dtype_name(tensor.dtype));
}

}  // namespace

void add_onnx(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("onnx", "Run one ONNX operator node on a safetensors file");
  const auto arguments = std::make_shared<Arguments>();
  command.add_option("OP", arguments->node.op, "The operator: " + operators_text())
      ->required()
      ->check(CLI::IsMember(onnx::operators()));
  command.add_option("IN", arguments->in, "safetensors file whose tensors have the operator's input names")->required();
  command.add_option("-o,--out", arguments->out, "safetensors file to write")
      ->required()
      ->check(output_path())
      ->type_name("OUT");
  command.add_option("--opset", arguments->node.opset, "Version of the operator set")
      ->required()
      ->check(CLI::Range(onnx::first_opset, onnx::last_opset))
      ->type_name("N");
  command.add_option("--attributes", arguments->node.attributes, "The node's attributes as a JSON object")
      ->type_name("JSON");
  command.add_option("--outputs", arguments->node.outputs, "Write these outputs only (default: every one it has)")
      ->delimiter(',')
      ->type_name("NAME,...");
  add_threads_option(command);
  set_example(command,
              "  regard onnx Attention in.safetensors -o out.safetensors --opset 23 \\\n"
              "      --attributes '{\"is_causal\": 1}' --outputs Y,present_key");
  command.callback([arguments] { run(*arguments); });
}

}  // namespace regard::cli
