// SPDX-License-Identifier: Apache-2.0
/// Scale and non-temporal copy, as simple as they can be.
#include "collective/limit_kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace crossdevice::bench {

namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kLineFloats = kLineBytes / sizeof(float);

template <std::size_t kStreams>
[[gnu::always_inline]] inline void scale_loop(float* data, std::size_t count, float factor) {
  const std::size_t lines_per_stream = count / kLineFloats / kStreams;
  for (std::size_t line = 0; line < lines_per_stream; ++line) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      float* const at = data + (stream * lines_per_stream + line) * kLineFloats;
      for (std::size_t i = 0; i < kLineFloats; ++i) at[i] *= factor;
    }
  }
  for (std::size_t i = kStreams * lines_per_stream * kLineFloats; i < count; ++i) data[i] *= factor;
}

#if defined(__x86_64__)

template <std::size_t kStreams>
[[gnu::target("avx2")]] void scale_avx2(float* data, std::size_t count, float factor) {
  scale_loop<kStreams>(data, count, factor);
}

/// Where the `visit`-th line lies, in bytes, when kStreams parts of `num_lines` are walked through in turns.
template <std::size_t kStreams>
[[gnu::always_inline]] inline std::size_t line_offset(std::size_t visit, std::size_t num_lines) {
  const std::size_t per_stream = num_lines / kStreams;
  const std::size_t line =
      visit < kStreams * per_stream ? visit % kStreams * per_stream + visit / kStreams : visit;
  return line * kLineBytes;
}

template <std::size_t kStreams>
void copy_lines_sse2(std::byte* target, const std::byte* source, std::size_t num_lines) {
  for (std::size_t visit = 0; visit < num_lines; ++visit) {
    const std::size_t offset = line_offset<kStreams>(visit, num_lines);
    const auto* const from = reinterpret_cast<const __m128i*>(source + offset);
    auto* const to = reinterpret_cast<__m128i*>(target + offset);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(to + i, _mm_loadu_si128(from + i));
  }
}

template <std::size_t kStreams>
[[gnu::target("avx2")]] void copy_lines_avx2(std::byte* target, const std::byte* source,
                                             std::size_t num_lines) {
  for (std::size_t visit = 0; visit < num_lines; ++visit) {
    const std::size_t offset = line_offset<kStreams>(visit, num_lines);
    const auto* const from = reinterpret_cast<const __m256i*>(source + offset);
    auto* const to = reinterpret_cast<__m256i*>(target + offset);
    for (int i = 0; i < 2; ++i) _mm256_stream_si256(to + i, _mm256_loadu_si256(from + i));
  }
}

template <std::size_t kStreams>
[[gnu::target("avx512f")]] void copy_lines_avx512(std::byte* target, const std::byte* source,
                                                  std::size_t num_lines) {
  for (std::size_t visit = 0; visit < num_lines; ++visit) {
    const std::size_t offset = line_offset<kStreams>(visit, num_lines);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(target + offset),
                        _mm512_loadu_si512(source + offset));
  }
}

template <std::size_t kStreams>
void copy_lines(std::byte* target, const std::byte* source, std::size_t num_lines) {
  if (__builtin_cpu_supports("avx512f")) {
    copy_lines_avx512<kStreams>(target, source, num_lines);
  } else if (__builtin_cpu_supports("avx2")) {
    copy_lines_avx2<kStreams>(target, source, num_lines);
  } else {
    copy_lines_sse2<kStreams>(target, source, num_lines);
  }
  _mm_sfence();  // the stores are complete when the copy returns, as those of any other loop are
}

#else

template <std::size_t kStreams>
void copy_lines(std::byte* target, const std::byte* source, std::size_t num_lines) {
  std::memcpy(target, source, 64 * num_lines);
}

#endif

template <std::size_t kStreams>
void scale(float* data, std::size_t count, float factor) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    scale_avx2<kStreams>(data, count, factor);
    return;
  }
#endif
  scale_loop<kStreams>(data, count, factor);
}

}  // namespace

void scale_floats(float* data, std::size_t count, float factor, Walk walk) {
  walk == Walk::ONE_STREAM ? scale<1>(data, count, factor) : scale<4>(data, count, factor);
}

void copy_non_temporal(void* target, const void* source, std::size_t size_bytes, Walk walk) {
  auto* to = static_cast<std::byte*>(target);
  const auto* from = static_cast<const std::byte*>(source);
  // Whole lines of 64 bytes of the target are streamed, what lies before and behind them is copied.
  const std::size_t head =
      std::min<std::size_t>(size_bytes, (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64);
  std::memcpy(to, from, head);
  const std::size_t num_lines = (size_bytes - head) / 64;
  if (num_lines > 0 && walk == Walk::ONE_STREAM) {
    copy_lines<1>(to + head, from + head, num_lines);
  } else if (num_lines > 0) {
    copy_lines<4>(to + head, from + head, num_lines);
  }
  const std::size_t done = head + 64 * num_lines;
  std::memcpy(to + done, from + done, size_bytes - done);
}

}  // namespace crossdevice::bench
