// SPDX-License-Identifier: Apache-2.0
/// What every transport does, whatever carries the bytes. Workers in shared memory have no transport, since they exchange no messages: what they promise in common
/// with those that do is in tests/collective/engine_conformance.h. A transport's own test program instantiates this suite:
///
///   INSTANTIATE_TEST_SUITE_P(InProcess, TransportConformance, ::testing::Values(TransportCase{"in_process", make_in_process_transports}));
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/counter.h"
#include "crossdevice/core/environment.h"

#include "comm/exchange_conformance.h"
#include "comm/transport_fixture.h"
#include "support/allocation_counter.h"

namespace crossdevice::testing {

TEST_P(TransportConformance, MessagesOfAllSizes) {
  const std::vector<std::size_t> sizes = {0,     1,      7,      8,      95,      96,
                                          97,    4000,   4096,   4097,   65535,   65536,
                                          65537, 262143, 262144, 262145, 1 << 20, 3000017};
  expect_well(2, [&](Transport& transport) {
    for (const std::size_t size : sizes) {
      if (transport.rank() == 0) {
        send(transport, 1, pattern(size, size));
      } else {
        // With bytes around it that must stay as they are.
        Bytes area(size + 64, std::byte{0xEE});
        Transfer transfer;
        transport.receive(0, std::span(area).subspan(32, size), transfer);
        transport.wait(transfer, soon());
        EXPECT_TRUE(transfer.is_done());
        Bytes expected(32, std::byte{0xEE});
        const Bytes middle = pattern(size, size);
        expected.insert(expected.end(), middle.begin(), middle.end());
        expected.resize(size + 64, std::byte{0xEE});
        EXPECT_TRUE(area == expected) << size << " bytes";
      }
    }
  });
}

TEST_P(TransportConformance, LargeMessagesBothWaysAtOnce) {
  constexpr std::size_t kBytes = (std::size_t{64} << 20) + 5;
  expect_well(2, [&](Transport& transport) {
    const int peer = 1 - transport.rank();
    const Bytes out = pattern(kBytes, static_cast<std::uint64_t>(transport.rank()));
    Bytes in(kBytes);
    std::vector<Transfer> transfers(2);
    transport.send(peer, out, transfers[0]);
    transport.receive(peer, in, transfers[1]);
    wait_for(transport, transfers);
    EXPECT_TRUE(in == pattern(kBytes, static_cast<std::uint64_t>(peer)));
  });
}

TEST_P(TransportConformance, ManySmallMessagesKeepTheirOrder) {
  constexpr std::size_t kMessages = 2000;
  expect_well(2, [&](Transport& transport) {
    const int peer = 1 - transport.rank();
    std::vector<Bytes> out(kMessages);
    std::vector<Bytes> in(kMessages);
    std::vector<Transfer> transfers(2 * kMessages);
    for (std::size_t i = 0; i < kMessages; ++i) {
      out[i] = pattern(i % 97, i);
      in[i].resize(i % 97);
      transport.send(peer, out[i], transfers[i]);
      transport.receive(peer, in[i], transfers[kMessages + i]);
    }
    wait_for(transport, transfers);
    EXPECT_TRUE(in == out);
  });
}

TEST_P(TransportConformance, ReceivesArePostedBeforeOrAfterTheMessageComes) {
  expect_well(2, [&](Transport& transport) {
    const int peer = 1 - transport.rank();
    for (std::size_t i = 0; i < 200; ++i) {
      const bool sends_first = (i % 2 == 0) == (transport.rank() == 0);
      const Bytes expected = pattern(1 + i * i, i);
      if (sends_first) send(transport, peer, expected);
      EXPECT_TRUE(receive(transport, peer, expected.size()) == expected);
      if (!sends_first) send(transport, peer, expected);
    }
  });
}

TEST_P(TransportConformance, RingsOfAllNumbers) {
  for (const int num_ranks : {1, 2, 3, 4, 5, 8}) {
    expect_well(num_ranks, [&](Transport& transport) {
      const int next = (transport.rank() + 1) % num_ranks;
      const int before = (transport.rank() + num_ranks - 1) % num_ranks;
      Bytes token = pattern(10007, static_cast<std::uint64_t>(transport.rank()));
      if (num_ranks == 1) return;
      for (int step = 0; step < num_ranks; ++step) {
        Bytes received(token.size());
        std::vector<Transfer> transfers(2);
        transport.send(next, token, transfers[0]);
        transport.receive(before, received, transfers[1]);
        wait_for(transport, transfers);
        token = received;
      }
      EXPECT_TRUE(token == pattern(10007, static_cast<std::uint64_t>(transport.rank())));
    });
  }
}

TEST_P(TransportConformance, CompletedTransfersAreGivenOnceEach) {
  constexpr int kRanks = 5;
  constexpr std::size_t kRounds = 7;
  expect_well(kRanks, [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    std::vector<Bytes> buffers;
    for (int each = 0; each < kRanks; ++each) {
      for (std::size_t round = 0; round < kRounds; ++round) {
        buffers.push_back(pattern(1000 * round, rank * 100 + round));
        buffers.emplace_back(1000 * round);
      }
    }
    std::vector<Transfer> transfers(buffers.size());
    std::size_t num_queued = 0;
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      const int peer = static_cast<int>(i / (2 * kRounds));
      transfers[i].tag = i;
      if (peer == transport.rank()) continue;
      ++num_queued;
      if (i % 2 == 0) {
        transport.send(peer, buffers[i], transfers[i]);
      } else {
        transport.receive(peer, buffers[i], transfers[i]);
      }
    }
    std::vector<int> times(transfers.size());
    for (std::size_t num_taken = 0; num_taken < num_queued;) {
      transport.wait(soon());
      while (Transfer* const transfer = transport.take_completed()) {
        EXPECT_TRUE(transfer->is_done());
        ++times[transfer->tag];
        ++num_taken;
      }
    }
    transport.wait(soon());  // nothing is under way
    EXPECT_EQ(transport.take_completed(), nullptr);
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      const std::size_t peer = i / (2 * kRounds);
      EXPECT_EQ(times[i], peer == rank ? 0 : 1);
      if (peer != rank && i % 2 == 1) {
        const std::size_t round = i / 2 % kRounds;
        EXPECT_TRUE(buffers[i] == pattern(1000 * round, peer * 100 + round));
      }
    }
  });
}

