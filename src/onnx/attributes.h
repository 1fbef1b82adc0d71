// Attributes of one operator, read from a JSON object and checked.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "onnx/names.h"
#include "regard/view.h"

namespace regard::onnx {

// One attribute of a node as it was given.
struct Attribute {
  const std::string& op;
  const std::string& name;
  const nlohmann::json& value;

  [[noreturn]] void refuse(const std::string& needs) const {
    throw ArgumentError(op + ": attribute " + name + " is " + value.dump() + " but needs " + needs);
  }
  Index whole(Index lowest, Index highest, const std::string& needs) const {
    if (!value.is_number_integer() || beyond_index()) refuse(needs);
    const Index number = value.get<Index>();
    if (number < lowest || number > highest) refuse(needs);
    return number;
  }
  // A whole number above what Index holds; read as one it would come out negative.
  bool beyond_index() const {
    return value.is_number_unsigned() &&
           value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
  }
  double real(const std::string& needs) const {
    if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(needs);
    return value.get<double>();
  }
  bool flag() const { return value.is_boolean() ? value.get<bool>() : whole(0, 1, "0 or 1") == 1; }
};

// Far beyond any length, and sums of two still fit.
constexpr Index largest_attribute = Index{1} << 40;

template <class All>
using Readers = std::map<std::string, void (*)(All&, const Attribute&)>;

template <class All>
All read_attributes(const std::string& op, const std::string& json, const Readers<All>& readers) {
  const auto object = nlohmann::json::parse(json, nullptr, false);
  if (!object.is_object())
    throw ArgumentError(op + ": attributes need a JSON object such as {\"scale\": 1.0}, got '" + json + "'");
  std::vector<std::string> known;
  for (const auto& [name, reader] : readers) known.push_back(name);
  All all;
  for (const auto& [name, value] : object.items()) {
    check_known(op, "attribute", name, known);
    readers.at(name)(all, {op, name, value});
  }
  return all;
}

}  // namespace regard::onnx
