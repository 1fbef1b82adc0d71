#include "regard/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "regard/error.h"

namespace regard {
namespace {

FileError system_error(const std::string& path, const std::string& doing, int reason) {
  return FileError(path + ": " + doing + ": " + std::strerror(reason));
}

// Closes on every way out; close_now() reports what close itself found, which
// is where network file systems announce a full disk.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }
  int close_now() { return ::close(std::exchange(number_, -1)); }

 private:
  int number_;
};

// 0, or the reason it stopped.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// Devices and pipes ("/dev/stdout") can't be renamed over.
void write_in_place(const std::string& path, std::string_view bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.number() < 0) throw system_error(path, "can't be opened for writing", errno);
  if (const int reason = write_all(file.number(), bytes)) throw system_error(path, "can't be written", reason);
}

// 0, or the reason it failed; the caller removes what is left. `old` is the file
// to be replaced, or null.
int write_new(const std::string& path, std::string_view bytes, const struct stat* old) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.number() < 0) return errno;
  // Not through open: the process's mask would take rights away.
  if (old && ::fchmod(file.number(), old->st_mode & 0777) != 0) return errno;
  if (const int reason = write_all(file.number(), bytes)) return reason;
  if (::fsync(file.number()) != 0) return errno;
  return file.close_now() != 0 ? errno : 0;
}

// Two writers of one path, in one process or several, never share a name.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
}

// A rename is on disk once the folder is; some file systems can't flush one,
// and then there is nothing left to do about it.
void flush_folder(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.number() >= 0) (void)::fsync(opened.number());
}

// A link keeps pointing where it did: the file behind it is replaced.
std::string behind_links(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (!resolved) return path;
  std::string real = resolved;
  std::free(resolved);
  return real;
}

}  // namespace

std::string read_file(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) throw system_error(path, "can't be opened", errno);
  struct stat facts {};
  if (::fstat(file.number(), &facts) == 0 && S_ISDIR(facts.st_mode)) throw FileError(path + ": is a folder");
  std::string bytes;
  std::size_t filled = 0;
  for (;;) {
    // The size is a hint only: pipes have none and files grow.
    const std::size_t hint = static_cast<std::size_t>(facts.st_size) + 1;
    if (filled == bytes.size()) bytes.resize(filled < hint ? hint : filled * 2);
    const ssize_t got = ::read(file.number(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(path, "can't be read", errno);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

void write_file(const std::string& path, std::string_view bytes) {
  struct stat facts {};
  const bool exists = ::stat(path.c_str(), &facts) == 0;
  if (exists && S_ISDIR(facts.st_mode)) throw FileError(path + ": is a folder, can't be written");
  if (exists && !S_ISREG(facts.st_mode)) return write_in_place(path, bytes);
  const std::string real = exists ? behind_links(path) : path;
  const std::string temporary = temporary_name(real);
  int reason = write_new(temporary, bytes, exists ? &facts : nullptr);
  if (!reason && ::rename(temporary.c_str(), real.c_str()) != 0) reason = errno;
  if (reason) {
    // EEXIST means that the file is somebody else's.
    if (reason != EEXIST) ::unlink(temporary.c_str());
    throw system_error(path, "can't be written", reason);
  }
  flush_folder(real);
}

}  // namespace regard
