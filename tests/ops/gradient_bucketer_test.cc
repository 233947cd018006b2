// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/gradient_bucketer.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

namespace crossdevice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Gradients on two replicas with the given numbers of elements; element k of gradient i on replica r is 100 i + 10 r + k.
struct Gradients {
  explicit Gradients(std::vector<std::size_t> counts) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      std::vector<Tensor> components;
      for (std::size_t r = 0; r < 2; ++r) {
        storage.push_back(std::make_unique<std::vector<float>>(counts[i]));
        components.push_back(Tensor::view(std::span(*storage.back()), r == 0 ? "CPU:0" : "CPU:1"));
      }
      values.push_back(PerReplica(components));
    }
    fill();
  }
  static float at(std::size_t i, std::size_t r, std::size_t k) {
    return static_cast<float>(100 * i + 10 * r + k);
  }
  void fill() {
    for (std::size_t s = 0; s < storage.size(); ++s) {
      for (std::size_t k = 0; k < storage[s]->size(); ++k) (*storage[s])[k] = at(s / 2, s % 2, k);
    }
  }
  void expect_sums() const {
    for (std::size_t s = 0; s < storage.size(); ++s) {
      for (std::size_t k = 0; k < storage[s]->size(); ++k) {
        ASSERT_EQ((*storage[s])[k], at(s / 2, 0, k) + at(s / 2, 1, k))
            << "gradient " << s / 2 << " replica " << s % 2 << " element " << k;
      }
    }
  }
  std::vector<std::unique_ptr<std::vector<float>>> storage;
  std::vector<PerReplica> values;
};

TEST(GradientBucketer, GroupsTheLastGradientsFirst) {
  HierarchicalCopyAllReduce ops;
  Gradients gradients({1, 200, 8, 32});  // bytes 4, 800, 32, 128
  GradientBucketer bucketer(ops, gradients.values, {.communication = {.bytes_per_pack = 100}});
  ASSERT_EQ(bucketer.num_packs(), 3u);
  EXPECT_THAT(bucketer.pack(0), ElementsAre(3));     // 128 > 100 closes it
  EXPECT_THAT(bucketer.pack(1), ElementsAre(2, 1));  // 32, then 832
  EXPECT_THAT(bucketer.pack(2), ElementsAre(0));
  EXPECT_THROW((void)bucketer.pack(3), ValueError);
}

TEST(GradientBucketer, AsksTheOpsWhereNobodySaysHowLargePacksAre) {
  struct SmallPacks final : ReductionToOneDevice {
    [[nodiscard]] std::size_t streaming_pack_bytes() const override { return 100; }
  };
  SmallPacks ops;
  Gradients gradients({1, 200, 8, 32});
  EXPECT_EQ(GradientBucketer(ops, gradients.values).num_packs(), 3u);
  EXPECT_EQ(
      GradientBucketer(ops, gradients.values, {.communication = {.bytes_per_pack = 1}}).num_packs(),
      4u);
  HierarchicalCopyAllReduce others;
  EXPECT_EQ(others.streaming_pack_bytes(), std::size_t{4} << 20);
  EXPECT_EQ(GradientBucketer(others, gradients.values).num_packs(), 1u);
}

TEST(GradientBucketer, ReducesEveryGradientInPlaceStepAfterStep) {
  ReductionToOneDevice ops;
  Gradients gradients({5, 1000, 0, 3});
  GradientBucketer bucketer(ops, gradients.values, {.communication = {.bytes_per_pack = 64}});
  for (int step = 0; step < 3; ++step) {
    gradients.fill();
    for (std::size_t i = gradients.values.size(); i-- > 0;) bucketer.ready(i);
    std::vector<std::size_t> completed;
    for (std::size_t i : bucketer.in_completion_order()) completed.push_back(i);
    EXPECT_THAT(completed, ::testing::UnorderedElementsAre(0, 1, 2, 3));
    bucketer.wait();
    gradients.expect_sums();
  }
}

TEST(GradientBucketer, AcceptsGradientsInAnyOrder) {
  HierarchicalCopyAllReduce ops;
  Gradients gradients({10, 20, 30});
  GradientBucketer bucketer(ops, gradients.values, {.communication = {.bytes_per_pack = 1}});
  for (std::size_t i : {0u, 2u, 1u}) bucketer.ready(i);
  bucketer.wait();
  gradients.expect_sums();
}

TEST(GradientBucketer, WaitsForAllReplicasOfAGradient) {
  HierarchicalCopyAllReduce ops;
  Gradients gradients({10, 20, 30});
  GradientBucketer bucketer(ops, gradients.values);
  std::vector<std::thread> replicas;
  for (std::size_t r = 0; r < 2; ++r) {
    replicas.emplace_back([&bucketer, r] {
      for (std::size_t i = 3; i-- > 0;) bucketer.ready(i, r);
    });
  }
  for (std::thread& replica : replicas) replica.join();
  bucketer.wait();
  gradients.expect_sums();
}

