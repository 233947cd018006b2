// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/device/memory_file.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

TEST(MemoryFileTest, KeepsItsSize) {
  const int fd = make_memory_file(4096, "crossdevice test");
  if (fd < 0) GTEST_SKIP() << "this system gives no memfd";
  for (const off_t size : {0, 4095, 4097, 1 << 20}) {
    errno = 0;
    EXPECT_EQ(::ftruncate(fd, size), -1) << size;
    EXPECT_EQ(errno, EPERM) << size;
  }
  EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);  // nor does anybody add another seal
  EXPECT_EQ(::pwrite(fd, "x", 1, 4095), 1);
  ::close(fd);
}

/// Nobody seals a file from now on, in this thread and what it starts: the system says EACCES.
bool forbid_sealing() {
  std::array<sock_filter, 6> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_ADD_SEALS, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  sock_fprog filter{.len = program.size(), .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(MemoryFileTest, IsNoneThatCannotBeSealed) {
  constexpr int kForbidsNothing = 77;
  const int first_free = ::dup(0);
  ::close(first_free);
  const pid_t child = ::fork();
  if (child == 0) {
    if (!forbid_sealing()) ::_exit(kForbidsNothing);
    errno = 0;
    if (make_memory_file(4096, "crossdevice test") >= 0) ::_exit(1);
    if (errno != EACCES) ::_exit(2);
    ::_exit(::dup(0) == first_free ? 0 : 3);  // what was opened is closed again
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kForbidsNothing) GTEST_SKIP() << "this system has no seccomp";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace crossdevice::detail
