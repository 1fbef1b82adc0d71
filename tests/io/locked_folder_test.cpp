#include "regard/locked_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "../files.h"

namespace regard {
namespace {

using testing::expect_file_error;
using testing::Folder;

TEST(LockedFolder, one_holder_at_a_time) {
  const Folder folder;
  const std::string path = folder / "run";
  std::optional<LockedFolder> first(path);
  expect_file_error(path, "another run", [&] { LockedFolder second(path); });
  expect_file_error(path, "another run", [&] { LockedFolder::existing(path); });
  first.reset();
  EXPECT_NO_THROW(LockedFolder second(path));
}

TEST(LockedFolder, moving_hands_the_lock_on) {
  const Folder folder;
  const std::string path = folder / "run";
  std::optional<LockedFolder> first(path);
  std::optional<LockedFolder> second(std::move(*first));
  EXPECT_EQ(second->path(), path);
  first.reset();
  EXPECT_THROW(LockedFolder third(path), FileError);
  EXPECT_TRUE(std::filesystem::exists(path)) << "what was moved from removes nothing";
  second.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(LockedFolder, a_process_that_dies_leaves_no_lock) {
  const Folder folder;
  const pid_t child = fork();
  if (child == 0) {
    const LockedFolder held(folder.path());
    _exit(0);  // without destructors, as a kill would
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_NO_THROW(LockedFolder held(folder.path()));
}

TEST(LockedFolder, another_process_is_refused_too) {
  const Folder folder;
  const LockedFolder held(folder.path());
  const pid_t child = fork();
  if (child == 0) {
    // Without what was inherited: that holds the same lock.
    try {
      const LockedFolder second(folder.path());
    } catch (const FileError&) {
      _exit(7);
    }
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(LockedFolder, made_folders_go_again_while_they_are_empty) {
  const Folder folder;
  { const LockedFolder held(folder / "a/b/c"); }
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  {
    const LockedFolder held(folder / "a/b/c/");
    folder.write("a/b/file", "x");
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "a/b/c"));
  EXPECT_TRUE(std::filesystem::exists(folder / "a/b/file"));
  { const LockedFolder held(folder / "a"); }
  EXPECT_TRUE(std::filesystem::exists(folder / "a")) << "it was there before";
}

TEST(LockedFolder, an_empty_folder_that_was_there_stays) {
  const Folder folder;
  std::filesystem::create_directory(folder / "empty");
  { const LockedFolder held(folder / "empty"); }
  EXPECT_TRUE(std::filesystem::exists(folder / "empty"));
}

TEST(LockedFolder, what_is_no_folder_is_refused_by_name) {
  const Folder folder;
  folder.write("file", "x");
  expect_file_error(folder / "file", "folder", [&] { LockedFolder held(folder / "file"); });
  expect_file_error(folder / "file/run", "can't make", [&] { LockedFolder held(folder / "file/run"); });
  expect_file_error(folder / "none", "can't be opened", [&] { LockedFolder::existing(folder / "none"); });
  EXPECT_FALSE(std::filesystem::exists(folder / "none"));
}

}  // namespace
}  // namespace regard
