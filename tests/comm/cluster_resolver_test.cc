// SPDX-License-Identifier: Apache-2.0
// What every resolver does with the identity its kind found: checks it, and derives TF's properties from it.
#include "crossdevice/comm/cluster_resolver.h"

#include <functional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

/// Says whatever a test wants.
class GivenResolver : public ClusterResolver {
 public:
  explicit GivenResolver(WorkerIdentity identity, AllGatherBytes gather = nullptr)
      : identity_(std::move(identity)), gather_(std::move(gather)) {}
  ~GivenResolver() override = default;
  [[nodiscard]] bool can_all_gather() const override { return gather_ != nullptr; }

 protected:
  [[nodiscard]] WorkerIdentity identity_implementation() const override { return identity_; }
  void all_gather_implementation(std::span<const std::byte> mine,
                                 std::span<std::byte> all) const override {
    gather_(mine, all);
  }

 private:
  WorkerIdentity identity_;
  AllGatherBytes gather_;
};

void expect_refused(const WorkerIdentity& identity, const std::string& message) {
  EXPECT_THAT([&] { validate(identity); }, ThrowsMessage<ValueError>(HasSubstr(message)));
  EXPECT_THROW((void)GivenResolver(identity).identity(), ValueError);
}

TEST(WorkerIdentityTest, ASingleProcessIsFine) {
  const WorkerIdentity identity;
  EXPECT_NO_THROW(validate(identity));
  EXPECT_EQ(to_string(identity), "rank 0 of 1, from single process");
}

TEST(WorkerIdentityTest, SaysEverythingItKnows) {
  const WorkerIdentity identity{.rank = 2,
                                .num_workers = 4,
                                .local_rank = 0,
                                .local_num_workers = 2,
                                .chief_address = "host-a:2222",
                                .launcher = "torchrun"};
  EXPECT_NO_THROW(validate(identity));
  EXPECT_EQ(to_string(identity), "rank 2 of 4 (local 0 of 2), chief at host-a:2222, from torchrun");
}

TEST(WorkerIdentityTest, NumbersThatContradictEachOtherAreRefused) {
  expect_refused({.num_workers = 0}, "single process: expected 1 to 1000000 workers, got 0");
  expect_refused({.num_workers = -1}, "got -1");
  expect_refused({.num_workers = 1'000'001}, "got 1000001");
  expect_refused({.rank = 4, .num_workers = 4, .launcher = "x"},
                 "x: expected a rank from 0 to 3, got 4");
  expect_refused({.rank = -1, .num_workers = 4}, "got -1");
  expect_refused({.local_rank = 0}, "together or not at all");
  expect_refused({.local_num_workers = 1}, "together or not at all");
  expect_refused({.num_workers = 2, .local_rank = 0, .local_num_workers = 3},
                 "expected 1 to 2 workers on this host, got 3");
  expect_refused({.num_workers = 2, .local_rank = 0, .local_num_workers = 0}, "got 0");
  expect_refused({.num_workers = 2, .local_rank = 2, .local_num_workers = 2},
                 "expected a local rank from 0 to 1, got 2");
  expect_refused({.num_workers = 2, .local_rank = -1, .local_num_workers = 2}, "got -1");
}

TEST(WorkerIdentityTest, TheChiefNeedsAnAddressThatIsOne) {
  for (const char* address : {"a:1", "10.0.0.1:65535", "[::1]:80", "job-worker-0.ns.svc:2222"}) {
    EXPECT_NO_THROW(validate({.num_workers = 2, .chief_address = address})) << address;
  }
  for (const char* address :
       {"a", ":1", "a:0", "a:65536", "::1:80", "a b:1", "a\n:1", "a:1\n", "\xff:1", " a:1"}) {
    expect_refused({.num_workers = 2, .chief_address = address}, "the chief's address");
  }
}

TEST(ClusterResolverTest, WithoutATaskListWorkersAreTasksOfOneJob) {
  const GivenResolver resolver(
      {.rank = 1, .num_workers = 2, .chief_address = "a:1", .launcher = "x", .task_index = 1});
  EXPECT_TRUE(resolver.cluster_spec().empty());
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.environment(), "");
  EXPECT_EQ(resolver.rpc_layer(), std::nullopt);
  EXPECT_THAT(resolver.num_accelerators(), IsEmpty());
  EXPECT_EQ(resolver.master(), "");
  EXPECT_EQ(resolver.master("worker", 0), "a:1");
  EXPECT_EQ(resolver.master("worker", 0, "grpc"), "grpc://a:1");
}

