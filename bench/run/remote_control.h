// SPDX-License-Identifier: Apache-2.0
/// The standard input of a remote shell: the job, then signals.
#pragma once

#include <string>

#include "run/descriptor.h"

namespace crossdevice::run {

/// The other end may be slow to read, or gone: nothing here blocks, and what nobody reads is dropped.
class RemoteControl {
 public:
  RemoteControl() = default;
  /// `pipe` does not block. `first` is sent before any signal.
  RemoteControl(Descriptor pipe, std::string first);

  [[nodiscard]] bool is_open() const { return pipe_.is_open(); }
  [[nodiscard]] int fd() const { return pipe_.get(); }
  [[nodiscard]] bool has_unsent() const { return sent_ != bytes_.size(); }
  /// Queues a signal's number, one byte; 0 says only that this end is still there.
  void signal(int number);
  /// Writes what the pipe takes.
  void write_some();

 private:
  Descriptor pipe_;
  std::string bytes_;
  std::size_t sent_ = 0;
};

}  // namespace crossdevice::run