TEST_P(TransportConformance, ATransferThatWasWaitedForIsNotGivenAgain) {
  expect_well(2, [&](Transport& transport) {
    const int peer = 1 - transport.rank();
    Bytes bytes(8);
    Bytes other(8);
    Transfer first;
    Transfer second;
    for (int round = 0; round < 3; ++round) {  // transfers may be used again
      transport.send(peer, bytes, first);
      transport.receive(peer, other, second);
      EXPECT_THROW(transport.send(peer, bytes, first), ValueError);
      transport.wait(first, soon());
      transport.wait(second, soon());
      EXPECT_EQ(transport.take_completed(), nullptr);
    }
  });
}

TEST_P(TransportConformance, CountersAreExact) {
  std::vector<TransportCounters> counters(3);
  expect_well(3, [&](Transport& transport) {
    for (std::size_t i = 0; i < 10; ++i) {
      if (transport.rank() == 0) send(transport, 1, Bytes(i * 1000));
      if (transport.rank() == 1) {
        (void)receive(transport, 0, i * 1000);
        send(transport, 2, Bytes(1));
      }
      if (transport.rank() == 2) (void)receive(transport, 1, 1);
    }
    counters[static_cast<std::size_t>(transport.rank())] = transport.counters();
  });
  EXPECT_EQ(counters[0], (TransportCounters{10, 0, 45000, 0}));
  EXPECT_EQ(counters[1], (TransportCounters{10, 10, 10, 45000}));
  EXPECT_EQ(counters[2], (TransportCounters{0, 10, 0, 10}));
}

TEST_P(TransportConformance, OperationsFollowEachOther) {
  expect_well(4, [&](Transport& transport) {
    for (std::uint64_t round = 0; round < 50; ++round) {
      transport.begin(operation(round));
      meet(transport);
    }
  });
}