TEST(ClusterResolverTest, WithATaskListMasterFindsEveryTask) {
  const GivenResolver resolver({.rank = 1,
                                .num_workers = 2,
                                .chief_address = "a:1",
                                .task_index = 1,
                                .cluster_spec = ClusterSpec{{"worker", {"a:1", "b:1"}}}});
  EXPECT_EQ(resolver.cluster_spec().num_tasks("worker"), 2);
  EXPECT_EQ(resolver.master(), "b:1");
  EXPECT_EQ(resolver.master(std::nullopt, 0, "grpc"), "grpc://a:1");
  EXPECT_THROW((void)resolver.master("worker", 2), ValueError);
  EXPECT_THROW((void)resolver.master("ps", 0), ValueError);
}

TEST(FormatMasterUrlTest, PutsTheProtocolInFrontWhereThereIsOne) {
  EXPECT_EQ(format_master_url("a:1"), "a:1");
  EXPECT_EQ(format_master_url("a:1", ""), "a:1");
  EXPECT_EQ(format_master_url("a:1", "grpc"), "grpc://a:1");
}

TEST(AllGatherTest, AResolverThatCannotSaysSo) {
  const GivenResolver resolver{WorkerIdentity{}};
  EXPECT_FALSE(resolver.can_all_gather());
  EXPECT_THROW((void)resolver.all_gather("x"), FailedPreconditionError);
}

/// An exchange in which the peers give what a test says, however often it is called.
AllGatherBytes peers_giving(std::size_t rank, std::vector<std::string> parts) {
  return [rank, parts = std::move(parts), round = 0](std::span<const std::byte> mine,
                                                     std::span<std::byte> all) mutable {
    ASSERT_EQ(all.size(), mine.size() * parts.size());
    for (std::size_t r = 0; r < parts.size(); ++r) {
      for (std::size_t i = 0; i < mine.size(); ++i) {
        std::byte byte{};
        if (r == rank) {
          byte = mine[i];
        } else if (round == 0) {  // its length
          byte = static_cast<std::byte>((std::uint64_t{parts[r].size()} >> (8 * i)) & 0xFFU);
        } else if (i < parts[r].size()) {
          byte = static_cast<std::byte>(parts[r][i]);
        }
        all[r * mine.size() + i] = byte;
      }
    }
    ++round;
  };
}

TEST(AllGatherTest, BytesOfUnequalLengthComeBackByRank) {
  const std::string zeros("\0x\0", 3);
  const GivenResolver resolver({.rank = 1, .num_workers = 4},
                               peers_giving(1, {"a", "", zeros, std::string(1000, 'y')}));
  EXPECT_THAT(resolver.all_gather("mine"), ElementsAre("a", "mine", zeros, std::string(1000, 'y')));
}

TEST(AllGatherTest, NothingFromAnybody) {
  const GivenResolver resolver({.rank = 2, .num_workers = 3}, peers_giving(2, {"", "", ""}));
  EXPECT_THAT(resolver.all_gather(""), ElementsAre("", "", ""));
}

TEST(AllGatherTest, ALimitHoldsForEveryWorker) {
  const std::string most(std::size_t{1} << 20U, 'x');
  const GivenResolver at_limit({.rank = 0, .num_workers = 2}, peers_giving(0, {"", "b"}));
  EXPECT_THAT(at_limit.all_gather(most), ElementsAre(most, "b"));
  const GivenResolver mine({.rank = 0, .num_workers = 2}, peers_giving(0, {"", "b"}));
  EXPECT_THAT([&] { (void)mine.all_gather(most + "x"); },
              ThrowsMessage<ValueError>(HasSubstr("rank 0 gives 1048577 bytes")));
  const GivenResolver theirs({.rank = 0, .num_workers = 2}, peers_giving(0, {"", most + "x"}));
  EXPECT_THAT([&] { (void)theirs.all_gather("b"); },
              ThrowsMessage<ValueError>(HasSubstr("rank 1 gives 1048577 bytes")));
}

TEST(AllGatherTest, AFunctionThatMixesUpTheRanksIsFound) {
  const GivenResolver resolver({.rank = 1, .num_workers = 2}, peers_giving(0, {"", "zz"}));
  EXPECT_THAT([&] { (void)resolver.all_gather("abc"); },
              ThrowsMessage<ValueError>(HasSubstr("in rank order")));
}

TEST(AllGatherTest, WhatTheFunctionThrowsComesThrough) {
  const GivenResolver resolver(
      {.rank = 0, .num_workers = 2},
      [](std::span<const std::byte>, std::span<std::byte>) { throw UnavailableError("gone"); });
  EXPECT_THAT([&] { (void)resolver.all_gather("abc"); },
              ThrowsMessage<UnavailableError>(StrEq("gone")));
}

}  // namespace
}  // namespace crossdevice
