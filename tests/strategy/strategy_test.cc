// SPDX-License-Identifier: Apache-2.0
// run: one thread per replica, arguments and results by type.
#include "crossdevice/strategy/strategy.h"

#include <array>
#include <barrier>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/replicas.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// usage.md's type rules.
using Context = ReplicaContext&;
template <class R>
using ResultOf = decltype(std::declval<Strategy&>().run(std::declval<R (*)(Context)>()));
static_assert(std::is_same_v<ResultOf<Tensor>, PerReplica>);
static_assert(std::is_same_v<ResultOf<std::vector<Tensor>>, std::vector<PerReplica>>);
static_assert(std::is_same_v<ResultOf<double>, std::vector<double>>);
static_assert(std::is_same_v<ResultOf<bool>, std::vector<bool>>);
static_assert(
    std::is_same_v<ResultOf<std::pair<Tensor, int>>, std::vector<std::pair<Tensor, int>>>);
static_assert(std::is_same_v<ResultOf<IndexedSlices>, std::vector<IndexedSlices>>);
static_assert(std::is_void_v<ResultOf<void>>);
static_assert(
    std::is_same_v<decltype(std::declval<Context>().replica_id_in_sync_group()), std::size_t>);

class StrategyOf : public ::testing::TestWithParam<std::size_t> {
 protected:
  std::size_t replicas = GetParam();
  MirroredStrategy strategy{on_cpus(replicas)};
};
INSTANTIATE_TEST_SUITE_P(Replicas, StrategyOf, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(StrategyOf, EveryReplicaRunsOnceOnAThreadOfItsOwnAndTheFirstOnTheCallers) {
  struct Seen {
    std::size_t id;
    std::size_t count;
    Device device;
    std::thread::id thread;
  };
  const std::vector<Seen> seen = strategy.run([](ReplicaContext& context) {
    return Seen{context.replica_id_in_sync_group(), context.num_replicas_in_sync(),
                context.device(), std::this_thread::get_id()};
  });
  ASSERT_EQ(seen.size(), replicas);
  std::set<std::thread::id> threads;
  for (std::size_t r = 0; r < replicas; ++r) {
    EXPECT_EQ(seen[r].id, r);
    EXPECT_EQ(seen[r].count, replicas);
    EXPECT_EQ(seen[r].device, cpu(r));
    threads.insert(seen[r].thread);
  }
  EXPECT_EQ(threads.size(), replicas);
  EXPECT_EQ(seen[0].thread, std::this_thread::get_id());
}

TEST_P(StrategyOf, ReplicasRunConcurrently) {
  std::barrier everybody(static_cast<std::ptrdiff_t>(replicas));
  strategy.run([&](ReplicaContext&) { everybody.arrive_and_wait(); });  // in turns it would hang
}

TEST_P(StrategyOf, ThreadsAreKeptFromRunToRun) {
  const auto ids = [&] {
    return strategy.run([](ReplicaContext&) { return std::this_thread::get_id(); });
  };
  const std::vector<std::thread::id> first = ids();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ids(), first);
}

TEST_P(StrategyOf, TensorsBecomeOnePerReplicaWithTheirComponentsInOrder) {
  const PerReplica result = strategy.run([](ReplicaContext& context) {
    const auto id = static_cast<float>(context.replica_id_in_sync_group());
    return vector_of<float>({id, id * 2}, context.device());
  });
  EXPECT_EQ(result.devices(), cpus(replicas));
  for (std::size_t r = 0; r < replicas; ++r) {
    const auto id = static_cast<float>(r);
    EXPECT_EQ(elements(result.values()[r]), (std::vector<float>{id, id * 2}));
  }
}

TEST_P(StrategyOf, VectorsOfTensorsBecomeVectorsOfPerReplica) {
  const std::vector<PerReplica> result = strategy.run([](ReplicaContext& context) {
    const auto id = static_cast<float>(context.replica_id_in_sync_group());
    return std::vector<Tensor>{scalar_of(id, context.device()), scalar_of(-id, context.device())};
  });
  ASSERT_EQ(result.size(), 2U);
  for (std::size_t r = 0; r < replicas; ++r) {
    const auto id = static_cast<float>(r);
    EXPECT_EQ(elements(result[0].values()[r]), std::vector<float>{id});
    EXPECT_EQ(elements(result[1].values()[r]), std::vector<float>{-id});
  }
}

