// SPDX-License-Identifier: Apache-2.0
/// What one thread of a reduce kernel does.
///
/// Layout   a tile is what a block's threads do in one go: thread t takes the vectors (16 bytes of an input) t, t + 256, ..., kUnroll of them, so that
///          every instruction of a warp touches 512 contiguous bytes of each buffer. Blocks take tiles, a stride apart. What lies before the first
///          16-byte boundary and behind the last vector is done by the first block, one element for each thread.
/// In place every thread reads all inputs of its elements before it writes any output of them, and no other thread touches these.
/// Roofline bytes: (N + M) S at the copy bandwidth of the memory. To fill it, bandwidth times latency must be in flight, on an H200 4.3 TB/s x 0.7 us =
///          3 MB, 23 KB for each multiprocessor. A thread loads min(N, kBatch) x kUnroll vectors before it uses the first; at 1024 resident threads
///          that is 64 KB with 4 of them. Arithmetic stays below: an addition and at most two instructions of conversion for each element read of the
///          types of 16 bits and more; for 8-bit floats it is about as many instructions as the memory allows time for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/cuda/element_formats.h"
#include "device/cuda/memory_access.h"
#include "device/cuda/reduce_rules.h"

namespace crossdevice::cuda {

// Products of a few hundred threads and a few elements are 32 bits wide on purpose: one register instead of two.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)

inline constexpr std::size_t kMaxBuffers = 64;

/// The kernel's argument, by value: a launch needs no other memory, so it can be captured.
struct ReduceArguments {
  const void* inputs[kMaxBuffers];
  void* outputs[kMaxBuffers];
  std::uint32_t num_inputs;
  std::uint32_t num_outputs;
  std::uint32_t split;        ///< inputs of the first group; num_inputs where there is one group
  std::uint32_t head;         ///< elements before the first vector
  std::uint64_t num_vectors;  ///< of kWidth elements, in a row
  std::uint64_t num_elements;
  RuleArguments rule;
};

/// Which of a rule's kernels: kWidth elements at once; kNumInputs of them fixed and in one group, or 0: any number in one or two groups.
template <std::uint32_t kInputs, std::uint32_t kElements, std::uint32_t kSteps>
struct ReduceShape {
  static constexpr std::uint32_t kNumInputs = kInputs;
  static constexpr std::uint32_t kWidth = kElements;
  static constexpr std::uint32_t kUnroll = kSteps;
  static constexpr std::uint32_t kTile = kBlockThreads * kSteps;  // in vectors
};

/// Loads so many inputs before it combines them, where their number is not fixed.
inline constexpr std::uint32_t kBatch = 4;

/// kWidth elements of an input. A vector stays one until an element is asked for: taken apart at once, each byte would take a register.
template <class Rule, std::uint32_t kWidth>
struct Loaded {
  Vector vector;
  CROSSDEVICE_BOTH typename Rule::Element operator[](std::uint32_t e) const {
    return element_of<typename Rule::Element>(vector, e);
  }
};
template <class Rule>
struct Loaded<Rule, 1> {
  typename Rule::Element element;
  CROSSDEVICE_BOTH typename Rule::Element operator[](std::uint32_t /*e*/) const { return element; }
};

template <class Rule, std::uint32_t kWidth>
CROSSDEVICE_BOTH Loaded<Rule, kWidth> load_from(const void* input, std::uint64_t i) {
  using Element = typename Rule::Element;
  const std::byte* const from = advance(input, i * sizeof(Element));
  if constexpr (kWidth > 1) {
    static_assert(kWidth * sizeof(Element) == kVectorBytes);
    return {load_vector(from)};
  } else {
    return {load_element<Element>(from)};
  }
}

template <class Rule, std::uint32_t kWidth>
CROSSDEVICE_BOTH void store_to(void* output, std::uint64_t i,
                               const typename Rule::Result (&results)[kWidth]) {
  using Result = typename Rule::Result;
  std::byte* const to = advance(output, i * sizeof(Result));
  if constexpr (kWidth > 1) {
    static_assert(kWidth * sizeof(Result) % kVectorBytes == 0);
    store_pieces<kVectorBytes, kWidth * sizeof(Result) / kVectorBytes>(to, results);
  } else {
    store_element<Result>(to, results[0]);
  }
}

template <class Rule, std::uint32_t kWidth>
CROSSDEVICE_BOTH void finish_and_store(const ReduceArguments& arguments, std::uint64_t i,
                                       const typename Rule::Compute (&values)[kWidth]) {
  typename Rule::Result results[kWidth];
  for (std::uint32_t e = 0; e < kWidth; ++e) results[e] = Rule::finish(values[e], arguments.rule);
  for (std::uint32_t j = 0; j < arguments.num_outputs; ++j) {
    store_to<Rule, kWidth>(arguments.outputs[j], i, results);
  }
}

/// The elements [i, i + kWidth) of all inputs into `values`; `first` is for the first of two groups.
template <class Rule, std::uint32_t kWidth>
struct Accumulator {
  typename Rule::Compute values[kWidth];
  typename Rule::Compute first[kWidth];

