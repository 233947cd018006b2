// SPDX-License-Identifier: Apache-2.0
/// What a worker has told, step by step, and what its errors say.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chaos/report.h"

namespace crossdevice::chaos {

/// A step that has begun.
struct Step {
  std::string name;
  double begun = 0;                 ///< in seconds
  std::optional<double> seconds{};  ///< nothing: it has no end
  const Event* failure = nullptr;   ///< refers to the report

  [[nodiscard]] bool is_a(std::string_view kind) const { return name.starts_with(kind); }
  [[nodiscard]] bool is_done() const { return seconds.has_value() && failure == nullptr; }
  /// "call 2 0" is of the second one; 0 where there is none.
  [[nodiscard]] int generation() const;
  /// "call 2 0" is the first one there; -1 where there is none.
  [[nodiscard]] int index() const;
};

[[nodiscard]] std::vector<Step> steps_of(const WorkerReport& report);
/// Those that are in its cluster of a generation; null: all that there are.
[[nodiscard]] const std::vector<int>* members_of(const WorkerReport& report, int generation);

[[nodiscard]] bool contains(const std::vector<int>& ranks, int rank);
/// Whether it says something of this worker.
[[nodiscard]] bool tells_of(const Event& failure, int rank);
/// Whether it blames this worker, to programs or in its text.
[[nodiscard]] bool names(const Event& failure, int rank);
/// Whether it passes on what this worker has said as it gave up: whose fault that is is in the words, not in who says them.
[[nodiscard]] bool quotes(const Event& failure, int rank);

}  // namespace crossdevice::chaos
