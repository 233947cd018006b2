// SPDX-License-Identifier: Apache-2.0
/// What a worker of the fault campaign tells its conductor, one line each, and what the conductor knows of it besides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace crossdevice::chaos {

enum class EventKind : std::uint8_t {
  BEGIN,  ///< of a step: "join", "make 1", "call 1 3", "barrier 1", "rebuild 1", "leave"
  DONE,
  FAIL,    ///< of a step, with an error
  WRONG,   ///< what must never be: a value, memory that should have been left alone
  MEMBER,  ///< `ranks` are in the new cluster, by their first ranks
  AWAIT,   ///< waits for the conductor
  FAULT,  ///< the fault is being done by the worker itself; or is to be done to its link, for which it waits
  EFFECT,  ///< the worker itself sees what the fault has done, as `text` says
  END,     ///< all threads and descriptors of the library should be gone
};

struct Event {
  EventKind kind = EventKind::BEGIN;
  std::int64_t time_us = 0;  ///< of a clock that all processes share
  std::string step{};
  std::string code{};         ///< FAIL: "UNAVAILABLE", "ValueError", ...
  bool inputs_intact = true;  ///< FAIL
  std::vector<int> ranks{};   ///< FAIL: culprits, by their first ranks; MEMBER
  /// END: threads, descriptors, mappings that were not there before. MEMBER: the cluster's epoch, the worker's rank, number of workers, epoch and number of the
  /// operation that was the last one to complete on all.
  std::vector<int> counts{};
  std::string text{};
  friend bool operator==(const Event&, const Event&) = default;
};

/// One line without its end.
[[nodiscard]] std::string to_line(const Event& event);
/// Nothing: no such line.
[[nodiscard]] std::optional<Event> parse_line(std::string_view line);

struct WorkerReport {
  std::vector<Event> events{};
  /// Exit status, or minus the signal; nothing: had to be ended by the conductor.
  std::optional<int> status{};
  /// When its end of the report was closed, of the events' clock: of a process that is killed as the kernel closes all it had open, sockets among it.
  std::optional<std::int64_t> closed_us{};
  /// When it was let go on after it had been stopped, of that clock.
  std::optional<std::int64_t> continued_us{};
};

}  // namespace crossdevice::chaos
