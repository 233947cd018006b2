// SPDX-License-Identifier: Apache-2.0
/// A secret, and the file with it that only this user can read.
#pragma once

#include <string>

namespace crossdevice::run {

/// A path nobody else has, in XDG_RUNTIME_DIR, TMPDIR or /tmp.
[[nodiscard]] std::string secret_file_path();

/// A fresh one, of letters and digits.
///
/// Errors   std::runtime_error: the kernel gives no random bytes.
[[nodiscard]] std::string random_secret();

/// Exists as long as the object does.
class SecretFile {
 public:
  /// Errors   std::runtime_error: the file is there already, or cannot be written.
  SecretFile(std::string path, const std::string& secret);
  ~SecretFile();
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace crossdevice::run
