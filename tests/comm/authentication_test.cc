// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/authentication.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

std::string hex(const Mac& mac) {
  std::string text;
  for (const unsigned char byte : mac) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

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

// The message is the part's length as 8 bytes, least significant first, then the part.
TEST(AuthenticationTest, IsHmacSha256OfThePartsWithTheirLengths) {
  // printf '\1\0\0\0\0\0\0\0a' | openssl dgst -sha256 -hmac key
  EXPECT_EQ(hex(authenticate("key", {"a"})),
            "4d30f2fef774442885ccd660df94d97bb23131c92dd4c09a3706b88145854430");
}

TEST(AuthenticationTest, DependsOnTheSecretAndOnWhereThePartsEnd) {
  const Mac mac = authenticate("secret", {"ab", "c"});
  EXPECT_TRUE(is_equal(mac, authenticate("secret", {"ab", "c"})));
  EXPECT_FALSE(is_equal(mac, authenticate("secret", {"a", "bc"})));
  EXPECT_FALSE(is_equal(mac, authenticate("secret", {"abc"})));
  EXPECT_FALSE(is_equal(mac, authenticate("secret2", {"ab", "c"})));
  EXPECT_FALSE(is_equal(mac, authenticate("", {"ab", "c"})));
  Mac last = mac;
  last.back() ^= 1U;
  EXPECT_FALSE(is_equal(mac, last));
}

TEST(AuthenticationTest, NoncesDiffer) { EXPECT_NE(make_nonce(), make_nonce()); }

TEST(AuthenticationTest, ASecretIsReadFromAFileForItsOwnerOnly) {
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
}

}  // namespace
}  // namespace crossdevice::detail
