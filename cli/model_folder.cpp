#include "model_folder.h"

#include <cstdlib>
#include <filesystem>

#include "commands.h"

namespace regard::cli {
namespace {

// The program's own folder, for an installed tree that was moved.
std::filesystem::path program_folder() {
  std::error_code failure;
  return std::filesystem::read_symlink("/proc/self/exe", failure).parent_path();
}

bool holds_model(const std::filesystem::path& folder) { return std::filesystem::exists(folder / "model.json"); }

}  // namespace

std::string model_folder(const std::string& given, const std::string& shipped) {
  if (!given.empty()) return given;
  if (const char* named = std::getenv("REGARD_MODEL"); named && *named) return named;
  const std::filesystem::path own = program_folder();
  for (const std::filesystem::path& folder :
       {own / "../models" / shipped, own / "../../models" / shipped, own / "../share/regard/models" / shipped,
        std::filesystem::path("models") / shipped})
    if (holds_model(folder)) return folder.lexically_normal().string();
  throw UsageError("no model found: give --model DIR, the folder of a model.json");
}

}  // namespace regard::cli
