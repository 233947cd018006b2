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

/// A launch of one tensor, or, with `many`, of those.
struct ReducePlan {
  RuleKind rule = RuleKind::SUM;
  ElementKind element = ElementKind::FLOAT32;
  std::uint32_t factor = 1;  ///< how many elements of the rule one of the dtype is
  ReduceArguments arguments;
  const detail::ManyReduceLaunch* many = nullptr;
  bool has_launched = false;  ///< some of many, where a launch may have been refused
};

/// The sign's bit of `bits` bits.
[[nodiscard]] constexpr std::uint64_t sign_bit(std::size_t bits) {
  return std::uint64_t{1} << (bits - 1);
}

/// Chooses rule, element and mask, and returns the factor: 2 for complex numbers of which the components are reduced.
inline std::uint32_t choose_rule(ReduceOp requested, DType dtype, std::size_t num_inputs,
                                 ReducePlan& plan) {
  const std::uint32_t num_components = is_complex(dtype) ? 2 : 1;
  const std::size_t component_bytes = size_in_bytes(dtype) / num_components;
  RuleArguments& rule = plan.arguments.terms.rule;
  rule = {};
  if (requested == ReduceOp::MEAN && is_integer(dtype)) {
    plan.rule = RuleKind::INTEGER_MEAN;
    plan.element = bits_of_size(component_bytes);
    rule.divider = divider_by(static_cast<double>(num_inputs));
    if (dtype <= DType::INT64) rule.mask = sign_bit(8 * component_bytes);
    return 1;
  }
  if (num_inputs == 1) {  // copied bit by bit
    plan.rule = RuleKind::SUM;
    plan.element = bits_of_size(component_bytes);
    return num_components;
  }
  const bool is_float = is_floating(dtype) || is_complex(dtype);
  plan.element = is_float ? float_kind(dtype) : bits_of_size(component_bytes);
  // Of bool, values 0 and 1: and is the minimum, or the maximum.
  const ReduceOp op =
      dtype == DType::BOOL && requested == ReduceOp::PROD ? ReduceOp::MIN : requested;
  switch (op) {
    case ReduceOp::MEAN:
      rule.divider = divider_by(static_cast<double>(num_inputs));
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

/// What does not depend on the tensors' buffers and sizes.
inline void plan_terms(ReduceOp op, DType dtype, std::size_t num_inputs, std::size_t num_outputs,
                       std::size_t first_group, ReducePlan& plan) {
  plan.factor = choose_rule(op, dtype, num_inputs, plan);
  ReduceTerms& terms = plan.arguments.terms;
  terms.num_inputs = static_cast<std::uint32_t>(num_inputs);
  terms.num_outputs = static_cast<std::uint32_t>(num_outputs);
  const bool has_groups = first_group != 0 && first_group < num_inputs;
  terms.split = has_groups ? static_cast<std::uint32_t>(first_group) : terms.num_inputs;
}

/// Arguments are checked: there are inputs and outputs, and no more than kMaxBuffers of each.
inline void plan_reduce(const detail::ReduceLaunch& launch, ReducePlan& plan) {
  plan_terms(launch.op, launch.dtype, launch.inputs.size(), launch.outputs.size(),
             launch.first_group, plan);
  std::copy(launch.inputs.begin(), launch.inputs.end(), plan.arguments.inputs);
  std::copy(launch.outputs.begin(), launch.outputs.end(), plan.arguments.outputs);
  plan.arguments.run.num_elements = launch.num_elements * plan.factor;
}

/// Likewise.
inline void plan_reduce(const detail::ManyReduceLaunch& launch, ReducePlan& plan) {
  plan_terms(launch.op, launch.dtype, launch.num_inputs, launch.num_outputs, launch.first_group,
             plan);
  plan.many = &launch;
}

/// Elements to skip until every buffer is at a multiple of 16; more than there can be where that is nowhere.
template <class Rule>
std::uint64_t common_head(const ReduceTerms& terms, const ReduceBuffers& buffers) {
  constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
  const std::uint64_t head =
      elements_to_alignment(buffers.inputs[0], sizeof(typename Rule::Element), kVectorBytes);
  const auto is_aligned = [head](const void* pointer, std::size_t size) {
    return (reinterpret_cast<std::uintptr_t>(pointer) + head * size) % kVectorBytes == 0;
  };
  for (std::uint32_t k = 0; k < terms.num_inputs; ++k) {
    if (!is_aligned(buffers.inputs[k], sizeof(typename Rule::Element))) return kNowhere;
  }
  for (std::uint32_t j = 0; j < terms.num_outputs; ++j) {
    if (!is_aligned(buffers.outputs[j], sizeof(typename Rule::Result))) return kNowhere;
  }
  return head;
}

// ---- from a plan to kernels: calls runner.template run<Rule, Shape>(arguments) for each launch, until one returns something else than 0, which is returned

/// How many inputs have a kernel of their own, from 2 on: those of gradients; 0: none. The others go through the loop, which keeps kBatch loads in flight as
/// well, because every kernel costs compile time and size.
template <class Rule>
inline constexpr std::uint32_t kMostFixedInputs = 0;
template <class Format>
inline constexpr std::uint32_t kMostFixedInputs<FloatSum<Format>> = 8;

/// Copies have one, too.
template <class Rule>
inline constexpr bool kCopies = false;
template <class T>
inline constexpr bool kCopies<WrappingSum<T>> = true;

/// Elements of a vector; 1: there are none.
template <class Rule>
inline constexpr std::uint32_t kVectorsWidth = kVectorBytes / sizeof(typename Rule::Element);

/// The kernel in vectors for any number of inputs.
template <class Rule>
using AnyNumber = ReduceShape<0, kVectorsWidth<Rule>, (kVectorsWidth<Rule> >= 8 ? 1 : 2)>;

/// The kernel for many tensors: with more of each in flight, as most have few inputs.
template <class Rule>
using AnyNumberOfMany = ReduceShape<0, kVectorsWidth<Rule>,
                                    (kVectorsWidth<Rule> >= 16  ? 1
                                     : kVectorsWidth<Rule> >= 8 ? 2
                                                                : 4)>;

/// The one for many tensors of two inputs each.
template <class Rule>
using TwoOfMany = ReduceShape<2, kVectorsWidth<Rule>, 2>;

/// Bytes of a tensor that shares a launch with others: so few that its elements and tiles are counted in 32 bits. What fills a GPU by itself gains nothing from
/// company, and has the better kernel alone.
inline constexpr std::uint64_t kMaxSharedBytes = std::uint64_t{16} << 20;

/// Vectors of each input that a thread has in flight: some 8 over all inputs, fewer where a vector becomes many registers.
[[nodiscard]] constexpr std::uint32_t unroll_for(std::uint32_t num_inputs, std::uint32_t width) {
  if (width >= 16) return num_inputs <= 2 ? 2 : 1;
  return std::clamp(8 / num_inputs, 1U, 4U);
}

/// By the kernel for kNumber inputs in one group, if there are so many; else by one of the next kernels.
template <class Rule, std::uint32_t kNumber, class Runner>
int run_fixed(const ReduceArguments& arguments, Runner& runner) {
  constexpr std::uint32_t kWidth = kVectorsWidth<Rule>;
  if constexpr (kNumber <= kMostFixedInputs<Rule>) {
    const ReduceTerms& terms = arguments.terms;
    if (terms.num_inputs == kNumber && terms.split == kNumber) {
      using Shape = ReduceShape<kNumber, kWidth, unroll_for(kNumber, kWidth)>;
      return runner.template run<Rule, Shape>(arguments);
    }
    return run_fixed<Rule, kNumber + 1>(arguments, runner);
  } else {
    return runner.template run<Rule, AnyNumber<Rule>>(arguments);
  }
}

/// The kernel that serves a tensor in vectors.
template <class Rule, class Runner>
int run_wide(const ReduceArguments& arguments, Runner& runner) {
  if constexpr (kCopies<Rule>) {
    if (arguments.terms.num_inputs == 1)
      return runner.template run<Rule, ReduceShape<1, kVectorsWidth<Rule>, 4>>(arguments);
  }
  return run_fixed<Rule, 2>(arguments, runner);
}

/// One tensor, whose buffers and number of elements the argument names.
template <class Rule, class Runner>
int run_one(ReduceArguments& arguments, Runner& runner) {
  constexpr std::uint32_t kWidth = kVectorsWidth<Rule>;
  VectorRun& run = arguments.run;
  if (run.num_elements == 0) return 0;
  run.head = 0;
  run.num_vectors = run.num_elements;
  if constexpr (kWidth > 1) {
    // (Numbers of 16 bytes are read by their components, which need be aligned to 8 only.)
    const std::uint64_t head =
        common_head<Rule>(arguments.terms, {arguments.inputs, arguments.outputs});
    if (head < run.num_elements && run.num_elements - head >= kWidth) {
      run.head = static_cast<std::uint32_t>(head);
      run.num_vectors = (run.num_elements - head) / kWidth;
      return run_wide<Rule>(arguments, runner);
    }
  }
  return runner.template run<Rule, ReduceShape<0, 1, 4>>(arguments);
}

/// Whether a tensor may share a launch: it is small enough to be counted there, and in vectors.
template <class Rule>
[[nodiscard]] bool may_share_launch(const ReduceTerms& terms, const ReduceBuffers& buffers,
                                    std::uint64_t num_elements) {
  constexpr std::uint32_t kWidth = kVectorsWidth<Rule>;
  if (num_elements * sizeof(typename Rule::Element) > kMaxSharedBytes) return false;
  return num_elements < std::uint64_t{2} * kWidth || common_head<Rule>(terms, buffers) < kWidth;
}

/// Tensors of one launch while they are listed.
template <class Rule, class Shape, class Runner>
class SharedLaunch {
 public:
  SharedLaunch(const ReduceTerms& terms, Runner& runner, bool& has_launched)
      : runner_(runner), has_launched_(has_launched) {
    arguments_.terms = terms;
    arguments_.num_ranges = 0;
    arguments_.num_tiles = 0;
  }
  int add(void* const* buffers, std::uint64_t num_elements) {
    const std::size_t num_buffers =
        std::size_t{arguments_.terms.num_inputs} + arguments_.terms.num_outputs;
    if (is_full(num_buffers)) {
      if (const int result = launch(); result != 0) return result;
    }
    const std::uint32_t t = arguments_.num_ranges++;
    std::copy_n(buffers, num_buffers, arguments_.buffers + t * num_buffers);
    arguments_.num_elements[t] = static_cast<std::uint32_t>(num_elements);
    arguments_.first_tiles[t] = arguments_.num_tiles;
    const std::uint64_t num_vectors =
        vectors_of<Rule, Shape::kWidth>(buffers[0], num_elements).num_vectors;
    const std::uint64_t num_tiles = (num_vectors + Shape::kTile - 1) / Shape::kTile;
    arguments_.num_tiles += std::max<std::uint32_t>(1, static_cast<std::uint32_t>(num_tiles));
    return 0;
  }
  int launch() {
    if (arguments_.num_ranges == 0) return 0;
    const int result = runner_.template run<Rule, Shape>(arguments_);
    has_launched_ |= result == 0;
    arguments_.num_ranges = 0;
    arguments_.num_tiles = 0;
    return result;
  }

 private:
  [[nodiscard]] bool is_full(std::size_t num_buffers) const {
    return arguments_.num_ranges == ManyReduceArguments::kMaxTensors ||
           (arguments_.num_ranges + 1) * num_buffers > ManyReduceArguments::kMaxPointers;
  }
  Runner& runner_;
  bool& has_launched_;
  ManyReduceArguments arguments_;  // only what is used is written
};

/// The tensors that may share a launch do, the others have one each.
template <class Rule, class Shape, class Runner>
int run_many_by(ReducePlan& plan, Runner& runner) {
  const detail::ManyReduceLaunch& launch = *plan.many;
  const ReduceTerms& terms = plan.arguments.terms;
  SharedLaunch<Rule, Shape, Runner> shared(terms, runner, plan.has_launched);
  for (std::size_t t = 0; t < launch.num_elements.size(); ++t) {
    const std::uint64_t num_elements = launch.num_elements[t] * plan.factor;
    if (num_elements == 0) continue;
    void* const* const buffers =
        launch.buffers.data() + t * (launch.num_inputs + launch.num_outputs);
    int result = 0;
    if (may_share_launch<Rule>(terms, {buffers, buffers + launch.num_inputs}, num_elements)) {
      result = shared.add(buffers, num_elements);
    } else {
      ReduceArguments one;
      one.terms = terms;
      one.run.num_elements = num_elements;
      std::copy_n(buffers, launch.num_inputs, one.inputs);
      std::copy_n(buffers + launch.num_inputs, launch.num_outputs, one.outputs);
      result = run_one<Rule>(one, runner);
      plan.has_launched |= result == 0;
    }
    if (result != 0) return result;
  }
  return shared.launch();
}

template <class Rule, class Runner>
int run_many(ReducePlan& plan, Runner& runner) {
  if constexpr (kMostFixedInputs<Rule> >= 2) {
    const ReduceTerms& terms = plan.arguments.terms;
    if (terms.num_inputs == 2 && terms.split == 2)
      return run_many_by<Rule, TwoOfMany<Rule>>(plan, runner);
  }
  return run_many_by<Rule, AnyNumberOfMany<Rule>>(plan, runner);
}

template <class Rule, class Runner>
int run_shape(ReducePlan& plan, Runner& runner) {
  if (plan.many != nullptr) return run_many<Rule>(plan, runner);
  return run_one<Rule>(plan.arguments, runner);
}

template <class Format, class Runner>
int run_float_rule(ReducePlan& plan, Runner& runner) {
  if (plan.rule == RuleKind::SUM) return run_shape<FloatSum<Format>>(plan, runner);
  if (plan.rule == RuleKind::PRODUCT) return run_shape<FloatProduct<Format>>(plan, runner);
  return run_shape<FloatExtremum<Format>>(plan, runner);
}

template <class T, class Runner>
int run_integer_rule(ReducePlan& plan, Runner& runner) {
  if (plan.rule == RuleKind::SUM) return run_shape<WrappingSum<T>>(plan, runner);
  if (plan.rule == RuleKind::PRODUCT) return run_shape<WrappingProduct<T>>(plan, runner);
  if (plan.rule == RuleKind::EXTREMUM) return run_shape<IntegerExtremum<T>>(plan, runner);
  return run_shape<IntegerMean<T>>(plan, runner);
}

/// Blocks of a launch: one for each tile.
template <class Shape>
[[nodiscard]] std::uint32_t blocks_for(const ReduceArguments& arguments) {
  const std::uint64_t tiles = (arguments.run.num_vectors + Shape::kTile - 1) / Shape::kTile;
  return static_cast<std::uint32_t>(std::min(tiles, kMaxBlocks));
}

}  // namespace crossdevice::cuda