  CROSSDEVICE_BOTH void take(const Loaded<Rule, kWidth>& loaded, std::uint32_t k,
                             const ReduceArguments& arguments) {
    if (k == 0) {
      for (std::uint32_t e = 0; e < kWidth; ++e) values[e] = Rule::widen(loaded[e], arguments.rule);
    } else if (k == arguments.split) {
      for (std::uint32_t e = 0; e < kWidth; ++e) {
        first[e] = values[e];
        values[e] = Rule::widen(loaded[e], arguments.rule);
      }
    } else {
      for (std::uint32_t e = 0; e < kWidth; ++e)
        values[e] = Rule::combine(values[e], Rule::widen(loaded[e], arguments.rule));
    }
  }
  CROSSDEVICE_BOTH void join_groups(const ReduceArguments& arguments) {
    if (arguments.split >= arguments.num_inputs) return;
    for (std::uint32_t e = 0; e < kWidth; ++e) values[e] = Rule::combine(first[e], values[e]);
  }
};

/// Up to kUnroll runs of kWidth elements: run u starts at element begin + (vector + u * 256) * kWidth and exists if its number is below `end`.
template <class Rule, class Shape>
CROSSDEVICE_BOTH void reduce_any_number(const ReduceArguments& arguments, std::uint64_t begin,
                                        std::uint64_t vector, std::uint64_t end) {
  constexpr std::uint32_t kWidth = Shape::kWidth;
  constexpr std::uint32_t kUnroll = Shape::kUnroll;
  Accumulator<Rule, kWidth> accumulators[kUnroll];
  Loaded<Rule, kWidth> loaded[kUnroll][kBatch];
  for (std::uint32_t k = 0; k < arguments.num_inputs; k += kBatch) {
    CROSSDEVICE_UNROLL
    for (std::uint32_t u = 0; u < kUnroll; ++u) {
      const std::uint64_t v = vector + u * kBlockThreads;
      CROSSDEVICE_UNROLL
      for (std::uint32_t b = 0; b < kBatch; ++b) {
        if (v < end && k + b < arguments.num_inputs)
          loaded[u][b] = load_from<Rule, kWidth>(arguments.inputs[k + b], begin + v * kWidth);
      }
    }
    CROSSDEVICE_UNROLL
    for (std::uint32_t u = 0; u < kUnroll; ++u) {
      CROSSDEVICE_UNROLL
      for (std::uint32_t b = 0; b < kBatch; ++b) {
        if (vector + u * kBlockThreads < end && k + b < arguments.num_inputs)
          accumulators[u].take(loaded[u][b], k + b, arguments);
      }
    }
  }
  CROSSDEVICE_UNROLL
  for (std::uint32_t u = 0; u < kUnroll; ++u) {
    const std::uint64_t v = vector + u * kBlockThreads;
    if (v >= end) continue;
    accumulators[u].join_groups(arguments);
    finish_and_store<Rule, kWidth>(arguments, begin + v * kWidth, accumulators[u].values);
  }
}

/// The same for Shape::kNumInputs inputs in one group: all loads first, everything unrolled.
template <class Rule, class Shape>
CROSSDEVICE_BOTH void reduce_fixed_number(const ReduceArguments& arguments, std::uint64_t begin,
                                          std::uint64_t vector, std::uint64_t end) {
  constexpr std::uint32_t kWidth = Shape::kWidth;
  constexpr std::uint32_t kUnroll = Shape::kUnroll;
  Loaded<Rule, kWidth> loaded[kUnroll][Shape::kNumInputs];
  CROSSDEVICE_UNROLL
  for (std::uint32_t u = 0; u < kUnroll; ++u) {
    const std::uint64_t v = vector + u * kBlockThreads;
    if (v >= end) continue;
    CROSSDEVICE_UNROLL
    for (std::uint32_t k = 0; k < Shape::kNumInputs; ++k)
      loaded[u][k] = load_from<Rule, kWidth>(arguments.inputs[k], begin + v * kWidth);
  }
  CROSSDEVICE_UNROLL
  for (std::uint32_t u = 0; u < kUnroll; ++u) {
    const std::uint64_t v = vector + u * kBlockThreads;
    if (v >= end) continue;
    typename Rule::Compute values[kWidth];
    CROSSDEVICE_UNROLL
    for (std::uint32_t e = 0; e < kWidth; ++e) {
      values[e] = Rule::widen(loaded[u][0][e], arguments.rule);
      CROSSDEVICE_UNROLL
      for (std::uint32_t k = 1; k < Shape::kNumInputs; ++k)
        values[e] = Rule::combine(values[e], Rule::widen(loaded[u][k][e], arguments.rule));
    }
    finish_and_store<Rule, kWidth>(arguments, begin + v * kWidth, values);
  }
}

/// Everything that thread `thread` of block `block` of `num_blocks` does.
template <class Rule, class Shape>
CROSSDEVICE_BOTH void reduce_thread(const ReduceArguments& arguments, std::uint64_t block,
                                    std::uint64_t num_blocks, std::uint32_t thread) {
  for (std::uint64_t tile = block; tile * Shape::kTile < arguments.num_vectors;
       tile += num_blocks) {
    const std::uint64_t vector = tile * Shape::kTile + thread;
    if constexpr (Shape::kNumInputs == 0) {
      reduce_any_number<Rule, Shape>(arguments, arguments.head, vector, arguments.num_vectors);
    } else {
      reduce_fixed_number<Rule, Shape>(arguments, arguments.head, vector, arguments.num_vectors);
    }
  }
  if constexpr (Shape::kWidth > 1) {
    if (block != 0) return;
    const std::uint64_t behind = arguments.head + arguments.num_vectors * Shape::kWidth;
    const std::uint64_t rest =
        arguments.head + (arguments.num_elements - behind);  // below 2 kWidth
    if (thread >= rest) return;
    const std::uint64_t i = thread < arguments.head ? thread : behind + (thread - arguments.head);
    reduce_any_number<Rule, ReduceShape<0, 1, 1>>(arguments, 0, i, i + 1);
  }
}

// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
}  // namespace crossdevice::cuda
