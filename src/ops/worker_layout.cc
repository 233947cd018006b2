// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/worker_layout.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include <fmt/format.h>

#include "crossdevice/collective/halving_doubling.h"
#include "crossdevice/collective/ring.h"
#include "crossdevice/collective/shuffle.h"
#include "crossdevice/collective/split.h"
#include "crossdevice/collective/two_level.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/device_spec.h"

namespace crossdevice::detail {
namespace {

using Members = std::vector<std::size_t>;
using Groups = std::vector<Members>;

bool have_same_labels(const Device& a, const Device& b) {
  return a.spec().job == b.spec().job && a.spec().replica == b.spec().replica &&
         a.spec().task == b.spec().task;
}

Members numbers_below(std::size_t count) {
  Members numbers(count);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  return numbers;
}

/// One group per number.
Groups singles(std::size_t count) {
  Groups groups;
  groups.reserve(count);
  for (std::size_t i = 0; i < count; ++i) groups.push_back({i});
  return groups;
}

/// `count` owners out of `candidates`: from the first one on, and again from the first one where there are not enough.
Members take_owners(const Members& candidates, std::size_t count) {
  Members owners;
  owners.reserve(count);
  for (std::size_t i = 0; i < count; ++i) owners.push_back(candidates[i % candidates.size()]);
  return owners;
}

/// TF's round robin: the candidates in groups of `count`, one group per turn.
Members take_owners_in_turn(const Members& candidates, std::size_t count, std::size_t turn) {
  if (count > candidates.size()) return take_owners(candidates, count);
  const Groups groups = deal_into_groups(candidates.size(), count);
  Members owners;
  owners.reserve(count);
  for (const std::size_t i : groups[turn % groups.size()]) owners.push_back(candidates[i]);
  return owners;
}

/// The first component of each worker, in the op's order: where a parameter server of that worker would be.
Members first_components(const WorkerLayout& layout) {
  Members first;
  first.reserve(layout.listed.size());
  for (const std::size_t worker : layout.listed) first.push_back(layout.workers[worker][0]);
  return first;
}

/// TF's order: the first device of every worker, then the second of every worker, ...
Members gpu_components(const WorkerLayout& layout, int num_gpus_per_worker) {
  Members all;
  const auto depth = static_cast<std::size_t>(std::max(1, num_gpus_per_worker));
  for (std::size_t i = 0; i < depth; ++i) {
    for (const std::size_t worker : layout.listed) {
      if (i < layout.workers[worker].size()) all.push_back(layout.workers[worker][i]);
    }
  }
  return all;
}

}  // namespace

WorkerLayout make_worker_layout(const Devices& worker_devices, const Devices& components) {
  WorkerLayout layout{.num_components = components.size(), .workers = {}, .listed = {}};
  constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);
  Members number_of(worker_devices.size(),
                    kAbsent);  // in layout.workers, by place in the op's list
  for (std::size_t i = 0; i < components.size(); ++i) {
    const auto has_labels = [&](const Device& worker) {
      return have_same_labels(worker, components[i]);
    };
    const auto found = std::find_if(worker_devices.begin(), worker_devices.end(), has_labels);
    if (found == worker_devices.end()) {
      throw ValueError(fmt::format(
          "MultiWorkerAllReduce: component {} is on {}, expected a device of one of the workers {}",
          i, components[i].name(), worker_devices.to_string()));
    }
    std::size_t& number = number_of[static_cast<std::size_t>(found - worker_devices.begin())];
    if (number == kAbsent) {
      number = layout.workers.size();
      layout.workers.emplace_back();
    }
    layout.workers[number].push_back(i);
  }
  for (std::size_t place = 0; place < number_of.size(); ++place) {
    if (number_of[place] == kAbsent) {
      throw ValueError(fmt::format(
          "MultiWorkerAllReduce: worker {} has no component of the value, which lies on {}: the "
          "result would be a sum without it",
          worker_devices[place].name(), components.to_string()));
    }
    layout.listed.push_back(number_of[place]);
  }
  return layout;
}

Schedule make_upper_schedule(const WorkerLayout& layout, const WorkerScheduleRequest& request) {
  const std::string_view name = request.algorithm.algorithm;
  const auto shards = static_cast<std::size_t>(request.algorithm.shards);
  const std::size_t num_workers = layout.workers.size();
  const std::size_t num_elements = request.num_elements;
  if (name == "nccl/xring") {
    return ring_schedule(num_elements, ring_orders(singles(num_workers), shards));
  }
  if (name == "nccl/rechd") return halving_doubling_schedule(num_workers, num_elements, shards);
  if (name == "nccl/pscpu") {
    return shuffle_schedule(num_workers, num_elements,
                            take_owners(layout.listed, shards * num_workers));
  }
  return shuffle_schedule(num_workers, num_elements, take_owners(layout.listed, shards));
}

Schedule make_worker_schedule(const WorkerLayout& layout, const WorkerScheduleRequest& request) {
  const std::string_view name = request.algorithm.algorithm;
  const auto shards = static_cast<std::size_t>(request.algorithm.shards);
  const std::size_t n = layout.num_components;
  const std::size_t num_elements = request.num_elements;
  if (name == "xring") return ring_schedule(num_elements, ring_orders(layout.workers, shards));
  if (name == "rechd") return halving_doubling_schedule(n, num_elements, shards);
  if (name == "pscpu") {
    return shuffle_schedule(n, num_elements,
                            take_owners_in_turn(first_components(layout), shards, request.turn));
  }
  if (name == "psgpu") {
    const Members candidates = gpu_components(layout, request.num_gpus_per_worker);
    return shuffle_schedule(n, num_elements, take_owners_in_turn(candidates, shards, request.turn));
  }
  if (name == "nccl") {
    // All components are one group, with nothing above it.
    return two_level_schedule(Groups{numbers_below(n)},
                              ring_schedule(num_elements, ring_orders(singles(1), 1)));
  }
  return two_level_schedule(layout.workers, make_upper_schedule(layout, request));
}

}  // namespace crossdevice::detail
