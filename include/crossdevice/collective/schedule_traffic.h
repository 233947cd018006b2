// SPDX-License-Identifier: Apache-2.0
/// What a schedule sends: counted, for tests, for predictions and for reports.
#pragma once

#include <cstddef>
#include <vector>

#include "crossdevice/collective/schedule.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// One participant's part. A message is one step's elements from one source to a target other than itself.
struct RankTraffic {
  std::size_t num_steps = 0;  ///< that name it
  std::size_t messages_sent = 0;
  std::size_t messages_received = 0;
  std::size_t elements_sent = 0;
  std::size_t elements_received = 0;
  friend bool operator==(const RankTraffic&, const RankTraffic&) = default;
};

/// By participant.
///
/// Errors   (of both) ValueError: a step that names participants or elements that there are not, or a source twice.
[[nodiscard]] CROSSDEVICE_EXPORT std::vector<RankTraffic> schedule_traffic(
    const Schedule& schedule);

/// The longest chain of messages of which each carries elements that came with the one before: how often the latency of a link is paid
/// where everybody can send and receive at once.
///
/// Cost     steps times the parts that the schedule's ranges cut the elements into.
[[nodiscard]] CROSSDEVICE_EXPORT std::size_t num_rounds(const Schedule& schedule);

}  // namespace crossdevice
