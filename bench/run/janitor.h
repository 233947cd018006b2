// SPDX-License-Identifier: Apache-2.0
/// A small process that cleans up when crossdevice-run is killed and cannot do so itself.
#pragma once

#include <string>

#include <sys/types.h>

#include "run/descriptor.h"

namespace crossdevice::run {

/// The janitor reads from a pipe whose other end only crossdevice-run holds. It is told of every worker's process group before the worker's
/// program begins, and of its end. When the pipe ends without a goodbye, crossdevice-run has died: the janitor kills the groups it knows and
/// removes the file. It is in a session of its own and ignores the signals that end jobs.
class Janitor {
 public:
  /// Starts it. `file` need not exist yet.
  ///
  /// Errors   std::runtime_error: no process can be made.
  explicit Janitor(const std::string& file);
  /// Says goodbye and waits for its end.
  ~Janitor();
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// A worker calls this for itself, between fork and exec: only so is there no moment in which nobody would clean up.
  void watch_group(pid_t group) const;
  /// The group's leader has been reaped: its number may belong to somebody else from now on.
  void forget_group(pid_t group) const;

 private:
  Descriptor pipe_;
  pid_t pid_ = -1;
};

}  // namespace crossdevice::run
