// SPDX-License-Identifier: Apache-2.0
/// What a batch of several workers is, as far as all ways of reducing it need to know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "crossdevice/collective/collective_request.h"

namespace crossdevice::detail {

struct BatchSize {
  std::size_t size_bytes = 0;     // of one replica
  std::size_t inline_bytes = 0;   // of this worker's inputs, see inline_batch.h
  std::size_t num_tensors = 0;    // inputs and outputs of this worker
  std::uint64_t fingerprint = 0;  // of the request's settings too
};

/// Inputs of each value are alike and as many as of the others, outputs fit, and the op is defined for them. One walk, as every call makes it.
///
/// Errors   ValueError.
[[nodiscard]] BatchSize require_batch(const CollectiveRequest& request,
                                      std::span<const CollectiveValue> values);

/// Whether an output is an input.
[[nodiscard]] bool is_in_place(std::span<const CollectiveValue> values);

}  // namespace crossdevice::detail
