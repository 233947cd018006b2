// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/stranger_log.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include <asio/ip/address.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/log_keeper.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

TEST(StrangerLogTest, ThereIsAnEndOfIt) {
  const testing::LogKeeper kept;
  StrangerLog log;
  for (int i = 0; i < 10000; ++i) {
    log.note(at("10.0." + std::to_string(i / 250) + '.' + std::to_string(i % 250 + 1), 80), "late",
             "x");
  }
  EXPECT_EQ(lines_of(kept.texts()), static_cast<std::ptrdiff_t>(StrangerLog::kMaxLines) + 1);
  EXPECT_THAT(kept.texts(), HasSubstr("10.0.0.64 (port 80): x\nthis process has refused so many "
                                      "connections that it says nothing of further ones\n"));
  EXPECT_THAT(kept.texts(), Not(HasSubstr("10.0.0.65 ")));
}

}  // namespace
}  // namespace crossdevice::detail
