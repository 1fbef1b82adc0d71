#include "regard/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>

#include "files.h"

namespace regard {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  int files() const {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_.path())) ++count;
    return count;
  }
  const testing::Folder folder_;
};

TEST_F(FileTest, what_was_written_is_read_back_byte_for_byte) {
  const std::string bytes("a\0b\r\n\xff", 6);
  write_file(path("x"), bytes);
  EXPECT_EQ(read_file(path("x")), bytes);
  write_file(path("x"), "");
  EXPECT_EQ(read_file(path("x")), "");
  EXPECT_EQ(files(), 1);
}

TEST_F(FileTest, missing_file_and_missing_folder_are_named) {
  for (auto call :
       {+[](const std::string& name) { read_file(name); }, +[](const std::string& name) { write_file(name, "x"); }}) {
    try {
      call(path("none/x"));
      FAIL();
    } catch (const FileError& error) {
      EXPECT_NE(std::string(error.what()).find(path("none/x")), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos);
    }
  }
}

TEST_F(FileTest, folder_is_refused) {
  EXPECT_THROW(read_file(folder_.path()), FileError);
  EXPECT_THROW(write_file(folder_.path(), "x"), FileError);
}

TEST_F(FileTest, full_disk_keeps_the_old_file_and_leaves_no_temporary_one) {
  write_file(path("x"), "the old file");
  // A limit on file size fails in the middle of the write, as a full disk does.
  signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  rlimit small = old;
  small.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    write_file(path("x"), std::string(5000, 'n'));
  } catch (const FileError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_NE(message.find(path("x")), std::string::npos);
  EXPECT_EQ(read_file(path("x")), "the old file");
  EXPECT_EQ(files(), 1);
}

TEST_F(FileTest, link_stays_a_link) {
  write_file(path("real"), "1");
  fs::create_symlink("real", path("link"));
  write_file(path("link"), "2");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("real")), "2");
}

TEST_F(FileTest, permissions_of_the_old_file_survive) {
  write_file(path("x"), "1");
  for (auto rights : {fs::perms(0600), fs::perms(0666)}) {
    fs::permissions(path("x"), rights);
    write_file(path("x"), "2");
    EXPECT_EQ(fs::status(path("x")).permissions(), rights);
  }
}

TEST_F(FileTest, device_is_written_in_place) {
  EXPECT_NO_THROW(write_file("/dev/null", "x"));
  EXPECT_THROW(write_file("/dev/full", "x"), FileError);
}

}  // namespace
}  // namespace regard
