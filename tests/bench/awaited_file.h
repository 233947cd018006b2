// SPDX-License-Identifier: Apache-2.0
/// What workers' scripts wait for, and a test brings about when it is their turn.
#pragma once

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/core/deadline.h"

namespace crossdevice::run {

/// A file that is not there yet.
class AwaitedFile {
 public:
  AwaitedFile() : path_(fmt::format("{}awaited_file_{}", ::testing::TempDir(), ::getpid())) {}
  ~AwaitedFile() { ::unlink(path_.c_str()); }
  AwaitedFile(const AwaitedFile&) = delete;
  AwaitedFile& operator=(const AwaitedFile&) = delete;

  void appear() const { EXPECT_TRUE(std::ofstream(path_).is_open()); }
  /// A shell's command that lasts until the file is there.
  [[nodiscard]] std::string awaited() const {
    return fmt::format("while [ ! -e {} ]; do sleep 0.01; done", path_);
  }
  /// Where a worker makes it: whether it has in time.
  [[nodiscard]] bool await(std::chrono::seconds time) const {
    const Deadline deadline = Deadline::after(time);
    while (::access(path_.c_str(), F_OK) != 0) {
      if (deadline.has_passed()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace crossdevice::run
