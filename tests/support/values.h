// SPDX-License-Identifier: Apache-2.0
/// Short ways to make values for tests and to read results: on host devices, with the elements spelled out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/device/copy.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/indexed_slices.h"
#include "crossdevice/ops/values.h"

#if defined(CROSSDEVICE_TESTS_ON_GPUS)
#include "support/gpus_under_test.h"
#endif

namespace crossdevice::testing {

// A test that is compiled with CROSSDEVICE_TESTS_ON_GPUS as well runs a second time with GPUs in the place of its host devices: emulated ones, or, with
// CROSSDEVICE_TESTS_ON_A_GPU too, devices of a real one.
#if defined(CROSSDEVICE_TESTS_ON_GPUS)
inline constexpr const char* kDeviceType = "GPU:";
[[maybe_unused]] inline const bool kHasGpus = (install_gpus(16), true);
#else
inline constexpr const char* kDeviceType = "CPU:";
#endif

/// "CPU:<index>", or what stands for it.
inline Device cpu(std::size_t index) { return Device(kDeviceType + std::to_string(index)); }

/// CPU:0 .. CPU:n-1.
inline Devices cpus(std::size_t count) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < count; ++i) devices.push_back(cpu(i));
  return Devices(std::span<const Device>(devices));
}

template <class T = float>
Tensor tensor_of(const std::vector<T>& elements, const Shape& shape, const Device& device) {
  return Tensor::copy_of(std::span<const T>(elements), shape, device);
}
template <class T = float>
Tensor vector_of(const std::vector<T>& elements, const Device& device) {
  return tensor_of(elements, Shape{elements.size()}, device);
}
template <class T = float>
Tensor scalar_of(T value, const Device& device) {
  return tensor_of<T>({value}, Shape{}, device);
}

/// Component r is components[r] on CPU:r.
template <class T = float>
PerReplica per_replica(const std::vector<std::vector<T>>& components) {
  std::vector<Tensor> tensors;
  for (std::size_t r = 0; r < components.size(); ++r) {
    tensors.push_back(vector_of(components[r], cpu(r)));
  }
  return PerReplica(tensors);
}

template <class T = float>
std::vector<T> elements(const Tensor& tensor) {
  const Tensor here = tensor.device().is_host() ? tensor : copy_to_device(tensor, "CPU:0");
  const auto span = here.span<const T>();
  return {span.begin(), span.end()};
}

template <class T = float>
void write_elements(const Tensor& tensor, const std::vector<T>& values) {
  copy(tensor, tensor_of(values, tensor.shape(), "CPU:0"));
}

/// Rows of `width` elements at `indices`.
inline IndexedSlices slices_of(const std::vector<float>& rows,
                               const std::vector<std::int64_t>& indices,
                               const MaybeShape& dense_shape, const Device& device) {
  const std::size_t width = indices.empty() ? 1 : rows.size() / indices.size();
  return {tensor_of<float>(rows, {indices.size(), width}, device), vector_of(indices, device),
          dense_shape};
}

/// Every component of `value` has these elements and this device.
inline void expect_mirrored(const DistributedValues& value, const Devices& devices,
                            const std::vector<float>& expected) {
  ASSERT_EQ(value.devices(), devices);
  for (const Tensor& tensor : value.values()) EXPECT_EQ(elements(tensor), expected);
}

inline void expect_slices(const IndexedSlices& slices, const std::vector<float>& rows,
                          const std::vector<std::int64_t>& indices) {
  EXPECT_EQ(elements(slices.values), rows);
  EXPECT_EQ(elements<std::int64_t>(slices.indices), indices);
}

}  // namespace crossdevice::testing
