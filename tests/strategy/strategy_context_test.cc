// SPDX-License-Identifier: Apache-2.0
// Which context a thread is in, and the rules of scopes.
#include "crossdevice/strategy/strategy_context.h"

#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/strategy/mirrored_variable.h"

#include "support/replicas.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

void expect_default_context() {
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
  ASSERT_NE(get_replica_context(), nullptr);
  EXPECT_EQ(get_strategy().num_replicas_in_sync(), 1U);
  EXPECT_EQ(&get_replica_context()->strategy(), &get_strategy());
  EXPECT_EQ(get_replica_context()->replica_id_in_sync_group(), 0U);
}

TEST(StrategyContextTest, OutsideEverythingThereIsOneReplicaOnTheHost) {
  expect_default_context();
  EXPECT_EQ(get_replica_context()->device(), cpu(0));
  EXPECT_EQ(get_strategy().extended().worker_devices(), Devices{"CPU:0"});
}

TEST(StrategyContextTest, AScopeIsTheCallingThreadsAlone) {
  MirroredStrategy strategy(on_cpus(2));
  const StrategyScope scope = strategy.scope();
  EXPECT_TRUE(has_strategy());
  EXPECT_TRUE(in_cross_replica_context());
  EXPECT_EQ(get_replica_context(), nullptr);
  EXPECT_EQ(&get_strategy(), &strategy);
  std::thread([] { expect_default_context(); }).join();
}

TEST(StrategyContextTest, InsideARunEachThreadIsInItsReplica) {
  MirroredStrategy strategy(on_cpus(3));
  const std::vector<bool> right = strategy.run([&](ReplicaContext& context) {
    return has_strategy() && !in_cross_replica_context() && get_replica_context() == &context &&
           &get_strategy() == &strategy && &context.strategy() == &strategy;
  });
  EXPECT_EQ(right, std::vector<bool>(3, true));
  expect_default_context();
}

TEST(StrategyContextTest, RunInsideItsOwnScopeReturnsToIt) {
  MirroredStrategy strategy(on_cpus(2));
  const StrategyScope scope = strategy.scope();
  EXPECT_EQ(strategy.run([](ReplicaContext&) { return in_cross_replica_context(); }),
            std::vector<bool>(2, false));
  EXPECT_TRUE(in_cross_replica_context());
}

TEST(StrategyContextTest, TheSameStrategyNestsAnotherDoesNot) {
  MirroredStrategy strategy(on_cpus(2));
  MirroredStrategy other(on_cpus(3));
  const StrategyScope outer = strategy.scope();
  {
    const StrategyScope inner = strategy.scope();
    EXPECT_EQ(&get_strategy(), &strategy);
  }
  EXPECT_EQ(&get_strategy(), &strategy);
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { const StrategyScope mixed = other.scope(); }),
              HasSubstr("Mixing different strategies"));
  EXPECT_EQ(&get_strategy(), &strategy);
}

TEST(StrategyContextTest, AReplicaCannotEnterAScope) {
  MirroredStrategy strategy(on_cpus(2));
  MirroredStrategy other(on_cpus(2));
  for (const std::string& text : thrown_in_replicas<FailedPreconditionError>(
           strategy, [&](ReplicaContext&) { const StrategyScope scope = strategy.scope(); })) {
    EXPECT_THAT(text, HasSubstr("inside a replica"));
  }
  for (const std::string& text : thrown_in_replicas<FailedPreconditionError>(
           strategy, [&](ReplicaContext&) { const StrategyScope scope = other.scope(); })) {
    EXPECT_THAT(text, HasSubstr("Mixing different strategies"));
  }
}

TEST(StrategyContextTest, ScopesAreLeftInOrder) {
  MirroredStrategy strategy(on_cpus(2));
  StrategyScope outer(strategy);
  StrategyScope inner(strategy);
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { outer.leave(); }),
              HasSubstr("a context that was entered later is still open"));
  inner.leave();
  inner.leave();  // once more is no error
  outer.leave();
  expect_default_context();
}

