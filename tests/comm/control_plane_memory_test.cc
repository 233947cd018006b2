// SPDX-License-Identifier: Apache-2.0
// A round whose caller runs out of memory half-way: the program's own operator new refuses when it is told to.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"

#include "comm/detail/control_plane.h"

namespace {

/// How many allocations of this thread are still granted before one is refused; negative: all.
thread_local int num_granted = -1;

void* allocate(std::size_t size) {
  if (num_granted >= 0 && num_granted-- == 0) throw std::bad_alloc();
  void* const bytes = std::malloc(size == 0 ? 1 : size);
  if (bytes == nullptr) throw std::bad_alloc();
  return bytes;
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* bytes) noexcept { std::free(bytes); }
void operator delete[](void* bytes) noexcept { std::free(bytes); }
void operator delete(void* bytes, std::size_t /*size*/) noexcept { std::free(bytes); }
void operator delete[](void* bytes, std::size_t /*size*/) noexcept { std::free(bytes); }

namespace crossdevice::detail {
namespace {

using ::testing::ElementsAre;

TEST(ControlPlaneMemoryTest, ARoundThatRunsOutOfMemoryLeavesNothingBehind) {
  ControlPlaneOptions options;
  options.host = "h";
  options.host_id = "i";
  const std::shared_ptr<ControlPlane> plane = ControlPlane::join(options, Deadline::never());
  const std::vector<int> members{0};
  bool was_refused = true;
  for (int granted = 0; was_refused; ++granted) {
    ASSERT_LT(granted, 1000);
    const RoundId id{1, static_cast<std::uint64_t>(granted)};
    const std::string kind = "gather of what needs an allocation of its own";
    std::string bytes = "what needs an allocation of its own, too";
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    num_granted = granted;
    try {
      (void)plane->exchange(id, members, kind, std::move(bytes), deadline);
      was_refused = num_granted < 0;
    } catch (const std::bad_alloc&) {
    }
    num_granted = -1;
    // The same round again, from another stack: were the first one's place still taken, the answer would go there.
    std::thread again([&] {
      try {
        EXPECT_THAT(
            plane->exchange(id, members, kind, "x", Deadline::after(std::chrono::seconds(10))),
            ElementsAre(::testing::_));
      } catch (const OpError& error) {
        ADD_FAILURE() << "after " << granted << " allocations: " << error.what();
      }
    });
    again.join();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace crossdevice::detail
