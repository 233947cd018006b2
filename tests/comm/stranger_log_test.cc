// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/stranger_log.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <asio/ip/address.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/log_keeper.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread yet
const bool kSaysAll = ::setenv("CROSSDEVICE_LOG_LEVEL", "info", 1) == 0;  // read once, later

asio::ip::tcp::endpoint at(const std::string& address, std::uint16_t port) {
  return {asio::ip::make_address(address), port};
}

std::ptrdiff_t lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

TEST(StrangerLogTest, SaysEachReasonOnceOfEachAddress) {
  const testing::LogKeeper kept;
  StrangerLog log;
  log.set_door("the chief (rank 0)");
  for (std::uint16_t port = 1; port <= 1000; ++port) {
    log.note(at("10.0.0.9", port), "nonsense", "a frame of " + std::to_string(port) + " bytes");
    log.note(at("10.0.0.9", port), "late", "it says nothing");
    log.note(at("10.0.0.10", port), "late", "it says nothing");
  }
  EXPECT_EQ(kept.texts(),
            "the chief (rank 0) refused a connection from 10.0.0.9 (port 1): a frame of 1 bytes\n"
            "the chief (rank 0) refused a connection from 10.0.0.9 (port 1): it says nothing\n"
            "the chief (rank 0) refused a connection from 10.0.0.10 (port 1): it says nothing\n");
}

TEST(StrangerLogTest, AnIpv4AddressIsWrittenAsOneOnSocketsOfBoth) {
  const testing::LogKeeper kept;
  StrangerLog log;
  log.note(at("::ffff:192.0.2.7", 80), "late", "x");
  log.note(at("192.0.2.7", 80), "late", "x");  // the same
  log.note(at("2001:db8::1", 80), "late", "x");
  EXPECT_EQ(kept.texts(),
            "this process refused a connection from 192.0.2.7 (port 80): x\n"
            "this process refused a connection from 2001:db8::1 (port 80): x\n");
}

TEST(StrangerLogTest, SaysOfVisitorsOnceThatTheyCame) {
  ASSERT_TRUE(kSaysAll);
  const testing::LogKeeper kept;
  StrangerLog log;
  log.set_door("the chief (rank 0)");
  for (std::uint16_t port = 1; port <= 1000; ++port) {
    log.note_visit(at("10.0.0.9", port), StrangerLog::kWithoutAWord);
    log.note_visit(at("10.0.0.10", port), StrangerLog::kNotYet);
  }
  EXPECT_EQ(kept.texts(),
            "the chief (rank 0) had a visit from 10.0.0.9 (port 1): it came and went without a "
            "word (a health check, a port scan, or a worker that goes on elsewhere)\n"
            "the chief (rank 0) had a visit from 10.0.0.10 (port 1): it had not said who it is "
            "when the door was closed\n");
  EXPECT_EQ(kept.warnings(), "");
}

class FloodedLogTest : public ::testing::Test {
 protected:
  /// From so many addresses that are new.
  void come(int count) {
    for (int i = 0; i < count; ++i, ++next_) {
      log_.note(
          at("10.0." + std::to_string(next_ / 250) + '.' + std::to_string(next_ % 250 + 1), 80),
          "late", "x", now_);
    }
  }

  const testing::LogKeeper kept_;
  StrangerLog log_;
  StrangerLog::Clock::time_point now_ = StrangerLog::Clock::now();
  int next_ = 0;
};

TEST_F(FloodedLogTest, OfManyAtOnceSomeAreNamed) {
  come(10000);
  EXPECT_EQ(lines_of(kept_.texts()), static_cast<std::ptrdiff_t>(StrangerLog::kMaxLines) + 1);
  EXPECT_THAT(kept_.texts(), HasSubstr("10.0.0.64 (port 80): x\nthis process has refused so many "
                                       "connections that it names one a minute from now on\n"));
  EXPECT_THAT(kept_.texts(), Not(HasSubstr("10.0.0.65 ")));
}

/// Whatever knocks and goes, who is refused is named, and one that was named is not named again.
TEST_F(FloodedLogTest, VisitorsTakeNoLineOfThoseWhoAreRefused) {
  come(1);
  const std::string first = kept_.warnings();
  for (std::size_t i = 0; i < 2 * StrangerLog::kMaxSaid; ++i) {
    const std::string address = "10.1." + std::to_string(i / 250) + '.' + std::to_string(i % 250);
    log_.note_visit(at(address, 80), StrangerLog::kWithoutAWord, now_);
  }
  EXPECT_THAT(kept_.texts(), HasSubstr("this process has had so many visits that it names one a "
                                       "minute from now on\n"));
  EXPECT_EQ(lines_of(kept_.texts()), static_cast<std::ptrdiff_t>(StrangerLog::kMaxLines) + 2);
  EXPECT_EQ(kept_.warnings(), first);
  next_ = 0;
  come(2);
  EXPECT_EQ(kept_.warnings(),
            first + "this process refused a connection from 10.0.0.2 (port 80): x\n");
}

TEST_F(FloodedLogTest, OneAMinuteIsNamedAfterwards) {
  come(static_cast<int>(StrangerLog::kMaxLines) + 10);
  const std::size_t before = kept_.texts().size();
  now_ += StrangerLog::kBetweenFurther;
  come(20);
  EXPECT_EQ(kept_.texts().substr(before),
            "this process refused a connection from 10.0.0.75 (port 80): x; 10 before it are not "
            "named\n");
  now_ += StrangerLog::kBetweenFurther;
  come(1);
  EXPECT_THAT(kept_.texts(), HasSubstr("10.0.0.95 (port 80): x; 19 before it are not named\n"));
  // Whoever is remembered is not named again.
  now_ += StrangerLog::kBetweenFurther;
  next_ = 0;
  come(1);
  EXPECT_EQ(lines_of(kept_.texts()), static_cast<std::ptrdiff_t>(StrangerLog::kMaxLines) + 3);
}

}  // namespace
}  // namespace crossdevice::detail
