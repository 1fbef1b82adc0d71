// What a call was refused with.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "regard/error.h"

namespace regard::testing {

// The message of the E that `body` throws, one line; "nothing was refused" where
// it throws nothing.
template <class E = ArgumentError, class F>
std::string message_of(F body) {
  try {
    body();
  } catch (const E& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error: " << error.what();
    return "";
  }
  return "nothing was refused";
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

}  // namespace regard::testing
