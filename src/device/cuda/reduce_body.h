// SPDX-License-Identifier: Apache-2.0
/// What one thread of a reduce kernel does.
///
/// Layout   a tile is what a block's threads do in one go: thread t takes the vectors (16 bytes of an input) t, t + 256, ..., kUnroll of them, so that
///          every instruction of a warp touches 512 contiguous bytes of each buffer. Blocks take tiles, a stride apart. What lies before the first
///          16-byte boundary and behind the last vector is done with the first tile, one element for each thread. Many tensors of one launch are dealt
///          out tile by tile (ranges.h).
/// In place every thread reads all inputs of its elements before it writes any output of them, and no other thread touches these.
/// Roofline bytes: (N + M) S at the copy bandwidth of the memory. To fill it, bandwidth times latency must be in flight, on an H200 4.3 TB/s x 0.7 us =
///          3 MB, 23 KB for each multiprocessor. A thread loads min(N, kBatch) x kUnroll vectors before it uses the first; at 1024 resident threads
///          that is 64 KB with 4 of them. Arithmetic stays below: an addition and at most two instructions of conversion for each element read. 8-bit
///          floats are converted in pairs: one element at a time, they would take twice the instructions that the memory allows time for. For the same
///          reason what is equal or rare is decided once for all elements of a thread: how to divide, and whether a result saturates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/cuda/element_formats.h"
#include "device/cuda/memory_access.h"
#include "device/cuda/ranges.h"
#include "device/cuda/reduce_rules.h"

