// SPDX-License-Identifier: Apache-2.0
// The bad days of a run: different calls, missing replicas, exceptions, deadlines, wrong threads. Never a hang.
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/strategy/mirrored_variable.h"

#include "support/replicas.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

/// What the last of three replicas does differently, and what every replica is told.
struct Mismatch {
  const char* name;
  void (*usual)(ReplicaContext&);
  void (*unusual)(ReplicaContext&);
  const char* text;
};

Tensor pair_on(const ReplicaContext& context) { return vector_of<float>({1, 2}, context.device()); }
std::vector<Tensor> list_on(const ReplicaContext& context, std::size_t count) {
  return std::vector<Tensor>(count, pair_on(context));
}
void all_reduce_four(ReplicaContext& context) {
  (void)context.all_reduce("SUM", list_on(context, 4));
}

const Mismatch kMismatches[] = {
    {"AnotherCall", all_reduce_four, [](ReplicaContext& c) { (void)c.all_gather(pair_on(c), 0); },
     "replica 0 called all_reduce #2 (SUM, 4 values), replica 2 called all_gather #2 (axis 0, 1 "
     "value)"},
    {"AnotherOp", all_reduce_four,
     [](ReplicaContext& c) { (void)c.all_reduce("MEAN", list_on(c, 4)); },
     "replica 0 called all_reduce #2 (SUM, 4 values), replica 2 called all_reduce #2 (MEAN, 4 "
     "values)"},
    {"AnotherNumberOfValues", all_reduce_four,
     [](ReplicaContext& c) { (void)c.all_reduce("SUM", list_on(c, 3)); },
     "replica 0 called all_reduce #2 (SUM, 4 values), replica 2 called all_reduce #2 (SUM, 3 "
     "values)"},
    {"InPlace", all_reduce_four, [](ReplicaContext& c) { c.all_reduce_into("SUM", list_on(c, 4)); },
     "replica 0 called all_reduce #2 (SUM, 4 values), replica 2 called all_reduce_into #2 (SUM, 4 "
     "values)"},
    {"AnotherShape", all_reduce_four,
     [](ReplicaContext& c) {
       std::vector<Tensor> values = list_on(c, 4);
       values[3] = vector_of<float>({1, 2, 3}, c.device());
       (void)c.all_reduce("SUM", values);
     },
     "with value 3 float32 (2), replica 2 called all_reduce #2 (SUM, 4 values) with value 3 "
     "float32 (3)"},
    {"AnotherDType", all_reduce_four,
     [](ReplicaContext& c) {
       std::vector<Tensor> values = list_on(c, 4);
       values[1] = vector_of<double>({1, 2}, c.device());
       (void)c.all_reduce("SUM", values);
     },
     "with value 1 float32 (2), replica 2 called all_reduce #2 (SUM, 4 values) with value 1 "
     "float64 (2)"},
    {"Sparse", [](ReplicaContext& c) { (void)c.all_reduce("SUM", pair_on(c)); },
     [](ReplicaContext& c) {
       (void)c.all_reduce("SUM", slices_of({1}, {0}, {2, 1}, c.device()));
     },
     "with value 0 float32 (2), replica 2 called all_reduce #2 (SUM, 1 value) with value 0 sparse "
     "float32"},
    {"OtherOptions", all_reduce_four,
     [](ReplicaContext& c) { (void)c.all_reduce("SUM", list_on(c, 4), {.bytes_per_pack = 64}); },
     "with bytes_per_pack 0, timeout_seconds unset, implementation AUTO, deterministic false, "
     "replica 2 called "
     "all_reduce #2 (SUM, 4 values) with bytes_per_pack 64, timeout_seconds unset"},
    {"AnotherAxis", [](ReplicaContext& c) { (void)c.all_gather(pair_on(c), 0); },
     [](ReplicaContext& c) { (void)c.all_gather(pair_on(c), 1); },
     "replica 0 called all_gather #2 (axis 0, 1 value), replica 2 called all_gather #2 (axis 1, 1 "
     "value)"},
    {"AnotherFunction", [](ReplicaContext& c) { c.merge_call([](Strategy&) {}); },
     [](ReplicaContext& c) { c.merge_call([](Strategy&, const std::vector<int>&) {}, 1); },
     "replica 0 called merge_call #2, replica 2 called merge_call #2 of another function or with "
     "arguments of other types"},
    {"MergeInsteadOfReduce", all_reduce_four,
     [](ReplicaContext& c) { c.merge_call([](Strategy&) {}); },
     "replica 0 called all_reduce #2 (SUM, 4 values), replica 2 called merge_call #2"},
};

