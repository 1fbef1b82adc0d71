#include "screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace regard::cli {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace

ColourDepth terminal_depth() {
  return colour_depth({.is_terminal = isatty(STDOUT_FILENO) != 0,
                       .term = variable("TERM"),
                       .colour_term = variable("COLORTERM"),
                       .no_colour = variable("NO_COLOR")});
}

int terminal_width(int asked) {
  if (asked > 0) return asked;
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

}  // namespace regard::cli
