// SPDX-License-Identifier: Apache-2.0
/// What is still to be written to one of our own outputs, whose reader may be slow or gone.
#pragma once

#include <cstddef>
#include <string>

#include "run/descriptor.h"

namespace crossdevice::run {

/// The descriptor stays as it is found: whoever shares it would see it turn non-blocking. A pipe or a terminal is opened once more, so that no write blocks, though
/// another sink may have filled it since poll() said that it takes something. What cannot be is written to only after poll(), and little at a time.
class OutputSink {
 public:
  explicit OutputSink(int fd);

  /// For poll().
  [[nodiscard]] int fd() const { return opened_.is_open() ? opened_.get() : fd_; }
  /// Where workers' lines are added.
  [[nodiscard]] std::string& pending() { return pending_; }
  [[nodiscard]] bool is_empty() const { return written_ == pending_.size(); }
  /// Whether so much waits that the workers should wait too.
  [[nodiscard]] bool is_full() const { return pending_.size() - written_ > kFullBytes; }
  /// Writes some; call after poll() has said POLLOUT, POLLERR or POLLHUP.
  void write_some();
  /// The reader is gone: whatever is added is dropped from now on.
  [[nodiscard]] bool is_broken() const { return is_broken_; }
  /// Drops what waits.
  void drop();
  /// Drops what waits and all that is added from now on.
  void give_up() {
    is_broken_ = true;
    drop();
  }

 private:
  static constexpr std::size_t kFullBytes = 1 << 20;

  int fd_;
  Descriptor opened_;  // the same pipe or terminal
  bool is_file_ = false;
  bool is_broken_ = false;
  std::string pending_;
  std::size_t written_ = 0;
};

}  // namespace crossdevice::run
