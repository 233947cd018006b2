// SPDX-License-Identifier: Apache-2.0
/// What workers' scripts wait for, and a test brings about when it is their turn.
#pragma once

#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

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
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace crossdevice::run
