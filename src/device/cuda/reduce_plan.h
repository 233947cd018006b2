// SPDX-License-Identifier: Apache-2.0
/// Which kernel serves a reduction, and its argument: what is decided on the host before a launch, and by the tests before they run a kernel's body.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/device/kernel_api.h"

#include "device/cuda/reduce_body.h"

namespace crossdevice::cuda {

static_assert(kMaxBuffers == detail::kMaxReduceBuffers);

/// The arithmetic of reduce_rules.h.
enum class RuleKind : std::uint8_t { SUM, PRODUCT, EXTREMUM, INTEGER_MEAN, COMPLEX_PRODUCT };

/// What is loaded: a floating format, or unsigned integers (of any meaning) of a size.
enum class ElementKind : std::uint8_t {
  FLOAT8_E4M3,
  FLOAT8_E5M2,
  FLOAT16,
  BFLOAT16,
  FLOAT32,
  FLOAT64,
  BITS8,
  BITS16,
  BITS32,
  BITS64,
};

[[nodiscard]] constexpr ElementKind bits_of_size(std::size_t size_bytes) {
  switch (size_bytes) {
    case 1:
      return ElementKind::BITS8;
    case 2:
      return ElementKind::BITS16;
    case 4:
      return ElementKind::BITS32;
    default:
      return ElementKind::BITS64;
  }
}

/// The format of a floating or complex dtype's components.
[[nodiscard]] constexpr ElementKind float_kind(DType dtype) {
  switch (dtype) {
    case DType::FLOAT8_E4M3:
      return ElementKind::FLOAT8_E4M3;
    case DType::FLOAT8_E5M2:
      return ElementKind::FLOAT8_E5M2;
    case DType::FLOAT16:
      return ElementKind::FLOAT16;
    case DType::BFLOAT16:
      return ElementKind::BFLOAT16;
    case DType::FLOAT64:
    case DType::COMPLEX128:
      return ElementKind::FLOAT64;
    case DType::BOOL:
    case DType::INT8:
    case DType::INT16:
    case DType::INT32:
    case DType::INT64:
    case DType::UINT8:
    case DType::UINT16:
    case DType::UINT32:
    case DType::UINT64:
    case DType::FLOAT32:
    case DType::COMPLEX64:
      break;
  }
  return ElementKind::FLOAT32;
}

struct ReducePlan {
  RuleKind rule = RuleKind::SUM;
  ElementKind element = ElementKind::FLOAT32;
  bool is_wide = false;  ///< 16 bytes at once; else element by element
  ReduceArguments arguments;
};

/// The sign's bit of `bits` bits.
[[nodiscard]] constexpr std::uint64_t sign_bit(std::size_t bits) {
  return std::uint64_t{1} << (bits - 1);
}

/// Chooses rule, element and mask; returns how many elements of the rule one of the dtype is (complex numbers of which the components are reduced: 2).
inline std::uint64_t choose_rule(const detail::ReduceLaunch& launch, ReducePlan& plan) {
  const DType dtype = launch.dtype;
  const std::size_t num_components = is_complex(dtype) ? 2 : 1;
  const std::size_t component_bytes = size_in_bytes(dtype) / num_components;
  RuleArguments& rule = plan.arguments.rule;
  rule = {};
  if (launch.op == ReduceOp::MEAN && is_integer(dtype)) {
    plan.rule = RuleKind::INTEGER_MEAN;
    plan.element = bits_of_size(component_bytes);
    rule.divider = divider_by(static_cast<double>(launch.inputs.size()));
    if (dtype <= DType::INT64) rule.mask = sign_bit(8 * component_bytes);
    return 1;
  }
  if (launch.inputs.size() == 1) {  // copied bit by bit
    plan.rule = RuleKind::SUM;
    plan.element = bits_of_size(component_bytes);
    return num_components;
  }
  const bool is_float = is_floating(dtype) || is_complex(dtype);
  plan.element = is_float ? float_kind(dtype) : bits_of_size(component_bytes);
  // Of bool, values 0 and 1: and is the minimum, or the maximum.
  const ReduceOp op =
      dtype == DType::BOOL && launch.op == ReduceOp::PROD ? ReduceOp::MIN : launch.op;
  switch (op) {
    case ReduceOp::MEAN:
      rule.divider = divider_by(static_cast<double>(launch.inputs.size()));
      [[fallthrough]];
    case ReduceOp::SUM:
      plan.rule = RuleKind::SUM;
      return num_components;
    case ReduceOp::PROD:
      plan.rule = is_complex(dtype) ? RuleKind::COMPLEX_PRODUCT : RuleKind::PRODUCT;
      return 1;
    case ReduceOp::MIN:
    case ReduceOp::MAX:
      break;
  }
  plan.rule = RuleKind::EXTREMUM;
  if (is_float) {
    const std::size_t compute_bits = dtype == DType::FLOAT64 ? 64 : 32;
    if (op == ReduceOp::MAX) rule.mask = sign_bit(compute_bits);
  } else {
    if (is_integer(dtype) && dtype <= DType::INT64) rule.mask = sign_bit(8 * component_bytes);
    if (op == ReduceOp::MAX) rule.mask = ~rule.mask;  // the upper bits are cut off
  }
  return 1;
}

/// Elements to skip until every buffer is at a multiple of 16; more than there are where that is nowhere.
inline std::uint64_t common_head(const detail::ReduceLaunch& launch, std::size_t element_bytes,
                                 std::size_t result_bytes) {
  constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
  const std::uint64_t head = elements_to_alignment(launch.inputs[0], element_bytes, kVectorBytes);
  const auto is_aligned = [head](const void* pointer, std::size_t size) {
    return (reinterpret_cast<std::uintptr_t>(pointer) + head * size) % kVectorBytes == 0;
  };
  for (const void* const input : launch.inputs) {
    if (!is_aligned(input, element_bytes)) return kNowhere;
  }
  for (const void* const output : launch.outputs) {
    if (!is_aligned(output, result_bytes)) return kNowhere;
  }
  return head;
}

/// Arguments are checked: there are inputs, outputs and elements, and no more buffers than kMaxBuffers.
inline void plan_reduce(const detail::ReduceLaunch& launch, ReducePlan& plan) {
  ReduceArguments& arguments = plan.arguments;
  const std::uint64_t factor = choose_rule(launch, plan);
  const std::size_t element_bytes = size_in_bytes(launch.dtype) / factor;
  const std::size_t result_bytes = size_in_bytes(result_dtype(launch.op, launch.dtype)) / factor;
  std::copy(launch.inputs.begin(), launch.inputs.end(), arguments.inputs);
  std::copy(launch.outputs.begin(), launch.outputs.end(), arguments.outputs);
  arguments.num_inputs = static_cast<std::uint32_t>(launch.inputs.size());
  arguments.num_outputs = static_cast<std::uint32_t>(launch.outputs.size());
  arguments.split = arguments.num_inputs;
  if (launch.first_group != 0 && launch.first_group < launch.inputs.size())
    arguments.split = static_cast<std::uint32_t>(launch.first_group);
  arguments.num_elements = launch.num_elements * factor;
  const std::size_t width = kVectorBytes / element_bytes;
  const std::uint64_t head = common_head(launch, element_bytes, result_bytes);
  // (Numbers of 16 bytes are read by their components, which need be aligned to 8 only.)
  plan.is_wide =
      width > 1 && head < arguments.num_elements && arguments.num_elements - head >= width;
  arguments.head = plan.is_wide ? static_cast<std::uint32_t>(head) : 0;
  arguments.num_vectors =
      plan.is_wide ? (arguments.num_elements - head) / width : arguments.num_elements;
}

// ---- from a plan to a kernel: calls runner.template run<Rule, Shape>(plan.arguments)

/// Which numbers of inputs have a kernel of their own: those of gradients, and copies. The others go through the loop, which keeps kBatch loads in flight
/// as well, because every kernel costs compile time and size.
template <class Rule>
inline constexpr bool kHasKernelsOfItsOwn = false;
template <class Format>
inline constexpr bool kHasKernelsOfItsOwn<FloatSum<Format>> = true;

template <class Rule>
inline constexpr bool kCopies = false;
template <class T>
inline constexpr bool kCopies<WrappingSum<T>> = true;

/// Vectors of each input that a thread has in flight: some 8 over all inputs, fewer where a vector becomes many registers.
[[nodiscard]] constexpr std::uint32_t unroll_for(std::uint32_t num_inputs, std::uint32_t width) {
  if (width >= 16) return num_inputs <= 2 ? 2 : 1;
  return std::clamp(8 / num_inputs, 1U, 4U);
}

template <class Rule, class Runner>
auto run_shape(const ReducePlan& plan, Runner& runner) {
  constexpr std::uint32_t kWidth = kVectorBytes / sizeof(typename Rule::Element);
  const ReduceArguments& arguments = plan.arguments;
  if constexpr (kWidth > 1) {
    if (plan.is_wide) {
      const bool is_one_group = arguments.split == arguments.num_inputs;
      if constexpr (kCopies<Rule>) {
        if (arguments.num_inputs == 1)
          return runner.template run<Rule, ReduceShape<1, kWidth, 4>>(arguments);
      }
      if constexpr (kHasKernelsOfItsOwn<Rule>) {
        switch (is_one_group ? arguments.num_inputs : 0) {
          case 2:
            return runner.template run<Rule, ReduceShape<2, kWidth, unroll_for(2, kWidth)>>(
                arguments);
          case 3:
            return runner.template run<Rule, ReduceShape<3, kWidth, unroll_for(3, kWidth)>>(
                arguments);
          case 4:
            return runner.template run<Rule, ReduceShape<4, kWidth, unroll_for(4, kWidth)>>(
                arguments);
          default:
            break;
        }
      }
      if constexpr (kHasKernelsOfItsOwn<Rule> &&
                    kWidth < 16) {  // 16 elements of more inputs are too many registers
        switch (is_one_group ? arguments.num_inputs : 0) {
          case 5:
            return runner.template run<Rule, ReduceShape<5, kWidth, unroll_for(5, kWidth)>>(
                arguments);
          case 6:
            return runner.template run<Rule, ReduceShape<6, kWidth, unroll_for(6, kWidth)>>(
                arguments);
          case 7:
            return runner.template run<Rule, ReduceShape<7, kWidth, unroll_for(7, kWidth)>>(
                arguments);
          case 8:
            return runner.template run<Rule, ReduceShape<8, kWidth, unroll_for(8, kWidth)>>(
                arguments);
          default:
            break;
        }
      }
      (void)is_one_group;
      return runner.template run<Rule, ReduceShape<0, kWidth, (kWidth >= 8 ? 1 : 2)>>(arguments);
    }
  }
  return runner.template run<Rule, ReduceShape<0, 1, 4>>(arguments);
}

template <class Format, class Runner>
auto run_float_rule(const ReducePlan& plan, Runner& runner) {
  if (plan.rule == RuleKind::SUM) return run_shape<FloatSum<Format>>(plan, runner);
  if (plan.rule == RuleKind::PRODUCT) return run_shape<FloatProduct<Format>>(plan, runner);
  return run_shape<FloatExtremum<Format>>(plan, runner);
}

template <class T, class Runner>
auto run_integer_rule(const ReducePlan& plan, Runner& runner) {
  if (plan.rule == RuleKind::SUM) return run_shape<WrappingSum<T>>(plan, runner);
  if (plan.rule == RuleKind::PRODUCT) return run_shape<WrappingProduct<T>>(plan, runner);
  if (plan.rule == RuleKind::EXTREMUM) return run_shape<IntegerExtremum<T>>(plan, runner);
  return run_shape<IntegerMean<T>>(plan, runner);
}

/// Blocks of a launch: one for each tile.
template <class Shape>
[[nodiscard]] std::uint32_t blocks_for(const ReduceArguments& arguments) {
  const std::uint64_t tiles = (arguments.num_vectors + Shape::kTile - 1) / Shape::kTile;
  return static_cast<std::uint32_t>(std::min(tiles, kMaxBlocks));
}

}  // namespace crossdevice::cuda