class DifferentCalls : public ::testing::TestWithParam<Mismatch> {};
INSTANTIATE_TEST_SUITE_P(Kinds, DifferentCalls, ::testing::ValuesIn(kMismatches),
                         [](const auto& given) { return std::string(given.param.name); });

TEST_P(DifferentCalls, AreNamedOnEveryReplicaAndTheReplicasMayGoOn) {
  MirroredStrategy strategy(on_cpus(3));
  std::atomic<int> went_on = 0;
  const std::vector<std::string> texts = strategy.run([&](ReplicaContext& context) {
    context.merge_call([](Strategy&) {});
    const bool is_last = context.replica_id_in_sync_group() == 2;
    const std::string text =
        thrown<ValueError>([&] { (is_last ? GetParam().unusual : GetParam().usual)(context); });
    if (elements(context.all_reduce("SUM", scalar_of(1.0F, context.device())))[0] == 3.0F)
      ++went_on;
    return text;
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("the replicas made different calls"),
                                HasSubstr(GetParam().text))));
  EXPECT_EQ(went_on.load(), 3);
}

TEST_P(DifferentCalls, LeaveRunAsTheErrorWhenNobodyCatchesThem) {
  MirroredStrategy strategy(on_cpus(3));
  EXPECT_THAT(thrown<ValueError>([&] {
                strategy.run([&](ReplicaContext& context) {
                  context.merge_call([](Strategy&) {});
                  const bool is_last = context.replica_id_in_sync_group() == 2;
                  (is_last ? GetParam().unusual : GetParam().usual)(context);
                });
              }),
              HasSubstr(GetParam().text));
}

TEST(ReplicaFailuresTest, DifferentValuesAreLeftAsTheyWere) {
  MirroredStrategy strategy(on_cpus(2));
  const std::vector<std::vector<float>> after = strategy.run([&](ReplicaContext& context) {
    const std::size_t id = context.replica_id_in_sync_group();
    const Tensor value = vector_of(std::vector<float>(id + 1, 4.0F), context.device());
    EXPECT_THROW(context.all_reduce_into("SUM", value), ValueError);
    return elements(value);
  });
  EXPECT_EQ(after, (std::vector<std::vector<float>>{{4}, {4, 4}}));
}

TEST(ReplicaFailuresTest, AReplicaThatReturnsEarlyEndsTheOthersWait) {
  MirroredStrategy strategy(on_cpus(3));
  const std::vector<std::string> texts = strategy.run([](ReplicaContext& context) -> std::string {
    all_reduce_four(context);
    if (context.replica_id_in_sync_group() == 1) return "";
    return thrown<ValueError>([&] { all_reduce_four(context); });
  });
  EXPECT_EQ(texts[0],
            "the replicas made different calls: replica 0 called all_reduce #2 (SUM, 4 values), "
            "replica 1 has returned after 1 call");
  EXPECT_EQ(texts[2],
            "the replicas made different calls: replica 2 called all_reduce #2 (SUM, 4 values), "
            "replica 1 has returned after 1 call");
}

TEST(ReplicaFailuresTest, AnExceptionReleasesReplicasThatWaitInAnyCall) {
  using Call = void (*)(ReplicaContext&, MirroredVariable&);
  const Call calls[] = {
      [](ReplicaContext& c, MirroredVariable&) { all_reduce_four(c); },
      [](ReplicaContext& c, MirroredVariable&) { c.all_reduce_into("SUM", pair_on(c)); },
      [](ReplicaContext& c, MirroredVariable&) { (void)c.all_gather(pair_on(c), 0); },
      [](ReplicaContext& c, MirroredVariable&) { c.merge_call([](Strategy&) {}); },
      [](ReplicaContext& c, MirroredVariable& v) { v.assign_add(pair_on(c)); },
  };
  MirroredStrategy strategy(on_cpus(4));
  MirroredVariable variable(strategy, vector_of<float>({0, 0}, cpu(0)),
                            {.name = "w", .aggregation = VariableAggregation::SUM});
  for (const Call call : calls) {
    std::vector<std::string> texts(4);
    const std::string error = thrown<std::logic_error>([&] {
      strategy.run([&](ReplicaContext& context) {
        const std::size_t r = context.replica_id_in_sync_group();
        if (r == 1) throw std::logic_error("replica one gives up");
        texts[r] = thrown<AbortedError>([&] { call(context, variable); });
      });
    });
    EXPECT_EQ(error, "replica one gives up");
    for (const std::size_t r : {0U, 2U, 3U}) {
      EXPECT_THAT(texts[r],
                  AllOf(HasSubstr("#1"),
                        HasSubstr("of replica " + std::to_string(r) +
                                  " was aborted: replica 1 failed: replica one gives up")));
    }
  }
  EXPECT_EQ(elements(variable.read()), (std::vector<float>{0, 0}));
}

