// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/secret_file.h"

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

class SecretFile {
 public:
  SecretFile(const std::string& contents, mode_t mode) {
    std::string path = ::testing::TempDir() + "crossdevice-secret-XXXXXX";
    const int fd = ::mkstemp(path.data());
    EXPECT_GE(fd, 0);
    EXPECT_EQ(::write(fd, contents.data(), contents.size()), static_cast<ssize_t>(contents.size()));
    EXPECT_EQ(::fchmod(fd, mode), 0);
    ::close(fd);
    path_ = path;
  }
  ~SecretFile() { ::unlink(path_.c_str()); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(SecretFileTest, IsForItsOwnerOnlyAndHoldsAFewBytes) {
  EXPECT_EQ(read_secret(SecretFile("hush\n", 0600).path()), "hush");
  EXPECT_EQ(read_secret(SecretFile("hush", 0400).path()), "hush");
  EXPECT_EQ(read_secret(SecretFile(std::string(4096, 'x'), 0600).path()), std::string(4096, 'x'));
  EXPECT_THROW((void)read_secret(SecretFile("hush", 0640).path()), ValueError);
  EXPECT_THROW((void)read_secret(SecretFile("hush", 0604).path()), ValueError);
  EXPECT_THROW((void)read_secret(SecretFile("", 0600).path()), ValueError);
  EXPECT_THROW((void)read_secret(SecretFile("\n", 0600).path()), ValueError);
  EXPECT_THROW((void)read_secret(SecretFile(std::string(4097, 'x'), 0600).path()), ValueError);
  EXPECT_THROW((void)read_secret("/nonexistent/secret"), ValueError);
  EXPECT_THROW((void)read_secret("/dev/null"), ValueError);
  EXPECT_THROW((void)read_secret(::testing::TempDir()), ValueError);
}

/// Nobody writes to it, so that reading would never end.
TEST(SecretFileTest, APipeIsRefused) {
  const std::string path =
      ::testing::TempDir() + "crossdevice-secret-pipe-" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW((void)read_secret(path), ValueError);
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace crossdevice::detail
