// SPDX-License-Identifier: Apache-2.0
/// Members of a transport at work, each on a thread of its own, and what they tell each other in tests.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/transport.h"

namespace crossdevice::testing {

using Transports = std::vector<std::unique_ptr<Transport>>;

struct TransportCase {
  std::string name;
  std::function<Transports(int num_ranks)> make;
  friend std::ostream& operator<<(std::ostream& out, const TransportCase& value) {
    return out << value.name;
  }
};

/// How a member's work ended.
struct Outcome {
  std::string text{};  // what was thrown; empty: nothing
  std::optional<StatusCode> code{};
  std::vector<int> culprits{};
};

using Bytes = std::vector<std::byte>;

/// `size` bytes that nobody else has.
inline Bytes pattern(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (std::size_t i = 0; i < size; ++i) {
    if (i % 8 == 0) state = state * 6364136223846793005U + 1442695040888963407U;
    bytes[i] = static_cast<std::byte>(state >> (8 * (i % 8)));
  }
  return bytes;
}

inline Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }
inline Deadline at_once() { return Deadline::after(std::chrono::milliseconds(200)); }

inline GroupOperationInfo operation(std::uint64_t fingerprint = 1) {
  return {.kind = "test", .num_values = 1, .size_bytes = 8, .fingerprint = fingerprint};
}

/// Waits for all of them.
inline void wait_for(Transport& transport, std::span<Transfer> transfers) {
  for (Transfer& each : transfers) transport.wait(each, soon());
}

inline void send(Transport& transport, int to, const Bytes& bytes) {
  Transfer transfer;
  transport.send(to, bytes, transfer);
  transport.wait(transfer, soon());
}

inline Bytes receive(Transport& transport, int from, std::size_t size) {
  Bytes bytes(size, std::byte{0xEE});
  Transfer transfer;
  transport.receive(from, bytes, transfer);
  transport.wait(transfer, soon());
  return bytes;
}

inline void connect_to_all(Transport& transport) {
  std::vector<int> peers;
  for (int each = 0; each < transport.num_ranks(); ++each) {
    if (each != transport.rank()) peers.push_back(each);
  }
  transport.connect(peers, soon());
}

/// Nobody goes on before all have come.
inline void meet(Transport& transport) {
  const Bytes byte(1);
  for (int each = 0; each < transport.num_ranks(); ++each) {
    if (each == transport.rank()) continue;
    Bytes other(1);
    std::vector<Transfer> transfers(2);
    transport.send(each, byte, transfers[0]);
    transport.receive(each, other, transfers[1]);
    wait_for(transport, transfers);
  }
}

class TransportConformance : public ::testing::TestWithParam<TransportCase> {
 public:
  using Work = std::function<void(Transport&)>;

  static Outcome outcome_of(const Work& work, Transport& transport) {
    try {
      work(transport);
    } catch (const OpError& error) {
      Outcome outcome{.text = error.what(), .code = error.code(), .culprits = {}};
      for (const RankInfo& each : error.culprits()) outcome.culprits.push_back(each.rank);
      return outcome;
    } catch (const std::exception& error) {
      return {.text = error.what()};
    }
    return {};
  }

 protected:
  ~TransportConformance() override { end(); }

  void make(int num_ranks) {
    end();
    transports_ = GetParam().make(num_ranks);
  }
  Transport& of(int rank) { return *transports_[static_cast<std::size_t>(rank)]; }
  Transports& transports() { return transports_; }

  /// `work` on a thread per rank; all connected, in an operation.
  std::vector<Outcome> run(int num_ranks, const Work& work) {
    make(num_ranks);
    return run_made([&](Transport& transport) {
      connect_to_all(transport);
      transport.begin(operation());
      work(transport);
    });
  }
  std::vector<Outcome> run_made(const Work& work) {
    std::vector<Outcome> outcomes(transports_.size());
    std::vector<std::thread> threads;
    threads.reserve(transports_.size());
    for (std::size_t rank = 0; rank < transports_.size(); ++rank) {
      threads.emplace_back([&, rank] { outcomes[rank] = outcome_of(work, *transports_[rank]); });
    }
    for (std::thread& each : threads) each.join();
    return outcomes;
  }
  /// All members' works end without an error.
  void expect_well(int num_ranks, const Work& work) {
    for (const Outcome& each : run(num_ranks, work)) EXPECT_EQ(each.text, "");
  }

 private:
  /// The last one first: a chief waits for the others to leave.
  void end() {
    while (!transports_.empty()) transports_.pop_back();
  }

  Transports transports_;
};

}  // namespace crossdevice::testing
