// SPDX-License-Identifier: Apache-2.0
// The fused pass: loads one step of every input, combines in registers, stores to every output, goes on.

#if defined(CROSSDEVICE_DEVICE_HOST_VECTOR_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CROSSDEVICE_DEVICE_HOST_VECTOR_LOOP_INL_H_
#undef CROSSDEVICE_DEVICE_HOST_VECTOR_LOOP_INL_H_
#else
#define CROSSDEVICE_DEVICE_HOST_VECTOR_LOOP_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "crossdevice/device/reduce_kernel.h"

#include "device/host/vector_formats-inl.h"
#include "device/host/vector_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crossdevice::host {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A pass as the loops want it. `split`: inputs before it form the first group, all of them when it equals num_inputs.
struct LoopArguments {
  const void* const* inputs;
  std::size_t num_inputs;
  std::size_t split;
  void* const* outputs;
  std::size_t num_outputs;
  double divisor;
};

/// Bit j: output j is written past the caches.
using Streamed = std::uint64_t;

template <class Format>
HWY_INLINE const typename Format::Element* input_at(const void* input, std::size_t i) {
  return static_cast<const typename Format::Element*>(input) + i;
}
template <class Format>
HWY_INLINE typename Format::Element* output_at(void* output, std::size_t i) {
  return static_cast<typename Format::Element*>(output) + i;
}

/// Combines inputs [first, last) at elements [i, i + kUnroll * lanes).
template <class Op, class Format, std::size_t kUnroll>
HWY_INLINE void combine_inputs(typename Format::Value* HWY_RESTRICT values,
                               const void* const* inputs, std::size_t first, std::size_t last,
                               std::size_t i) {
  const std::size_t lanes = Format::lanes();
  const auto* from = input_at<Format>(inputs[first], i);
  for (std::size_t u = 0; u < kUnroll; ++u) {
    values[u] = Format::template prepare<Op>(Format::load(from + u * lanes));
  }
  for (std::size_t k = first + 1; k < last; ++k) {
    from = input_at<Format>(inputs[k], i);
    for (std::size_t u = 0; u < kUnroll; ++u) {
      const auto next = Format::template prepare<Op>(Format::load(from + u * lanes));
      values[u] = Format::template combine<Op>(values[u], next);
    }
  }
}

/// Every input is read before any output is written, so an output may be one of the inputs.
template <class Op, class Format, std::size_t kUnroll>
HWY_INLINE void reduce_step(const LoopArguments& pass, Streamed streamed, std::size_t i) {
  const std::size_t lanes = Format::lanes();
  typename Format::Value values[kUnroll];
  combine_inputs<Op, Format, kUnroll>(values, pass.inputs, 0, pass.split, i);
  if (pass.split < pass.num_inputs) {
    typename Format::Value others[kUnroll];
    combine_inputs<Op, Format, kUnroll>(others, pass.inputs, pass.split, pass.num_inputs, i);
    for (std::size_t u = 0; u < kUnroll; ++u)
      values[u] = Format::template combine<Op>(values[u], others[u]);
  }
  using Scalar = hn::TFromD<typename Format::Compute>;
  Scalar divisor{};
  if constexpr (std::is_floating_point_v<Scalar>) divisor = static_cast<Scalar>(pass.divisor);
  for (std::size_t u = 0; u < kUnroll; ++u) {
    values[u] = Format::template finish<Op>(values[u], divisor);
  }
  if (Format::may_hold_nan(values)) {
    for (std::size_t u = 0; u < kUnroll; ++u) values[u] = Format::canonical(values[u]);
  }
  for (std::size_t j = 0; j < pass.num_outputs; ++j) {
    auto* to = output_at<Format>(pass.outputs[j], i);
    if (kUnroll > 1 && j < 64 && (streamed >> j & 1U) != 0) {
      for (std::size_t u = 0; u < kUnroll; ++u) Format::stream(values[u], to + u * lanes);
    } else {
      for (std::size_t u = 0; u < kUnroll; ++u) Format::store(values[u], to + u * lanes);
    }
  }
}

