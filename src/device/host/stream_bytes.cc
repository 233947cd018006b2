// SPDX-License-Identifier: Apache-2.0
// Copies that bypass the caches.
#include "device/host/highway_targets.h"
#include "device/host/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/stream_bytes.cc"
#include <algorithm>
#include <cstdint>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // compiles what follows once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crossdevice::host {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void stream_bytes_of_target(void* destination, const void* source, std::size_t size_bytes) {
  constexpr std::size_t kLineBytes = 64;
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t step = 4 * lanes;
  auto* HWY_RESTRICT to = static_cast<std::uint8_t*>(destination);
  const auto* HWY_RESTRICT from = static_cast<const std::uint8_t*>(source);
  const std::size_t peel =
      std::min((0 - reinterpret_cast<std::uintptr_t>(to)) % kLineBytes, size_bytes);
  std::memcpy(to, from, peel);
  std::size_t i = peel;
  for (; size_bytes - i >= step; i += step) {
    const auto v0 = hn::LoadU(d, from + i);
    const auto v1 = hn::LoadU(d, from + i + lanes);
    const auto v2 = hn::LoadU(d, from + i + 2 * lanes);
    const auto v3 = hn::LoadU(d, from + i + 3 * lanes);
    hn::Stream(v0, d, to + i);
    hn::Stream(v1, d, to + i + lanes);
    hn::Stream(v2, d, to + i + 2 * lanes);
    hn::Stream(v3, d, to + i + 3 * lanes);
  }
  std::memcpy(to + i, from + i, size_bytes - i);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace crossdevice::host
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crossdevice::host {

HWY_EXPORT(stream_bytes_of_target);

void stream_bytes(void* destination, const void* source, std::size_t size_bytes) {
  HWY_DYNAMIC_DISPATCH(stream_bytes_of_target)(destination, source, size_bytes);
}

}  // namespace crossdevice::host
#endif
