// SPDX-License-Identifier: Apache-2.0
/// The part of transport_conformance.h that is about Transport::exchange().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

#include "comm/transport_fixture.h"

namespace crossdevice::testing {

/// Memory for a message, between edges that nobody may write to. What is in it at first is no message's.
class EdgedMemory {
 public:
  explicit EdgedMemory(std::size_t size) : bytes_(size + 2 * kEdge, kUnwritten) {}
  [[nodiscard]] std::span<std::byte> inside() {
    return std::span(bytes_).subspan(kEdge, bytes_.size() - 2 * kEdge);
  }
  [[nodiscard]] bool holds(const Bytes& message) const {
    Bytes expected(kEdge, kUnwritten);
    expected.insert(expected.end(), message.begin(), message.end());
    expected.insert(expected.end(), kEdge, kUnwritten);
    return bytes_ == expected;
  }

 private:
  static constexpr std::size_t kEdge = 64;
  static constexpr std::byte kUnwritten{0xA5};
  Bytes bytes_;
};

TEST_P(TransportConformance, AnExchangeIsASendAndAReceive) {
  expect_well(3, [&](Transport& transport) {
    Transfer sending;
    Transfer receiving;
    for (std::size_t size : {0U, 1U, 8U, 5000U, 700000U}) {
      for (int other = 0; other < 3; ++other) {
        if (other == transport.rank()) continue;
        const auto rank = static_cast<std::uint64_t>(transport.rank());
        // One behind the other, as with whoever does not exchange.
        const Bytes first = pattern(size + 1, rank);
        const Bytes second = pattern(size, rank + 10);
        const auto from = static_cast<std::uint64_t>(other);
        EdgedMemory received(size);
        if (transport.rank() < other) {
          send(transport, other, first);
          transport.exchange(other, second, sending, received.inside(), receiving, soon());
          EXPECT_TRUE(received.holds(pattern(size, from + 10)));
        } else {
          EXPECT_TRUE(receive(transport, other, size + 1) == pattern(size + 1, from));
          transport.send(other, second, sending);
          transport.receive(other, received.inside(), receiving);
          EXPECT_THROW(
              transport.exchange(other, second, sending, received.inside(), receiving, soon()),
              ValueError);
          transport.wait(sending, soon());
          transport.wait(receiving, soon());
          EXPECT_TRUE(received.holds(pattern(size, from + 10)));
        }
        EXPECT_EQ(transport.take_completed(), nullptr);
        EXPECT_THROW(transport.exchange(other, second, sending, received.inside(), sending, soon()),
                     ValueError);
      }
    }
    EXPECT_EQ(transport.counters().messages_sent,
              20U - 5U * static_cast<unsigned>(transport.rank()));
  });
}

TEST_P(TransportConformance, AnExchangeThatIsTooLongNamesTheOther) {
  std::atomic<bool> has_failed{false};
  const std::vector<Outcome> outcomes = run(2, [&](Transport& transport) {
    meet(transport);
    Bytes bytes(8);
    Bytes received(8);
    Transfer sending;
    Transfer receiving;
    if (transport.rank() == 0) {
      const Outcome outcome = outcome_of(
          [&](Transport& mine) {
            mine.exchange(1, bytes, sending, received, receiving, at_once());
          },
          transport);
      has_failed = true;
      EXPECT_EQ(outcome.code, StatusCode::DEADLINE_EXCEEDED) << outcome.text;
      transport.exchange(1, bytes, sending, received, receiving, soon());  // throws again
    } else {
      while (!has_failed) std::this_thread::yield();
      for (int i = 0; i < 2; ++i) (void)receive(transport, 0, 8);  // one may have come before
    }
  });
  for (const Outcome& each : outcomes) {
    EXPECT_EQ(each.code, StatusCode::DEADLINE_EXCEEDED) << each.text;
    EXPECT_THAT(each.text, ::testing::HasSubstr("waiting for rank 1"));
    EXPECT_EQ(each.culprits, std::vector<int>{1});
  }
}

}  // namespace crossdevice::testing
