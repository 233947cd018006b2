// SPDX-License-Identifier: Apache-2.0
/// A barrier of messages, without bytes or with a word that all know afterwards.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "crossdevice/comm/transport.h"
#include "crossdevice/core/deadline.h"

namespace crossdevice::detail {

/// Source: D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization", 1988 (the dissemination barrier).
class MessageBarrier {
 public:
  explicit MessageBarrier(Transport& transport)
      : transport_(transport), transfers_(std::make_unique<Transfer[]>(2)) {}

  /// Returns when all ranks are known to have called it in this operation: after round k everybody has heard of 2^k others, and who they have heard of.
  ///
  /// Errors   as Transport. Nothing else is under way.
  void wait(const Deadline& deadline) {
    make_rounds({}, {}, deadline, [] {});
  }
  /// The same; what `combine(a, b)` makes of all ranks' words. A word may enter it several times, in any order: a maximum, say, is the same on all ranks.
  template <class Word, class Combine>
  [[nodiscard]] Word wait(Word told, const Combine& combine, const Deadline& deadline) {
    Word heard{};
    make_rounds(std::as_bytes(std::span(&told, 1)), std::as_writable_bytes(std::span(&heard, 1)),
                deadline, [&] { told = combine(told, heard); });
    return told;
  }
  /// ceil(log2 n).
  [[nodiscard]] int num_rounds() const {
    int rounds = 0;
    for (int distance = 1; distance < transport_.num_ranks(); distance *= 2) ++rounds;
    return rounds;
  }

 private:
  template <class AfterEach>
  void make_rounds(std::span<const std::byte> told, std::span<std::byte> heard,
                   const Deadline& deadline, const AfterEach& after_each) {
    const int n = transport_.num_ranks();
    const int rank = transport_.rank();
    for (int distance = 1; distance < n; distance *= 2) {
      transport_.send((rank + distance) % n, told, transfers_[0]);
      transport_.receive((rank + n - distance) % n, heard, transfers_[1]);
      transport_.wait(transfers_[1], deadline);
      transport_.wait(transfers_[0], deadline);
      after_each();
    }
  }

  Transport& transport_;
  std::unique_ptr<Transfer[]> transfers_;
};

}  // namespace crossdevice::detail
