// SPDX-License-Identifier: Apache-2.0
#include "run/batch_program.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossdevice::run {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A program of the test's own.
class BatchProgramTest : public ::testing::Test {
 protected:
  BatchProgramTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("batch_program_test_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~BatchProgramTest() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string script(const std::string& text) const {
    const std::string program = path("program");
    std::ofstream(program) << "#!/bin/sh\n" << text << '\n';
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    return program;
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(BatchProgramTest, GetsItsCommands) {
  std::string commands;
  for (int i = 0; i < 100000; ++i) commands += "link add port" + std::to_string(i) + "\n";
  run_batch(script("echo \"$@\" > " + path("words") + "; cat > " + path("copy")), commands, "copy");
  std::ostringstream copy;
  copy << std::ifstream(path("copy")).rdbuf();
  EXPECT_EQ(copy.str(), commands);
  std::string words;
  std::getline(std::ifstream(path("words")), words);
  EXPECT_EQ(words, "-batch -");
}

TEST_F(BatchProgramTest, NeedNotReadThem) {
  run_batch(script("exit 0"), std::string(1 << 20, 'x'), "ignore");
  run_batch(script("exit 0"), "", "ignore");
}

TEST_F(BatchProgramTest, WhatItSaysIsTheReason) {
  const std::string program = script("echo out; echo wrong >&2; exit 2");
  EXPECT_THAT(
      [&] { run_batch(program, "a\n", "make a bridge"); },
      ThrowsMessage<std::runtime_error>("cannot make a bridge: " + program + " says: out wrong"));
  EXPECT_THAT([&] { run_batch(script("exit 1"), "a\n", "make a bridge"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("says: nothing, but has failed")));
  EXPECT_THAT([&] { run_batch(script("kill -KILL $$"), "a\n", "make a bridge"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("says: nothing, but has failed")));
}

TEST_F(BatchProgramTest, OneThatIsMissing) {
  EXPECT_THAT([] { run_batch("no-such-program", "a\n", "make a bridge"); },
              ThrowsMessage<std::runtime_error>(
                  "cannot make a bridge: the program no-such-program is missing "
                  "(Debian package iproute2)"));
}

}  // namespace
}  // namespace crossdevice::run
