// SPDX-License-Identifier: Apache-2.0
/// Checks and copies whole tensors.
#include "crossdevice/device/copy.h"

#include <fmt/format.h>

#include "crossdevice/core/error.h"

#include "device/detail/gpu_copy.h"
#include "device/detail/host_copy.h"

namespace crossdevice {
namespace {

void require_tensor(const Tensor& tensor, const char* role) {
  if (!tensor) throw ValueError(fmt::format("copy: the {} is no tensor", role));
}

/// `limit` null: the environment's.
void copy_within(const Tensor& destination, const Tensor& source, const detail::WaitLimit* limit) {
  require_tensor(destination, "destination");
  require_tensor(source, "source");
  if (destination.dtype() != source.dtype() || destination.shape() != source.shape()) {
    throw ValueError(
        fmt::format("copy: the destination is {}, the source {}; expected the same dtype and shape",
                    destination.to_string(), source.to_string()));
  }
  if (destination.is_read_only()) {
    throw ValueError(fmt::format("copy: the destination {} is read-only", destination.to_string()));
  }
  const bool onto_itself = destination.data() == source.data();
  if (!onto_itself && overlaps(destination, source)) {
    throw ValueError(fmt::format(
        "copy: the destination {} at {} and the source {} at {} overlap in part",
        destination.to_string(), destination.data(), source.to_string(), source.data()));
  }
  destination.device().require_present();
  source.device().require_present();
  source.readiness().wait();
  destination.readiness().wait();
  if (onto_itself) return;
  const bool to_host = destination.device().is_host();
  const bool from_host = source.device().is_host();
  if (to_host && from_host) {
    detail::copy_host_memory(destination.data(), source.data(), source.size_bytes());
  } else if (to_host) {
    detail::copy_from_gpu(destination.data(), source, limit);
  } else if (from_host) {
    detail::copy_to_gpu(destination, source.data(), limit);
  } else {
    detail::copy_between_gpus(destination, source);
  }
}

Tensor copy_to_device_within(const Tensor& source, const Device& device,
                             const detail::WaitLimit* limit) {
  require_tensor(source, "source");
  Tensor result = Tensor::empty(source.dtype(), source.shape(), device);
  copy_within(result, source, limit);
  return result;
}

}  // namespace

void copy(const Tensor& destination, const Tensor& source) {
  copy_within(destination, source, nullptr);
}

void copy(const Tensor& destination, const Tensor& source, const detail::WaitLimit& limit) {
  copy_within(destination, source, &limit);
}

Tensor copy_to_device(const Tensor& source, const Device& device) {
  return copy_to_device_within(source, device, nullptr);
}

Tensor copy_to_device(const Tensor& source, const Device& device, const detail::WaitLimit& limit) {
  return copy_to_device_within(source, device, &limit);
}

}  // namespace crossdevice
