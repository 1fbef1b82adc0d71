// What a call was refused with.
#pragma once

#include <string>

#include "regard/error.h"

namespace regard::testing {

template <class F>
std::string message_of(F call) {
  try {
    call();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace regard::testing
