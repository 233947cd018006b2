// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/device/memory_file.h"

#include <cstdint>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossdevice::detail {
namespace {

TEST(MemoryFileTest, IsKnownByItsMarkAlone) {
  const MemoryFileMark mark{.process = memory_file_process(), .file = 12};
  const int fd = make_memory_file(4096, marked_name("crossdevice test", mark));
  if (fd < 0) GTEST_SKIP() << "this system gives no memfd";
  EXPECT_TRUE(has_mark(fd, mark));
  for (const std::uint64_t file : {1U, 2U, 11U, 112U}) {
    EXPECT_FALSE(has_mark(fd, {.process = mark.process, .file = file})) << file;
  }
  EXPECT_FALSE(has_mark(fd, {.process = mark.process + 1, .file = mark.file}));

  // As other processes open it.
  const std::string path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd);
  const int again = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(again, 0);
  ::close(fd);
  EXPECT_TRUE(has_mark(again, mark));
  std::thread([&] { EXPECT_TRUE(has_mark(again, mark)); }).join();
  ::close(again);
  EXPECT_FALSE(has_mark(again, mark));
  EXPECT_FALSE(has_mark(-1, mark));
}

TEST(MemoryFileTest, ALongNameHasItsMark) {
  const MemoryFileMark mark{.process = ~std::uint64_t{0}, .file = ~std::uint64_t{0}};
  const int fd = make_memory_file(4096, marked_name(std::string(1000, 'n'), mark));
  if (fd < 0) GTEST_SKIP() << "this system gives no memfd";
  EXPECT_TRUE(has_mark(fd, mark));
  ::close(fd);
}

TEST(MemoryFileTest, AnotherFilesNameIsNoMark) {
  const MemoryFileMark mark{.process = memory_file_process(), .file = 1};
  const std::string path = ::testing::TempDir() + marked_name("x", mark) + " (deleted)";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  EXPECT_FALSE(has_mark(fd, mark));
  ::unlink(path.c_str());
  ::close(fd);
}

}  // namespace
}  // namespace crossdevice::detail
