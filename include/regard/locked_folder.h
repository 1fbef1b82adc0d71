// A folder that one writer holds at a time.
#pragma once

#include <string>
#include <vector>

namespace regard {

// Holds `path` until destruction: a second holder, in this process or another,
// is refused. The lock is the system's own on the folder itself, so nothing is
// left behind, not even by a killed process. File systems without locks (some
// network ones) give the folder to everybody.
class LockedFolder {
 public:
  // Makes the folder, and those above it, where they are missing; made ones that
  // are empty at the end are removed again. Throws FileError when it can't be
  // made or another holds it.
  LockedFolder(std::string path);  // NOLINT(google-explicit-constructor): a path is enough to name it
  // The same for a folder that must be there.
  static LockedFolder existing(std::string path);

  LockedFolder(LockedFolder&& other) noexcept;
  LockedFolder& operator=(LockedFolder&&) = delete;
  ~LockedFolder();

  const std::string& path() const { return path_; }

 private:
  LockedFolder(std::string path, std::vector<std::string> made);

  std::string path_;
  std::vector<std::string> made_;  // outermost first
  int descriptor_ = -1;
};

}  // namespace regard