TEST(ReplicaFailuresTest, AnExceptionInTheMergeFunctionReachesEveryReplica) {
  MirroredStrategy strategy(on_cpus(3));
  const std::vector<std::string> texts =
      thrown_in_replicas<std::out_of_range>(strategy, [](ReplicaContext& context) {
        context.merge_call([](Strategy&) { throw std::out_of_range("no such thing"); });
      });
  EXPECT_EQ(texts, std::vector<std::string>(3, "no such thing"));
}

TEST(ReplicaFailuresTest, ADeadlineBoundsTheWaitForTheOthers) {
  MirroredStrategy strategy(on_cpus(2));
  std::atomic<bool> gave_up = false;
  std::string late;
  try {
    strategy.run([&](ReplicaContext& context) {
      (void)context.all_reduce("SUM", pair_on(context));
      if (context.replica_id_in_sync_group() == 1) {
        gave_up.wait(false);
        late = thrown<AbortedError>([&] { (void)context.all_gather(pair_on(context), 0); });
        return;
      }
      try {
        (void)context.all_reduce("SUM", list_on(context, 4), {.timeout_seconds = 0.05});
      } catch (...) {
        gave_up = true;
        gave_up.notify_all();
        throw;
      }
    });
    FAIL() << "nothing was thrown";
  } catch (const DeadlineExceededError& error) {
    EXPECT_STREQ(error.what(),
                 "all_reduce #2 (SUM, 4 values) timed out after 0.05 s: waiting for replica 1, "
                 "last seen in all_reduce #1");
    ASSERT_EQ(error.culprits().size(), 1U);
    EXPECT_EQ(error.culprits()[0].replica, 1);
    EXPECT_EQ(error.culprits()[0].last_operation, "all_reduce #1");
    EXPECT_EQ(error.operation().kind, "all_reduce");
    EXPECT_EQ(error.operation().sequence, 2U);
    EXPECT_EQ(error.operation().num_values, 4U);
    EXPECT_TRUE(error.inputs_intact());
  }
  EXPECT_THAT(
      late,
      HasSubstr("all_gather #2 (axis 0, 1 value) of replica 1 comes too late: all_reduce #2"));
  // The next run is whole again.
  EXPECT_EQ(thrown([&] { strategy.run(all_reduce_four); }), "");
}

TEST(ReplicaFailuresTest, TheStrategysOptionsSetADeadlineToo) {
  MirroredStrategyOptions options = on_cpus(2);
  options.communication_options.timeout_seconds = 0.05;
  MirroredStrategy strategy(options);
  std::atomic<bool> gave_up = false;
  EXPECT_THROW(strategy.run([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == 1) {
      gave_up.wait(false);
      return;
    }
    const std::string text = thrown<DeadlineExceededError>([&] { all_reduce_four(context); });
    gave_up = true;
    gave_up.notify_all();
    throw std::runtime_error(text);
  }),
               std::runtime_error);
}

TEST(ReplicaFailuresTest, ADeadlineThatIsMetChangesNothing) {
  MirroredStrategy strategy(on_cpus(3));
  const PerReplica sums = strategy.run([](ReplicaContext& context) {
    return context.all_reduce("SUM", pair_on(context), {.timeout_seconds = 100});
  });
  expect_mirrored(sums, cpus(3), {3, 6});
}

TEST(ReplicaFailuresTest, BadOptionsAreRefusedBeforeAnybodyWaits) {
  MirroredStrategy strategy(on_cpus(2));
  for (const CommunicationOptions& bad :
       {CommunicationOptions{.bytes_per_pack = -1}, CommunicationOptions{.timeout_seconds = -1.0},
        CommunicationOptions{.timeout_seconds = std::numeric_limits<double>::quiet_NaN()}}) {
    const std::vector<std::string> texts = thrown_in_replicas<ValueError>(
        strategy, [&](ReplicaContext& c) { (void)c.all_reduce("SUM", pair_on(c), bad); });
    EXPECT_THAT(texts, Each(::testing::Ne("")));
  }
}

