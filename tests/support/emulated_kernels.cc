// SPDX-License-Identifier: Apache-2.0
#include "support/emulated_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/core/small_floats.h"
#include "crossdevice/device/reduce_kernel.h"

namespace crossdevice::testing {
namespace {

using detail::CudaStatus;

// Complex numbers are aligned as their components are.
std::size_t alignment_of(DType dtype) {
  return is_complex(dtype) ? size_in_bytes(dtype) / 2 : size_in_bytes(dtype);
}

double load(DType dtype, const std::byte* from) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, from, sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::FLOAT8_E4M3:
      return static_cast<float>(as(float8_e4m3()));
    case DType::FLOAT8_E5M2:
      return static_cast<float>(as(float8_e5m2()));
    case DType::FLOAT16:
      return static_cast<float>(as(float16()));
    case DType::BFLOAT16:
      return static_cast<float>(as(bfloat16()));
    case DType::FLOAT32:
      return as(0.0F);
    default:
      return as(0.0);
  }
}

// A double that is rounded to float on the way to a small type must not be rounded twice: the float is made odd where it is inexact (round to odd),
// which no small type can tell from the double.
float to_odd_float(double value) {
  auto rounded = static_cast<float>(value);
  if (static_cast<double>(rounded) == value || value != value || std::abs(rounded) > 3.0e38F) {
    return rounded;
  }
  std::uint32_t bits = 0;
  std::memcpy(&bits, &rounded, sizeof(bits));
  const bool is_away = std::abs(static_cast<double>(rounded)) > std::abs(value);
  if (is_away) --bits;  // now truncated
  bits |= 1U;
  std::memcpy(&rounded, &bits, sizeof(bits));
  return rounded;
}

void store(DType dtype, double value, std::byte* to) {
  const auto put = [&](auto stored) { std::memcpy(to, &stored, sizeof(stored)); };
  switch (dtype) {
    case DType::FLOAT8_E4M3:
      return put(float8_e4m3(to_odd_float(value)));
    case DType::FLOAT8_E5M2:
      return put(float8_e5m2(to_odd_float(value)));
    case DType::FLOAT16:
      return put(float16(to_odd_float(value)));
    case DType::BFLOAT16:
      return put(bfloat16(to_odd_float(value)));
    case DType::FLOAT32:
      return put(static_cast<float>(value));
    default:
      return put(value);
  }
}

// One rounding: divided in float32 (in float64 for float64), not rounded to the source's type before it becomes the destination's.
void divide_and_convert(DType from, DType to, const std::byte* source, std::byte* destination,
                        std::size_t num_elements, double divisor) {
  for (std::size_t element = 0; element < num_elements; ++element) {
    double value = load(from, source + element * size_in_bytes(from));
    if (divisor != 1) {
      value = from == DType::FLOAT64 ? value / divisor
                                     : static_cast<float>(value) / static_cast<float>(divisor);
    }
    store(to, value, destination + element * size_in_bytes(to));
  }
}

void copy_one(DType from, DType to, const std::byte* source, std::byte* destination,
              std::size_t num_elements, double divisor) {
  if (num_elements == 0) return;
  if (from != to) {
    divide_and_convert(from, to, source, destination, num_elements, divisor);
    return;
  }
  if (source != destination) {
    copy_bytes(destination, source, num_elements * size_in_bytes(from), StoreMode::CACHED);
  }
  if (divisor != 1) divide_elements(to, destination, num_elements, divisor);
}

bool is_floating_or_complex(DType dtype) { return is_floating(dtype) || is_complex(dtype); }

}  // namespace

CudaStatus EmulatedKernels::refuse(const std::string& text) {
  auto lock = cuda_->machine().lock();
  cuda_->machine().report(lock, text);
  return CudaStatus::INVALID_VALUE;
}