TEST_P(TransportConformance, NothingMayBeUnderWayWhenAnOperationBegins) {
  expect_well(2, [&](Transport& transport) {
    Bytes bytes(8);
    Transfer transfer;
    if (transport.rank() == 0) {
      transport.receive(1, bytes, transfer);
      EXPECT_THROW(transport.begin(operation()), FailedPreconditionError);
      transport.wait(transfer, soon());
    } else {
      send(transport, 0, bytes);
    }
    transport.begin(operation());
    meet(transport);
  });
}

/// The second member's message does not fit the first one's receive, whose memory stays as it is.
inline void expect_mismatch(const std::vector<Outcome>& outcomes, const Bytes& memory,
                            const std::string& one, const std::string& other) {
  for (const Outcome& each : outcomes) {
    EXPECT_EQ(each.code, StatusCode::INTERNAL) << each.text;
    EXPECT_THAT(each.text, ::testing::HasSubstr(one));
    EXPECT_THAT(each.text, ::testing::HasSubstr(other));
  }
  EXPECT_TRUE(memory == Bytes(memory.size(), std::byte{0xEE}));
}

TEST_P(TransportConformance, DifferentOperationsAreFoundBeforeAByteIsWritten) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{1} << 20}) {
    Bytes memory(size, std::byte{0xEE});
    const std::vector<Outcome> outcomes = run(3, [&](Transport& transport) {
      transport.begin(operation(transport.rank() == 1 ? 0xABC : 0xDEF));
      Transfer transfer;
      if (transport.rank() == 0) {
        transport.receive(1, memory, transfer);
        transport.wait(transfer, soon());
      }
      if (transport.rank() == 1) send(transport, 0, Bytes(size));
      // Until the others say what is wrong.
      (void)receive(transport, (transport.rank() + 1) % 3, 8);
    });
    expect_mismatch(outcomes, memory, "(fingerprint abc)", "(fingerprint def)");
  }
}

TEST_P(TransportConformance, DifferentOperationsAreFoundWhereNothingIsExpected) {
  for (const bool waits : {true, false}) {
    Bytes memory(8, std::byte{0xEE});
    const std::vector<Outcome> outcomes = run(3, [&](Transport& transport) {
      transport.begin(operation(transport.rank() == 1 ? 0xABC : 0xDEF));
      if (transport.rank() == 1) send(transport, 0, Bytes(8));
      while (transport.rank() == 0 && !waits && !soon().has_passed()) transport.look();
      // The last one from nobody who would send: until the others say what is wrong.
      (void)receive(transport, transport.rank() == 0 ? 2 : 0, 8);
    });
    expect_mismatch(outcomes, memory, "(fingerprint abc)", "(fingerprint def)");
  }
}

TEST_P(TransportConformance, WhoIsAheadIsInNoOtherOperation) {
  const std::vector<Outcome> outcomes = run(2, [](Transport& transport) {
    transport.begin(operation(1));
    if (transport.rank() == 1) {
      transport.begin(operation(2));
      send(transport, 0, Bytes(8));
      (void)receive(transport, 0, 8);
      return;
    }
    for (int i = 0; i < 1000; ++i) transport.look();
    transport.begin(operation(2));
    for (int i = 0; i < 1000; ++i) transport.look();
    (void)receive(transport, 1, 8);
    send(transport, 1, Bytes(8));
  });
  for (const Outcome& each : outcomes) EXPECT_EQ(each.text, "");
}

TEST_P(TransportConformance, WhoLooksHearsAStopOrGoesOnAtTheDeadline) {
  const std::vector<Outcome> outcomes = run(2, [](Transport& transport) {
    transport.begin(operation());
    transport.look_until(Deadline::after_timeout_seconds(0.01));
    if (transport.rank() == 0) {
      send(transport, 1, Bytes(8));
      transport.look_until(soon());
    } else {
      (void)receive(transport, 0, 8);
      transport.stop(StatusCode::RESOURCE_EXHAUSTED, "no memory");
      transport.look();
    }
  });
  for (const Outcome& each : outcomes) EXPECT_THAT(each.text, ::testing::HasSubstr("no memory"));
}

TEST_P(TransportConformance, EqualOperationsAreToldApartByTheirNumber) {
  Bytes memory(8, std::byte{0xEE});
  const std::vector<Outcome> outcomes = run(2, [&](Transport& transport) {
    Transfer transfer;
    if (transport.rank() == 0) {
      transport.receive(1, memory, transfer);
      transport.wait(transfer, soon());
    } else {
      transport.begin(operation());
      send(transport, 0, Bytes(8));
      (void)receive(transport, 0, 8);
    }
  });
  expect_mismatch(outcomes, memory, "#1 test", "#2 test");
}