/// The elements [i, end) in the widest steps that fit, down to single ones. Not inlined, here and below: the loops are
/// generated for every op, type and instruction set, and what is called once per pass need not be copied into each.
template <class Op, class Formats>
HWY_NOINLINE void reduce_few(const LoopArguments& pass, std::size_t i, std::size_t end) {
  using Part = typename Formats::Part;
  const std::size_t lanes = Part::lanes();
  for (; end - i >= lanes; i += lanes) reduce_step<Op, Part, 1>(pass, 0, i);
  for (; i < end; ++i) reduce_step<Op, typename Formats::Single, 1>(pass, 0, i);
}

inline constexpr std::size_t kUnroll = 4;
inline constexpr std::size_t kLineBytes = 64;

struct StreamChoice {
  Streamed streamed = 0;
  std::size_t peel = 0;  // elements before the first that is streamed
};

/// Chooses the outputs to stream: those that are no inputs and in which a cache line starts at the same element as in the
/// first of them.
inline HWY_NOINLINE StreamChoice choose_streamed(const LoopArguments& pass,
                                                 std::size_t element_bytes, std::size_t begin,
                                                 std::size_t count) {
  StreamChoice choice;
  for (std::size_t j = 0; j < std::min<std::size_t>(pass.num_outputs, 64); ++j) {
    const auto* const inputs_end = pass.inputs + pass.num_inputs;
    if (std::find(pass.inputs, inputs_end, pass.outputs[j]) != inputs_end) continue;
    const auto address = reinterpret_cast<std::uintptr_t>(pass.outputs[j]) + begin * element_bytes;
    const std::size_t to_line = (0 - address) % kLineBytes / element_bytes;
    const bool is_reachable = (address + to_line * element_bytes) % kLineBytes == 0;
    if (!is_reachable) continue;
    if (choice.streamed == 0) choice.peel = std::min(to_line, count);
    if (to_line == choice.peel) choice.streamed |= Streamed{1} << j;
  }
  return choice;
}

template <class Op, class Formats>
HWY_NOINLINE void reduce_many(const LoopArguments& pass, StoreMode stores, std::size_t begin,
                              std::size_t count) {
  using Full = typename Formats::Full;
  const std::size_t step = kUnroll * Full::lanes();
  const std::size_t end = begin + count;
  StreamChoice choice;
  if (stores == StoreMode::STREAMING) {
    choice = choose_streamed(pass, sizeof(typename Full::Element), begin, count);
    reduce_few<Op, Formats>(pass, begin, begin + choice.peel);
  }
  std::size_t i = begin + choice.peel;
  for (; end - i >= step; i += step) reduce_step<Op, Full, kUnroll>(pass, choice.streamed, i);
  reduce_few<Op, Formats>(pass, i, end);
  if (choice.streamed != 0) hwy::FlushStream();
}

template <class Op, class Formats>
HWY_INLINE void reduce_range(const LoopArguments& pass, StoreMode stores, std::size_t begin,
                             std::size_t count) {
  if (count < kUnroll * Formats::Full::lanes()) {
    reduce_few<Op, Formats>(pass, begin, begin + count);
  } else {
    reduce_many<Op, Formats>(pass, stores, begin, count);
  }
}

/// Vectors of bytes, for the passes that only copy.
struct ByteFormats {
  using Full = Direct<hn::ScalableTag<std::uint8_t>>;
  using Part = Direct<hn::CappedTag<std::uint8_t, 8>>;
  using Single = Direct<hn::CappedTag<std::uint8_t, 1>>;
};

/// The kernel of `Op` on elements in `Formats`; `kComponents` of them form one element of the pass's dtype.
template <class Op, class Formats, std::size_t kComponents = 1>
void reduce_vectors(const ReducePass& pass, std::size_t begin, std::size_t count) {
  const std::size_t n = pass.inputs.size();
  const std::size_t split = pass.first_group == 0 || pass.first_group > n ? n : pass.first_group;
  const LoopArguments arguments{
      pass.inputs.data(),    n, split, pass.outputs.data(), pass.outputs.size(),
      static_cast<double>(n)};
  if (n == 1) {
    constexpr std::size_t kBytes = sizeof(typename Formats::Full::Element) * kComponents;
    reduce_range<Sum, ByteFormats>(arguments, pass.stores, begin * kBytes, count * kBytes);
  } else {
    reduce_range<Op, Formats>(arguments, pass.stores, begin * kComponents, count * kComponents);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace crossdevice::host
HWY_AFTER_NAMESPACE();

#endif
