// SPDX-License-Identifier: Apache-2.0
// What one shared object throws, another one catches by its kind: the type information is one for the process.
#include <string>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

class ErrorBorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Local: the module's own symbols cannot stand in for the library's.
    module_ = dlopen(CROSSDEVICE_TEST_MODULE, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(module_, nullptr) << dlerror();
    throw_kind_ = reinterpret_cast<void (*)(int)>(dlsym(module_, "crossdevice_test_throw"));
    ASSERT_NE(throw_kind_, nullptr) << dlerror();
  }
  void TearDown() override {
    if (module_ != nullptr) dlclose(module_);
  }

  /// Whether `kind` is caught as an E, and as an OpError that has kept its details.
  template <class E>
  void expect_caught_as(int kind) {
    EXPECT_THROW(throw_kind_(kind), E);
    try {
      throw_kind_(kind);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const OpError& error) {
      EXPECT_STREQ(error.what(), "thrown by the module");
      EXPECT_EQ(error.operation().sequence, 7u);
      ASSERT_EQ(error.culprits().size(), 1u);
      EXPECT_EQ(error.culprits()[0].rank, 2);
      EXPECT_NE(dynamic_cast<const E*>(&error), nullptr);
    }
  }

  void* module_ = nullptr;
  void (*throw_kind_)(int) = nullptr;
};

TEST_F(ErrorBorderTest, EveryKindIsCaughtByItsTypeAndByItsBases) {
  expect_caught_as<CancelledError>(1);
  expect_caught_as<DeadlineExceededError>(2);
  expect_caught_as<FailedPreconditionError>(3);
  expect_caught_as<AbortedError>(4);
  expect_caught_as<UnavailableError>(5);
  expect_caught_as<UnimplementedError>(6);
  expect_caught_as<ResourceExhaustedError>(7);
  expect_caught_as<InternalError>(8);
}

TEST_F(ErrorBorderTest, AValueErrorIsCaughtByItsTypeAndAsAnInvalidArgument) {
  EXPECT_THROW(throw_kind_(0), ValueError);
  EXPECT_THROW(throw_kind_(0), std::invalid_argument);
}

TEST_F(ErrorBorderTest, WhatTheLibraryThrowsPassesThroughTheModule) {
  EXPECT_THROW(throw_kind_(9), ValueError);
}

}  // namespace
}  // namespace crossdevice