TEST_P(TransportConformance, DifferentSizesAreFoundBeforeAByteIsWritten) {
  for (const std::size_t size : {0U, 7U, 9U, 1U << 20}) {
    Bytes memory(8, std::byte{0xEE});
    const std::vector<Outcome> outcomes = run(2, [&](Transport& transport) {
      Transfer transfer;
      if (transport.rank() == 0) {
        transport.receive(1, memory, transfer);
        transport.wait(transfer, soon());
      } else {
        send(transport, 0, Bytes(size));
        (void)receive(transport, 0, 8);
      }
    });
    expect_mismatch(outcomes, memory, "sends " + std::to_string(size) + " bytes", "expects 8");
  }
}

TEST_P(TransportConformance, ADeadlineNamesWhoWasWaitedFor) {
  std::atomic<bool> has_failed{false};
  const std::vector<Outcome> outcomes = run(3, [&](Transport& transport) {
    meet(transport);
    Bytes bytes(8);
    Transfer transfer;
    if (transport.rank() == 0) {
      transport.receive(2, bytes, transfer);
      const Outcome outcome =
          outcome_of([&](Transport& mine) { mine.wait(transfer, at_once()); }, transport);
      has_failed = true;
      EXPECT_FALSE(transfer.is_done());
      EXPECT_EQ(outcome.code, StatusCode::DEADLINE_EXCEEDED) << outcome.text;
      EXPECT_THAT(outcome.text, ::testing::HasSubstr("waiting for rank 2"));
      EXPECT_EQ(outcome.culprits, std::vector<int>{2});
      transport.wait(soon());  // throws again
    } else if (transport.rank() == 1) {
      transport.receive(0, bytes, transfer);
      transport.wait(transfer, soon());
    } else {
      while (!has_failed) std::this_thread::yield();
      transport.receive(0, bytes, transfer);  // too late: here, or in the wait
      transport.wait(transfer, soon());
    }
  });
  for (const Outcome& each : outcomes) {
    EXPECT_EQ(each.code, StatusCode::DEADLINE_EXCEEDED) << each.text;
    EXPECT_THAT(each.text, ::testing::HasSubstr("waiting for rank 2"));
    EXPECT_EQ(each.culprits, std::vector<int>{2});
  }
}

TEST_P(TransportConformance, ADeadlineThatHasPassedStillTakesWhatIsThere) {
  expect_well(2, [&](Transport& transport) {
    Bytes bytes(8);
    Transfer transfer;
    if (transport.rank() == 0) {
      transport.send(1, bytes, transfer);
      transport.wait(transfer, soon());
    } else {
      transport.receive(0, bytes, transfer);
      while (!transfer.is_done()) (void)transport.poll();
      transport.wait(transfer, Deadline::after(std::chrono::seconds(-1)));
      transport.wait(Deadline::after(std::chrono::seconds(-1)));  // nothing is under way
    }
  });
}

TEST_P(TransportConformance, WhoHasFailedKnowsWhatHadMoved) {
  std::vector<std::vector<PeerTraffic>> traffic(3);
  std::atomic<bool> is_waited_for{false};
  const std::vector<Outcome> outcomes = run(3, [&](Transport& transport) {
    transport.begin(operation());
    Transfer never;
    Bytes bytes(8);
    try {
      if (transport.rank() == 0) {
        send(transport, 1, Bytes(8));
        transport.receive(1, bytes, never);
        is_waited_for = true;
      } else if (transport.rank() == 1) {
        (void)receive(transport, 0, 8);
        transport.receive(0, bytes, never);
        const Deadline limit = soon();
        while (!is_waited_for && !limit.has_passed()) std::this_thread::yield();
      }
      if (transport.rank() == 1) transport.wait(Deadline::after_timeout_seconds(0.5));
      transport.look_until(Deadline::never());
    } catch (const OpError&) {
      const std::span<const PeerTraffic> all = transport.traffic_at_end();
      traffic[static_cast<std::size_t>(transport.rank())].assign(all.begin(), all.end());
      throw;
    }
  });
  const auto is = [](const PeerTraffic& each, int rank, std::uint64_t sent,
                     std::uint64_t received) {
    return each.rank == rank && each.num_sent == sent && each.num_received == received &&
           each.is_awaited;
  };
  for (const Outcome& each : outcomes) EXPECT_EQ(each.code, StatusCode::DEADLINE_EXCEEDED);
  ASSERT_EQ(traffic[0].size(), 1U);
  EXPECT_TRUE(is(traffic[0][0], 1, 1, 0));
  ASSERT_EQ(traffic[1].size(), 1U);
  EXPECT_TRUE(is(traffic[1][0], 0, 0, 1));
  EXPECT_THAT(traffic[2], ::testing::IsEmpty());
}

