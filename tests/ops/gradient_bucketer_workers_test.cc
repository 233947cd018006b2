// SPDX-License-Identifier: Apache-2.0
// A worker forgets a gradient, or a step: the others' packs never meet others than theirs. Workers are processes: this program starts itself once per rank.
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/gradient_bucketer.h"
#include "crossdevice/strategy/multi_worker_mirrored_strategy.h"

#include "support/thrown.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Of each worker. All are of one size, each is a pack.
constexpr std::size_t kNumGradients = 3;
constexpr std::size_t kNumElements = 500;
/// Nothing here waits for its end.
constexpr double kDeadline = 60;

/// A worker's gradients and their bucketer. Element k of gradient i in a step is i + 10 step + 100 rank + 1000 k.
struct Trainer {
  Trainer(CrossDeviceOps& cross_device_ops, int own_rank, int number_of_workers)
      : ops(cross_device_ops), rank(own_rank), num_workers(number_of_workers) {
    for (std::size_t i = 0; i < kNumGradients; ++i) {
      gradients.emplace_back(Tensor::zeros(DType::FLOAT32, Shape({kNumElements}), "CPU:0"));
    }
    renew();
  }
  void renew() {
    bucketer = std::make_unique<GradientBucketer>(
        ops, gradients,
        BucketerOptions{.communication = {.bytes_per_pack = 1, .timeout_seconds = kDeadline}});
  }
  [[nodiscard]] std::span<float> elements(std::size_t i) const {
    return gradients[i].values()[0].span<float>();
  }
  /// The last one first, as back-propagation has them.
  void compute(
      std::optional<std::size_t> forgotten = std::nullopt,
      const std::function<void(std::size_t)>& after = [](std::size_t) {}) {
    for (std::size_t i = kNumGradients; i-- > 0;) {
      if (i == forgotten) continue;
      for (std::size_t k = 0; k < kNumElements; ++k) {
        elements(i)[k] =
            static_cast<float>(i + 10 * step + 1000 * k) + 100 * static_cast<float>(rank);
      }
      bucketer->ready(i);
      after(i);
    }
    ++step;
  }
  /// What has been reduced in the last step is the sum of the workers' elements of that step.
  void expect_sums() const {
    const int sum_of_ranks = num_workers * (num_workers - 1) / 2;
    const auto others = static_cast<float>(100 * sum_of_ranks);
    for (std::size_t i = 0; i < kNumGradients; ++i) {
      for (std::size_t k = 0; k < kNumElements; ++k) {
        const auto own = static_cast<float>(i + 10 * (step - 1) + 1000 * k);
        ASSERT_EQ(elements(i)[k], own * static_cast<float>(num_workers) + others)
            << "a wrong sum: gradient " << i << " element " << k << " step " << step - 1;
      }
    }
  }
  void make_steps(int count) {
    for (int each = 0; each < count; ++each) {
      compute();
      bucketer->wait();
      expect_sums();
    }
  }
  /// The same, and returns when all workers have. So it is none of these steps that ends where a worker gives up in the next one.
  void make_steps_together(Cluster& cluster, int count) {
    make_steps(count);
    cluster.barrier();
  }
  /// What wait() throws as text; if it does not, the sums have to be right at least.
  template <class Error>
  std::string end_in_vain() {
    std::string text = thrown<Error>([&] { bucketer->wait(); });
    if (text.empty()) expect_sums();
    return text;
  }
  /// Steps that cannot succeed any more.
  void expect_failures(int count) {
    for (int each = 0; each < count; ++each) {
      compute();
      EXPECT_NE(end_in_vain<OpError>(), "");
    }
  }

  CrossDeviceOps& ops;
  int rank;
  int num_workers;
  std::vector<PerReplica> gradients;
  std::unique_ptr<GradientBucketer> bucketer;
  std::size_t step = 0;
};

CollectiveAllReduce ops_of(Cluster& cluster) {
  return {{"CPU:0"}, cluster.num_workers(), {}, shared(cluster)};
}

/// That nobody has waited for a deadline, and that all is well in a new cluster.
class Aftermath {
 public:
  explicit Aftermath(Cluster& cluster) : cluster_(cluster) {}
  void expect_good(const std::function<void()>& meanwhile = [] {}) {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin_;
    EXPECT_LT(time.count(), kDeadline / 2);
    const Rebuilt rebuilt = cluster_.rebuild(Survivors::ALL, {.timeout_seconds = 30});
    CollectiveAllReduce ops = ops_of(*rebuilt.cluster);
    Trainer trainer(ops, rebuilt.cluster->rank(), rebuilt.cluster->num_workers());
    trainer.make_steps_together(*rebuilt.cluster, 2);
    meanwhile();
    trainer.make_steps_together(*rebuilt.cluster, 20);
    await_the_others();
  }