TEST_P(StrategyOf, ResultsNeedNoDefaultConstructorAndMayBeMoveOnly) {
  struct Boxed {
    explicit Boxed(std::size_t value) : box(std::make_unique<std::size_t>(value)) {}
    std::unique_ptr<std::size_t> box;
  };
  const std::vector<Boxed> result = strategy.run(
      [](ReplicaContext& context) { return Boxed(context.replica_id_in_sync_group()); });
  ASSERT_EQ(result.size(), replicas);
  for (std::size_t r = 0; r < replicas; ++r) EXPECT_EQ(*result[r].box, r);
}

TEST_P(StrategyOf, ADistributedArgumentGivesEachReplicaItsComponent) {
  std::vector<std::vector<float>> parts;
  for (std::size_t r = 0; r < replicas; ++r) parts.push_back({static_cast<float>(r * 10)});
  const PerReplica value = per_replica(parts);
  const std::map<std::string, std::vector<PerReplica>> nest{{"x", {value, value}}};
  const std::vector<bool> right = strategy.run(
      [&](ReplicaContext& context, const Tensor& own, const std::tuple<Tensor, int>& pair,
          const std::map<std::string, std::vector<Tensor>>& inputs) {
        const Tensor expected = value.values()[context.replica_id_in_sync_group()];
        return own.is_same(expected) && std::get<0>(pair).is_same(expected) &&
               std::get<1>(pair) == 7 && inputs.at("x")[1].is_same(expected);
      },
      value, std::tuple(value, 7), nest);
  EXPECT_EQ(right, std::vector<bool>(replicas, true));
}

TEST_P(StrategyOf, AMirroredArgumentGivesEachReplicaItsCopy) {
  const Mirrored value = strategy.extended().broadcast_to(vector_of<float>({3, 4}, cpu(0)),
                                                          strategy.extended().worker_devices());
  const std::vector<bool> right = strategy.run(
      [&](ReplicaContext& context, const Tensor& own) {
        return own.device() == context.device() && elements(own) == std::vector<float>{3, 4};
      },
      value);
  EXPECT_EQ(right, std::vector<bool>(replicas, true));
}

TEST_P(StrategyOf, OtherArgumentsReachEveryReplicaAsTheSameObject) {
  std::vector<int> models(replicas, 1);
  const std::string text = "text";
  strategy.run(
      [&](ReplicaContext& context, std::vector<int>& own, const std::string& same, int temporary) {
        own[context.replica_id_in_sync_group()] += temporary + (&same == &text ? 100 : 0);
      },
      models, text, 10);
  EXPECT_EQ(models, std::vector<int>(replicas, 111));
}

TEST_P(StrategyOf, AnArgumentWithAnotherNumberOfComponentsIsRefusedBeforeAnyReplicaRuns) {
  std::atomic<int> calls = 0;
  const PerReplica value = per_replica(std::vector<std::vector<float>>(replicas + 1, {1.0F}));
  const std::string text = thrown<ValueError>(
      [&] { strategy.run([&](ReplicaContext&, const Tensor&) { ++calls; }, value); });
  EXPECT_THAT(text, HasSubstr("expected one component per replica (" + std::to_string(replicas) +
                              "), got " + std::to_string(replicas + 1) + " components"));
  const PerReplica sparse{slices_of({1}, {0}, {4, 1}, cpu(0))};
  EXPECT_THROW(strategy.run([&](ReplicaContext&, const Tensor&) { ++calls; }, sparse), ValueError);
  EXPECT_EQ(calls, 0);
}

