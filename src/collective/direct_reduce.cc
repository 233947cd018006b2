// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/collective/direct_reduce.h"

#include "crossdevice/device/reduce_kernel.h"

namespace crossdevice {

// The plain version: tensor after tensor, on the calling thread.
DirectReduceOutcome direct_reduce(const DirectReduceRequest& request) {
  for (std::size_t t = 0; t < request.tensors.size(); ++t) {
    if (request.deadline.has_passed()) return DirectReduceOutcome::DEADLINE_PASSED;
    if (request.observer != nullptr && request.observer->stop_requested()) {
      return DirectReduceOutcome::STOPPED;
    }
    const DirectReduceTensor& tensor = request.tensors[t];
    const ReducePass pass{.op = request.op,
                          .dtype = tensor.dtype,
                          .inputs = tensor.inputs,
                          .outputs = tensor.outputs,
                          .first_group = request.first_group,
                          .stores = StoreMode::CACHED};
    find_reduce_kernel(request.op, tensor.dtype)(pass, 0, tensor.num_elements);
    if (request.observer != nullptr) request.observer->tensor_completed(t);
  }
  return DirectReduceOutcome::COMPLETED;
}

}  // namespace crossdevice
