// SPDX-License-Identifier: Apache-2.0
/// The slow, obvious execution of a schedule: step by step, each participant with a row of its own.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "crossdevice/collective/schedule.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"

#include "support/reference.h"

namespace crossdevice::testing {

/// `count` elements of a floating or complex dtype, each divided by `divisor` in at least float32.
inline void reference_divide(DType dtype, std::byte* data, std::size_t count, std::size_t divisor) {
  const auto divide = [&]<class T>(T) {
    using Type = reference::FloatType<T>;
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = Type::widen(load_element<T>(data, i));
      store_element(data, i, Type::narrow(value / static_cast<typename Type::Compute>(divisor)));
    }
  };
  switch (dtype) {
    case DType::FLOAT8_E4M3:
      return divide(float8_e4m3{});
    case DType::FLOAT8_E5M2:
      return divide(float8_e5m2{});
    case DType::FLOAT16:
      return divide(float16{});
    case DType::BFLOAT16:
      return divide(bfloat16{});
    case DType::COMPLEX64:
      count *= 2;
      return divide(float{});
    case DType::COMPLEX128:
      count *= 2;
      return divide(double{});
    case DType::FLOAT32:
      return divide(float{});
    case DType::FLOAT64:
      return divide(double{});
    case DType::BOOL:
    case DType::INT8:
    case DType::INT16:
    case DType::INT32:
    case DType::INT64:
    case DType::UINT8:
    case DType::UINT16:
    case DType::UINT32:
    case DType::UINT64:
      break;  // a MEAN of integers has no intermediate sums in its dtype
  }
}

/// What every participant holds in the end, one row of schedule.num_elements each. MEAN (not of integers) divides in a step that combines
/// all inputs, and where there is none, after the last step.
[[nodiscard]] inline std::vector<std::vector<std::byte>> reference_execute(
    const Schedule& schedule, ReduceOp op, DType dtype, std::span<const void* const> inputs) {
  const std::size_t size = size_in_bytes(dtype);
  const std::size_t n = schedule.num_participants;
  std::vector<std::vector<std::byte>> rows;
  for (const void* const input : inputs) {
    const auto* const bytes = static_cast<const std::byte*>(input);
    rows.emplace_back(bytes, bytes + schedule.num_elements * size);
  }
  std::vector<bool> divided(schedule.num_elements, n == 1);
  for (const ScheduleStep& step : schedule.steps) {
    std::vector<const void*> sources;
    for (const std::size_t source : step.sources) {
      sources.push_back(rows[source].data() + step.range.begin * size);
    }
    ReduceOp step_op = op;
    if (op == ReduceOp::MEAN) {
      const bool combines_all = n > 1 && step.sources.size() == n;
      step_op = combines_all ? ReduceOp::MEAN : ReduceOp::SUM;
      for (std::size_t i = 0; combines_all && i < step.range.count; ++i) {
        divided[step.range.begin + i] = true;
      }
    }
    const std::vector<std::byte> result =
        reference_reduce(step_op, dtype, sources, step.range.count);
    std::memcpy(rows[step.target].data() + step.range.begin * size, result.data(), result.size());
  }
  if (op == ReduceOp::MEAN) {
    for (std::vector<std::byte>& row : rows) {
      for (std::size_t i = 0; i < divided.size(); ++i) {
        if (!divided[i]) reference_divide(dtype, row.data() + i * size, 1, n);
      }
    }
  }
  return rows;
}

}  // namespace crossdevice::testing