TEST_P(TransportConformance, StopEndsAWaitAndReachesTheOthers) {
  for (const int stopper :
       {0, 2}) {  // one that waits (stopped from another thread), one that does not
    std::atomic<int> num_waiting{0};
    const std::vector<Outcome> outcomes = run(3, [&](Transport& transport) {
      meet(transport);
      const auto stop = [&] {
        while (num_waiting < 2) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // they sleep, most likely
        transport.stop(StatusCode::ABORTED, "enough", {{.rank = 1}});
        transport.stop(StatusCode::INTERNAL, "too late");
      };
      if (transport.rank() == 2 && stopper == 2) stop();
      if (transport.rank() != 2) ++num_waiting;
      Bytes bytes(8);
      std::thread another;
      if (transport.rank() == 0 && stopper == 0) another = std::thread(stop);
      const Outcome outcome = outcome_of(
          [&](Transport& mine) {
            Transfer transfer;
            mine.receive((mine.rank() + 1) % 3, bytes, transfer);
            mine.wait(transfer, soon());
          },
          transport);
      if (another.joinable()) another.join();
      EXPECT_EQ(outcome.code, StatusCode::ABORTED) << outcome.text;
      transport.wait(soon());  // throws the same
    });
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      EXPECT_EQ(outcomes[rank].code, StatusCode::ABORTED) << outcomes[rank].text;
      EXPECT_THAT(outcomes[rank].text, ::testing::HasSubstr("enough"));
      EXPECT_EQ(outcomes[rank].culprits, std::vector<int>{1});
      if (static_cast<int>(rank) != stopper) {
        EXPECT_THAT(outcomes[rank].text, ::testing::StartsWith("rank " + std::to_string(stopper)));
      }
    }
  }
}

TEST_P(TransportConformance, StopComesThroughInTheMiddleOfALargeMessage) {
  constexpr std::size_t kBytes = std::size_t{32} << 20;
  const std::vector<Outcome> outcomes = run(2, [&](Transport& transport) {
    Bytes bytes(kBytes);
    Transfer transfer;
    if (transport.rank() == 0) {
      transport.send(1, bytes, transfer);
      for (int i = 0; i < 20; ++i) (void)transport.poll();
      transport.stop(StatusCode::ABORTED, "enough");
      transport.wait(soon());
    } else {
      transport.receive(0, bytes, transfer);
      transport.wait(transfer, soon());
    }
  });
  EXPECT_EQ(outcomes[0].code, StatusCode::ABORTED) << outcomes[0].text;
  EXPECT_THAT(outcomes[0].culprits, ::testing::IsEmpty());
  EXPECT_EQ(outcomes[1].code, StatusCode::ABORTED) << outcomes[1].text;
  EXPECT_THAT(outcomes[1].text, ::testing::HasSubstr("enough"));
  EXPECT_EQ(outcomes[1].culprits, std::vector<int>{0});
}

TEST_P(TransportConformance, StopReachesOneThatHasNotReadItsMessages) {
  std::atomic<bool> has_stopped{false};
  const std::vector<Outcome> outcomes = run(3, [&](Transport& transport) {
    meet(transport);
    Bytes bytes(100000);
    std::vector<Transfer> transfers(2);
    if (transport.rank() == 0) {
      transport.send(1, bytes, transfers[0]);
      transport.send(1, bytes, transfers[1]);
      for (int i = 0; i < 20; ++i) (void)transport.poll();
      transport.stop(StatusCode::ABORTED, "enough");
      has_stopped = true;
    } else {
      while (!has_stopped) std::this_thread::yield();
      transport.receive(3 - transport.rank(), bytes, transfers[0]);  // not from rank 0
      transport.wait(transfers[0], soon());
    }
  });
  for (const std::size_t rank : {1U, 2U}) {
    EXPECT_EQ(outcomes[rank].code, StatusCode::ABORTED) << outcomes[rank].text;
    EXPECT_THAT(outcomes[rank].text, ::testing::HasSubstr("enough"));
  }
}

