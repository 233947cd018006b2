// SPDX-License-Identifier: Apache-2.0
/// Makes cross-device ops from names.
#include "support/named_ops.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include <fmt/core.h>

#include "crossdevice/device/device_spec.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"
#include "crossdevice/ops/select_cross_device_ops.h"

#include "support/program.h"

namespace crossdevice::programs {

namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::string_view kReductionToOneDevice = "reduction_to_one_device";
constexpr std::string_view kHierarchicalCopy = "hierarchical_copy";
constexpr std::string_view kNccl = "nccl";
constexpr std::string_view kMultiWorker = "multi_worker";
constexpr std::string_view kNames[] = {kAuto, kReductionToOneDevice, kHierarchicalCopy, kNccl,
                                       kMultiWorker};

std::string_view name_of(const CrossDeviceOps& ops) {
  if (dynamic_cast<const NcclAllReduce*>(&ops) != nullptr) return kNccl;
  if (dynamic_cast<const HierarchicalCopyAllReduce*>(&ops) != nullptr) return kHierarchicalCopy;
  if (dynamic_cast<const MultiWorkerAllReduce*>(&ops) != nullptr) return kMultiWorker;
  return kReductionToOneDevice;
}

}  // namespace

std::string known_ops_names() {
  std::string list;
  for (const std::string_view name : kNames) {
    list += list.empty() ? "" : ", ";
    list += name;
  }
  return list;
}

void require_known_ops(std::string_view name) {
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
    throw ArgumentError(
        fmt::format("unknown cross-device ops '{}': expected one of {}", name, known_ops_names()));
  }
}

Devices workers_of(const Devices& devices) {
  std::vector<Device> workers;
  for (const Device& device : devices) {
    DeviceSpec worker = device.spec();
    worker.device_type = "CPU";
    worker.device_index = 0;
    const Device host(worker.to_string());
    if (std::ranges::find(workers, host) == workers.end()) workers.push_back(host);
  }
  return Devices(std::span<const Device>(workers));
}

NamedOps make_ops(std::string_view name, const Devices& devices, const OpsSettings& settings) {
  require_known_ops(name);
  std::shared_ptr<CrossDeviceOps> ops;
  if (name == kReductionToOneDevice) {
    ops = std::make_shared<ReductionToOneDevice>();
  } else if (name == kHierarchicalCopy) {
    ops = std::make_shared<HierarchicalCopyAllReduce>(settings.num_packs);
  } else if (name == kNccl) {
    ops = std::make_shared<NcclAllReduce>(settings.num_packs);
  } else if (name == kMultiWorker) {
    ops = std::make_shared<MultiWorkerAllReduce>(
        workers_of(devices), static_cast<int>(devices.size()),
        MultiWorkerAllReduceOptions{.all_reduce_spec = settings.all_reduce_spec,
                                    .num_packs = settings.num_packs});
  } else {
    ops = select_cross_device_ops(devices);
  }
  const std::string_view own_name = name_of(*ops);
  return {.ops = std::move(ops), .name = std::string(own_name)};
}

std::string algorithm_name(std::string_view ops_name, const Devices& devices,
                           const CommunicationOptions& options,
                           const AllReduceSpec& all_reduce_spec) {
  if (ops_name == kNccl && !devices.all_host()) return "nccl";
  // Determinism means the replica order, whatever the ops.
  if (ops_name == kHierarchicalCopy && !options.is_deterministic()) return "direct_halves";
  if (ops_name == kMultiWorker && !options.is_deterministic()) return all_reduce_spec.to_string();
  return "direct";
}

}  // namespace crossdevice::programs
