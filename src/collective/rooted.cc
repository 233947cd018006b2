// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/rooted.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using Kind = ScheduleStep::Kind;

Schedule make_schedule(std::size_t num_participants, std::size_t num_elements, std::size_t root) {
  if (root >= num_participants) {
    throw ValueError(fmt::format("root {} is outside [0, {})", root, num_participants));
  }
  return {.num_participants = num_participants, .num_elements = num_elements, .steps = {}};
}

Schedule make_schedule(std::span<const Interval> parts, std::size_t root) {
  std::size_t end = 0;
  for (const Interval& part : parts) end = std::max(end, part.end());
  return make_schedule(parts.size(), end, root);
}

std::vector<std::size_t> everybody(std::size_t num_participants) {
  std::vector<std::size_t> all(num_participants);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

}  // namespace

Schedule chain_broadcast_schedule(std::size_t num_participants, std::size_t num_elements,
                                  std::size_t root) {
  Schedule schedule = make_schedule(num_participants, num_elements, root);
  for (std::size_t distance = 1; distance < num_participants; ++distance) {
    schedule.add(Kind::COPY, {.begin = 0, .count = num_elements},
                 (root + distance) % num_participants, {(root + distance - 1) % num_participants});
  }
  return schedule;
}

Schedule chain_reduce_schedule(std::size_t num_participants, std::size_t num_elements,
                               std::size_t root) {
  Schedule schedule = make_schedule(num_participants, num_elements, root);
  for (std::size_t distance = num_participants - 1; distance > 0; --distance) {
    const std::size_t own = (root + distance - 1) % num_participants;
    schedule.add(Kind::REDUCE, {.begin = 0, .count = num_elements}, own,
                 {own, (root + distance) % num_participants});
  }
  return schedule;
}

Schedule tree_broadcast_schedule(std::size_t num_participants, std::size_t num_elements,
                                 std::size_t root) {
  Schedule schedule = make_schedule(num_participants, num_elements, root);
  for (std::size_t have = 1; have < num_participants; have *= 2) {
    for (std::size_t i = 0; i < std::min(have, num_participants - have); ++i) {
      schedule.add(Kind::COPY, {.begin = 0, .count = num_elements},
                   (root + have + i) % num_participants, {(root + i) % num_participants});
    }
  }
  return schedule;
}

Schedule tree_reduce_schedule(std::size_t num_participants, std::size_t num_elements,
                              std::size_t root) {
  Schedule schedule = make_schedule(num_participants, num_elements, root);
  for (std::size_t distance = 1; distance < num_participants; distance *= 2) {
    for (std::size_t i = 0; i + distance < num_participants; i += 2 * distance) {
      const std::size_t own = (root + i) % num_participants;
      schedule.add(Kind::REDUCE, {.begin = 0, .count = num_elements}, own,
                   {own, (root + i + distance) % num_participants});
    }
  }
  return schedule;
}

Schedule direct_reduce_schedule(std::size_t num_participants, std::size_t num_elements,
                                std::size_t root) {
  Schedule schedule = make_schedule(num_participants, num_elements, root);
  schedule.add(Kind::REDUCE, {.begin = 0, .count = num_elements}, root,
               everybody(num_participants));
  return schedule;
}

Schedule direct_gather_schedule(std::span<const Interval> parts, std::size_t root) {
  Schedule schedule = make_schedule(parts, root);
  for (std::size_t from = 0; from < parts.size(); ++from) {
    if (from != root) schedule.add(Kind::COPY, parts[from], root, {from});
  }
  return schedule;
}

Schedule direct_reduce_scatter_schedule(std::span<const Interval> parts) {
  Schedule schedule = make_schedule(parts, 0);
  for (std::size_t own = 0; own < parts.size(); ++own) {
    schedule.add(Kind::REDUCE, parts[own], own, everybody(parts.size()));
  }
  return schedule;
}

Schedule direct_all_gather_schedule(std::span<const Interval> parts) {
  Schedule schedule = make_schedule(parts, 0);
  // In rounds in which everybody has another source, so that nobody is asked by all at once.
  for (std::size_t distance = 1; distance < parts.size(); ++distance) {
    for (std::size_t own = 0; own < parts.size(); ++own) {
      const std::size_t from = (own + distance) % parts.size();
      schedule.add(Kind::COPY, parts[from], own, {from});
    }
  }
  return schedule;
}

}  // namespace crossdevice