TEST(ReplicaFailuresTest, WhatTheOpsRefuseIsToldToEveryReplica) {
  MirroredStrategy strategy(on_cpus(2));
  const bool yes[] = {true};
  const auto refused = [&](auto call) {
    for (const std::string& text : thrown_in_replicas<ValueError>(strategy, call)) {
      EXPECT_NE(text, "");
    }
  };
  refused([&](ReplicaContext& c) {
    (void)c.all_reduce("SUM", Tensor::copy_of(std::span(yes), {1}, c.device()));
  });
  refused([&](ReplicaContext& c) { c.all_reduce_into("SUM", pair_on(c).as_read_only()); });
  refused([&](ReplicaContext& c) {
    c.all_reduce_into("MEAN", vector_of<std::int32_t>({1}, c.device()));
  });
  refused([&](ReplicaContext& c) { (void)c.all_gather(scalar_of(1.0F, c.device()), 0); });
  refused([&](ReplicaContext& c) { (void)c.all_gather(pair_on(c), 1); });
  refused([&](ReplicaContext& c) { (void)c.all_reduce("SUM", Tensor()); });
  refused([&](ReplicaContext& c) { (void)c.all_reduce("average", pair_on(c)); });
  refused([&](ReplicaContext& c) {
    c.all_reduce_into("SUM", slices_of({1}, {0}, {2, 1}, c.device()));
  });
  refused([&](ReplicaContext& c) {  // as many columns as the replica's number: only rows may differ
    const std::size_t columns = c.replica_id_in_sync_group() + 1;
    (void)c.all_gather(tensor_of(std::vector<float>(columns, 1.0F), {1, columns}, c.device()), 0);
  });
}

TEST(ReplicaFailuresTest, CallsFromElsewhereAreRefused) {
  MirroredStrategy strategy(on_cpus(2));
  ReplicaContext* kept = nullptr;
  std::vector<std::string> texts(3);
  strategy.run([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == 0) {
      kept = &context;
      std::thread([&] {
        texts[0] = thrown<FailedPreconditionError>([&] { all_reduce_four(context); });
      }).join();
    }
    context.merge_call([&](Strategy&) {
      texts[1] = thrown<FailedPreconditionError>([&] { all_reduce_four(*kept); });
    });
  });
  texts[2] = thrown<FailedPreconditionError>([&] { all_reduce_four(*kept); });
  EXPECT_EQ(texts[0], "all_reduce of replica 0: this thread does not run that replica");
  EXPECT_EQ(texts[1],
            "all_reduce of replica 0: this thread is in cross-replica context (inside merge_call, "
            "update or a scope)");
  EXPECT_EQ(texts[2], "all_reduce of replica 0: this thread does not run that replica");
}

TEST(ReplicaFailuresTest, ACallFromElsewhereDoesNotDisturbTheOneThatAReplicaWaitsIn) {
  MirroredStrategy strategy(on_cpus(2));
  std::atomic<ReplicaContext*> first = nullptr;
  const std::vector<std::vector<float>> sums = strategy.run([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == 0) {
      first = &context;
      first.notify_all();
    } else {
      first.wait(nullptr);
      // More values than replica 0 has, so that what they would be collected into moves.
      const std::vector<Tensor> many = list_on(context, 1000);
      for (int i = 0; i < 100; ++i) {
        EXPECT_THROW((void)first.load()->all_reduce("SUM", many), FailedPreconditionError);
        EXPECT_THROW(first.load()->all_reduce_into("SUM", std::span<const Tensor>(many)),
                     FailedPreconditionError);
        EXPECT_THROW((void)first.load()->all_gather(many, 0), FailedPreconditionError);
      }
    }
    std::vector<float> all;
    for (const Tensor& sum : context.all_reduce("SUM", list_on(context, 3))) {
      for (const float element : elements(sum)) all.push_back(element);
    }
    return all;
  });
  EXPECT_EQ(sums, std::vector<std::vector<float>>(2, {2, 4, 2, 4, 2, 4}));
}

/// Returns results of the other kind.
class ConfusedOps : public ReductionToOneDevice {
 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    if (!value.is_sparse()) {
      return Mirrored(std::vector<IndexedSlices>(2, slices_of({1}, {0}, {2, 1}, cpu(0))));
    }
    (void)ReductionToOneDevice::reduce_implementation(op, value, destinations, options);
    return Mirrored(std::vector<Tensor>(2, scalar_of(1.0F, cpu(0))));
  }
};

