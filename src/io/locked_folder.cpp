#include "regard/locked_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
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

// Whether the path still leads to what was opened: its last holder may have
// removed the folder just before it could be locked.
bool leads_to(const std::string& path, int descriptor) {
  struct stat opened = {}, named = {};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

// The descriptor of the locked folder, or -1 with the reason in errno.
int open_locked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return -1;
  int reason = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  if (reason != EWOULDBLOCK) reason = leads_to(path, descriptor) ? 0 : ENOENT;
  if (reason == 0) return descriptor;
  ::close(descriptor);
  errno = reason;
  return -1;
}

}  // namespace

LockedFolder::LockedFolder(std::string path) : LockedFolder(path, make_folders(path)) {}

LockedFolder LockedFolder::existing(std::string path) { return {std::move(path), {}}; }

LockedFolder::LockedFolder(std::string path, std::vector<std::string> made)
    : path_(std::move(path)), made_(std::move(made)), descriptor_(open_locked(path_)) {
  if (descriptor_ >= 0) return;
  const int reason = errno;
  remove_empty(made_);
  if (reason == EWOULDBLOCK) throw FileError(path_ + ": another run is writing to this folder");
  throw FileError(path_ + ": can't be opened as a folder: " + std::strerror(reason));
}

LockedFolder::LockedFolder(LockedFolder&& other) noexcept
    : path_(other.path_), made_(std::move(other.made_)), descriptor_(std::exchange(other.descriptor_, -1)) {
  other.made_.clear();
}

LockedFolder::~LockedFolder() {
  if (descriptor_ < 0) return;
  remove_empty(made_);  // still locked: whoever waits for it finds it gone
  ::close(descriptor_);
}

}  // namespace regard