TEST(GradientBucketer, RefusesWhatCannotBe) {
  ReductionToOneDevice ops;
  Gradients gradients({4});
  EXPECT_THROW(GradientBucketer(ops, {}), ValueError);
  EXPECT_THROW(GradientBucketer(ops, gradients.values, {.communication = {.bytes_per_pack = -1}}),
               ValueError);
  GradientBucketer bucketer(ops, gradients.values);
  EXPECT_THROW(bucketer.ready(1), ValueError);
  EXPECT_THROW(bucketer.ready(0, 2), ValueError);
  bucketer.ready(0, 1);
  EXPECT_THROW(bucketer.ready(0, 1), FailedPreconditionError);
  bucketer.ready(0, 0);
  EXPECT_THROW(bucketer.ready(0), FailedPreconditionError);
  bucketer.wait();
}

TEST(GradientBucketer, NamesTheGradientThatIsMissing) {
  ReductionToOneDevice ops;
  Gradients gradients({4, 4, 4});
  GradientBucketer bucketer(ops, gradients.values, {.communication = {.bytes_per_pack = 1}});
  bucketer.ready(2);
  EXPECT_THAT([&] { (void)bucketer.in_completion_order(); },
              ThrowsMessage<FailedPreconditionError>(HasSubstr("gradient 0 is not ready")));
  EXPECT_THAT([&] { bucketer.wait(); },
              ThrowsMessage<FailedPreconditionError>(HasSubstr("gradient 0 was not ready")));
  gradients.fill();
  for (std::size_t i = 3; i-- > 0;) bucketer.ready(i);
  bucketer.wait();
  gradients.expect_sums();
}

/// Fails at the given call of its hook.
class FailingOps : public ReductionToOneDevice {
 public:
  int fail_at = 0;

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    if (--fail_at == 0) throw UnavailableError("the link is down");
    return ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
  }
};

TEST(GradientBucketer, RethrowsFromWaitAndIsReadyForTheNextStep) {
  FailingOps ops;
  Gradients gradients({4, 4, 4});
  GradientBucketer bucketer(ops, gradients.values, {.communication = {.bytes_per_pack = 1}});
  ops.fail_at = 2;
  for (std::size_t i = 3; i-- > 0;) bucketer.ready(i);
  std::size_t completed = 0;
  for (std::size_t i : bucketer.in_completion_order()) completed += i < 3 ? 1 : 0;
  EXPECT_LT(completed, 3u) << "a gradient whose pack failed must not be applied";
  EXPECT_THROW(bucketer.wait(), UnavailableError);
  gradients.fill();
  for (std::size_t i = 3; i-- > 0;) bucketer.ready(i);
  bucketer.wait();
  gradients.expect_sums();
}

/// Notes why it would have to tell other workers.
class TellingOps final : public FailingOps {
 public:
  std::vector<std::string> told;

 protected:
  void give_up_for_all(const std::string& text) override { told.push_back(text); }
};

TEST(GradientBucketer, TellsTheOpsOfAStepThatIsNotWhole) {
  TellingOps ops;
  Gradients gradients({4, 4, 4});
  const BucketerOptions options{.communication = {.bytes_per_pack = 1}};
  {
    GradientBucketer bucketer(ops, gradients.values, options);
    for (std::size_t i = 3; i-- > 0;) bucketer.ready(i);
    bucketer.wait();
    EXPECT_THAT(ops.told, ElementsAre());
    bucketer.ready(2, 0);
    EXPECT_THROW(bucketer.wait(), FailedPreconditionError);
    EXPECT_THAT(ops.told, ElementsAre(HasSubstr("step 1 of a GradientBucketer ended although "
                                                "gradient 0 was not ready")));
  }
  { const GradientBucketer unused(ops, gradients.values, options); }
  {
    GradientBucketer bucketer(ops, gradients.values, options);
    for (std::size_t i = 3; i-- > 0;) bucketer.ready(i);
    for ([[maybe_unused]] std::size_t i : bucketer.in_completion_order()) {
    }
  }
  EXPECT_EQ(ops.told.size(), 1U) << "a step that nobody has begun, or that is whole";
  {
    GradientBucketer bucketer(ops, gradients.values, options);
    bucketer.ready(0, 1);
  }
  EXPECT_THAT(ops.told,
              ElementsAre(::testing::_, HasSubstr("destroyed in step 0, in which gradient 0")));
}

TEST(GradientBucketer, TellsTheOpsOfAPackThatCouldNotLeave) {
  TellingOps ops;
  Gradients gradients({4, 4, 4});
  GradientBucketer bucketer(ops, gradients.values, {.communication = {.bytes_per_pack = 1}});
  ops.fail_at = 1;
  PendingBatch failed =
      ops.reduce_into_async(ReduceOp::SUM, gradients.values[0], gradients.values[0]);
  while (!failed.is_done()) std::this_thread::yield();
  for (std::size_t i = 3; i-- > 0;)
    bucketer.ready(i);  // the first one meets what nobody has heard of
  EXPECT_THROW(bucketer.wait(), UnavailableError);
  EXPECT_THAT(ops.told,
              ElementsAre(HasSubstr("step 0 pack 0 of a GradientBucketer could not leave")));
}

}  // namespace
}  // namespace crossdevice