TEST(ReplicaFailuresTest, OpsThatReturnAnotherKindOfValueAreAnErrorNotACrash) {
  MirroredStrategy strategy(on_cpus(2, std::make_shared<ConfusedOps>()));
  EXPECT_THAT(thrown_in_replicas<InternalError>(
                  strategy, [](ReplicaContext& c) { (void)c.all_reduce("SUM", pair_on(c)); }),
              Each(HasSubstr("for value 0, which is dense")));
  EXPECT_THAT(thrown_in_replicas<InternalError>(
                  strategy,
                  [](ReplicaContext& c) {
                    (void)c.all_reduce("SUM", slices_of({1}, {0}, {2, 1}, c.device()));
                  }),
              Each(HasSubstr("for value 0, which is sparse")));
}

TEST(ReplicaFailuresTest, CallsWithoutOptionsHaveTheStrategysDeadline) {
  MirroredStrategyOptions options = on_cpus(2);
  options.communication_options.timeout_seconds = 0.05;
  MirroredStrategy strategy(options);
  MirroredVariable variable(strategy, vector_of<float>({0, 0}, cpu(0)),
                            {.name = "w", .aggregation = VariableAggregation::SUM});
  using Call = void (*)(ReplicaContext&, MirroredVariable&);
  struct Row {
    Call call;
    const char* text;
  };
  const Row rows[] = {
      {[](ReplicaContext& c, MirroredVariable&) { c.merge_call([](Strategy&) {}); },
       "merge_call #1 timed out after 0.05 s: waiting for replica 1"},
      {[](ReplicaContext& c, MirroredVariable& v) { c.update(v, [](VariableComponent&) {}); },
       "update #1 (variable 'w') timed out after 0.05 s: waiting for replica 1"},
      {[](ReplicaContext& c, MirroredVariable& v) { v.assign(pair_on(c)); },
       "assign #1 (variable 'w') timed out after 0.05 s: waiting for replica 1"},
  };
  for (const Row& row : rows) {
    std::atomic<bool> gave_up = false;
    std::string text;
    strategy.run([&](ReplicaContext& context) {
      if (context.replica_id_in_sync_group() == 0) {
        text = thrown<DeadlineExceededError>([&] { row.call(context, variable); });
        gave_up = true;
        gave_up.notify_all();
      } else {
        const auto start =
            std::chrono::steady_clock::now();  // bounded: without a deadline it never comes
        while (!gave_up && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
          std::this_thread::yield();
        }
      }
    });
    EXPECT_EQ(text, row.text);
  }
}

TEST(ReplicaFailuresTest, UpdatesOfDifferentVariablesAreNamed) {
  MirroredStrategy strategy(on_cpus(2));
  MirroredStrategy other(on_cpus(2));
  const Tensor zero = scalar_of(0.0F, cpu(0));
  MirroredVariable a(strategy, zero, {.name = "a"});
  MirroredVariable b(strategy, zero, {.name = "b"});
  MirroredVariable foreign(other, zero, {.name = "foreign"});
  const auto add_one = [](VariableComponent& component) { component.assign_add(1); };
  EXPECT_THAT(
      thrown_in_replicas<ValueError>(
          strategy,
          [&](ReplicaContext& c) { c.update(c.replica_id_in_sync_group() == 0 ? a : b, add_one); }),
      Each("the replicas made different calls: replica 0 called update #1 (variable 'a'), "
           "replica 1 called update #1 (variable 'b')"));
  EXPECT_THAT(thrown_in_replicas<ValueError>(
                  strategy, [&](ReplicaContext& c) { c.update(foreign, add_one); }),
              Each(HasSubstr("variable 'foreign' on [CPU:0, CPU:1] belongs to another strategy")));
  for (const MirroredVariable* variable : {&a, &b, &foreign}) {
    expect_mirrored(variable->components(), cpus(2), {0});
  }
}

TEST(ReplicaFailuresTest, OneReplicaFailingAfterManyRoundsLeavesNobodyWaiting) {
  MirroredStrategy strategy(on_cpus(5));
  for (std::size_t round = 0; round < 30; ++round) {
    const std::string text = thrown<std::runtime_error>([&] {
      strategy.run([&](ReplicaContext& context) {
        for (std::size_t i = 0;; ++i) {
          if (i == round && context.replica_id_in_sync_group() == round % 5) {
            throw std::runtime_error("round " + std::to_string(round));
          }
          context.all_reduce_into("SUM", pair_on(context));
        }
      });
    });
    EXPECT_EQ(text, "round " + std::to_string(round));
  }
}

}  // namespace
}  // namespace crossdevice