TEST_P(TransportConformance, EveryCallAfterAFailureThrowsIt) {
  make(2);
  const std::vector<Outcome> outcomes = run_made([&](Transport& transport) {
    connect_to_all(transport);
    transport.begin(operation());
    meet(transport);
    if (transport.rank() == 1) return;
    transport.stop(StatusCode::UNAVAILABLE, "reason");
    Bytes bytes(8);
    Transfer transfer;
    const std::vector<int> peers = {1};
    const std::vector<Work> calls = {[&](Transport& mine) { mine.connect(peers, soon()); },
                                     [&](Transport& mine) { mine.begin(operation()); },
                                     [&](Transport& mine) { mine.send(1, bytes, transfer); },
                                     [&](Transport& mine) { mine.receive(1, bytes, transfer); },
                                     [&](Transport& mine) { (void)mine.poll(); },
                                     [&](Transport& mine) { mine.wait(soon()); },
                                     [&](Transport& mine) { (void)mine.take_completed(); }};
    for (const Work& call : calls) {
      const Outcome outcome = outcome_of(call, transport);
      EXPECT_EQ(outcome.code, StatusCode::UNAVAILABLE);
      EXPECT_EQ(outcome.text, "reason");
    }
  });
  EXPECT_EQ(outcomes[0].text, "");
}

TEST_P(TransportConformance, AMemberThatHasLeftIsNamed) {
  for (const bool sends : {false, true}) {
    make(3);
    const std::vector<Outcome> outcomes = run_made([&](Transport& transport) {
      connect_to_all(transport);
      transport.begin(operation());
      meet(transport);
      const auto index = static_cast<std::size_t>(transport.rank());
      if (transport.rank() == 2) return transports()[index].reset();
      if (transport.rank() == 1) return;
      // More than any buffer takes.
      Bytes bytes(std::size_t{sends ? 64U : 1U} << 20);
      Transfer transfer;
      if (sends) {
        transport.send(2, bytes, transfer);
      } else {
        transport.receive(2, bytes, transfer);
      }
      transport.wait(transfer, soon());
    });
    EXPECT_EQ(outcomes[0].code, StatusCode::UNAVAILABLE) << outcomes[0].text;
    EXPECT_THAT(outcomes[0].text, ::testing::HasSubstr("rank 2"));
    EXPECT_EQ(outcomes[0].culprits, std::vector<int>{2});
  }
}

TEST_P(TransportConformance, AMemberThatHasLeftIsNotMissedByTheOthers) {
  std::atomic<bool> has_left{false};
  make(3);
  const std::vector<Outcome> outcomes = run_made([&](Transport& transport) {
    connect_to_all(transport);
    transport.begin(operation());
    meet(transport);
    if (transport.rank() == 2) {
      send(transport, 0, pattern(1000, 1));
      transports()[2].reset();
      has_left = true;
      return;
    }
    const int peer = 1 - transport.rank();
    if (transport.rank() == 0) {
      EXPECT_TRUE(receive(transport, 2, 1000) == pattern(1000, 1));
    }
    while (!has_left) std::this_thread::yield();
    if (transport.rank() == 0) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(20));  // the other one sleeps, most likely
      send(transport, peer, Bytes(8));
    }
    if (transport.rank() == 1) (void)receive(transport, peer, 8);
  });
  for (const Outcome& each : outcomes) EXPECT_EQ(each.text, "");
}