 private:
  Cluster& cluster_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// The last worker forgets a gradient, and goes on with the next steps.
void forget(Cluster& cluster, CrossDeviceOps& ops, std::size_t gradient) {
  Aftermath after(cluster);
  Trainer trainer(ops, cluster.rank(), cluster.num_workers());
  trainer.make_steps_together(cluster, 2);
  const int last = cluster.num_workers() - 1;
  if (cluster.rank() == last) {
    trainer.compute(gradient);
    EXPECT_THAT(trainer.end_in_vain<FailedPreconditionError>(),
                HasSubstr("gradient " + std::to_string(gradient) + " was not ready"));
  } else {
    trainer.compute();
    EXPECT_THAT(trainer.end_in_vain<AbortedError>(),
                AllOf(HasSubstr("rank " + std::to_string(last)), HasSubstr("aborted: step 2 of"),
                      HasSubstr("gradient " + std::to_string(gradient) + " was not ready")));
  }
  trainer.expect_failures(3);
  after.expect_good();
}

void forget(Cluster& cluster, std::size_t gradient) {
  CollectiveAllReduce ops = ops_of(cluster);
  forget(cluster, ops, gradient);
}

/// Each of two forgets one, not the same.
void forget_each(Cluster& cluster) {
  Aftermath after(cluster);
  CollectiveAllReduce ops = ops_of(cluster);
  Trainer trainer(ops, cluster.rank(), cluster.num_workers());
  trainer.make_steps_together(cluster, 1);
  trainer.compute(cluster.rank() == 0 ? 0 : 2);
  EXPECT_THROW(trainer.bucketer->wait(), FailedPreconditionError);
  trainer.expect_failures(2);
  after.expect_good();
}

/// Rank 1 destroys its bucketer in the middle of a step, and goes on with another one.
void destroy(Cluster& cluster, std::size_t gradient) {
  Aftermath after(cluster);
  CollectiveAllReduce ops = ops_of(cluster);
  Trainer trainer(ops, cluster.rank(), cluster.num_workers());
  if (cluster.rank() == 1) {
    trainer.compute(gradient);
    trainer.renew();
    trainer.compute();
    EXPECT_NE(trainer.end_in_vain<OpError>(), "");
  } else {
    trainer.compute();
    EXPECT_THAT(trainer.end_in_vain<AbortedError>(),
                AllOf(HasSubstr("rank 1"), HasSubstr("destroyed in step 0"),
                      HasSubstr("gradient " + std::to_string(gradient) + " was not ready")));
  }
  trainer.expect_failures(2);
  after.expect_good();
}

/// Rank 1 only destroys it: the other one does not wait in vain.
void leave(Cluster& cluster) {
  Aftermath after(cluster);
  CollectiveAllReduce ops = ops_of(cluster);
  Trainer trainer(ops, cluster.rank(), cluster.num_workers());
  trainer.make_steps_together(cluster, 1);
  if (cluster.rank() == 1) {
    trainer.compute(0);
    trainer.bucketer.reset();
  } else {
    trainer.compute();
    EXPECT_THAT(trainer.end_in_vain<AbortedError>(),
                AllOf(HasSubstr("rank 1"), HasSubstr("destroyed in step 1")));
  }
  after.expect_good();
}

/// Rank 1 destroys the bucketer of a step that another failure has ended, when a new cluster is at work.
void leave_late(Cluster& cluster) {
  Aftermath after(cluster);
  CollectiveAllReduce ops = ops_of(cluster);
  Trainer trainer(ops, cluster.rank(), cluster.num_workers());
  trainer.make_steps_together(cluster, 1);
  if (cluster.rank() == 1) {
    trainer.compute(0);
  } else {
    cluster.abort_collective_ops("that is enough");
  }
  after.expect_good([&] { trainer.bucketer.reset(); });
}

/// Rank 2 is killed in a step. Rank 0 uses its bucketer again when that has failed, before rank 1 has come to the step at all: that is no news, so rank 1 hears of
/// the death, and what the two do without the dead one goes on.
void lose_one(Cluster& cluster) {
  const bool survives = cluster.rank() != 2;
  const std::shared_ptr<Cluster> pair =
      cluster.subgroup(survives ? std::vector<int>{0, 1} : std::vector<int>{2});
  CollectiveAllReduce ops = ops_of(cluster);
  CollectiveAllReduce pair_ops = ops_of(*pair);
  Trainer trainer(ops, cluster.rank(), cluster.num_workers());
  trainer.make_steps_together(cluster, 2);
  if (!survives) {
    trainer.compute(0);
    ::kill(::getpid(), SIGKILL);
  }
  if (cluster.rank() == 1) pair->barrier();
  trainer.compute();
  EXPECT_THAT(trainer.end_in_vain<UnavailableError>(), HasSubstr("rank 2"));
  for (int again = 0; again < 2; ++again) {
    trainer.compute();
    EXPECT_THAT(trainer.end_in_vain<FailedPreconditionError>(),
                AllOf(HasSubstr("is broken since"), HasSubstr("rank 2")));
  }
  if (cluster.rank() == 0) pair->barrier();
  Trainer both(pair_ops, cluster.rank(), 2);
  both.make_steps_together(*pair, 3);
}

/// Something of rank 1's fails there alone, so that its next pack cannot leave.
void fail_alone(Cluster& cluster) {
  Aftermath after(cluster);
  CollectiveAllReduce ops = ops_of(cluster);
  Trainer trainer(ops, cluster.rank(), cluster.num_workers());
  trainer.make_steps_together(cluster, 2);
  if (cluster.rank() == 1) {
    const PendingBatch failed = ops.reduce_into_async(
        ReduceOp::SUM, trainer.gradients[0], trainer.gradients[0], {.timeout_seconds = 1e-9});
    while (!failed.is_done()) std::this_thread::yield();
    trainer.compute();
    EXPECT_NE(trainer.end_in_vain<DeadlineExceededError>(), "");
  } else {
    trainer.compute();
    EXPECT_THAT(trainer.end_in_vain<AbortedError>(),
                AllOf(HasSubstr("rank 1"),
                      HasSubstr("step 2 pack 0 of a GradientBucketer could not leave: "),
                      HasSubstr("timed out")));
  }
  trainer.expect_failures(2);
  after.expect_good();
}

/// Tell nobody: what is left is what the calls say.
class SilentOps final : public CollectiveAllReduce {
 public:
  using CollectiveAllReduce::CollectiveAllReduce;

