// SPDX-License-Identifier: Apache-2.0
/// Tells AddressSanitizer which memory of ours nobody may touch; does nothing in other builds.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define CROSSDEVICE_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CROSSDEVICE_HAS_ASAN 1
#endif
#endif
#ifdef CROSSDEVICE_HAS_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace crossdevice::detail {

#ifdef CROSSDEVICE_HAS_ASAN
inline constexpr bool kHasAddressSanitizer = true;
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif

inline void poison([[maybe_unused]] const void* begin, [[maybe_unused]] std::size_t size_bytes) {
#ifdef CROSSDEVICE_HAS_ASAN
  __asan_poison_memory_region(begin, size_bytes);
#endif
}

inline void unpoison([[maybe_unused]] const void* begin, [[maybe_unused]] std::size_t size_bytes) {
#ifdef CROSSDEVICE_HAS_ASAN
  __asan_unpoison_memory_region(begin, size_bytes);
#endif
}

[[nodiscard]] inline bool is_poisoned([[maybe_unused]] const void* address) {
#ifdef CROSSDEVICE_HAS_ASAN
  return __asan_address_is_poisoned(address) != 0;
#else
  return false;
#endif
}

}  // namespace crossdevice::detail
