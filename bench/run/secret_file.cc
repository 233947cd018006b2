// SPDX-License-Identifier: Apache-2.0
#include "run/secret_file.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crossdevice/core/environment.h"

#include "run/descriptor.h"
#include "run/system_error.h"

namespace crossdevice::run {
namespace {

/// Random digits of `size` bytes.
template <std::size_t Size>
std::string random_hex() {
  std::array<unsigned char, Size> bytes{};
  std::size_t have = 0;
  while (have < Size) {
    const ssize_t count = ::getrandom(bytes.data() + have, Size - have, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_failure("get random bytes");
    have += static_cast<std::size_t>(count);
  }
  std::string text;
  text.reserve(2 * Size);
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

std::string secret_file_path() {
  const EnvironmentSource environment = process_environment();
  std::string directory = "/tmp";
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const std::string candidate = environment(name).value_or("");
    if (candidate.starts_with('/') && ::access(candidate.c_str(), W_OK | X_OK) == 0) {
      directory = candidate;
      break;
    }
  }
  return fmt::format("{}/crossdevice-run-{}.secret", directory, random_hex<8>());
}

std::string random_secret() { return random_hex<32>(); }

SecretFile::SecretFile(std::string path, const std::string& secret) : path_(std::move(path)) {
  const std::string line = secret + "\n";
  const Descriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                               S_IRUSR | S_IWUSR));
  if (!file.is_open()) throw system_failure("make the secret file " + path_);
  // A file's owner may have a mask that takes the owner's own rights away.
  if (::fchmod(file.get(), S_IRUSR | S_IWUSR) != 0 ||
      ::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    const int error = errno;
    ::unlink(path_.c_str());
    throw system_failure("write the secret file " + path_, error);
  }
}

SecretFile::~SecretFile() { ::unlink(path_.c_str()); }

}  // namespace crossdevice::run
