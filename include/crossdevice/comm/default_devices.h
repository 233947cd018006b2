// SPDX-License-Identifier: Apache-2.0
/// A machine's GPUs, shared out among the workers that run on it.
#pragma once

#include <span>
#include <string>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"

namespace crossdevice {

/// What a process without other workers takes: all its GPUs; CPU:0 where there are none.
[[nodiscard]] CROSSDEVICE_EXPORT Devices default_devices();

/// What this worker takes where nobody says which devices. Where all workers of its machine see the same GPUs, the one with local rank r of L takes those
/// whose index is r modulo L (with set_logical_gpu_devices, all devices of such GPUs); where their launcher has shown them different ones
/// (CUDA_VISIBLE_DEVICES), each takes what it sees. CPU:0 where that is nothing.
///
/// Ranks    collective.
/// Errors   as Cluster::all_gather_bytes().
[[nodiscard]] CROSSDEVICE_EXPORT Devices
default_devices(Cluster& cluster, const Deadline& deadline = meeting_deadline());

namespace detail {

/// The GPUs among `devices`, for the other workers of this machine: their names and UUIDs, in one line.
[[nodiscard]] CROSSDEVICE_EXPORT std::string describe_gpus(const Devices& devices);

/// Throws where two workers of one machine use one GPU: `descriptions` by rank, as describe_gpus made them there. Workers that are said to be on different
/// machines (CROSSDEVICE_HOST_ID) are believed.
///
/// Errors   ValueError: names the GPU, both workers, and what they call it; the same on every rank.
CROSSDEVICE_EXPORT void require_gpus_apart(const Cluster& cluster,
                                           std::span<const std::string> descriptions);

}  // namespace detail
}  // namespace crossdevice
