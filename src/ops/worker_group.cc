// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/worker_group.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/argument_agreement.h"
#include "crossdevice/comm/default_devices.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/error.h"

#include "ops/detail/nccl_fallback.h"

namespace crossdevice::detail {
namespace {

/// Why a worker may be alone without wanting to be.
std::string hint_for_one_alone(const Cluster* cluster, std::size_t num_devices, int group_size) {
  if (std::cmp_less_equal(group_size, num_devices)) return "";
  if (cluster == nullptr) return ": without a Cluster this worker is alone";
  if (cluster->num_workers() > 1) return "";
  return ": this worker is alone; start it with crossdevice-run, or another launcher";
}

void require_usable(const Devices& devices, const CommunicationOptions& options) {
  options.validate();
  if (devices.empty()) throw ValueError("CollectiveAllReduce needs at least one device");
  for (const Device& device : devices) device.require_present();
  if (devices.has_duplicates()) {
    throw ValueError("CollectiveAllReduce: a device is named twice: " + devices.to_string());
  }
}

constexpr const char* kByNccl = "by NCCL";

/// What this worker would reduce its values with, if the others would too.
const char* means_of(const Devices& devices, const CommunicationOptions& options) {
  if (options.implementation == CommunicationImplementation::RING || options.is_deterministic()) {
    return "on hosts";
  }
  const bool are_gpus = std::none_of(devices.begin(), devices.end(),
                                     [](const Device& device) { return device.is_host(); });
  return are_gpus ? kByNccl : "on hosts";
}

/// Every worker says what it was made with, so that a difference is an error on all of them that names who differs. Returns whether all are for NCCL.
bool require_equal_arguments(Cluster& cluster, const Devices& devices, int group_size,
                             const CommunicationOptions& options, const Deadline& deadline) {
  const std::vector<std::string> all = agree_on_arguments(
      cluster,
      [&] {
        require_usable(devices, options);
        return fmt::format("{} of {} devices, {}\n{}\n{}", devices.size(), group_size,
                           devices.to_string(), describe_gpus(devices), means_of(devices, options));
      },
      deadline);
  const auto numbers = [](const std::string& text) { return text.substr(0, text.find(',')); };
  const auto first_line = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  std::string differing;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (numbers(all[rank]) != numbers(all[0])) {
      differing += fmt::format("; rank {} has {}", rank, first_line(all[rank]));
    }
  }
  if (differing.empty()) {
    std::vector<std::string> gpus;
    gpus.reserve(all.size());
    for (const std::string& text : all) {
      const std::size_t begin = text.find('\n') + 1;
      gpus.push_back(text.substr(begin, text.find('\n', begin) - begin));
    }
    require_gpus_apart(cluster, gpus);
    return std::all_of(all.begin(), all.end(),
                       [](const std::string& text) { return text.ends_with(kByNccl); });
  }
  throw ValueError(fmt::format(
      "CollectiveAllReduce needs equally many devices and one group_size on all workers: rank 0 "
      "has {}{}",
      first_line(all[0]), differing));
}

}  // namespace

bool require_equal_groups(const std::shared_ptr<Cluster>& cluster, const Devices& devices,
                          int group_size, const CommunicationOptions& options,
                          const Deadline& deadline) {
  const std::int64_t num_workers = cluster ? cluster->num_workers() : 1;
  bool are_for_nccl = false;
  if (num_workers > 1) {
    are_for_nccl = require_equal_arguments(*cluster, devices, group_size, options, deadline);
  } else {
    require_usable(devices, options);
  }
  // Equal on all workers by now.
  if (std::int64_t{group_size} != num_workers * static_cast<std::int64_t>(devices.size())) {
    throw ValueError(fmt::format(
        "group_size must be the devices of all workers, {} workers with {} devices each, not {}{}",
        num_workers, devices.size(), group_size,
        hint_for_one_alone(cluster.get(), devices.size(), group_size)));
  }
  return are_for_nccl;
}

std::unique_ptr<NcclReducer> make_nccl_reducer(const std::shared_ptr<Cluster>& cluster,
                                               const Devices& devices, const Deadline& deadline) {
  try {
    return std::make_unique<NcclReducer>(cluster, devices, nccl_meeting_deadline(deadline));
  } catch (const UnavailableError& error) {
    announce_nccl_fallback("CollectiveAllReduce", devices, error.what());
    return nullptr;
  }
}

}  // namespace crossdevice::detail
