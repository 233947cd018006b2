// SPDX-License-Identifier: Apache-2.0
/// The checks that every public form of an op makes before anything is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "crossdevice/core/reduce_op.h"
#include "crossdevice/ops/communication_options.h"
#include "crossdevice/ops/destinations.h"
#include "crossdevice/ops/values.h"

namespace crossdevice::detail {

/// Which value of a batch a message is about.
struct BatchPosition {
  std::size_t index = 0;
  std::size_t count = 1;
};

/// Components present, alike, and reducible by `op`; destinations present and distinct; outputs (if any) of the right number, dtype and
/// shape, writable. Not: overlaps, see require_no_overlaps.
///
/// Errors   ValueError.
void require_reducible(ReduceOp op, const PerReplica& value, const Destinations& destinations,
                       BatchPosition position = {});

/// What a gather concatenates.
enum class GatherScope : std::uint8_t {
  VALUE,       ///< the value's components
  ALL_WORKERS  ///< other workers' too: outputs may be any longer along the axis
};
/// The same for gather along `axis`; also UnimplementedError for sparse values. Returns the result's shape; with ALL_WORKERS the outputs', or else
/// that of this worker's share.
Shape require_gatherable(const PerReplica& value, const Destinations& destinations, int axis,
                         GatherScope scope = GatherScope::VALUE);

/// The same for broadcast.
void require_broadcastable(const Tensor& tensor, const Destinations& destinations);

/// Every output is exactly one input of its own value, or overlaps neither an input nor another output of the batch.
///
/// Returns whether an output is an input, so that a failure may leave inputs changed.
///
/// Errors   ValueError: names both tensors.
/// Cost     a sort of all buffers, but for one pair of up to 16 components. Allocates nothing once as many have been checked before.
bool require_no_overlaps(std::span<const ValueDestinationPair> pairs);
bool require_no_overlaps(const PerReplica& value, const Destinations& destinations);

/// For gather: no output shares memory with an input or another output.
void require_apart(const PerReplica& value, const Destinations& destinations);

/// What is said of a whole batch.
struct ReducibleBatch {
  std::size_t size_bytes = 0;  ///< of one replica's values
  bool in_place = false;       ///< whether an output of a pair is an input
};
/// require_reducible of every pair and require_no_overlaps of all of them.
ReducibleBatch require_batch_reducible(ReduceOp op, std::span<const ValueDestinationPair> pairs);

/// CommunicationImplementation::NCCL asked for where NCCL cannot work: announced once, or refused (CROSSDEVICE_STRICT=1).
///
/// Errors   FailedPreconditionError.
void require_implementation(const PerReplica& value, const CommunicationOptions& options);
void require_implementation(std::span<const ValueDestinationPair> pairs,
                            const CommunicationOptions& options);

/// Blocks until asynchronous operations on the value's and the outputs' tensors have ended.
void wait_until_ready(const PerReplica& value, const Destinations& destinations);

/// Bytes of one replica's component.
[[nodiscard]] std::size_t component_size_bytes(const DistributedValues& value);

}  // namespace crossdevice::detail
