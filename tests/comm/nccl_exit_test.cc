// SPDX-License-Identifier: Apache-2.0
// The end of the process while NCCL is being left: CUDA and NCCL end after what is made before the first communicators, and no thread is inside them then.
// Each test ends a process of its own.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/error.h"

#include "support/emulated_gpus.h"

namespace crossdevice {
namespace {

using detail::NcclClique;
using detail::NcclCliqueState;
using testing::emulated_cuda;
using testing::FaultKind;

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(3), true);

constexpr int kRight = 42;  // not what exit() says by itself

#define EXPECT_EXIT_OF(function)                                        \
  GTEST_FLAG_SET(death_test_style, "threadsafe"); /* a fresh process */ \
  EXPECT_EXIT((::alarm(60), function()), ::testing::ExitedWithCode(kRight), "")

std::exception_ptr failure() { return std::make_exception_ptr(UnavailableError("enough")); }

/// In the place of CUDA: made before the communicators, so destroyed after whatever waits for them. Ends the process with what it finds.
struct CudaEnds {
  std::shared_ptr<NcclClique> broken{};
  std::shared_ptr<NcclClique> whole{};
  ~CudaEnds() {
    if (broken != nullptr && broken->state() != NcclCliqueState::ABORTED) ::_exit(1);
    // Whoever hears of a failure now leaves NCCL alone.
    const std::size_t before = emulated_cuda().calls().count("nccl.comm_abort");
    if (whole != nullptr) {
      whole->break_with(failure());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (whole->state() != NcclCliqueState::ABORT_INCOMPLETE) ::_exit(2);
    }
    ::_exit(emulated_cuda().calls().count("nccl.comm_abort") == before ? kRight : 3);
  }
};

void end_while_an_abort_is_under_way() {
  static CudaEnds cuda_ends;
  cuda_ends.broken = NcclClique::of({"GPU:0", "GPU:1"});
  emulated_cuda().calls().inject({.function = "nccl.comm_abort",
                                  .kind = FaultKind::DELAY_CALL,
                                  .delay = std::chrono::milliseconds(200)});
  cuda_ends.broken->break_with(failure());
  std::exit(0);
}
TEST(NcclExitTest, WaitsForAnAbortThatIsUnderWay) {
  EXPECT_EXIT_OF(end_while_an_abort_is_under_way);
}

void end_with_whole_communicators() {
  static CudaEnds cuda_ends;
  cuda_ends.whole = NcclClique::of({"GPU:0", "GPU:2"});
  std::exit(0);
}
TEST(NcclExitTest, NobodyEntersNcclAfterwards) { EXPECT_EXIT_OF(end_with_whole_communicators); }

}  // namespace
}  // namespace crossdevice
