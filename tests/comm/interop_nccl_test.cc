// SPDX-License-Identifier: Apache-2.0
// Communicators lent and adopted, over the emulation; nothing of NCCL's is linked. Without its header this compiles to nothing, and says so.
#include "comm/nccl_clique_fixture.h"

#if __has_include(<nccl.h>)
#include <type_traits>
#include <vector>

#include "crossdevice/comm/interop_nccl.h"

namespace crossdevice {
namespace {

using testing::emulated_nccl;
using ::testing::HasSubstr;
using testing::Lanes;
using testing::NcclClique;
using testing::thrown;

static_assert(std::is_same_v<ncclComm_t, detail::NcclComm>);

const bool is_installed = (testing::install_emulated_gpus(4), true);
const Devices kPair{"GPU:2", "GPU:1"};

class InteropNcclTest : public testing::NcclCliqueFixture {
 protected:
  /// What the program would call as ncclAllReduce.
  static ncclResult_t all_reduce(const Lanes& lanes, int i, ncclComm_t comm) {
    return static_cast<ncclResult_t>(emulated_nccl().all_reduce(
        lanes.buffer(i), lanes.buffer(i), Lanes::kCount, detail::NcclDataType::FLOAT32,
        detail::NcclRedOp::SUM, comm, lanes.stream(i)));
  }
};

TEST_F(InteropNcclTest, TheLibrarysCopyIsNamed) {
  EXPECT_EQ(nccl_library_path(), emulated_nccl().path());
  EXPECT_FALSE(nccl_library_path().empty());
}

TEST_F(InteropNcclTest, LentOnesAreTheLibrarysOwn) {
  const LentNcclCommunicators lent(kPair);
  const auto clique = NcclClique::of(kPair);
  ASSERT_EQ(lent.size(), 2);
  EXPECT_EQ(lent[0], clique->communicator(0));
  EXPECT_EQ(lent[1], clique->communicator(1));
  lent.require_usable();
}

TEST_F(InteropNcclTest, TheProgramLaunchesInOrderWithTheLibrary) {
  const LentNcclCommunicators lent(kPair);
  const auto clique = NcclClique::of(kPair);
  Lanes lanes(*clique);
  {
    LentNcclCommunicators::Group group(lent);
    for (int i = 0; i < lent.size(); ++i) {
      group.require(all_reduce(lanes, i, lent[i]), "ncclAllReduce");
    }
    group.end();
  }
  ASSERT_TRUE(lanes.synchronize());
  EXPECT_TRUE(lanes.have_sums());
  EXPECT_THAT(thrown<InternalError>([&] {
                LentNcclCommunicators::Group group(lent);
                group.require(ncclInvalidArgument, "ncclAllReduce");
              }),
              HasSubstr("ncclAllReduce: "));
}

TEST_F(InteropNcclTest, AGroupThatIsNotEndedBreaksThem) {
  const LentNcclCommunicators lent(kPair);
  { const LentNcclCommunicators::Group group(lent); }
  EXPECT_NE(thrown<AbortedError>([&] { lent.require_usable(); }), "");
  EXPECT_NE(
      thrown<FailedPreconditionError>([&] { const LentNcclCommunicators::Group group(lent); }), "");
  const LentNcclCommunicators next(kPair);
  next.require_usable();
}

TEST_F(InteropNcclTest, AdoptedOnesAreUsedUntilTheirOwnerTakesThemBack) {
  std::vector<ncclComm_t> mine(2);
  detail::NcclUniqueId id;
  ASSERT_EQ(emulated_nccl().get_unique_id(&id), detail::NcclStatus::SUCCESS);
  ASSERT_EQ(emulated_nccl().group_start(), detail::NcclStatus::SUCCESS);
  for (int i = 0; i < 2; ++i) {
    const detail::CurrentCudaDevice current(testing::emulated_cuda(), i == 0 ? 2 : 1);
    ASSERT_EQ(emulated_nccl().comm_init_rank(&mine[static_cast<std::size_t>(i)], 2, id, i, "mine"),
              detail::NcclStatus::SUCCESS);
  }
  ASSERT_EQ(emulated_nccl().group_end(), detail::NcclStatus::SUCCESS);

  EXPECT_NE(thrown<ValueError>([&] { end_nccl_adoption(kPair); }), "");
  adopt_nccl_communicators(kPair, mine);
  EXPECT_EQ(LentNcclCommunicators(kPair)[1], mine[1]);
  EXPECT_NE(thrown<FailedPreconditionError>([&] { adopt_nccl_communicators(kPair, mine); }), "");
  end_nccl_adoption(kPair);
  EXPECT_EQ(emulated_nccl().num_communicators(), 2U);
  ASSERT_EQ(emulated_nccl().group_start(), detail::NcclStatus::SUCCESS);
  for (const ncclComm_t each : mine) {
    EXPECT_EQ(emulated_nccl().comm_destroy(each), detail::NcclStatus::SUCCESS);
  }
  ASSERT_EQ(emulated_nccl().group_end(), detail::NcclStatus::SUCCESS);
  EXPECT_NE(LentNcclCommunicators(kPair)[1], mine[1]);
}

}  // namespace
}  // namespace crossdevice

#else

TEST(InteropNcclTest, NeedsNcclsHeader) { GTEST_SKIP() << "there is no nccl.h"; }

#endif