namespace crossdevice::cuda {

// Products of a few hundred threads and a few elements are 32 bits wide on purpose: one register instead of two.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)

inline constexpr std::size_t kMaxBuffers = 64;

/// What all tensors of a launch have in common.
struct ReduceTerms {
  std::uint32_t num_inputs;
  std::uint32_t num_outputs;
  std::uint32_t split;  ///< inputs of the first group; num_inputs where there is one group
  RuleArguments rule;
};

/// How the elements of a tensor lie in vectors of kWidth.
struct VectorRun {
  std::uint32_t head;         ///< elements before the first vector
  std::uint64_t num_vectors;  ///< in a row
  std::uint64_t num_elements;
};

/// The kernel's argument, by value: a launch needs no other memory, so it can be captured.
struct ReduceArguments {
  const void* inputs[kMaxBuffers];
  void* outputs[kMaxBuffers];
  VectorRun run;
  ReduceTerms terms;
};

/// The argument of a kernel for many tensors (ranges.h), of the size that every driver takes and that is quick to be brought to the device: launches of a
/// few dozen tensors cost little more than one of hundreds.
struct ManyReduceArguments {
  static constexpr std::uint32_t kMaxTensors = 56;
  static constexpr std::uint32_t kMaxPointers = 8 * kMaxTensors;  // of four replicas in place
  void* buffers[kMaxPointers];  ///< of each tensor its inputs, then its outputs
  std::uint32_t num_elements[kMaxTensors];
  std::uint32_t first_tiles[kMaxTensors];  ///< tiles of the tensors before
  std::uint32_t num_ranges;                ///< tensors
  std::uint32_t num_tiles;
  ReduceTerms terms;
};
static_assert(sizeof(ManyReduceArguments) <= kMaxArgumentBytesBefore);

/// Where a tensor's buffers are listed in an argument.
struct ReduceBuffers {
  const void* const* inputs;
  void* const* outputs;
};

/// Which of a rule's kernels: kWidth elements at once; kNumInputs of them fixed and in one group, or 0: any number in one or two groups.
template <std::uint32_t kInputs, std::uint32_t kElements, std::uint32_t kSteps>
struct ReduceShape {
  static constexpr std::uint32_t kNumInputs = kInputs;
  static constexpr std::uint32_t kWidth = kElements;
  static constexpr std::uint32_t kUnroll = kSteps;
  static constexpr std::uint32_t kTile = kBlockThreads * kSteps;  // in vectors
};

/// Whether a thread has one run of elements only, which as numbers take most of its registers.
template <class Shape>
inline constexpr bool kHasOneRun = Shape::kWidth >= 16;

/// Loads so many inputs before it combines them, where their number is not fixed.
template <class Shape>
inline constexpr std::uint32_t kBatch = kHasOneRun<Shape> ? 8 : 4;

/// kWidth elements of an input. Words stay such until an element is asked for: taken apart at once, each byte would take a register.
template <class Rule, std::uint32_t kWidth>
struct Loaded {
  static constexpr std::size_t kBytes = kWidth * sizeof(typename Rule::Element);
  std::uint32_t words[kBytes / 4];
  CROSSDEVICE_BOTH typename Rule::Element operator[](std::uint32_t e) const {
    return element_of<typename Rule::Element>(words, e);
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
    Loaded<Rule, kWidth> loaded;
    load_piece<sizeof loaded.words>(loaded.words, from);
    return loaded;
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
    constexpr std::size_t kBytes = kWidth * sizeof(Result);
    constexpr std::size_t kPiece = kBytes < kVectorBytes ? kBytes : kVectorBytes;
    store_pieces<kPiece, kBytes / kPiece>(to, results);
  } else {
    store_element<Result>(to, results[0]);
  }
}

/// Calls use(e, element e as a number to compute with) for all that were loaded.
template <class Rule, std::uint32_t kWidth, class Use>
CROSSDEVICE_BOTH void widen_each(const Loaded<Rule, kWidth>& loaded, const RuleArguments& rule,
                                 const Use& use) {
  if constexpr (kWidth > 1 && kTakesPairs<Rule>) {
    CROSSDEVICE_UNROLL
    for (std::uint32_t e = 0; e < kWidth; e += 2) {
      typename Rule::Compute pair[2];
      Rule::widen_pair(element_of<std::uint16_t>(loaded.words, e / 2), rule, pair);
      use(e, pair[0]);
      use(e + 1, pair[1]);
    }
  } else {
    CROSSDEVICE_UNROLL
    for (std::uint32_t e = 0; e < kWidth; ++e) use(e, Rule::widen(loaded[e], rule));
  }
}

template <class Rule, std::uint32_t kWidth>
CROSSDEVICE_BOTH void finish_and_store(const ReduceTerms& terms, const ReduceBuffers& buffers,
                                       std::uint64_t i, typename Rule::Compute (&values)[kWidth]) {
  typename Rule::Result results[kWidth];
  if constexpr (requires { Rule::finish_all(values, terms.rule, results); }) {
    Rule::finish_all(values, terms.rule, results);
  } else {
    CROSSDEVICE_UNROLL
    for (std::uint32_t e = 0; e < kWidth; ++e) results[e] = Rule::finish(values[e], terms.rule);
  }
  for (std::uint32_t j = 0; j < terms.num_outputs; ++j) {
    store_to<Rule, kWidth>(buffers.outputs[j], i, results);
  }
}

/// The elements [i, i + kWidth) of all inputs into `values`; `first` is for the first of two groups.
template <class Rule, std::uint32_t kWidth>
struct Accumulator {
  using Compute = typename Rule::Compute;
  static constexpr bool kHasStart = requires { Rule::start(); };
  Compute values[kWidth];
  Compute first[kWidth];