TEST_P(TransportConformance, MessagesOfAMemberThatHasLeftStillCome) {
  std::atomic<bool> has_left{false};
  make(2);
  const std::vector<Outcome> outcomes = run_made([&](Transport& transport) {
    connect_to_all(transport);
    transport.begin(operation());
    meet(transport);
    if (transport.rank() == 0) {
      // Small enough to be done without the receiver where there are buffers.
      const Bytes bytes = pattern(10000, 1);
      std::vector<Transfer> transfers(3);
      for (Transfer& each : transfers) transport.send(1, bytes, each);
      wait_for(transport, transfers);
      transports()[0].reset();
      has_left = true;
    } else {
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(receive(transport, 0, 10000) == pattern(10000, 1));
        if (i == 1 && GetParam().name != "in_process") {
          while (!has_left) std::this_thread::yield();
        }
      }
    }
  });
  for (const Outcome& each : outcomes) EXPECT_EQ(each.text, "");
}

TEST_P(TransportConformance, ATransportEndsWithMessagesUnderWay) {
  make(2);
  Bytes in(100000, std::byte{0xEE});
  std::atomic<bool> has_left{false};
  const std::vector<Outcome> outcomes = run_made([&](Transport& transport) {
    connect_to_all(transport);
    transport.begin(operation());
    meet(transport);
    if (transport.rank() == 0) {
      const Bytes out = pattern(in.size(), 1);
      std::vector<Transfer> transfers(2);
      transport.send(1, out, transfers[0]);
      transport.receive(1, in, transfers[1]);
      transports()[0].reset();
      std::fill(in.begin(), in.end(), std::byte{0xDD});
      has_left = true;
    } else {
      while (!has_left) std::this_thread::yield();
      send(transport, 0, Bytes(in.size()));
      send(transport, 0, Bytes(std::size_t{64} << 20));
    }
  });
  EXPECT_EQ(outcomes[0].text, "");
  EXPECT_EQ(outcomes[1].code, StatusCode::UNAVAILABLE) << outcomes[1].text;
  EXPECT_TRUE(in == Bytes(in.size(), std::byte{0xDD}));
}

TEST_P(TransportConformance, MemoryIsLetGoOfBeforeADeadlineIsThrown) {
  std::atomic<bool> has_given_up{false};
  Bytes in(std::size_t{32} << 20, std::byte{0xEE});
  const std::vector<Outcome> outcomes = run(2, [&](Transport& transport) {
    meet(transport);
    if (transport.rank() == 0) {
      const auto out = std::make_unique<Bytes>(in.size());
      Transfer transfer;
      transport.send(1, *out, transfer);
      const Outcome outcome =
          outcome_of([&](Transport& mine) { mine.wait(transfer, at_once()); }, transport);
      EXPECT_EQ(outcome.code, StatusCode::DEADLINE_EXCEEDED) << outcome.text;
      std::fill(out->begin(), out->end(), std::byte{0xAA});
      has_given_up = true;
    } else {
      while (!has_given_up) std::this_thread::yield();
      Transfer transfer;
      transport.receive(0, in, transfer);
      transport.wait(transfer, soon());
    }
  });
  // Where the connection was full of the message, there was no place to say why it ended.
  EXPECT_THAT(outcomes[1].code,
              ::testing::AnyOf(StatusCode::DEADLINE_EXCEEDED, StatusCode::UNAVAILABLE));
  EXPECT_THAT(outcomes[1].text, ::testing::HasSubstr("rank 0"));
  EXPECT_EQ(std::count(in.begin(), in.end(), std::byte{0xAA}), 0);
}

TEST_P(TransportConformance, BadArgumentsAreRefusedAndHarmNothing) {
  expect_well(2, [&](Transport& transport) {
    Bytes bytes(8);
    Transfer transfer;
    Transfer other;
    for (const int bad : {-1, 2, 1000, transport.rank()}) {
      EXPECT_THROW(transport.connect(std::span(&bad, 1), soon()), ValueError);
      EXPECT_THROW(transport.send(bad, bytes, transfer), ValueError);
      EXPECT_THROW(transport.receive(bad, bytes, transfer), ValueError);
      EXPECT_THROW(transport.exchange(bad, bytes, transfer, bytes, other, soon()), ValueError);
    }
    EXPECT_THROW(transport.wait(transfer, soon()), ValueError);
    (void)transport.poll();
    meet(transport);
  });
}

