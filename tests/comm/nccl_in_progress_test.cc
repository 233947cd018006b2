// SPDX-License-Identifier: Apache-2.0
// NCCL under NCCL_COMM_BLOCKING=0, which overrides what the library asks for: calls come back before they are done.
#include <atomic>
#include <string>

#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/device/device.h"

#include "comm/nccl_clique_fixture.h"
#include "support/delegating_nccl.h"

namespace crossdevice {
namespace {

using testing::all_reduce;
using testing::emulated_nccl;
using ::testing::HasSubstr;
using testing::kLong;
using testing::Lanes;
using testing::NcclClique;
using testing::NcclCliqueState;
using testing::NcclStatus;
using testing::thrown;

/// The emulated one, whose calls say that they are in progress, and whose communicators say so a while longer.
class SlowNccl final : public testing::DelegatingNccl {
 public:
  using DelegatingNccl::DelegatingNccl;

  std::atomic<int> num_polls{0};
  std::atomic<int> polls_until_done{3};
  std::atomic<NcclStatus> at_last{NcclStatus::SUCCESS};

  NcclStatus comm_get_async_error(detail::NcclComm comm, NcclStatus* error) override {
    const NcclStatus status = DelegatingNccl::comm_get_async_error(comm, error);
    if (*error != NcclStatus::SUCCESS) return status;
    *error = ++num_polls % polls_until_done == 0 ? at_last.load() : NcclStatus::IN_PROGRESS;
    return status;
  }
  NcclStatus comm_init_rank(detail::NcclComm* comm, int num_ranks, const detail::NcclUniqueId& id,
                            int rank, const char* name) override {
    return late(DelegatingNccl::comm_init_rank(comm, num_ranks, id, rank, name));
  }
  NcclStatus group_end() override { return late(DelegatingNccl::group_end()); }
  NcclStatus all_reduce(const void* source, void* destination, std::size_t count,
                        detail::NcclDataType type, detail::NcclRedOp op, detail::NcclComm comm,
                        detail::CudaStream stream) override {
    return late(DelegatingNccl::all_reduce(source, destination, count, type, op, comm, stream));
  }

 private:
  static NcclStatus late(NcclStatus status) {
    return status == NcclStatus::SUCCESS ? NcclStatus::IN_PROGRESS : status;
  }
};

SlowNccl& slow_nccl() {
  static auto& instance = *new std::shared_ptr<SlowNccl>(std::make_shared<SlowNccl>());
  return *instance;
}

const bool is_installed = [] {
  testing::install_emulated_gpus(4);
  detail::set_nccl_library({.api = {std::shared_ptr<void>(), &slow_nccl()}});
  return true;
}();

class NcclInProgressTest : public testing::NcclCliqueFixture {};

TEST_F(NcclInProgressTest, EveryCallIsWaitedFor) {
  const auto clique = NcclClique::of({"GPU:0", "GPU:1", "GPU:2"});
  EXPECT_GE(slow_nccl().num_polls, 3 * 3);
  Lanes lanes(*clique);
  slow_nccl().num_polls = 0;
  all_reduce(*clique, lanes);
  EXPECT_GE(slow_nccl().num_polls, 3 * 3);
  ASSERT_TRUE(lanes.synchronize());
  EXPECT_TRUE(lanes.have_sums());
  clique->break_with(std::make_exception_ptr(InternalError("enough")));
  EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
  EXPECT_EQ(emulated_nccl().num_communicators(), 0U);
}

TEST_F(NcclInProgressTest, WhatNeverComesToItsEndHasADeadline) {
  const auto clique = NcclClique::of({"GPU:0", "GPU:1"});
  slow_nccl().polls_until_done = 1 << 30;
  EXPECT_THAT(thrown<DeadlineExceededError>([&] {
                NcclClique::Launch launch(
                    *clique,
                    {.operation = {.kind = "all_reduce", .sequence = 1}, .timeout_seconds = 0.05});
                launch.end();
              }),
              HasSubstr("did not come to the end of a call on GPU:0"));
  slow_nccl().polls_until_done = 3;
  EXPECT_TRUE(clique->await_end_of_abort(Deadline::after(kLong)));
  slow_nccl().polls_until_done = 1 << 30;
  EXPECT_NE(thrown<DeadlineExceededError>([] {
              (void)NcclClique::of({"GPU:2", "GPU:3"}, 0.05);
            }),
            "");
}

TEST_F(NcclInProgressTest, WhatFailsLateFails) {
  slow_nccl().at_last = NcclStatus::SYSTEM_ERROR;
  EXPECT_THAT(thrown<UnavailableError>([] {
                (void)NcclClique::of({"GPU:0", "GPU:1"});
              }),
              HasSubstr("in progress"));
  slow_nccl().at_last = NcclStatus::SUCCESS;
  EXPECT_EQ(NcclClique::of({"GPU:0", "GPU:1"})->size(), 2);
}

}  // namespace
}  // namespace crossdevice