  CROSSDEVICE_BOTH void begin() {
    if constexpr (kHasStart) {
      CROSSDEVICE_UNROLL
      for (std::uint32_t e = 0; e < kWidth; ++e) values[e] = Rule::start();
    }
  }
  CROSSDEVICE_BOTH void take(const Loaded<Rule, kWidth>& loaded, std::uint32_t k,
                             const ReduceTerms& terms) {
    if (k == terms.split) {
      for (std::uint32_t e = 0; e < kWidth; ++e) first[e] = values[e];
      begin();
    }
    widen_each(loaded, terms.rule, [&](std::uint32_t e, Compute value) {
      const bool is_first = !kHasStart && (k == 0 || k == terms.split);
      values[e] = is_first ? value : Rule::combine(values[e], value);
    });
  }
  CROSSDEVICE_BOTH void join_groups(const ReduceTerms& terms) {
    if (terms.split >= terms.num_inputs) return;
    for (std::uint32_t e = 0; e < kWidth; ++e) values[e] = Rule::combine(first[e], values[e]);
  }
};

/// Where runs of kWidth elements lie that a thread has: run u starts at element begin + (vector + u * 256) * kWidth and exists if its number is below `end`.
struct Runs {
  std::uint64_t begin;
  std::uint64_t vector;
  std::uint64_t end;
};

/// Loads kBatch inputs of each run from input `k` on, then takes them in. kAreThere: there are so many; else as many as there are.
template <class Rule, class Shape, bool kAreThere>
CROSSDEVICE_BOTH void take_batch(const ReduceTerms& terms, const ReduceBuffers& buffers,
                                 const Runs& runs, std::uint32_t k,
                                 Accumulator<Rule, Shape::kWidth> (&accumulators)[Shape::kUnroll]) {
  constexpr std::uint32_t kWidth = Shape::kWidth;
  constexpr std::uint32_t kLoads = kBatch<Shape>;
  Loaded<Rule, kWidth> loaded[Shape::kUnroll][kLoads];
  CROSSDEVICE_UNROLL
  for (std::uint32_t u = 0; u < Shape::kUnroll; ++u) {
    const std::uint64_t v = runs.vector + u * kBlockThreads;
    CROSSDEVICE_UNROLL
    for (std::uint32_t b = 0; b < kLoads; ++b) {
      if (v < runs.end && (kAreThere || k + b < terms.num_inputs))
        loaded[u][b] = load_from<Rule, kWidth>(buffers.inputs[k + b], runs.begin + v * kWidth);
    }
  }
  CROSSDEVICE_UNROLL
  for (std::uint32_t u = 0; u < Shape::kUnroll; ++u) {
    CROSSDEVICE_UNROLL
    for (std::uint32_t b = 0; b < kLoads; ++b) {
      if (runs.vector + u * kBlockThreads < runs.end && (kAreThere || k + b < terms.num_inputs))
        accumulators[u].take(loaded[u][b], k + b, terms);
    }
  }
}

/// Up to kUnroll runs.
template <class Rule, class Shape>
CROSSDEVICE_BOTH void reduce_any_number(const ReduceTerms& terms, const ReduceBuffers& buffers,
                                        const Runs& runs) {
  constexpr std::uint32_t kWidth = Shape::kWidth;
  Accumulator<Rule, kWidth> accumulators[Shape::kUnroll];
  CROSSDEVICE_UNROLL
  for (std::uint32_t u = 0; u < Shape::kUnroll; ++u) accumulators[u].begin();
  std::uint32_t k = 0;
  if constexpr (kHasOneRun<Shape>) {
    for (; k + kBatch<Shape> <= terms.num_inputs; k += kBatch<Shape>)
      take_batch<Rule, Shape, true>(terms, buffers, runs, k, accumulators);
  }
  for (; k < terms.num_inputs; k += kBatch<Shape>)
    take_batch<Rule, Shape, false>(terms, buffers, runs, k, accumulators);
  CROSSDEVICE_UNROLL
  for (std::uint32_t u = 0; u < Shape::kUnroll; ++u) {
    const std::uint64_t v = runs.vector + u * kBlockThreads;
    if (v >= runs.end) continue;
    accumulators[u].join_groups(terms);
    finish_and_store<Rule, kWidth>(terms, buffers, runs.begin + v * kWidth, accumulators[u].values);
  }
}

/// The same for Shape::kNumInputs inputs in one group: all loads first, everything unrolled.
template <class Rule, class Shape>
CROSSDEVICE_BOTH void reduce_fixed_number(const ReduceTerms& terms, const ReduceBuffers& buffers,
                                          const Runs& runs) {
  using Compute = typename Rule::Compute;
  constexpr std::uint32_t kWidth = Shape::kWidth;
  constexpr std::uint32_t kUnroll = Shape::kUnroll;
  Loaded<Rule, kWidth> loaded[kUnroll][Shape::kNumInputs];
  CROSSDEVICE_UNROLL
  for (std::uint32_t u = 0; u < kUnroll; ++u) {
    const std::uint64_t v = runs.vector + u * kBlockThreads;
    if (v >= runs.end) continue;
    CROSSDEVICE_UNROLL
    for (std::uint32_t k = 0; k < Shape::kNumInputs; ++k)
      loaded[u][k] = load_from<Rule, kWidth>(buffers.inputs[k], runs.begin + v * kWidth);
  }
  CROSSDEVICE_UNROLL
  for (std::uint32_t u = 0; u < kUnroll; ++u) {
    const std::uint64_t v = runs.vector + u * kBlockThreads;
    if (v >= runs.end) continue;
    Compute values[kWidth];
    widen_each(loaded[u][0], terms.rule,
               [&values](std::uint32_t e, Compute value) { values[e] = value; });
    CROSSDEVICE_UNROLL
    for (std::uint32_t k = 1; k < Shape::kNumInputs; ++k) {
      widen_each(loaded[u][k], terms.rule, [&values](std::uint32_t e, Compute value) {
        values[e] = Rule::combine(values[e], value);
      });
    }
    finish_and_store<Rule, kWidth>(terms, buffers, runs.begin + v * kWidth, values);
  }
}

/// What thread `thread` does of tile `tile` of a tensor.
template <class Rule, class Shape>
CROSSDEVICE_BOTH void reduce_tile(const ReduceTerms& terms, const ReduceBuffers& buffers,
                                  const VectorRun& run, std::uint64_t tile, std::uint32_t thread) {
  const Runs runs{run.head, tile * Shape::kTile + thread, run.num_vectors};
  if constexpr (Shape::kNumInputs == 0) {
    reduce_any_number<Rule, Shape>(terms, buffers, runs);
  } else {
    reduce_fixed_number<Rule, Shape>(terms, buffers, runs);
  }
}

/// What it does of that which lies before and behind the vectors.
template <class Rule, class Shape>
CROSSDEVICE_BOTH void reduce_ends(const ReduceTerms& terms, const ReduceBuffers& buffers,
                                  const VectorRun& run, std::uint32_t thread) {
  const std::uint64_t behind = run.head + run.num_vectors * Shape::kWidth;
  const std::uint64_t rest = run.head + (run.num_elements - behind);  // below 2 kWidth
  if (thread >= rest) return;
  const std::uint64_t i = thread < run.head ? thread : behind + (thread - run.head);
  reduce_any_number<Rule, ReduceShape<0, 1, 1>>(terms, buffers, {0, i, i + 1});
}

/// Everything that thread `thread` of block `block` of `num_blocks` does.
template <class Rule, class Shape>
CROSSDEVICE_BOTH void reduce_thread(const ReduceArguments& arguments, std::uint64_t block,
                                    std::uint64_t num_blocks, std::uint32_t thread) {
  const ReduceBuffers buffers{arguments.inputs, arguments.outputs};
  for (std::uint64_t tile = block; tile * Shape::kTile < arguments.run.num_vectors;
       tile += num_blocks) {
    reduce_tile<Rule, Shape>(arguments.terms, buffers, arguments.run, tile, thread);
  }
  if constexpr (Shape::kWidth > 1) {
    if (block == 0) reduce_ends<Rule, Shape>(arguments.terms, buffers, arguments.run, thread);
  }
}

/// The vectors of a tensor whose buffers are all at the same distance from a multiple of 16, or that has no more elements than reduce_ends takes.
template <class Rule, std::uint32_t kWidth>
CROSSDEVICE_BOTH VectorRun vectors_of(const void* first_input, std::uint64_t num_elements) {
  if (num_elements < 2 * kWidth) return {0, 0, num_elements};
  const std::uint32_t head =
      elements_to_alignment(first_input, sizeof(typename Rule::Element), kVectorBytes);
  return {head, (num_elements - head) / kWidth, num_elements};
}

/// The same for many tensors.
template <class Rule, class Shape>
CROSSDEVICE_BOTH void reduce_many_thread(const ManyReduceArguments& arguments, std::uint32_t block,
                                         std::uint32_t num_blocks, std::uint32_t thread) {
  const ReduceTerms& terms = arguments.terms;
  for (std::uint32_t tile = block; tile < arguments.num_tiles; tile += num_blocks) {
    const std::uint32_t t = find_range(arguments, tile);
    void* const* const inputs = arguments.buffers + t * (terms.num_inputs + terms.num_outputs);
    const ReduceBuffers buffers{inputs, inputs + terms.num_inputs};
    const VectorRun run =
        vectors_of<Rule, Shape::kWidth>(buffers.inputs[0], arguments.num_elements[t]);
    const std::uint32_t tile_of_tensor = tile - arguments.first_tiles[t];
    reduce_tile<Rule, Shape>(terms, buffers, run, tile_of_tensor, thread);
    if (tile_of_tensor == 0) reduce_ends<Rule, Shape>(terms, buffers, run, thread);
  }
}

// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
}  // namespace crossdevice::cuda