TEST_P(TransportConformance, MessagesNeedAConnection) {
  make(3);
  const std::vector<Outcome> outcomes = run_made([&](Transport& transport) {
    Bytes bytes(8);
    Transfer transfer;
    if (transport.rank() == 2) return;
    const std::vector<int> peers = {1 - transport.rank(), 1 - transport.rank()};
    EXPECT_THROW(transport.send(1 - transport.rank(), bytes, transfer), ValueError);
    transport.connect(peers, soon());
    transport.connect(peers, soon());
    EXPECT_THROW(transport.send(2, bytes, transfer), ValueError);
    EXPECT_EQ(transport.num_ranks(), 3);
    std::vector<Transfer> transfers(2);
    transport.send(1 - transport.rank(), Bytes(), transfers[0]);
    transport.receive(1 - transport.rank(), {}, transfers[1]);
    wait_for(transport, transfers);
  });
  for (const Outcome& each : outcomes) EXPECT_EQ(each.text, "");
}

inline constinit Counter kWarmth("crossdevice_test_warmth", "", "Counts nothing.");

TEST_P(TransportConformance, NothingIsAllocatedInSteadyState) {
  if (!can_count_allocations()) GTEST_SKIP() << "a sanitizer has the heap";
  if (environment().tls) GTEST_SKIP() << "OpenSSL takes memory for each record, and gives it back";
  expect_well(3, [&](Transport& transport) {
    Bytes out(300000);
    Bytes in(300000);
    std::vector<Transfer> transfers(4);
    const auto round = [&] {
      transport.begin(operation());
      for (int hop = 1; hop < 3; ++hop) {
        const auto index = static_cast<std::size_t>(hop - 1);
        const std::size_t size = hop == 1 ? 8 : out.size();
        transport.send((transport.rank() + hop) % 3, std::span(out).first(size),
                       transfers[2 * index]);
        transport.receive((transport.rank() + 3 - hop) % 3, std::span(in).first(size),
                          transfers[2 * index + 1]);
      }
      wait_for(transport, transfers);
    };
    for (int i = 0; i < 3; ++i) round();
    kWarmth
        .add();  // a thread's cells of all counters are made when it first counts, which is when it first has to wait
    const std::size_t before = num_allocations_of_this_thread();
    for (int i = 0; i < 20; ++i) round();
    EXPECT_EQ(num_allocations_of_this_thread() - before, 0);
  });
}

TEST_P(TransportConformance, StressWithRandomSizesAndDelays) {
  constexpr int kRanks = 4;
  constexpr int kRounds = 60;
  // All know what everybody sends: message m of a round from a to b has this size.
  const auto size_of = [](int round, int from, int to, int message) {
    std::minstd_rand random(static_cast<unsigned>(((round * 8 + from) * 8 + to) * 8 + message + 1));
    random.discard(5);
    const auto kind = random() % 10;
    return std::size_t{random() % (kind == 0 ? 1000000U : kind < 4 ? 20000U : 100U)};
  };
  expect_well(kRanks, [&](Transport& transport) {
    const int rank = transport.rank();
    std::minstd_rand random(static_cast<unsigned>(rank + 1));
    for (int round = 0; round < kRounds; ++round) {
      transport.begin(operation(static_cast<std::uint64_t>(round)));
      std::vector<Bytes> expected;
      std::vector<std::pair<Bytes, int>> buffers;  // and the peer; outgoing first
      for (int each = 0; each < kRanks; ++each) {
        for (int message = 0; each != rank && message < (round + rank + each) % 4; ++message) {
          const std::size_t out = size_of(round, rank, each, message);
          const std::size_t in = size_of(round, each, rank, message);
          buffers.emplace_back(pattern(out, out + static_cast<std::size_t>(rank)), each);
          buffers.emplace_back(Bytes(in), each);
          expected.push_back(pattern(in, in + static_cast<std::size_t>(each)));
        }
      }
      std::vector<Transfer> transfers(buffers.size());
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        if (random() % 8 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        if (random() % 4 == 0) (void)transport.poll();
        if (i % 2 == 0) {
          transport.send(buffers[i].second, buffers[i].first, transfers[i]);
        } else {
          transport.receive(buffers[i].second, buffers[i].first, transfers[i]);
        }
      }
      wait_for(transport, transfers);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_TRUE(buffers[2 * i + 1].first == expected[i]) << "round " << round;
      }
    }
  });
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);

}  // namespace crossdevice::testing
