// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/authentication.h"

#include <cerrno>
#include <cstdint>
#include <system_error>

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
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
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) throw ValueError("secret file " + path + ": " + error_text());
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

/// A cluster may live in a variable that is destroyed after main(), its control thread with it. Were OpenSSL to clean up in an exit handler of its own,
/// that thread would use what is gone, and its own part would never be freed. So it does not, unless the program has begun to use it before.
void begin_openssl() {
  [[maybe_unused]] static const int has_begun =
      OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
}

}  // namespace

Nonce make_nonce() {
  begin_openssl();
  Nonce nonce{};
  if (RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) != 1) {
    throw ResourceExhaustedError("the system has no random bytes for a handshake");
  }
  return nonce;
}

Mac authenticate(std::string_view secret, std::initializer_list<std::string_view> parts) {
  begin_openssl();
  std::string message;
  for (const std::string_view part : parts) {
    std::uint64_t size = part.size();
    for (int i = 0; i < 8; ++i, size >>= 8U) message.push_back(static_cast<char>(size & 0xFFU));
    message.append(part);
  }
  Mac mac{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), mac.data(),
           &size) == nullptr ||
      size != mac.size()) {
    throw InternalError("HMAC-SHA256 is not available");
  }
  return mac;
}

bool is_equal(const Mac& a, const Mac& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

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
