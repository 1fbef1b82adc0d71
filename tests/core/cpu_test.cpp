#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/cache_sizes.h"

namespace regard {
namespace {

// A folder as the system has it for each processor.
class Cpu : public testing::Test {
 protected:
  Cpu() : folder_(testing::TempDir() + "regard_caches_" + std::to_string(::getpid())) {}
  ~Cpu() override { std::filesystem::remove_all(folder_); }

  void add(int index, const std::string& level, const std::string& type, const std::string& size) const {
    const std::filesystem::path cache = folder_ + "/index" + std::to_string(index);
    std::filesystem::create_directories(cache);
    std::ofstream(cache / "level") << level << '\n';
    std::ofstream(cache / "type") << type << '\n';
    std::ofstream(cache / "size") << size << '\n';
  }
  CacheSizes read() const { return detail::read_cache_sizes(folder_, {.l1 = 1, .l2 = 2, .l3 = 3}); }

 private:
  std::string folder_;
};

TEST_F(Cpu, caches_of_data_and_of_both_are_read_in_kilobytes_and_megabytes) {
  add(0, "1", "Instruction", "64K");
  add(1, "1", "Data", "48K");
  add(2, "2", "Unified", "1280K");
  add(3, "3", "Unified", "32M");
  const CacheSizes sizes = read();
  EXPECT_EQ(sizes.l1, 48 * 1024);
  EXPECT_EQ(sizes.l2, 1280 * 1024);
  EXPECT_EQ(sizes.l3, 32 * 1024 * 1024);
}

TEST_F(Cpu, what_the_system_does_not_say_stays) {
  EXPECT_EQ(read().l1, 1);
  add(0, "1", "Data", "large");
  add(1, "2", "Unified", "");
  const CacheSizes sizes = read();
  EXPECT_EQ(sizes.l1, 1);
  EXPECT_EQ(sizes.l2, 2);
  EXPECT_EQ(sizes.l3, 3);
}

TEST_F(Cpu, this_machine_has_caches_that_grow_from_level_to_level) {
  const CacheSizes sizes = cache_sizes();
  EXPECT_GT(sizes.l1, 0);
  EXPECT_LT(sizes.l1, sizes.l2);
  EXPECT_LT(sizes.l2, sizes.l3);
}

}  // namespace
}  // namespace regard
