// SPDX-License-Identifier: Apache-2.0
/// What a worker does now, for whoever misses it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace crossdevice::detail {

/// Lies in shared memory too: no pointers, and all bytes may be zero.
///
/// Order    a reader that has read a word of a new kind has acquired what was released before it, so it sees another state than before: what it has read
///          is thrown away then, unless a kind has come again with the same number.
/// Threads  one at a time writes (set, clear), any read; of several that are in operations at once, OperationsUnderWay makes such a one.
/// Cost     to write: five plain stores; to end: one, and a look at what this thread has written.
class OperationNote {
 public:
  static constexpr const char* kNone = "no operation";
  static constexpr const char* kSince = " since ";
  /// Behind a round of the control plane, and before the last operation before it: "barrier #5 of the cluster after reduce #11".
  static constexpr const char* kOfCluster = " of the cluster";
  static constexpr const char* kAfter = " after ";
  /// Behind "no operation since reduce #11" where another object may have had its last one later.
  static constexpr const char* kOrLater = " or a later one";

  static constexpr std::size_t kMaxKind = 24;
  static constexpr std::size_t kNumWords = kMaxKind / sizeof(std::uint64_t);
  /// A kind's characters, filled up with zeros.
  using Words = std::array<std::uint64_t, kNumWords>;

  /// Up to kMaxKind characters of `kind` are kept.
  void set(std::string_view kind, std::uint64_t sequence) {
    Words words{};
    std::memcpy(words.data(), kind.data(), std::min(kind.size(), kMaxKind));
    set(words, sequence);
  }
  void set(const Words& words, std::uint64_t sequence) {
    state_.store(kWritten, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kNumWords; ++i) {
      kind_[i].store(words[i], std::memory_order_release);
    }
    state_.store(sequence + kFirst, std::memory_order_release);
  }
  /// The operation has ended; which one it was can still be read. As it looks first and writes then, a set() of another thread's in between would be lost, or left with
  /// this one's number.
  void clear() {
    state_.store(state_.load(std::memory_order_relaxed) | kIdle, std::memory_order_release);
  }

  /// "reduce #12", "no operation since reduce #11" (begins with kNone), or nothing where nothing was ever said. What has no number is something that has to be done before the
  /// first operation: nobody is told that it was.
  [[nodiscard]] std::string read() const {
    for (int tries = 0; tries < 100; ++tries) {
      const std::uint64_t state = state_.load(std::memory_order_acquire);
      if (state == kUnused) return {};
      if (state == kWritten) continue;
      if ((state & ~kIdle) < kFirst) return kNone;
      Words words{};
      for (std::size_t i = 0; i < kNumWords; ++i) {
        words[i] = kind_[i].load(std::memory_order_acquire);
      }
      if (state_.load(std::memory_order_relaxed) != state) continue;
      const char* const begin = reinterpret_cast<const char*>(words.data());
      std::string text(begin, ::strnlen(begin, sizeof words));
      const std::uint64_t sequence = (state & ~kIdle) - kFirst;
      if (sequence > 0) text += " #" + std::to_string(sequence);
      if ((state & kIdle) != 0 && sequence == 0) return kNone;
      return (state & kIdle) == 0 ? text
                                  : std::string(kNone) + kSince + text;  // as has_left() reads it
    }
    return {};  // it goes from one to the next
  }

 private:
  static constexpr std::uint64_t kUnused = 0;
  static constexpr std::uint64_t kWritten = 1;
  static constexpr std::uint64_t kFirst = 2;                       // and the sequence
  static constexpr std::uint64_t kIdle = std::uint64_t{1} << 63U;  // beside the others

  std::atomic<std::uint64_t> state_{kUnused};
  std::array<std::atomic<std::uint64_t>, kNumWords> kind_{};
};

}  // namespace crossdevice::detail
