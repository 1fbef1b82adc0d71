// Errors: every failure of the library is one of these exceptions, with one
// line that names the call, both sides and both shapes.
#pragma once

#include <stdexcept>
#include <string>

namespace regard {

// Base of all errors that the library throws on purpose.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller's arguments contradict each other or the operator's rules.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

// A file is missing, truncated, malformed or can't be written.
class FileError : public Error {
 public:
  using Error::Error;
};

}  // namespace regard