TEST(StrategyContextTest, AScopeDestroyedOutOfOrderIsLoggedAndForgotten) {
  MirroredStrategy strategy(on_cpus(2));
  const CapturedLog log;
  auto outer = std::make_unique<StrategyScope>(strategy);
  auto inner = std::make_unique<StrategyScope>(strategy);
  outer.reset();
  EXPECT_EQ(&get_strategy(), &strategy);
  inner.reset();
  expect_default_context();
  ASSERT_EQ(log.messages().size(), 1U);
  EXPECT_THAT(log.messages()[0], HasSubstr("entered later is still open"));
}

TEST(StrategyContextTest, AScopeCannotBeLeftOnAnotherThread) {
  MirroredStrategy strategy(on_cpus(2));
  StrategyScope scope(strategy);
  std::string text;
  std::thread([&] { text = thrown<FailedPreconditionError>([&] { scope.leave(); }); }).join();
  EXPECT_THAT(text, HasSubstr("on another thread than it was entered on"));
  EXPECT_EQ(&get_strategy(), &strategy);
}

TEST(StrategyContextTest, CallsForCrossReplicaContextAreRefusedInsideAReplica) {
  MirroredStrategy strategy(on_cpus(2));
  MirroredVariable variable(strategy, scalar_of(1.0F, cpu(0)));
  const PerReplica value = per_replica<float>({{1}, {2}});
  const auto refused = [&](auto call) {
    for (const std::string& text : thrown_in_replicas<FailedPreconditionError>(strategy, call)) {
      EXPECT_THAT(text, HasSubstr("needs cross-replica context"));
    }
  };
  StrategyExtended& extended = strategy.extended();
  refused([&](ReplicaContext&) { (void)strategy.reduce("SUM", value, std::nullopt); });
  refused([&](ReplicaContext&) { (void)strategy.gather(value, 0); });
  refused([&](ReplicaContext&) { (void)extended.reduce_to("SUM", value, value); });
  refused([&](ReplicaContext&) { (void)extended.batch_reduce_to("SUM", {{value, value}}); });
  refused([&](ReplicaContext&) { (void)extended.broadcast_to(value.values()[0], value); });
  refused([&](ReplicaContext&) { extended.update(variable, [](VariableComponent&) {}); });
  refused([&](ReplicaContext&) { (void)strategy.make_variable(value.values()[0]); });
  refused([&](ReplicaContext&) {
    (void)strategy.experimental_distribute_values_from_function(
        [](const ValueContext&) { return 1; });
  });
}

TEST(StrategyContextTest, TheDefaultReplicasCallsHaveNobodyToWaitFor) {
  ReplicaContext& context = *get_replica_context();
  const Tensor value = vector_of<float>({3, 4}, cpu(7));
  EXPECT_EQ(elements(context.all_reduce("SUM", value)), elements(value));
  EXPECT_EQ(elements(context.all_gather(value, 0)), elements(value));
  EXPECT_EQ(context.merge_call([](Strategy&, const std::vector<int>& one) { return one.at(0); }, 5),
            5);
  std::thread([] {
    EXPECT_EQ(get_replica_context()->merge_call([](Strategy&) { return 6; }), 6);
  }).join();
  std::string text;
  std::thread([&] {
    text = thrown<FailedPreconditionError>([&] { (void)context.all_reduce("SUM", value); });
  }).join();
  EXPECT_THAT(text, HasSubstr("this thread does not run that replica"));
}

TEST(StrategyContextTest, TheDefaultStrategyRunsOnTheCallersThread) {
  const std::thread::id here = std::this_thread::get_id();
  const std::vector<bool> right = get_strategy().run([&](ReplicaContext& context) {
    return std::this_thread::get_id() == here && context.num_replicas_in_sync() == 1 &&
           !has_strategy();
  });
  EXPECT_EQ(right, std::vector<bool>(1, true));
}

}  // namespace
}  // namespace crossdevice