TEST_P(StrategyOf, TheFirstExceptionLeavesRunWithItsType) {
  struct Peculiar {
    std::size_t who;
  };
  const std::size_t who = replicas / 2;
  try {
    strategy.run([&](ReplicaContext& context) {
      if (context.replica_id_in_sync_group() == who) throw Peculiar{who};
    });
    FAIL() << "nothing was thrown";
  } catch (const Peculiar& peculiar) {
    EXPECT_EQ(peculiar.who, who);
  }
  EXPECT_EQ(strategy.run([](ReplicaContext&) { return 1; }), std::vector<int>(replicas, 1));
}

TEST_P(StrategyOf, RunFromSeveralThreadsTakesTurns) {
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        strategy.run([&](ReplicaContext&) {
          const int now = ++inside;
          int before = most.load();
          while (before < now && !most.compare_exchange_weak(before, now)) {
          }
          --inside;
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_LE(most.load(), static_cast<int>(replicas));
}

TEST_P(StrategyOf, ARunInsideARunOfTheSameStrategyIsRefused) {
  const std::vector<std::string> texts = thrown_in_replicas<FailedPreconditionError>(
      strategy, [&](ReplicaContext&) { strategy.run([](ReplicaContext&) {}); });
  for (const std::string& text : texts) EXPECT_THAT(text, HasSubstr("it would wait for itself"));
  const std::vector<std::string> merged =
      thrown_in_replicas<FailedPreconditionError>(strategy, [&](ReplicaContext& context) {
        context.merge_call([](Strategy& same) { same.run([](ReplicaContext&) {}); });
      });
  for (const std::string& text : merged) EXPECT_THAT(text, HasSubstr("it would wait for itself"));
}

TEST_P(StrategyOf, VectorsOfDifferentLengthsAreRefused) {
  const auto ragged = [&] {
    (void)strategy.run([](ReplicaContext& context) {
      return std::vector<Tensor>(context.replica_id_in_sync_group(), scalar_of(1.0F, cpu(0)));
    });
  };
  if (replicas == 1) return;
  EXPECT_EQ(thrown<ValueError>(ragged),
            "the replicas' structures differ: replica 0 has 0 elements, replica 1 has 1");
}

TEST_P(StrategyOf, ValuesAreDistributedFromAFunctionInReplicaOrder) {
  std::vector<std::size_t> order;
  const PerReplica value =
      strategy.experimental_distribute_values_from_function([&](const ValueContext& context) {
        order.push_back(context.replica_id_in_sync_group);
        EXPECT_EQ(context.num_replicas_in_sync, replicas);
        return scalar_of(static_cast<float>(order.size()), cpu(context.replica_id_in_sync_group));
      });
  EXPECT_EQ(order.size(), replicas);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  for (std::size_t r = 0; r < replicas; ++r) {
    EXPECT_EQ(elements(value.values()[r]), std::vector<float>{static_cast<float>(r + 1)});
  }
}

TEST_P(StrategyOf, LocalResultsAreOneStructurePerReplica) {
  const PerReplica value =
      strategy.run([](ReplicaContext& context) { return scalar_of(1.0F, context.device()); });
  const std::vector<Tensor> tensors = strategy.experimental_local_results(value);
  ASSERT_EQ(tensors.size(), replicas);
  const auto nests = strategy.experimental_local_results(std::pair(std::array{value, value}, 5));
  ASSERT_EQ(nests.size(), replicas);
  for (std::size_t r = 0; r < replicas; ++r) {
    EXPECT_TRUE(tensors[r].is_same(value.values()[r]));
    EXPECT_TRUE(nests[r].first[1].is_same(value.values()[r]));
    EXPECT_EQ(nests[r].second, 5);
  }
}

TEST(StrategyTest, AVariableReachesReplicasAsItself) {
  MirroredStrategy strategy(on_cpus(2));
  const auto variable = strategy.make_variable(scalar_of(4.0F, cpu(0)));
  const std::vector<bool> same = strategy.run(
      [&](ReplicaContext&, DistributedVariable& own) { return &own == variable.get(); }, *variable);
  EXPECT_THAT(same, ElementsAre(true, true));
}

}  // namespace
}  // namespace crossdevice
