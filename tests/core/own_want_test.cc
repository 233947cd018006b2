// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/core/own_want.h"

#include <cerrno>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

void call(const std::function<void()>& work) try { work(); } catch (...) {
  rethrow_own_want("join");
}

std::system_error of_system(int error) {
  return {std::error_code(error, std::system_category()), "epoll"};
}

TEST(OwnWantTest, WhatIsWantingIsTheLibrarysError) {
  for (const int want : {EMFILE, ENFILE, ENOMEM, ENOBUFS, EAGAIN}) {
    try {
      call([&] { throw of_system(want); });
      FAIL() << want;
    } catch (const ResourceExhaustedError& error) {
      EXPECT_EQ(error.what(), "join: " + std::string(of_system(want).what()));
      EXPECT_TRUE(error.culprits().empty());
      EXPECT_TRUE(error.inputs_intact());
    }
  }
  EXPECT_THROW(call([] { throw std::bad_alloc(); }), ResourceExhaustedError);
}

TEST(OwnWantTest, AsiosNumbersAreTheSystems) {
  class Category : public std::error_category {
   public:
    explicit Category(const char* name) : name_(name) {}
    [[nodiscard]] const char* name() const noexcept override { return name_; }
    [[nodiscard]] std::string message(int /*error*/) const override { return "as asio says it"; }

   private:
    const char* name_;
  };
  const Category asios("asio.system");
  const Category another("asio.misc");
  EXPECT_TRUE(is_want({EMFILE, asios}));
  EXPECT_FALSE(is_want({ECONNREFUSED, asios}));
  EXPECT_FALSE(is_want({EMFILE, another}));
  EXPECT_FALSE(is_want({}));
}

TEST(OwnWantTest, WhatElseIsThrownStays) {
  EXPECT_THROW(call([] { throw of_system(ECONNREFUSED); }), std::system_error);
  EXPECT_THROW(call([] { throw ValueError("wrong"); }), ValueError);
  EXPECT_THROW(call([] { throw UnavailableError("gone"); }), UnavailableError);
  EXPECT_THROW(call([] { throw std::logic_error("other"); }), std::logic_error);
  EXPECT_THROW(call([] { throw 1; }), int);
}

}  // namespace
}  // namespace crossdevice::detail
