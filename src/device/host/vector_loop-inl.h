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
template <class Scalar>
struct LoopArguments {
  const void* const* inputs;
  std::size_t num_inputs;
  std::size_t split;
  void* const* outputs;
  std::size_t num_outputs;
  std::uint64_t streamed;  // bit j: output j is written past the caches
  Scalar divisor;
};

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
template <class Op, class Format, std::size_t kUnroll, class Scalar>
HWY_INLINE void reduce_step(const LoopArguments<Scalar>& pass, std::size_t i) {
  const std::size_t lanes = Format::lanes();
  typename Format::Value values[kUnroll];
  combine_inputs<Op, Format, kUnroll>(values, pass.inputs, 0, pass.split, i);
  if (pass.split < pass.num_inputs) {
    typename Format::Value others[kUnroll];
    combine_inputs<Op, Format, kUnroll>(others, pass.inputs, pass.split, pass.num_inputs, i);
    for (std::size_t u = 0; u < kUnroll; ++u)
      values[u] = Format::template combine<Op>(values[u], others[u]);
  }
  for (std::size_t u = 0; u < kUnroll; ++u) {
    values[u] = Format::template finish<Op>(values[u], pass.divisor);
  }
  if (Format::may_hold_nan(values)) {
    for (std::size_t u = 0; u < kUnroll; ++u) values[u] = Format::canonical(values[u]);
  }
  for (std::size_t j = 0; j < pass.num_outputs; ++j) {
    auto* to = output_at<Format>(pass.outputs[j], i);
    if (kUnroll > 1 && j < 64 && (pass.streamed >> j & 1U) != 0) {
      for (std::size_t u = 0; u < kUnroll; ++u) Format::stream(values[u], to + u * lanes);
    } else {
      for (std::size_t u = 0; u < kUnroll; ++u) Format::store(values[u], to + u * lanes);
    }
  }
}

/// The elements [i, end) in the widest steps that fit, down to single ones.
template <class Op, class Formats, class Scalar>
HWY_INLINE void reduce_few(const LoopArguments<Scalar>& pass, std::size_t i, std::size_t end) {
  using Part = typename Formats::Part;
  const std::size_t lanes = Part::lanes();
  for (; end - i >= lanes; i += lanes) reduce_step<Op, Part, 1>(pass, i);
  for (; i < end; ++i) reduce_step<Op, typename Formats::Single, 1>(pass, i);
}

inline constexpr std::size_t kUnroll = 4;
inline constexpr std::size_t kLineBytes = 64;

/// Chooses the outputs to stream: those that are no inputs and in which a cache line starts at the same element as in the
/// first of them. Returns how many elements come before that one.
template <class Element, class Scalar>
HWY_INLINE std::size_t choose_streamed(LoopArguments<Scalar>& pass, std::size_t begin,
                                       std::size_t count) {
  std::size_t peel = 0;
  for (std::size_t j = 0; j < std::min<std::size_t>(pass.num_outputs, 64); ++j) {
    const auto* const inputs_end = pass.inputs + pass.num_inputs;
    if (std::find(pass.inputs, inputs_end, pass.outputs[j]) != inputs_end) continue;
    const auto address =
        reinterpret_cast<std::uintptr_t>(static_cast<Element*>(pass.outputs[j]) + begin);
    const std::size_t to_line = (0 - address) % kLineBytes / sizeof(Element);
    const bool is_reachable = (address + to_line * sizeof(Element)) % kLineBytes == 0;
    if (!is_reachable) continue;
    if (pass.streamed == 0) peel = std::min(to_line, count);
    if (to_line == peel) pass.streamed |= std::uint64_t{1} << j;
  }
  return peel;
}

template <class Op, class Formats, class Scalar>
HWY_INLINE void reduce_range(LoopArguments<Scalar> pass, StoreMode stores, std::size_t begin,
                             std::size_t count) {
  using Full = typename Formats::Full;
  const std::size_t step = kUnroll * Full::lanes();
  const std::size_t end = begin + count;
  std::size_t i = begin;
  if (stores == StoreMode::STREAMING && count >= step) {
    const std::size_t peel = choose_streamed<typename Full::Element>(pass, begin, count);
    reduce_few<Op, Formats>(pass, i, i + peel);
    i += peel;
  }
  for (; end - i >= step; i += step) reduce_step<Op, Full, kUnroll>(pass, i);
  reduce_few<Op, Formats>(pass, i, end);
  if (pass.streamed != 0) hwy::FlushStream();
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
  using Format = typename Formats::Full;
  using Scalar = hn::TFromD<typename Format::Compute>;
  const std::size_t n = pass.inputs.size();
  if (n == 1) {
    constexpr std::size_t kBytes = sizeof(typename Format::Element) * kComponents;
    const LoopArguments<std::uint8_t> bytes{pass.inputs.data(),  1, 1, pass.outputs.data(),
                                            pass.outputs.size(), 0, 1};
    reduce_range<Sum, ByteFormats>(bytes, pass.stores, begin * kBytes, count * kBytes);
    return;
  }
  const std::size_t split = pass.first_group == 0 || pass.first_group > n ? n : pass.first_group;
  const LoopArguments<Scalar> arguments{
      pass.inputs.data(),    n, split, pass.outputs.data(), pass.outputs.size(), 0,
      static_cast<Scalar>(n)};
  reduce_range<Op, Formats>(arguments, pass.stores, begin * kComponents, count * kComponents);
}

}  // namespace HWY_NAMESPACE
}  // namespace crossdevice::host
HWY_AFTER_NAMESPACE();

#endif
