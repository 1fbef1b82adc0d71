#include "regard/locked_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "regard/error.h"

namespace regard {
namespace {

// Innermost first; what is not empty stays.
void remove_empty(const std::vector<std::string>& folders) {
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) ::rmdir(folder->c_str());
}

// What is missing of the path, outermost first, after making it.
std::vector<std::string> make_folders(const std::string& path) {
  std::vector<std::string> missing;
  std::error_code failure;
  for (std::filesystem::path at = path; !at.empty() && !std::filesystem::exists(at, failure); at = at.parent_path())
    missing.insert(missing.begin(), at.string());
  std::filesystem::create_directories(path, failure);
  if (!failure) return missing;
  remove_empty(missing);
  throw FileError(path + ": can't make this folder (" + failure.message() + ")");
}

}  // namespace

LockedFolder::LockedFolder(std::string path) : LockedFolder(path, make_folders(path)) {}

LockedFolder LockedFolder::existing(std::string path) { return {std::move(path), {}}; }

LockedFolder::LockedFolder(std::string path, std::vector<std::string> made)
    : path_(std::move(path)),
      made_(std::move(made)),
      descriptor_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw FileError(path_ + ": can't be opened as a folder: " + std::strerror(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw FileError(path_ + ": another run is writing to this folder");
}

LockedFolder::LockedFolder(LockedFolder&& other) noexcept
    : path_(other.path_), made_(std::move(other.made_)), descriptor_(std::exchange(other.descriptor_, -1)) {
  other.made_.clear();
}

LockedFolder::~LockedFolder() {
  if (descriptor_ < 0) return;
  remove_empty(made_);  // still locked: nobody else has begun in it
  ::close(descriptor_);
}

}  // namespace regard
