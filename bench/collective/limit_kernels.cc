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

[[gnu::always_inline]] inline void scale_loop(float* data, std::size_t count, float factor) {
  for (std::size_t i = 0; i < count; ++i) data[i] *= factor;
}

#if defined(__x86_64__)

[[gnu::target("avx2")]] void scale_avx2(float* data, std::size_t count, float factor) {
  scale_loop(data, count, factor);
}

void copy_lines_sse2(std::byte* target, const std::byte* source, std::size_t num_lines) {
  for (std::size_t line = 0; line < num_lines; ++line, target += 64, source += 64) {
    const auto* const from = reinterpret_cast<const __m128i*>(source);
    auto* const to = reinterpret_cast<__m128i*>(target);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
}

[[gnu::target("avx2")]] void copy_lines_avx2(std::byte* target, const std::byte* source,
                                             std::size_t num_lines) {
  for (std::size_t line = 0; line < num_lines; ++line, target += 64, source += 64) {
    const auto* const from = reinterpret_cast<const __m256i*>(source);
    auto* const to = reinterpret_cast<__m256i*>(target);
    const __m256i a = _mm256_loadu_si256(from);
    const __m256i b = _mm256_loadu_si256(from + 1);
    _mm256_stream_si256(to, a);
    _mm256_stream_si256(to + 1, b);
  }
}

[[gnu::target("avx512f")]] void copy_lines_avx512(std::byte* target, const std::byte* source,
                                                  std::size_t num_lines) {
  for (std::size_t line = 0; line < num_lines; ++line, target += 64, source += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(target), _mm512_loadu_si512(source));
  }
}

void copy_lines(std::byte* target, const std::byte* source, std::size_t num_lines) {
  if (__builtin_cpu_supports("avx512f")) {
    copy_lines_avx512(target, source, num_lines);
  } else if (__builtin_cpu_supports("avx2")) {
    copy_lines_avx2(target, source, num_lines);
  } else {
    copy_lines_sse2(target, source, num_lines);
  }
  _mm_sfence();  // the stores are complete when the copy returns, as those of any other loop are
}

#else

void copy_lines(std::byte* target, const std::byte* source, std::size_t num_lines) {
  std::memcpy(target, source, 64 * num_lines);
}

#endif

}  // namespace

void scale_floats(float* data, std::size_t count, float factor) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    scale_avx2(data, count, factor);
    return;
  }
#endif
  scale_loop(data, count, factor);
}

void copy_non_temporal(void* target, const void* source, std::size_t size_bytes) {
  auto* to = static_cast<std::byte*>(target);
  const auto* from = static_cast<const std::byte*>(source);
  // Whole lines of 64 bytes of the target are streamed, what lies before and behind them is copied.
  const std::size_t head =
      std::min<std::size_t>(size_bytes, (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64);
  std::memcpy(to, from, head);
  const std::size_t num_lines = (size_bytes - head) / 64;
  if (num_lines > 0) copy_lines(to + head, from + head, num_lines);
  const std::size_t done = head + 64 * num_lines;
  std::memcpy(to + done, from + done, size_bytes - done);
}

}  // namespace crossdevice::bench