CudaStatus EmulatedKernels::copy_ranges(const detail::CopyLaunch& launch) {
  const UncountedAllocations uncounted;
  const bool converts = launch.source_dtype != launch.destination_dtype;
  if (converts && !(is_floating(launch.source_dtype) && is_floating(launch.destination_dtype))) {
    return refuse(fmt::format("kernels.copy_ranges: from {} to {}", to_string(launch.source_dtype),
                              to_string(launch.destination_dtype)));
  }
  if (launch.divisor != 1 && !is_floating_or_complex(launch.source_dtype)) {
    return refuse(fmt::format("kernels.copy_ranges: divides {}", to_string(launch.source_dtype)));
  }
  EmulatedLaunch kernel{"kernels.copy_ranges", launch.stream, 0, {}, true, {}};
  kernel.uses.reserve(2 * launch.ranges.size());
  for (const detail::CopyRange& range : launch.ranges) {
    const bool is_in_place = range.source == range.destination;
    if (is_in_place && converts && range.num_elements > 0) {
      return refuse("kernels.copy_ranges: converts in place");
    }
    const std::size_t size_bytes = range.num_elements * size_in_bytes(launch.destination_dtype);
    kernel.uses.push_back({range.source, range.num_elements * size_in_bytes(launch.source_dtype),
                           alignment_of(launch.source_dtype), false});
    kernel.uses.push_back({range.destination, size_bytes, alignment_of(launch.destination_dtype)});
    kernel.size_bytes += size_bytes;
  }
  kernel.body = [from = launch.source_dtype, to = launch.destination_dtype,
                 divisor = launch.divisor,
                 ranges = std::vector(launch.ranges.begin(), launch.ranges.end())](
                    std::span<std::byte* const> views) {
    for (std::size_t range = 0; range < ranges.size(); ++range) {
      copy_one(from, to, views[2 * range], views[2 * range + 1], ranges[range].num_elements,
               divisor);
    }
  };
  return cuda_->launch(std::move(kernel));
}

CudaStatus EmulatedKernels::reduce(const detail::ReduceLaunch& launch) {
  const UncountedAllocations uncounted;
  std::vector<void*> buffers;
  for (const void* const input : launch.inputs) buffers.push_back(const_cast<void*>(input));
  buffers.insert(buffers.end(), launch.outputs.begin(), launch.outputs.end());
  return launch_reductions("kernels.reduce",
                           {.op = launch.op,
                            .dtype = launch.dtype,
                            .num_inputs = launch.inputs.size(),
                            .num_outputs = launch.outputs.size(),
                            .buffers = buffers,
                            .num_elements = std::span<const std::size_t>(&launch.num_elements, 1),
                            .first_group = launch.first_group,
                            .stream = launch.stream});
}

CudaStatus EmulatedKernels::reduce_many(const detail::ManyReduceLaunch& launch,
                                        bool& has_launched) {
  const UncountedAllocations uncounted;
  const CudaStatus status = launch_reductions("kernels.reduce_many", launch);
  has_launched = status == CudaStatus::SUCCESS;
  return status;
}

CudaStatus EmulatedKernels::launch_reductions(const char* name,
                                              const detail::ManyReduceLaunch& launch) {
  const ReduceKernel loop = find_reduce_kernel(launch.op, launch.dtype);
  if (loop == nullptr) {
    return refuse(fmt::format("{}: {} of {}", name, to_string(launch.op), to_string(launch.dtype)));
  }
  const std::size_t num_inputs = launch.num_inputs;
  const std::size_t num_buffers = num_inputs + launch.num_outputs;
  if (num_inputs == 0 || launch.num_outputs == 0 ||
      std::max(num_inputs, launch.num_outputs) > detail::kMaxReduceBuffers ||
      launch.buffers.size() != num_buffers * launch.num_elements.size()) {
    return refuse(fmt::format("{}: {} inputs, {} outputs, {} buffers of {} tensors", name,
                              num_inputs, launch.num_outputs, launch.buffers.size(),
                              launch.num_elements.size()));
  }
  const DType result = result_dtype(launch.op, launch.dtype);
  EmulatedLaunch kernel{name, launch.stream, 0, {}, true, {}};
  kernel.uses.reserve(launch.buffers.size());
  for (std::size_t b = 0; b < launch.buffers.size(); ++b) {
    const std::size_t count = launch.num_elements[b / num_buffers];
    const bool is_output = b % num_buffers >= num_inputs;
    const DType dtype = is_output ? result : launch.dtype;
    kernel.uses.push_back(
        {launch.buffers[b], count * size_in_bytes(dtype), alignment_of(dtype), is_output});
  }
  for (const std::size_t count : launch.num_elements) {
    kernel.size_bytes += count * size_in_bytes(launch.dtype);
  }
  kernel.body = [loop, op = launch.op, dtype = launch.dtype, first_group = launch.first_group,
                 num_inputs, num_buffers,
                 counts = std::vector(launch.num_elements.begin(), launch.num_elements.end())](
                    std::span<std::byte* const> views) {
    for (std::size_t t = 0; t < counts.size(); ++t) {
      if (counts[t] == 0) continue;
      const auto all = views.subspan(t * num_buffers, num_buffers);
      const std::vector<const void*> inputs(all.begin(), all.begin() + std::ptrdiff_t(num_inputs));
      const std::vector<void*> outputs(all.begin() + std::ptrdiff_t(num_inputs), all.end());
      loop({op, dtype, inputs, outputs, first_group, StoreMode::CACHED}, 0, counts[t]);
    }
  };
  return cuda_->launch(std::move(kernel));
}

}  // namespace crossdevice::testing
