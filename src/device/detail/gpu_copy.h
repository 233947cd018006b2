// SPDX-License-Identifier: Apache-2.0
/// Copies that a GPU has a part in, and clears its memory. Arguments are checked above.
#pragma once

#include "crossdevice/device/tensor.h"
#include "crossdevice/device/wait_limit.h"

namespace crossdevice::detail {

/// Enqueued on the destination's stream, behind what the source's stream was given so far; what that is given from now on comes behind the copy.
///
/// Order    the GPUs see to it, the host does not wait. Also between GPUs that do not reach each other: CUDA then goes through host memory.
void copy_between_gpus(const Tensor& destination, const Tensor& source);

// Between a GPU and host memory, of as many bytes as the tensor has. Complete on return, in the order of the tensor's stream. `limit` ends the wait for that
// stream; null: CROSSDEVICE_DEFAULT_TIMEOUT does.
//
// Memory   pinned memory moves as it is; of other memory the host copies one window while the GPU moves the one before.
// Errors   FailedPreconditionError: the stream is being captured. DeadlineExceededError, which names the GPU: the limit's deadline passed while the
//          stream did not get there; what the limit's interrupter throws. Pageable host memory is touched no more then; pinned memory may be, when the stream
//          goes on.

void copy_to_gpu(const Tensor& destination, const void* source, const WaitLimit* limit = nullptr);
void copy_from_gpu(void* destination, const Tensor& source, const WaitLimit* limit = nullptr);

/// Enqueued on the tensor's stream.
void clear_gpu_memory(const Tensor& tensor);

}  // namespace crossdevice::detail
