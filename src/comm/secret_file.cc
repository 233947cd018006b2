// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/secret_file.h"

#include <cerrno>
#include <cstddef>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

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
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw ValueError("secret file " + file + " must be for its owner only: chmod 600 makes it so");
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
  if (size > kMaxSecretBytes) throw ValueError("secret file " + file + " is larger than 4 KiB");
  secret.resize(size);
  if (!secret.empty() && secret.back() == '\n') secret.pop_back();
  if (secret.empty()) throw ValueError("secret file " + file + " is empty");
  return secret;
}

}  // namespace crossdevice::detail
