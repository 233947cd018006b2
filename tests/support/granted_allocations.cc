// SPDX-License-Identifier: Apache-2.0
#include "support/granted_allocations.h"

#include <cstdint>
#include <cstdlib>
#include <new>

namespace crossdevice::testing {

thread_local int num_granted = -1;
thread_local std::size_t max_bytes = SIZE_MAX;
std::atomic<std::size_t> max_bytes_anywhere{SIZE_MAX};

namespace {

void* allocate(std::size_t size) {
  if (size > max_bytes || size > max_bytes_anywhere.load()) throw std::bad_alloc();
  if (num_granted >= 0 && num_granted-- == 0) throw std::bad_alloc();
  void* const bytes = std::malloc(size == 0 ? 1 : size);
  if (bytes == nullptr) throw std::bad_alloc();
  return bytes;
}

}  // namespace
}  // namespace crossdevice::testing

void* operator new(std::size_t size) { return crossdevice::testing::allocate(size); }
void* operator new[](std::size_t size) { return crossdevice::testing::allocate(size); }
void operator delete(void* bytes) noexcept { std::free(bytes); }
void operator delete[](void* bytes) noexcept { std::free(bytes); }
void operator delete(void* bytes, std::size_t /*size*/) noexcept { std::free(bytes); }
void operator delete[](void* bytes, std::size_t /*size*/) noexcept { std::free(bytes); }