 protected:
  void give_up_for_all(const std::string& /*text*/) override {}
};

void forget_in_silence(Cluster& cluster, std::size_t gradient) {
  Aftermath after(cluster);
  SilentOps ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  Trainer trainer(ops, cluster.rank(), cluster.num_workers());
  trainer.make_steps_together(cluster, 2);
  if (cluster.rank() == 1) {
    trainer.compute(gradient);
    EXPECT_THROW(trainer.bucketer->wait(), FailedPreconditionError);
  }
  trainer.compute();
  // Packs leave from the last gradient on, and all up to the one that is forgotten.
  const std::string expected = "step 2 pack " + std::to_string(kNumGradients - 1 - gradient);
  EXPECT_THAT(trainer.end_in_vain<InternalError>(),
              AllOf(HasSubstr("make different calls"), HasSubstr("rank 0"), HasSubstr(expected),
                    HasSubstr("rank 1"), HasSubstr("step 3 pack 0")));
  trainer.expect_failures(2);
  after.expect_good();
}

/// Rank 1 never comes back to its bucketer, and goes on with another one.
void leave_in_silence(Cluster& cluster) {
  Aftermath after(cluster);
  SilentOps ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  Trainer trainer(ops, cluster.rank(), cluster.num_workers());
  std::unique_ptr<GradientBucketer> left;
  if (cluster.rank() == 1) {
    trainer.compute(0);
    left = std::move(trainer.bucketer);
    trainer.renew();
  }
  trainer.compute();
  EXPECT_THAT(trainer.end_in_vain<InternalError>(),
              AllOf(HasSubstr("step 0 pack 2"), HasSubstr("step 0 pack 0")));
  trainer.expect_failures(1);
  after.expect_good();
}

/// Rank 1 destroys it before a pack has left: the next one's packs are not its.
void replace_in_silence(Cluster& cluster) {
  Aftermath after(cluster);
  SilentOps ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  Trainer trainer(ops, cluster.rank(), cluster.num_workers());
  if (cluster.rank() == 1) {
    trainer.compute(2);
    trainer.renew();
  }
  trainer.compute();
  EXPECT_THAT(trainer.end_in_vain<InternalError>(), HasSubstr("make different calls"));
  trainer.expect_failures(1);
  after.expect_good();
}

/// Bucketers that do nothing count for nothing, and several take turns.
void take_turns(Cluster& cluster) {
  CollectiveAllReduce ops = ops_of(cluster);
  std::optional<Trainer> idle;
  if (cluster.rank() == 1) idle.emplace(ops, cluster.rank(), cluster.num_workers());
  Trainer one(ops, cluster.rank(), cluster.num_workers());
  Trainer other(ops, cluster.rank(), cluster.num_workers());
  idle.reset();
  for (int turn = 0; turn < 5; ++turn) {
    one.make_steps(1);
    other.make_steps(2);
    one.compute();
    other.compute();
    other.bucketer->wait();
    one.bucketer->wait();
    one.expect_sums();
    other.expect_sums();
    if (turn % 2 == 1) one.renew();
  }
  await_the_others();
}

/// Counts the packs that have been reduced.
class CountingOps final : public CollectiveAllReduce {
 public:
  using CollectiveAllReduce::CollectiveAllReduce;
  [[nodiscard]] bool await(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return count_ >= count; });
  }

 protected:
  std::vector<Mirrored> batch_reduce_implementation(ReduceOp op,
                                                    std::span<const ValueDestinationPair> pairs,
                                                    const CommunicationOptions& options) override {
    std::vector<Mirrored> reduced =
        CollectiveAllReduce::batch_reduce_implementation(op, pairs, options);
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
    return reduced;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t count_ = 0;
};

