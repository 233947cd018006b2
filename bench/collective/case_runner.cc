// SPDX-License-Identifier: Apache-2.0
/// Calls the library's cross-device ops.
#include "collective/case_runner.h"

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "crossdevice/ops/cross_device_ops.h"
#include "crossdevice/ops/values.h"

namespace crossdevice::bench {

namespace {

void run_batch(const Case& test_case, const CaseBuffers& buffers, Placement placement,
               CrossDeviceOps& ops, const CommunicationOptions& options) {
  const std::span<const PerReplica> inputs = buffers.inputs();
  if (placement == Placement::IN_PLACE) {
    ops.batch_reduce_into(test_case.op, inputs, options);
    return;
  }
  const std::span<const PerReplica> outputs = buffers.outputs(placement);
  std::vector<ValueOutputPair> pairs;
  pairs.reserve(inputs.size());
  for (std::size_t t = 0; t < inputs.size(); ++t) pairs.push_back({inputs[t], outputs[t]});
  ops.batch_reduce_into(test_case.op, std::span<const ValueOutputPair>(pairs), options);
}

void run_case(const Case& test_case, const CaseBuffers& buffers, Placement placement,
              CrossDeviceOps& ops, const CommunicationOptions& options) {
  const PerReplica& input = buffers.inputs()[0];
  switch (test_case.collective) {
    case Collective::ALL_REDUCE:
    case Collective::REDUCE:
      ops.reduce_into(test_case.op, input, buffers.outputs(placement)[0], options);
      break;
    case Collective::BATCH_REDUCE:
      run_batch(test_case, buffers, placement, ops, options);
      break;
    case Collective::BROADCAST:
      ops.broadcast_into(input.values()[test_case.root], buffers.outputs(placement)[0]);
      break;
    case Collective::GATHER:
      ops.gather_into(input, buffers.outputs(placement)[0], /*axis=*/0, options);
      break;
  }
}

}  // namespace

CaseRunner run_with(programs::NamedOps ops, std::string algorithm,
                    const CommunicationOptions& options) {
  return {.name = std::move(ops.name),
          .algorithm = std::move(algorithm),
          .run = [ops = std::move(ops.ops), options](
                     const Case& test_case, const CaseBuffers& buffers, Placement placement) {
            run_case(test_case, buffers, placement, *ops, options);
          }};
}

}  // namespace crossdevice::bench
