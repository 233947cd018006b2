// SPDX-License-Identifier: Apache-2.0
/// One batch of tensors of several sizes and dtypes, as a model's gradients are, reduced in two halves on host devices.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/small_floats.h"
#include "crossdevice/device/device.h"
#include "crossdevice/device/tensor.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"

#include "doctor/probes.h"
#include "doctor/verified_all_reduce.h"

namespace crossdevice::doctor {
namespace {

constexpr std::array kDTypes{DType::FLOAT32, DType::FLOAT16, DType::INT32};
constexpr std::array<std::size_t, 5> kCounts{1, 7, 1000, 4099, 65'537};
constexpr int kMostDevices = 4;
/// Few enough that the batch goes in several packs, and that the largest tensors exceed one.
constexpr std::int64_t kPackBytes = 16 << 10;

/// Whole numbers, whose sums over kMostDevices float16 holds exactly, too (up to 2048).
int element(std::size_t index, std::size_t tensor, int replica) {
  constexpr std::size_t kPeriod = 251;
  return static_cast<int>((index + 17 * tensor + 31 * static_cast<std::size_t>(replica)) % kPeriod);
}

void write(const Tensor& tensor, std::size_t i, int value) {
  if (tensor.dtype() == DType::FLOAT32) {
    static_cast<float*>(tensor.data())[i] = static_cast<float>(value);
  } else if (tensor.dtype() == DType::FLOAT16) {
    static_cast<std::uint16_t*>(tensor.data())[i] =
        detail::float_to_float16_bits(static_cast<float>(value));
  } else {
    static_cast<std::int32_t*>(tensor.data())[i] = value;
  }
}

double read(const Tensor& tensor, std::size_t i) {
  if (tensor.dtype() == DType::FLOAT32) return static_cast<const float*>(tensor.data())[i];
  if (tensor.dtype() == DType::FLOAT16) {
    return detail::float16_bits_to_float(static_cast<const std::uint16_t*>(tensor.data())[i]);
  }
  return static_cast<const std::int32_t*>(tensor.data())[i];
}

std::vector<PerReplica> make_batch(int num_devices) {
  std::vector<PerReplica> batch;
  for (const std::size_t count : kCounts) {
    for (const DType dtype : kDTypes) {
      std::vector<Tensor> components;
      for (int r = 0; r < num_devices; ++r) {
        components.push_back(Tensor::empty(dtype, {count}, Device(fmt::format("CPU:{}", r))));
        for (std::size_t i = 0; i < count; ++i) {
          write(components.back(), i, element(i, batch.size(), r));
        }
      }
      batch.emplace_back(std::move(components));
    }
  }
  return batch;
}

/// Empty: every element is the sum.
std::string first_wrong(const std::vector<PerReplica>& batch, int num_devices) {
  for (std::size_t t = 0; t < batch.size(); ++t) {
    for (const Tensor& component : batch[t].values()) {
      for (std::size_t i = 0; i < component.num_elements(); ++i) {
        int expected = 0;
        for (int r = 0; r < num_devices; ++r) expected += element(i, t, r);
        if (read(component, i) == expected) continue;
        return fmt::format("tensor {} of {}, {} {}: element {} on {} is {}, expected {}", t,
                           batch.size(), component.num_elements(), to_string(component.dtype()), i,
                           component.device().short_name(), read(component, i), expected);
      }
    }
  }
  return {};
}

}  // namespace

Findings probe_batch_all_reduce() {
  const int num_devices = std::min(num_logical_cpu_devices(), kMostDevices);
  HierarchicalCopyAllReduce ops;
  std::string wrong;
  for (const std::int64_t bytes : {std::int64_t{0}, kPackBytes}) {  // the op's own packs, and ours
    const std::vector<PerReplica> batch = make_batch(num_devices);
    ops.batch_reduce_into(ReduceOp::SUM, batch, {.bytes_per_pack = bytes});
    if (wrong.empty()) wrong = first_wrong(batch, num_devices);
  }
  Finding finding{.name = "all-reduce, batch"};
  const std::size_t num_tensors = kCounts.size() * kDTypes.size();
  finding.facts = {{"devices", num_devices}, {"tensors", num_tensors}, {"wrong", wrong}};
  const std::string what =
      fmt::format("{} host devices: {} tensors of float32, float16 and int32, 1 to {} elements",
                  num_devices, num_tensors, kCounts.back());
  finding.text = what + ": every sum is right, in packs of two sizes";
  if (!wrong.empty()) {
    finding.status = Status::FAILURE;
    finding.text = fmt::format("{}: WRONG VALUES: {}", what, wrong);
    finding.advice = kValuesAreWrong;
  }
  return {finding};
}

}  // namespace crossdevice::doctor
