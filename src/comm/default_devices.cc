// SPDX-License-Identifier: Apache-2.0
// Who takes which GPU, by the UUIDs that the workers tell each other.
#include "crossdevice/comm/default_devices.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/gpu_platform.h"

namespace crossdevice {
namespace {

// "GPU:0=00010203...;GPU:1=..."
constexpr char kBetweenGpus = ';';
constexpr char kBeforeUuid = '=';

Device gpu(int index) { return Device(fmt::format("GPU:{}", index)); }

std::string text_of(const std::array<unsigned char, 16>& uuid) {
  std::string text;
  for (const unsigned char byte : uuid) text += fmt::format("{:02x}", byte);
  return text;
}

/// Every GPU of this process whose number modulo `num_shares` is `share`.
Devices share_of_gpus(int share, int num_shares) {
  std::vector<Device> devices;
  devices.reserve(static_cast<std::size_t>(num_gpus()));
  for (int i = 0; i < num_gpus(); ++i) {
    if (num_shares > 1) {
      const int ordinal = detail::GpuDevice::of(gpu(i)).ordinal();
      if (ordinal % num_shares != share) continue;
    }
    devices.push_back(gpu(i));
  }
  if (!devices.empty()) return Devices(std::span<const Device>(devices));
  if (const std::string& why = detail::gpu_platform().reason_against; !why.empty()) {
    log_once("no GPU", LogSeverity::INFO, "default devices: CPU:0, for there is no GPU: " + why);
  }
  return Devices{"CPU:0"};
}

}  // namespace

Devices default_devices() { return share_of_gpus(0, 1); }

Devices default_devices(Cluster& cluster, const Deadline& deadline) {
  const Devices all = default_devices();
  const std::string mine = detail::describe_gpus(all);
  const std::vector<std::string> seen = cluster.all_gather_bytes(mine, deadline);
  const std::vector<int> beside = cluster.ranks_beside(cluster.rank());
  const bool is_narrowed = std::any_of(beside.begin(), beside.end(), [&](int rank) {
    return seen[static_cast<std::size_t>(rank)] != mine;
  });
  return is_narrowed ? all : share_of_gpus(cluster.local_rank(), cluster.num_local_workers());
}

namespace detail {

std::string describe_gpus(const Devices& devices) {
  std::string text;
  for (const Device& device : devices) {
    if (device.is_host()) continue;
    text += fmt::format("{}{}{}{}", text.empty() ? "" : std::string(1, kBetweenGpus),
                        device.short_name(), kBeforeUuid,
                        text_of(GpuDevice::of(device).properties().uuid));
  }
  return text;
}

void require_gpus_apart(const Cluster& cluster, std::span<const std::string> descriptions) {
  struct Use {
    int rank;
    std::string_view name;
  };
  std::map<std::pair<int, std::string_view>, Use> first_uses;  // by the machine's first rank, UUID
  for (int rank = 0; rank < cluster.num_workers(); ++rank) {
    const int machine = cluster.ranks_beside(rank).front();
    std::string_view rest = descriptions[static_cast<std::size_t>(rank)];
    while (!rest.empty()) {
      const std::string_view one = rest.substr(0, rest.find(kBetweenGpus));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      const std::size_t split = one.find(kBeforeUuid);
      if (split == std::string_view::npos) continue;
      const Use use{rank, one.substr(0, split)};
      const std::string_view uuid = one.substr(split + 1);
      const auto [first, is_new] = first_uses.try_emplace({machine, uuid}, use);
      if (is_new || first->second.rank == rank) continue;  // logical devices of one worker
      const RankInfo before = cluster.worker(first->second.rank);
      const RankInfo after = cluster.worker(rank);
      throw ValueError(fmt::format(
          "one GPU is in two workers: {} of {} and {} of {} are GPU {}; give each worker "
          "GPUs of its own, as default_devices(cluster) does, or show each only its own "
          "(CUDA_VISIBLE_DEVICES)",
          first->second.name, to_string(before), use.name, to_string(after), uuid));
    }
  }
}

}  // namespace detail
}  // namespace crossdevice
