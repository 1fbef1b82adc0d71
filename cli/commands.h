// The commands of `regard`. Each lives in one file of this room, which adds it
// to the program: it reads arguments, calls the library and prints; it computes
// nothing itself.
#pragma once

#include <string>

#include "regard/error.h"

namespace CLI {
class App;
}

namespace regard::cli {

// Wrong use that only shows once the arguments are seen together or beside the
// file they name. Exit code 2; every other exception is exit code 1.
class UsageError : public Error {
 public:
  using Error::Error;
};

// A signal asked for an early end and the command has come to it cleanly. Exit
// code 128 + signal, as a shell counts it.
struct Stopped {
  int signal;
};

// Each adds one command, whose work is its callback. What goes wrong leaves the
// callback as an exception; main.cpp turns it into the line
// `regard COMMAND: ...` on stderr and the exit code.
void add_attend(CLI::App& program);
void add_onnx(CLI::App& program);
void add_info(CLI::App& program);
void add_train(CLI::App& program);
void add_eval(CLI::App& program);
void add_run(CLI::App& program);
void add_explain(CLI::App& program);
void add_view(CLI::App& program);
void add_tree(CLI::App& program);
void add_picture(CLI::App& program);
void add_bench(CLI::App& program);
void add_cost(CLI::App& program);

// --threads N, for commands that compute; takes effect while arguments are read.
void add_threads_option(CLI::App& command);

// The lines after "Example:" at the end of the command's --help.
void set_example(CLI::App& command, const std::string& lines);

}  // namespace regard::cli
