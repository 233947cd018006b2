// SPDX-License-Identifier: Apache-2.0
/// Tests of support/program.h.
#include "support/program.h"

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice::programs {
namespace {

int code_of(const std::function<int()>& body, std::string* text = nullptr) {
  testing::internal::CaptureStderr();
  const int code = run_program("some-program", body);
  const std::string captured = testing::internal::GetCapturedStderr();
  if (text != nullptr) *text = captured;
  return code;
}

TEST(ProgramTest, PassesTheBodysExitCodeOn) {
  EXPECT_EQ(code_of([] { return kExitOk; }), 0);
  EXPECT_EQ(code_of([] { return kExitWrongValues; }), 1);
}

TEST(ProgramTest, WrongArgumentsEndWithTwo) {
  std::string text;
  EXPECT_EQ(code_of([]() -> int { throw ArgumentError("--what is wrong"); }, &text), 2);
  EXPECT_EQ(text, "some-program: --what is wrong\n(see some-program --help)\n");
  EXPECT_EQ(code_of([]() -> int { throw ValueError("GPU:9: this host has 0 GPUs"); }, &text), 2);
  EXPECT_EQ(text, "some-program: GPU:9: this host has 0 GPUs\n");
}

TEST(ProgramTest, FailuresEndWithThreeAndOneLine) {
  std::string text;
  EXPECT_EQ(code_of([]() -> int { throw std::runtime_error("no such file"); }, &text), 3);
  EXPECT_EQ(text, "some-program: no such file\n");
  EXPECT_EQ(code_of([]() -> int { throw std::bad_alloc(); }, &text), 3);
  EXPECT_EQ(text, "some-program: out of memory\n");
}

}  // namespace
}  // namespace crossdevice::programs
