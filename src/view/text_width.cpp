#include "regard/text_width.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

namespace regard {
namespace {

constexpr const char* replacement = "\xef\xbf\xbd";  // U+FFFD

struct CodePoint {
  utf8proc_int32_t value = -1;  // -1: not UTF-8
  std::string_view bytes;
};

CodePoint next_code_point(std::string_view text) {
  CodePoint point;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &point.value);
  if (length <= 0) point.value = -1;
  point.bytes = text.substr(0, length > 0 ? static_cast<std::size_t>(length) : 1);
  return point;
}

// They reorder what stands around them, across the borders of a cell.
bool changes_direction(utf8proc_int32_t c) {
  return c == 0x200e || c == 0x200f || c == 0x61c || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

std::string escaped(utf8proc_int32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  return c < 0x100 ? fmt::format("\\x{:02x}", c) : fmt::format("\\u{:04x}", c);
}

bool needs_escape(utf8proc_int32_t c) {
  const auto category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP ||
         changes_direction(c);
}

// XML has no way to write these two.
bool noncharacter(utf8proc_int32_t c) { return (c & 0xfffe) == 0xfffe; }

int width_of(utf8proc_int32_t c) {
  // The library gives ambiguous private characters 1 and U+00AD 1, as terminals do.
  return std::max(0, utf8proc_charwidth(c));
}

void extend(Grapheme& cluster, const CodePoint& point) {
  constexpr utf8proc_int32_t emoji_style = 0xfe0f;
  const bool flag = point.value >= 0x1f1e6 && point.value <= 0x1f1ff;
  // Marks add nothing to their base; a flag is two letters in two columns.
  if (point.value == emoji_style || (flag && !cluster.text.empty()))
    cluster.columns = 2;
  else
    cluster.columns = std::max(cluster.columns, width_of(point.value));
  cluster.text += point.bytes;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const CodePoint point = next_code_point(text);
    text.remove_prefix(point.bytes.size());
    if (point.value < 0 || noncharacter(point.value))
      safe += replacement;
    else if (needs_escape(point.value))
      safe += escaped(point.value);
    else
      safe += point.bytes;
  }
  return safe;
}

std::vector<Grapheme> graphemes(std::string_view text) {
  const std::string safe = printable(text);
  std::vector<Grapheme> clusters;
  std::string_view rest = safe;
  utf8proc_int32_t before = 0, state = 0;
  while (!rest.empty()) {
    const CodePoint point = next_code_point(rest);
    rest.remove_prefix(point.bytes.size());
    if (clusters.empty() || utf8proc_grapheme_break_stateful(before, point.value, &state)) clusters.emplace_back();
    extend(clusters.back(), point);
    before = point.value;
  }
  return clusters;
}

int text_columns(std::string_view text) {
  int columns = 0;
  for (const Grapheme& cluster : graphemes(text)) columns += cluster.columns;
  return columns;
}

std::string cut_text(std::string_view text, int columns) {
  if (columns <= 0) return "";
  const auto clusters = graphemes(text);
  std::string kept, all;
  int kept_columns = 0, total = 0;
  for (const Grapheme& cluster : clusters) {
    all += cluster.text;
    total += cluster.columns;
    if (total <= columns - 1) {
      kept = all;
      kept_columns = total;
    }
  }
  if (total <= columns) return all;
  return kept_columns < columns ? kept + "…" : kept;
}

std::string fit_text(std::string_view text, int columns, Align align) {
  const std::string cut = cut_text(text, columns);
  const int spare = std::max(0, columns - text_columns(cut));
  const int left = align == Align::right ? spare : align == Align::centre ? spare / 2 : 0;
  return std::string(static_cast<std::size_t>(left), ' ') + cut +
         std::string(static_cast<std::size_t>(spare - left), ' ');
}

}  // namespace regard
