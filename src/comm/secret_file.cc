// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/secret_file.h"

#include <cerrno>
#include <cstddef>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

/// The bytes of a random key. Most passwords are shorter, and who has heard one handshake can try them all at home.
constexpr std::size_t kMinSecretBytes = 16;
constexpr std::size_t kMaxSecretBytes = 4096;

/// Of the last system call that failed.
std::string error_text() { return std::generic_category().message(errno); }

class File {
 public:
  // Without waiting: a pipe in the file's place would have no end.
  explicit File(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) throw ValueError("secret file " + path + ": " + error_text());
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::string read_secret(const std::string& file) {
  const File opened(file);
  struct stat status {};
  if (::fstat(opened.fd(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw ValueError("secret file " + file + " is no regular file");
  }
  // Root can read anybody's: whoever owns it chooses whom the job lets in.
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    throw ValueError(
        fmt::format("secret file {} belongs to user {}, and must belong to root or to user {}, who "
                    "runs this process: a copy made by that user does",
                    file, status.st_uid, ::geteuid()));
  }
  if (const mode_t mode = status.st_mode & 07777U; (mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw ValueError(fmt::format(
        "secret file {} has mode {:04o}, and must be for its owner only: chmod 600 makes it so",
        file, mode));
  }
  std::string secret(kMaxSecretBytes + 1, '\0');
  std::size_t size = 0;
  while (size < secret.size()) {
    const ssize_t count = ::read(opened.fd(), secret.data() + size, secret.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw ValueError("secret file " + file + ": " + error_text());
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  if (size > kMaxSecretBytes) {
    throw ValueError(
        fmt::format("secret file {} is larger than {} bytes, and must hold a secret of {} to {}",
                    file, kMaxSecretBytes, kMinSecretBytes, kMaxSecretBytes));
  }
  secret.resize(size);
  if (!secret.empty() && secret.back() == '\n') secret.pop_back();
  if (secret.size() < kMinSecretBytes) {
    throw ValueError(fmt::format(
        "secret file {} holds a secret of {} bytes, and must hold one of {} to {}, made at random: "
        "head -c 32 /dev/urandom | base64",
        file, secret.size(), kMinSecretBytes, kMaxSecretBytes));
  }
  return secret;
}

}  // namespace crossdevice::detail
