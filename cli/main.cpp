// regard: the command line. Exit code 0 = done, 1 = it could not be done (a bad
// file, shapes that disagree), 2 = wrong use, 130 and 143 = stopped cleanly by
// Ctrl-C and by SIGTERM (`regard train` only).
#include <CLI/CLI.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <new>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "commands.h"
#include "regard/cpu.h"
#include "regard/text_width.h"
#include "regard/threads.h"

namespace regard::cli {

void add_threads_option(CLI::App& command) {
  command
      .add_option_function<int>(
          "--threads", [](const int& count) { set_threads(count); },
          "Threads to use (default: REGARD_THREADS, else every core of this process)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
}

void set_example(CLI::App& command, const std::string& lines) { command.footer("Example:\n" + lines + "\n"); }

namespace {

constexpr int runtime_error = 1, usage_error = 2;

// `--causal=3` is a mistake, not a way to say --causal.
void refuse_values_of_flags(CLI::App& program) {
  for (CLI::App* command : program.get_subcommands({}))
    for (CLI::Option* option : command->get_options())
      if (option->get_expected_max() == 0) option->disable_flag_override();
}

void add_commands(CLI::App& program) {
  add_view(program);
  add_run(program);
  add_explain(program);
  add_train(program);
  add_eval(program);
  add_attend(program);
  add_onnx(program);
  add_tree(program);
  add_picture(program);
  add_bench(program);
  add_cost(program);
  add_info(program);
  refuse_values_of_flags(program);
}

// The command being run, "" while none is known.
std::string command_of(const CLI::App& program) {
  const auto commands = program.get_subcommands();
  return commands.empty() ? "" : commands.front()->get_name();
}

// One line on stderr that begins with the command. The library's messages begin
// with the call they are about; where that is the command's own name, it is said once.
// Messages quote what the user wrote: control characters in it stay one line and
// harmless to the terminal.
int report(const std::string& command, std::string message, int code) {
  if (message.starts_with(command + ": ")) message.erase(0, command.size() + 2);
  while (!message.empty() && message.back() == '\n') message.pop_back();
  const std::string name = command.empty() ? "regard" : "regard " + command;
  std::fprintf(stderr, "%s: %s\n", name.c_str(), printable(message).c_str());
  return code;
}

int report_usage(const std::string& command, const std::string& message) {
  const std::string help = command.empty() ? "regard --help" : "regard " + command + " --help";
  return report(command, message + " (see `" + help + "`)", usage_error);
}

// CLI11 reports a missing argument before a misspelt flag, which is often the
// reason for it: what it could not place is said first.
std::string parse_message(const CLI::App& program, const CLI::ParseError& error) {
  const std::vector<std::string> unplaced = program.remaining(true);
  std::string message = error.what();
  const std::size_t override = message.find(" was given a disallowed flag override");
  if (override != std::string::npos) return "--" + message.substr(0, override) + " takes no value";
  if (unplaced.empty()) return message;
  const std::string& first = unplaced.front();
  if (first.starts_with('-')) return "unknown flag '" + first + "'";
  if (program.get_subcommands().empty()) return "there is no command '" + first + "'";
  return "one argument too many: '" + first + "'";
}

// Through stdio, like every other output, so that main() sees a failed write.
int print_help_or_version(const CLI::App& program, const CLI::Success& asked) {
  std::ostringstream text;
  const int code = program.exit(asked, text, text);
  std::fputs(text.str().c_str(), stdout);
  return code;
}

int report_lost_output(int reason) {
  const std::string text = reason != 0 ? ": " + std::generic_category().message(reason) : "";
  return report("", "can't write to the standard output" + text, runtime_error);
}

// A full disk or a closed pipe shows only when the last output is flushed; what
// an earlier flush met is remembered by the stream, without its reason.
int finish_output(int code) {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  return failed && code == 0 ? report_lost_output(errno) : code;
}

int run(CLI::App& program, int count, char** arguments) {
  try {
    program.parse(count, arguments);
    if (!program.get_subcommands().empty()) return 0;
    std::fputs(program.help().c_str(), stdout);
    return report("", "name a command, such as `regard info`", usage_error);
  } catch (const CLI::Success& success) {  // --help and --version
    return print_help_or_version(program, success);
  } catch (const CLI::ParseError& error) {
    return report_usage(command_of(program), parse_message(program, error));
  } catch (const UsageError& error) {
    return report_usage(command_of(program), error.what());
  } catch (const Stopped& stopped) {
    return 128 + stopped.signal;
  } catch (const std::bad_alloc&) {
    return report(command_of(program), "not enough memory: use smaller inputs or ask for fewer outputs", runtime_error);
  } catch (const std::system_error& error) {
    // Long texts are written before the last flush, and fmt throws then.
    return std::ferror(stdout) ? report_lost_output(error.code().value())
                               : report(command_of(program), error.what(), runtime_error);
  } catch (const std::exception& error) {
    return report(command_of(program), error.what(), runtime_error);
  }
}

}  // namespace
}  // namespace regard::cli

int main(int count, char** arguments) {
  // A file that grows beyond its limit is a failed write with a message, not the end.
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App program{"Regard: attention you can look into, at full speed", "regard"};
  program.set_version_flag("--version", std::string("regard ") + regard::version());
  program.require_subcommand(0, 1);
  regard::cli::add_commands(program);
  regard::cli::set_example(program,
                           "  regard view phonemes\n"
                           "  regard COMMAND --help");
  return regard::cli::finish_output(regard::cli::run(program, count, arguments));
}
