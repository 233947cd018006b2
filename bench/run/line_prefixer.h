// SPDX-License-Identifier: Apache-2.0
/// Puts "[2] " in front of every line of a stream that comes in pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace crossdevice::run {

/// Lines leave whole, so that those of several workers can be mixed. Bytes are passed on as they are; only '\n' ends a line.
class LinePrefixer {
 public:
  static constexpr std::size_t kMaxLineBytes = 64 * 1024;

  explicit LinePrefixer(std::string prefix, std::size_t max_line_bytes = kMaxLineBytes)
      : prefix_(std::move(prefix)), max_line_bytes_(max_line_bytes) {}

  /// Appends the lines that `bytes` completes. A line that is longer than max_line_bytes leaves in lines of that length.
  void feed(std::string_view bytes, std::string& out);
  /// The stream has ended: appends what is left, with the end of line that it lacks.
  void finish(std::string& out);

 private:
  void emit(std::string_view tail, std::string& out);

  std::string prefix_;
  std::size_t max_line_bytes_;
  std::string begun_;  // a line without its end yet
};

}  // namespace crossdevice::run
