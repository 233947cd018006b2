// SPDX-License-Identifier: Apache-2.0
/// What the inputs hold and what the results must be, element by element: slow and obvious.
///
/// Inputs are small whole numbers that differ by replica and index, so that every sum and product is exact in every dtype's arithmetic
/// and a result has one right value, whatever the order in which it was computed.
#pragma once

#include <cstddef>
#include <span>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"

namespace crossdevice::bench {

/// Inputs repeat after this many elements: a prime, so that no power of two of a wrong offset goes unnoticed.
inline constexpr std::size_t kPatternPeriod = 1021;

/// Element `index` of replica `replica` of `num_replicas`, as a number.
[[nodiscard]] double input_element(DType dtype, ReduceOp op, std::size_t replica,
                                   std::size_t num_replicas, std::size_t index);

/// Element `index` of the reduction of all replicas, in double precision; for MEAN before the division.
[[nodiscard]] double reduced_element(DType dtype, ReduceOp op, std::size_t num_replicas,
                                     std::size_t index);

/// Which elements a buffer holds: element i of it is element first_index + i of replica `replica`'s pattern.
struct PatternPlace {
  DType dtype = DType::FLOAT32;
  ReduceOp op = ReduceOp::SUM;
  std::size_t num_replicas = 1;
  std::size_t replica = 0;
  std::size_t first_index = 0;
};

/// Writes `count` input elements.
void write_inputs(const PatternPlace& place, void* data, std::size_t count);

/// How many of `count` elements at `data` are not the input's.
[[nodiscard]] std::size_t count_different_from_input(const PatternPlace& place, const void* data,
                                                     std::size_t count);

/// How many of `count` elements of dtype result_dtype(op, dtype) at `data` are not the reduction of all replicas (place.replica does not matter).
[[nodiscard]] std::size_t count_different_from_reduction(const PatternPlace& place,
                                                         const void* data, std::size_t count);

}  // namespace crossdevice::bench
