#include "regard/picture.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "picture/surface.h"
#include "regard/error.h"
#include "regard/file.h"

namespace regard {
namespace {

using detail::Surface;

constexpr std::string_view signature = "\x89PNG\r\n\x1a\n";
constexpr std::uint64_t most_pixels = 100'000'000;
constexpr Index longest_side = 32767;  // Cairo's

// The two numbers behind the first chunk's name.
std::uint64_t big_endian(const std::string& bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

void check_header(const std::string& bytes, const std::string& path) {
  if (!bytes.starts_with(signature)) throw FileError(path + ": is no PNG picture");
  if (bytes.size() < 24) throw FileError(path + ": the PNG is cut off");
  const std::uint64_t width = big_endian(bytes, 16), height = big_endian(bytes, 20);
  if (width * height > most_pixels || width > longest_side || height > longest_side)
    throw FileError(path + ": a picture of " + std::to_string(width) + " x " + std::to_string(height) +
                    " pixels is too large (100 million in all, 32767 a side)");
}

struct Reader {
  const std::string& bytes;
  std::size_t at = 0;
};

cairo_status_t read_bytes(void* closure, unsigned char* to, unsigned int count) {
  auto& reader = *static_cast<Reader*>(closure);
  if (reader.bytes.size() - reader.at < count) return CAIRO_STATUS_READ_ERROR;
  std::copy_n(reader.bytes.data() + reader.at, count, reinterpret_cast<char*>(to));
  reader.at += count;
  return CAIRO_STATUS_SUCCESS;
}

// Colours are stored multiplied by their opacity: what is missing to 1 is white.
float grey_of(std::uint32_t pixel, bool transparent) {
  const auto part = [&](int shift) { return static_cast<float>(pixel >> shift & 255); };
  const float luma = 0.299f * part(16) + 0.587f * part(8) + 0.114f * part(0);
  return std::min(1.0f, (luma + (transparent ? 255 - part(24) : 0.0f)) / 255);
}

Tensor<float> greys_of(cairo_surface_t* surface) {
  cairo_surface_flush(surface);
  const int width = cairo_image_surface_get_width(surface), height = cairo_image_surface_get_height(surface);
  const bool transparent = cairo_image_surface_get_format(surface) == CAIRO_FORMAT_ARGB32;
  Tensor<float> picture({height, width});
  for (int y = 0; y < height; ++y) {
    const auto* pixels = reinterpret_cast<const std::uint32_t*>(detail::row_of(surface, y));
    for (int x = 0; x < width; ++x) picture[static_cast<Index>(y) * width + x] = grey_of(pixels[x], transparent);
  }
  return picture;
}

void check_picture(const Tensor<float>& picture) {
  if (picture.rank() != 2 || picture.empty())
    throw ArgumentError("picture: " + picture.text() + " has no pixels, need [height, width]");
  if (std::max(picture.size(0), picture.size(1)) > longest_side)
    throw ArgumentError("picture: " + picture.text() + " has more than 32767 pixels a side");
  if (!std::all_of(picture.values().begin(), picture.values().end(), [](float grey) { return std::isfinite(grey); }))
    throw ArgumentError("picture: a pixel of " + picture.text() + " is not a finite number");
}

Surface surface_of(const Tensor<float>& picture) {
  check_picture(picture);
  const int height = static_cast<int>(picture.size(0)), width = static_cast<int>(picture.size(1));
  Surface surface = detail::image_surface(CAIRO_FORMAT_RGB24, width, height);
  for (int y = 0; y < height; ++y) {
    auto* row = reinterpret_cast<std::uint32_t*>(detail::row_of(surface.get(), y));
    for (int x = 0; x < width; ++x) {
      const float grey = std::clamp(picture[static_cast<Index>(y) * width + x], 0.0f, 1.0f);
      row[x] = static_cast<std::uint32_t>(std::lround(grey * 255)) * 0x010101u;
    }
  }
  cairo_surface_mark_dirty(surface.get());
  return surface;
}

}  // namespace

Tensor<float> read_picture(const std::string& path) {
  const std::string bytes = read_file(path);
  check_header(bytes, path);
  Reader reader{bytes};
  const Surface surface = detail::owned(cairo_image_surface_create_from_png_stream(read_bytes, &reader));
  if (cairo_surface_status(surface.get()) != CAIRO_STATUS_SUCCESS)
    throw FileError(path + ": the PNG is damaged or cut off");
  const cairo_format_t format = cairo_image_surface_get_format(surface.get());
  if (format != CAIRO_FORMAT_ARGB32 && format != CAIRO_FORMAT_RGB24)
    throw FileError(path + ": PNG pixels of this depth can't be read, save it with 8 bits a channel");
  return greys_of(surface.get());
}

Tensor<float> scaled_to_height(const Tensor<float>& picture, Index height) {
  check_picture(picture);
  if (height < 1) throw ArgumentError("picture: height must be at least 1, got " + std::to_string(height));
  if (height == picture.size(0)) return picture;
  const double scale = static_cast<double>(height) / static_cast<double>(picture.size(0));
  const auto width = std::max<Index>(1, std::lround(scale * static_cast<double>(picture.size(1))));
  if (std::max(width, height) > longest_side)
    throw ArgumentError("picture: " + std::to_string(width) + " x " + std::to_string(height) +
                        " has more than 32767 pixels a side");
  const Surface from = surface_of(picture);
  const Surface to = detail::image_surface(CAIRO_FORMAT_RGB24, static_cast<int>(width), static_cast<int>(height));
  const detail::Canvas canvas = detail::canvas_on(to.get());
  cairo_scale(canvas.get(), static_cast<double>(width) / static_cast<double>(picture.size(1)), scale);
  cairo_set_source_surface(canvas.get(), from.get(), 0, 0);
  cairo_pattern_set_filter(cairo_get_source(canvas.get()), CAIRO_FILTER_GOOD);
  cairo_pattern_set_extend(cairo_get_source(canvas.get()), CAIRO_EXTEND_PAD);
  cairo_paint(canvas.get());
  detail::check(cairo_status(canvas.get()));
  return greys_of(to.get());
}

std::string picture_png(const Tensor<float>& picture) { return detail::png_bytes(surface_of(picture).get()); }

}  // namespace regard
