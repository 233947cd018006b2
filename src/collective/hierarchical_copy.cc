// SPDX-License-Identifier: Apache-2.0
/// The steps of hierarchical copy, for any number of devices.
#include "crossdevice/collective/hierarchical_copy.h"

#include <utility>
#include <vector>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using Kind = ScheduleStep::Kind;

/// The devices [begin, end).
struct Half {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::vector<std::size_t> members() const {
    std::vector<std::size_t> result;
    result.reserve(end - begin);
    for (std::size_t device = begin; device < end; ++device) result.push_back(device);
    return result;
  }
};

}  // namespace

Schedule hierarchical_copy_schedule(std::size_t num_participants, std::size_t num_elements,
                                    std::size_t pack) {
  const std::size_t n = num_participants;
  if (n == 0) throw ValueError("hierarchical copy needs at least 1 device, got 0");
  Schedule schedule{.num_participants = n, .num_elements = num_elements, .steps = {}};
  const auto add = [&schedule](Kind kind, std::size_t target, std::vector<std::size_t> sources) {
    schedule.add(kind, {.begin = 0, .count = schedule.num_elements}, target, std::move(sources));
  };

  const std::size_t first_half = hierarchical_first_half(n);
  if (first_half == 0) {
    add(Kind::REDUCE, 0, {0});
    return schedule;
  }

  const std::size_t main0 = pack % n;
  Half half0{.begin = 0, .end = first_half};
  Half half1{.begin = first_half, .end = n};
  std::size_t main1 = main0 + first_half;
  if (main0 >= first_half) {
    std::swap(half0, half1);
    // TF's (main0 + g) mod n where n = 2g; with n = 2g + 1 that would leave main1 in main0's half.
    main1 = (main0 - first_half) % first_half;
  }

  add(Kind::REDUCE, main0, half0.members());
  add(Kind::REDUCE, main1, half1.members());
  add(Kind::REDUCE, main0, {main0, main1});
  add(Kind::COPY, main1, {main0});
  for (std::size_t device = 0; device < n; ++device) {
    if (device == main0 || device == main1) continue;
    const bool with_main0 = device >= half0.begin && device < half0.end;
    add(Kind::COPY, device, {with_main0 ? main0 : main1});
  }
  return schedule;
}

}  // namespace crossdevice
