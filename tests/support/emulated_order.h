// SPDX-License-Identifier: Apache-2.0
/// What comes before what on emulated GPUs, by the order of calls alone: so that two uses of memory without an order are found whenever they happen to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crossdevice::testing {

/// Of each stream, how many of its operations come before. Streams are numbered.
class EmulatedClock {
 public:
  void merge(const EmulatedClock& other);
  void set(std::size_t stream, std::uint64_t tick);
  [[nodiscard]] std::uint64_t of(std::size_t stream) const {
    return stream < ticks_.size() ? ticks_[stream] : 0;
  }

 private:
  std::vector<std::uint64_t> ticks_;
};

/// What comes before the end of a kernel in which several streams meet; known when all of them have been launched.
struct JointClock {
  EmulatedClock clock;
  std::size_t num_missing = 0;
};

/// A use of bytes [begin, end) of an allocation by an operation.
struct EmulatedAccess {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool writes = false;
  std::size_t stream = 0;
  std::uint64_t tick = 0;
  int device = -1;
  std::string function;
};

/// The uses of one allocation that later ones may still meet.
class AccessHistory {
 public:
  /// "" or the pair that has no order. `before`: what comes before the new one.
  std::string add(EmulatedAccess access, const EmulatedClock& before);

 private:
  std::vector<EmulatedAccess> accesses_;
};

}  // namespace crossdevice::testing
