// SPDX-License-Identifier: Apache-2.0
/// A program that stands in for ssh: HOST COMMAND, run on this machine as if on another.
#pragma once

#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossdevice::run {

/// As behind ssh, the command has a session and an environment of its own, and learns that the client is gone only because its standard input ends. Hosts
/// that begin with "unknown" cannot be reached, and those with "silent" never answer. `enter` is put in front of the command: "nsenter ...", with $host.
class FakeRemoteShell {
 public:
  explicit FakeRemoteShell(const std::string& enter = "")
      : path_(fmt::format("{}fake_remote_shell_{}", ::testing::TempDir(), ::getpid())) {
    std::ofstream(path_) << "#!/bin/sh\n"
                            "host=$1\n"
                            "shift\n"
                            "case $host in unknown*)\n"
                            "  echo \"cannot resolve $host\" >&2\n"
                            "  exit 255;;\n"
                            "silent*) exec sleep 1000;;\n"
                            "esac\n"
                            "exec "
                         << enter
                         << " setsid -w env -i PATH=/usr/bin:/bin HERE=$host "
                            "CROSSDEVICE_HOST_ID=$host sh -c \"$*\"\n";
    EXPECT_EQ(::chmod(path_.c_str(), S_IRWXU), 0);
  }
  ~FakeRemoteShell() { ::unlink(path_.c_str()); }
  FakeRemoteShell(const FakeRemoteShell&) = delete;
  FakeRemoteShell& operator=(const FakeRemoteShell&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace crossdevice::run
