// The terminal this process writes to.
#pragma once

#include "regard/terminal.h"

namespace regard::cli {

ColourDepth terminal_depth();
// `asked`, else the terminal's columns, 100 in a pipe.
int terminal_width(int asked);

}  // namespace regard::cli
