// SPDX-License-Identifier: Apache-2.0
/// Which operation a worker is in, for whoever misses it, where several may be under way at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/detail/operation_note.h"

namespace crossdevice::detail {

/// Names one of those under way, or says that none is.
///
/// Order    what is named has been entered, with that kind and that number. "no operation since reduce #11": at a moment during the call none was under way, and that
///          one had been left. Else one was under way at a moment during the call: the one that is named, or one that was under way together with it. Who
///          enters while nothing is under way is named; of those that enter at once, one is.
/// Threads  any.
/// Cost     to enter: one atomic change and six plain stores; to leave: one atomic change. Allocates nothing.
///
/// Why nothing is named that never was. `state_` counts in one word how many are under way and how many notes have been begun; `written_` says how many of these
/// are written. A note is begun only where all are, by the change of `state_` that has compared its number: so nobody else is writing then, and through
/// `written_` (release, acquire) the writer comes after the one before. OperationNote has one writer at a time.
/// To leave writes no note. If the last one to leave marked it as over, another could enter between its finding that it is the last and the mark: then what is
/// marked is the other's note, which is under way, or has the other's kind and this one's number.
/// A reader looks at `written_` first and at `state_` last. If what it read in between is of a later note, it has acquired the beginning of that one, so `state_`
/// counts more notes, and it reads again. If they are equal, it has read the last note that was begun, and the number under way is of a time when it was the
/// last; its writer is counted in that, so where none is under way it has left. (tests/model/operations_under_way.pml goes through every order of these steps.)
class OperationsUnderWay {
 public:
  /// Up to OperationNote::kMaxKind characters of `kind` are kept.
  void enter(std::string_view kind, std::uint64_t sequence) {
    std::uint64_t seen = state_.load(std::memory_order_acquire);
    bool is_named = false;
    do {
      is_named = written_.load(std::memory_order_acquire) == notes_of(seen);
    } while (!state_.compare_exchange_weak(seen, seen + kOperation + (is_named ? kNote : 0),
                                           std::memory_order_acq_rel, std::memory_order_acquire));
    if (!is_named) return;
    note_.set(kind, sequence);
    written_.store(notes_of(seen) + kNote, std::memory_order_release);
  }
  void leave() { state_.fetch_sub(kOperation, std::memory_order_release); }

  /// "reduce #12", "no operation since reduce #11" (begins with OperationNote::kNone), or nothing where none was ever entered.
  [[nodiscard]] std::string read() const {
    for (int tries = 0; tries < 100; ++tries) {
      const std::uint64_t written = written_.load(std::memory_order_acquire);
      std::string text = note_.read();
      const std::uint64_t state = state_.load(std::memory_order_acquire);
      if (text.empty() || notes_of(state) != written) continue;
      if (state != written) return text;
      const bool has_number = text.find('#') != std::string::npos;
      return has_number ? std::string(OperationNote::kNone) + OperationNote::kSince + text
                        : OperationNote::kNone;
    }
    return {};  // or it goes from one to the next
  }

 private:
  static constexpr std::uint64_t kOperation = 1;
  /// More than can be under way at once. Notes are counted in these, and begin anew at 0 after 2^44.
  static constexpr std::uint64_t kNote = std::uint64_t{1} << 20U;
  static constexpr std::uint64_t notes_of(std::uint64_t state) { return state - state % kNote; }

  std::atomic<std::uint64_t> state_{0};    // notes begun, and operations under way
  std::atomic<std::uint64_t> written_{0};  // notes
  OperationNote note_;
};

}  // namespace crossdevice::detail