/// No worker goes on with the next gradient before the last one's pack has been reduced among all: one that waited for wait() would hold them.
void overlap(Cluster& cluster) {
  CountingOps ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  Trainer trainer(ops, cluster.rank(), cluster.num_workers());
  std::size_t num_reduced = 0;
  for (int step = 0; step < 3; ++step) {
    trainer.compute(std::nullopt, [&](std::size_t i) {
      EXPECT_TRUE(ops.await(++num_reduced)) << "step " << step << " gradient " << i;
    });
    trainer.bucketer->wait();
    trainer.expect_sums();
  }
  await_the_others();
}

void forget_with_a_strategy(Cluster& cluster) {
  MultiWorkerMirroredStrategy strategy({.devices = {"CPU:0"}, .cluster = shared(cluster)});
  forget(cluster, strategy.extended().cross_device_ops(), 1);
}

const Works& works() {
  static const Works all = {
      {"forget 0", [](Cluster& cluster) { forget(cluster, 0); }},
      {"forget 1", [](Cluster& cluster) { forget(cluster, 1); }},
      {"forget 2", [](Cluster& cluster) { forget(cluster, 2); }},
      {"forget with a strategy", forget_with_a_strategy},
      {"forget each", forget_each},
      {"destroy 0", [](Cluster& cluster) { destroy(cluster, 0); }},
      {"destroy 2", [](Cluster& cluster) { destroy(cluster, 2); }},
      {"fail alone", fail_alone},
      {"lose one", lose_one},
      {"leave", leave},
      {"leave late", leave_late},
      {"forget 0 in silence", [](Cluster& cluster) { forget_in_silence(cluster, 0); }},
      {"forget 1 in silence", [](Cluster& cluster) { forget_in_silence(cluster, 1); }},
      {"forget 2 in silence", [](Cluster& cluster) { forget_in_silence(cluster, 2); }},
      {"leave in silence", leave_in_silence},
      {"replace in silence", replace_in_silence},
      {"take turns", take_turns},
      {"overlap", overlap},
  };
  return all;
}

/// Workers that share memory, and workers that send messages.
class GradientBucketerWorkers : public ::testing::TestWithParam<Machines> {
 protected:
  static void expect_well(const char* work, int num_workers = 2) {
    EXPECT_EQ(run_workers(work, num_workers, -1, GetParam()), all_well(num_workers)) << work;
  }
};

INSTANTIATE_TEST_SUITE_P(, GradientBucketerWorkers,
                         ::testing::Values(Machines::ONE, Machines::ONE_EACH),
                         [](const auto& each) { return to_string(each.param); });

TEST_P(GradientBucketerWorkers, AreToldOfAGradientThatOneForgets) {
  for (const char* const work : {"forget 0", "forget 1", "forget 2"}) expect_well(work);
  expect_well("forget 1", 3);
  expect_well("forget with a strategy");
}

TEST_P(GradientBucketerWorkers, FailWhereEachForgetsOne) { expect_well("forget each"); }

TEST_P(GradientBucketerWorkers, AreToldOfAPackThatCannotLeave) { expect_well("fail alone"); }

TEST_P(GradientBucketerWorkers, HearOfADeathThoughOthersUseTheirBucketersAgain) {
  EXPECT_EQ(run_workers("lose one", 3, -1, GetParam()), (std::vector<int>{0, 0, -SIGKILL}));
}

TEST_P(GradientBucketerWorkers, AreToldOfABucketerThatIsDestroyedInAStep) {
  for (const char* const work : {"leave", "leave late", "destroy 0", "destroy 2"})
    expect_well(work);
}

TEST_P(GradientBucketerWorkers, TellPacksOfDifferentPlacesApart) {
  for (const char* const work : {"forget 0 in silence", "forget 1 in silence",
                                 "forget 2 in silence", "leave in silence", "replace in silence"}) {
    expect_well(work);
  }
}

TEST_P(GradientBucketerWorkers, MayHaveSeveralBucketers) { expect_well("take turns"); }

TEST_P(GradientBucketerWorkers, ReduceAPackWhileTheNextGradientIsComputed) {
  expect_well("overlap");
  expect_well("overlap", 3);
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::works());
}
