// SPDX-License-Identifier: Apache-2.0
// TensorFlow's own tests of strategies (catalogue 8.8, C2-7 to C2-9 and VL-5), in one process, on host devices. Names are the catalogue's ids, numbers are its rows'.
#include <array>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/strategy/input_context.h"
#include "crossdevice/strategy/mirrored_variable.h"
#include "crossdevice/strategy/sync_on_read_variable.h"

#include "support/replicas.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor scalar(float value) { return scalar_of(value, cpu(0)); }

/// Component r is make(r), on CPU:r.
template <class F>
PerReplica each_replica(Strategy& strategy, F make) {
  return strategy.experimental_distribute_values_from_function([&](const ValueContext& context) {
    return scalar_of(static_cast<float>(make(context.replica_id_in_sync_group)),
                     cpu(context.replica_id_in_sync_group));
  });
}

class StrategyConformance : public ::testing::TestWithParam<std::size_t> {
 protected:
  std::size_t replicas = GetParam();
  MirroredStrategy strategy{on_cpus(replicas)};
  [[nodiscard]] float n() const { return static_cast<float>(replicas); }
  static float id(const ReplicaContext& context) {
    return static_cast<float>(context.replica_id_in_sync_group());
  }
  /// Runs `check` in every replica and expects true from each.
  template <class F>
  void expect_in_replicas(F check) {
    EXPECT_EQ(strategy.run(check), std::vector<bool>(replicas, true));
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, StrategyConformance, ::testing::Values(1, 2, 3, 4));

TEST_P(StrategyConformance, S1_CallForEachReplicaAndScope) {
  EXPECT_FALSE(in_cross_replica_context());
  EXPECT_FALSE(has_strategy());
  expect_in_replicas([&](ReplicaContext& context) {
    return !in_cross_replica_context() && has_strategy() && get_replica_context() == &context &&
           &get_strategy() == &strategy;
  });
  {
    const StrategyScope scope = strategy.scope();
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_TRUE(has_strategy());
    EXPECT_EQ(get_replica_context(), nullptr);
    EXPECT_EQ(&get_strategy(), &strategy);
  }
  EXPECT_FALSE(has_strategy());
  EXPECT_NE(get_replica_context(), nullptr);
}

TEST_P(StrategyConformance, S3_TheSameScopeNestsAndStrategiesDoNotMix) {
  MirroredStrategy other(on_cpus(replicas));
  const StrategyScope scope = strategy.scope();
  const StrategyScope again = strategy.scope();
  EXPECT_EQ(&get_strategy(), &strategy);
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { const StrategyScope mixed = other.scope(); }),
              HasSubstr("Mixing different"));
}

TEST_P(StrategyConformance, S5_ReductionsAcceptStringOps) {
  for (const char* op : {"mean", "MEAN", "sum", "SUM"}) {
    const bool is_mean = op[0] == 'm' || op[0] == 'M';
    const PerReplica ones = each_replica(strategy, [](std::size_t) { return 1; });
    const float expected = is_mean ? 1.0F : n();
    EXPECT_THAT(elements(strategy.reduce(op, ones, std::nullopt)), ElementsAre(expected));
    expect_mirrored(strategy.extended().reduce_to(op, ones, "CPU:0"), {"CPU:0"}, {expected});
    const auto batch = strategy.extended().batch_reduce_to(op, {{ones, "CPU:0"}, {ones, ones}});
    expect_mirrored(batch[0], {"CPU:0"}, {expected});
    expect_mirrored(batch[1], cpus(replicas), {expected});
  }
}

TEST(StrategyConformanceOfOne, S6_ReduceMeanAndSumAlongAxes) {
  MirroredStrategy strategy(on_cpus(1));
  const PerReplica x{tensor_of<float>({1, 2, 3, 4}, {2, 2}, cpu(0))};
  const auto check = [&] {
    EXPECT_THAT(elements(strategy.reduce("MEAN", x, std::nullopt)), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(elements(strategy.reduce("SUM", x, std::nullopt)), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(elements(strategy.reduce("MEAN", x, 0)), ElementsAre(2, 3));
    EXPECT_THAT(elements(strategy.reduce("MEAN", x, {0, 1})), ElementsAre(2.5F));
    EXPECT_THAT(elements(strategy.reduce("SUM", x, 0)), ElementsAre(4, 6));
    EXPECT_THAT(elements(strategy.reduce("SUM", x, {0, 1})), ElementsAre(10));
  };
  check();
  {
    const StrategyScope scope = strategy.scope();
    check();
  }
  MirroredStrategy other(on_cpus(1));
  const StrategyScope scope = other.scope();
  EXPECT_THROW((void)strategy.reduce("SUM", x, std::nullopt), FailedPreconditionError);
}

TEST(StrategyConformanceOfOne, S7_OneReplicaPassesValuesThrough) {
  for (Strategy* strategy : {&get_strategy()}) {
    StrategyExtended& extended = strategy->extended();
    const Tensor one = scalar(1);
    const Tensor two = scalar(2);
    EXPECT_THAT(elements(extended.reduce_to("SUM", one, "CPU:0").tensor()), ElementsAre(1));
    EXPECT_THAT(elements(extended.reduce_to("MEAN", PerReplica{one}, one).tensor()),
                ElementsAre(1));
    const auto batch = extended.batch_reduce_to("SUM", {{one, "CPU:0"}, {two, "CPU:0"}});
    EXPECT_THAT(elements(batch[0].tensor()), ElementsAre(1));
    EXPECT_THAT(elements(batch[1].tensor()), ElementsAre(2));
    MirroredVariable variable(*strategy, scalar(5));
    const std::vector<int> seen = extended.update(
        variable,
        [&](VariableComponent& component, const Tensor& argument, int number) {
          EXPECT_EQ(component.tensor().data(), variable.components().values()[0].data());
          EXPECT_TRUE(argument.is_same(two));
          return number;
        },
        two, 7);
    EXPECT_THAT(seen, ElementsAre(7));
  }
}

TEST(StrategyConformanceOfOne, S9_TheDefaultStrategyMergesAndItsScopeIsMostlyNoOp) {
  const auto merge = [] {
    return get_replica_context()->merge_call(
        [](Strategy& strategy, const std::vector<std::string>& s) {
          EXPECT_TRUE(in_cross_replica_context());
          EXPECT_EQ(&strategy, &get_strategy());
          return "foo_" + s[0];
        },
        std::string("bar"));
  };
  EXPECT_EQ(merge(), "foo_bar");

  MirroredStrategy other(on_cpus(2));
  EXPECT_FALSE(has_strategy());
  const StrategyScope scope = get_strategy().scope();
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
  EXPECT_NE(get_replica_context(), nullptr);
  EXPECT_EQ(merge(), "foo_bar");
  const StrategyScope inner = other.scope();
  EXPECT_EQ(&get_strategy(), &other);
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { (void)other.make_variable(scalar(1)); }),
              HasSubstr("Mixing different"));
}

TEST(StrategyConformanceOfOne, S10_InputContext) {
  const InputContext context{
      .num_input_pipelines = 2, .input_pipeline_id = 1, .num_replicas_in_sync = 6};
  EXPECT_EQ(context.num_input_pipelines, 2U);
  EXPECT_EQ(context.input_pipeline_id, 1U);
  EXPECT_EQ(context.num_replicas_in_sync, 6U);
  EXPECT_EQ(context.get_per_replica_batch_size(12), 2);
  EXPECT_EQ(thrown<ValueError>([&] { (void)context.get_per_replica_batch_size(13); }),
            "global_batch_size 13 is not divisible by num_replicas_in_sync 6");
  EXPECT_THROW((void)context.get_per_replica_batch_size(-6), ValueError);
  const InputContext nobody{.num_replicas_in_sync = 0};
  EXPECT_THROW((void)nobody.get_per_replica_batch_size(12), ValueError);
  const InputContext named{
      .num_input_pipelines = 3, .input_pipeline_id = 1, .num_replicas_in_sync = 42};
  EXPECT_EQ(named.to_string(), "InputContext(input pipeline id 1, total: 3)");
}

TEST(StrategyConformanceOfTwo, S11_LocalResultsOfEveryStructure) {
  MirroredStrategy strategy(on_cpus(2));
  const PerReplica ids = strategy.run([](ReplicaContext& context) {
    return scalar_of(static_cast<float>(context.replica_id_in_sync_group()), context.device());
  });
  const auto number = [](const Tensor& tensor) { return elements(tensor)[0]; };
  const auto dicts = strategy.experimental_local_results(
      std::map<std::string, PerReplica>{{"a", ids}, {"b", ids}});
  const auto lists = strategy.experimental_local_results(std::vector<PerReplica>{ids, ids});
  const auto tuples = strategy.experimental_local_results(std::tuple(ids, 2, ids));
  const auto nested = strategy.experimental_local_results(
      std::pair(std::vector<PerReplica>{ids}, std::map<std::string, PerReplica>{{"c", ids}}));
  ASSERT_EQ(dicts.size(), 2U);
  ASSERT_EQ(lists.size(), 2U);
  ASSERT_EQ(tuples.size(), 2U);
  ASSERT_EQ(nested.size(), 2U);
  for (std::size_t r = 0; r < 2; ++r) {
    const auto expected = static_cast<float>(r);
    EXPECT_EQ(number(dicts[r].at("b")), expected);
    EXPECT_EQ(number(lists[r][1]), expected);
    EXPECT_EQ(number(std::get<2>(tuples[r])), expected);
    EXPECT_EQ(std::get<1>(tuples[r]), 2);
    EXPECT_EQ(number(nested[r].first[0]), expected);
    EXPECT_EQ(number(nested[r].second.at("c")), expected);
  }
  EXPECT_EQ(strategy.experimental_local_results(std::string("no tensors")),
            std::vector<std::string>(2, "no tensors"));
  // Scalars and per-replica dictionaries come from run one per replica already.
  EXPECT_THAT(strategy.run([](ReplicaContext& c) { return c.replica_id_in_sync_group(); }),
              ElementsAre(0, 1));
  using Dict = std::map<std::string, std::size_t>;
  EXPECT_THAT(strategy.run([](ReplicaContext& c) {
    const std::size_t own = c.replica_id_in_sync_group();
    return Dict{{"a", own + 1}, {"b", own + 2}};
  }),
              ElementsAre(Dict{{"a", 1}, {"b", 2}}, Dict{{"a", 2}, {"b", 3}}));
}

TEST_P(StrategyConformance, S12_ReduceBasicAndAlongAnAxis) {
  const auto ones = strategy.run([](ReplicaContext& c) { return scalar_of(1.0F, c.device()); });
  EXPECT_THAT(elements(strategy.reduce("SUM", ones, std::nullopt)), ElementsAre(n()));
  {
    const StrategyScope scope = strategy.scope();
    EXPECT_THAT(elements(strategy.reduce("SUM", ones, std::nullopt)), ElementsAre(n()));
  }
  const auto pairs = strategy.run([](ReplicaContext& c) {
    return vector_of<float>({1, 2}, c.device());
  });
  EXPECT_THAT(elements(strategy.reduce("MEAN", pairs, 0)), ElementsAre(1.5F));
  EXPECT_THAT(elements(strategy.reduce("SUM", pairs, 0)), ElementsAre(3 * n()));
}

TEST_P(StrategyConformance, S13_DenseUpdateInReplicaContext) {
  using Update = void (*)(VariableComponent&, const VariableValue&);
  struct Row {
    Update update;
    float expected;
  };
  for (const Row& row :
       {Row{[](VariableComponent&v, const VariableValue&x) { v.assign(x); }, 1},
        Row{[](VariableComponent&v, const VariableValue&x) { v.assign_add(x); }, 8},
        Row{[](VariableComponent&v, const VariableValue&x) { v.assign_sub(x); }, 2}}) {
    MirroredVariable variable(strategy, scalar(5));
    strategy.run([&](ReplicaContext& context) {
      context.update(variable, row.update, scalar_of(2.0F, context.device()));
      context.update(variable, row.update, 1.0);
    });
    expect_mirrored(variable.components(), cpus(replicas), {row.expected});
  }
}

IndexedSlices sparse_one(const ReplicaContext& context) {
  return slices_of({1}, {0}, {5, 1}, context.device());
}
float row0(const IndexedSlices& slices) { return elements(to_dense(slices))[0]; }

TEST_P(StrategyConformance, S14_AllReduceDenseSparseTuplesAndNests) {
  expect_in_replicas([&](ReplicaContext& context) {
    const Tensor one = scalar_of(1.0F, context.device());
    const IndexedSlices sparse = sparse_one(context);
    const auto value = [](const Tensor& tensor) { return elements(tensor)[0]; };
    if (value(context.all_reduce("SUM", one)) != n() || value(context.all_reduce("MEAN", one)) != 1)
      return false;
    const IndexedSlices sum = context.all_reduce("SUM", sparse);
    const IndexedSlices mean = context.all_reduce("MEAN", sparse);
    if (row0(sum) != n() || std::abs(row0(mean) - 1) > 1e-6F ||
        sum.values.shape()[0] != std::int64_t(replicas))
      return false;
    IndexedSlices twice = sparse_one(context);
    write_elements(twice.values, {2});
    const auto both = context.all_reduce("SUM", std::vector<IndexedSlices>{sparse, twice});
    if (row0(both[0]) != n() || row0(both[1]) != 2 * n()) return false;
    const auto nest = context.all_reduce(
        "SUM", std::tuple(one, sparse, scalar_of(2.0F, context.device()), std::vector{twice}));
    return value(std::get<0>(nest)) == n() && row0(std::get<1>(nest)) == n() &&
           value(std::get<2>(nest)) == 2 * n() && row0(std::get<3>(nest)[0]) == 2 * n();
  });
}

/// The catalogue's C2 rows that all-reduce in replica context, over every kind of ops; g replicas.
template <class F>
void with_every_ops(std::size_t replicas, F check) {
  const std::shared_ptr<CrossDeviceOps> kinds[] = {std::make_shared<ReductionToOneDevice>(),
                                                   std::make_shared<HierarchicalCopyAllReduce>(1),
                                                   std::make_shared<NcclAllReduce>(1)};
  for (const std::shared_ptr<CrossDeviceOps>& ops : kinds) {
    MirroredStrategy strategy(on_cpus(replicas, ops));
    EXPECT_EQ(strategy.run(check), std::vector<bool>(replicas, true));
  }
}
/// `value` at `row` of (5, 1).
IndexedSlices sparse_at(const ReplicaContext& context, float value, std::int64_t row) {
  return slices_of({value}, {row}, {5, 1}, context.device());
}
std::vector<float> only(float value, std::size_t row) {
  std::vector<float> dense(5, 0.0F);
  dense[row] = value;
  return dense;
}

TEST_P(StrategyConformance, C2_7_AllReduceDense) {
  with_every_ops(replicas, [g = n()](ReplicaContext& context) {
    const Tensor one = scalar_of(1.0F, context.device());
    const auto pair = std::pair(one, scalar_of(2.0F, context.device()));
    const auto sum = context.all_reduce("SUM", pair);
    const auto mean = context.all_reduce("MEAN", pair);
    return elements(context.all_reduce("SUM", one)) == std::vector{g} &&
           elements(context.all_reduce("MEAN", one)) == std::vector{1.0F} &&
           elements(sum.first) == std::vector{g} && elements(sum.second) == std::vector{2 * g} &&
           elements(mean.first) == std::vector{1.0F} && elements(mean.second) == std::vector{2.0F};
  });
}

TEST_P(StrategyConformance, C2_8_AllReduceSparse) {
  with_every_ops(replicas, [g = n()](ReplicaContext& context) {
    const auto pair = std::pair(sparse_at(context, 1, 0), sparse_at(context, 1, 2));
    const auto sum = context.all_reduce("SUM", pair);
    // A third of one, three times, need not be one.
    const float mean = row0(context.all_reduce("MEAN", pair.first));
    return row0(context.all_reduce("SUM", pair.first)) == g && std::abs(mean - 1) < 1e-6F &&
           elements(to_dense(sum.first)) == only(g, 0) &&
           elements(to_dense(sum.second)) == only(g, 2);
  });
}

TEST_P(StrategyConformance, C2_9_AllReduceMixedDenseAndSparse) {
  with_every_ops(replicas, [g = n()](ReplicaContext& context) {
    const auto sum = context.all_reduce(
        "SUM", std::tuple(sparse_at(context, 1, 0), scalar_of(1.0F, context.device()),
                          sparse_at(context, 3, 4), scalar_of(2.0F, context.device())));
    return elements(to_dense(std::get<0>(sum))) == only(g, 0) &&
           elements(std::get<1>(sum)) == std::vector{g} &&
           elements(to_dense(std::get<2>(sum))) == only(3 * g, 4) &&
           elements(std::get<3>(sum)) == std::vector{2 * g};
  });
}

TEST_P(StrategyConformance, S15_SyncOnReadVariableInput) {
  SyncOnReadVariable variable(strategy, scalar(0), {.aggregation = VariableAggregation::MEAN});
  expect_in_replicas([&](ReplicaContext& context) {
    variable.assign(3 * id(context));
    return elements(context.all_reduce("SUM", variable))[0] == 3 * n() * (n() - 1) / 2;
  });
}

struct GatherRow {
  std::vector<float> value;
  Shape shape;
  int axis;
};

/// `n` copies of `row.value` along its axis, the slow way: outer blocks of (axis x inner) elements, each repeated.
std::vector<float> repeated(const GatherRow& row, std::size_t n) {
  std::size_t block = 1;
  for (std::size_t i = static_cast<std::size_t>(row.axis); i < row.shape.rank(); ++i)
    block *= static_cast<std::size_t>(row.shape[i]);
  std::vector<float> result;
  for (std::size_t begin = 0; begin < row.value.size(); begin += block) {
    for (std::size_t copy = 0; copy < n; ++copy) {
      for (std::size_t i = 0; i < block; ++i) result.push_back(row.value[begin + i]);
    }
  }
  return result;
}

const GatherRow kGatherRows[] = {
    {{1, 2, 3}, {3}, 0},          {{1, 2, 3}, {1, 3}, 0},       {{1, 2, 3}, {1, 3}, 1},
    {{1, 2, 1, 2}, {1, 2, 2}, 0}, {{1, 2, 1, 2}, {1, 2, 2}, 1}, {{1, 2, 1, 2}, {1, 2, 2}, 2},
};

TEST_P(StrategyConformance, S19_GatherDenseAlongEveryAxis) {
  for (const GatherRow& row : kGatherRows) {
    const PerReplica value = strategy.run(
        [&](ReplicaContext& c) { return tensor_of(row.value, row.shape, c.device()); });
    EXPECT_EQ(elements(strategy.gather(value, row.axis)), repeated(row, replicas));
  }
}

/// Replica r's ones: (r + 1, 1) or (1, r + 1).
Tensor growing(const ReplicaContext& context, int axis) {
  const std::size_t length = context.replica_id_in_sync_group() + 1;
  const Shape shape = axis == 0 ? Shape{length, 1} : Shape{1, length};
  return tensor_of(std::vector<float>(length, 1.0F), shape, context.device());
}

TEST_P(StrategyConformance, S20_GatherDifferentLengthsAlongTheAxis) {
  const std::size_t total = replicas * (replicas + 1) / 2;
  for (const int axis : {0, 1}) {
    const PerReplica value = strategy.run([&](ReplicaContext& c) { return growing(c, axis); });
    const Tensor all = strategy.gather(value, axis);
    EXPECT_EQ(elements(all), std::vector<float>(total, 1.0F));
    EXPECT_EQ(all.shape(), axis == 0 ? Shape({total, 1}) : Shape({1, total}));
  }
}

TEST_P(StrategyConformance, S21_GatherRefusesOtherDifferences) {
  if (replicas == 1) return;
  const PerReplica columns = strategy.run([](ReplicaContext& c) { return growing(c, 1); });
  EXPECT_THROW((void)strategy.gather(columns, 0), ValueError);
  const PerReplica ranks = strategy.run([](ReplicaContext& c) {
    return c.replica_id_in_sync_group() == 0 ? vector_of<float>({1}, c.device())
                                             : tensor_of<float>({1}, {1, 1}, c.device());
  });
  EXPECT_THROW((void)strategy.gather(ranks, 0), ValueError);
}

TEST_P(StrategyConformance, S22_GatherOfSparseValuesIsNotImplemented) {
  std::vector<IndexedSlices> components;
  for (std::size_t r = 0; r < replicas; ++r)
    components.push_back(slices_of({1}, {0}, {5, 1}, cpu(r)));
  EXPECT_THROW((void)strategy.gather(PerReplica(components), 0), UnimplementedError);
  EXPECT_THAT(thrown_in_replicas<UnimplementedError>(
                  strategy, [](ReplicaContext& c) { (void)c.all_gather(sparse_one(c), 0); }),
              Each(::testing::Ne("")));
}

TEST_P(StrategyConformance, S23_AllGatherInReplicaContext) {
  const std::size_t total = replicas * (replicas + 1) / 2;
  expect_in_replicas([&](ReplicaContext& context) {
    for (const GatherRow& row : kGatherRows) {
      const Tensor all =
          context.all_gather(tensor_of(row.value, row.shape, context.device()), row.axis);
      if (elements(all) != repeated(row, replicas)) return false;
    }
    for (const int axis : {0, 1}) {
      if (elements(context.all_gather(growing(context, axis), axis)) !=
          std::vector<float>(total, 1.0F))
        return false;
    }
    const auto nest =
        context.all_gather(std::vector{growing(context, 1),
                                       tensor_of<float>({1, 2, 3, 4}, {1, 2, 2}, context.device())},
                           1);
    return nest[0].shape() == Shape({1, total}) && nest[1].shape() == Shape({1, 2 * replicas, 2}) &&
           elements(nest[1]) == repeated({{1, 2, 3, 4}, {1, 2, 2}, 1}, replicas);
  });
  if (replicas == 1) return;
  EXPECT_THAT(thrown_in_replicas<ValueError>(
                  strategy, [](ReplicaContext& c) { (void)c.all_gather(growing(c, 1), 0); }),
              Each(::testing::Ne("")));
  EXPECT_THAT(thrown_in_replicas<ValueError>(
                  strategy,
                  [](ReplicaContext& c) {
                    const bool first = c.replica_id_in_sync_group() == 0;
                    (void)c.all_gather(
                        tensor_of<float>({1}, first ? Shape{1} : Shape{1, 1}, c.device()), 0);
                  }),
              Each(::testing::Ne("")));
}

TEST_P(StrategyConformance, S25_ReplicaIdsNumReplicasAndRun) {
  std::mutex mutex;
  std::multiset<std::size_t> ids;
  strategy.run([&](ReplicaContext& context) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(context.num_replicas_in_sync(), replicas);
    ids.insert(context.replica_id_in_sync_group());
  });
  EXPECT_EQ(ids.size(), replicas);
  for (std::size_t r = 0; r < replicas; ++r) EXPECT_EQ(ids.count(r), 1U);
}

TEST(StrategyConformanceOfTwo, S25_RunWithPerReplicaInputs) {
  MirroredStrategy strategy(on_cpus(2));
  const PerReplica input = per_replica<float>({{1}, {2}});
  const auto ab = strategy.run(
      [](ReplicaContext& context, const Tensor& x) {
        const float value = elements(x)[0];
        return std::vector<Tensor>{vector_of<float>({value * 2}, context.device()),
                                   vector_of<float>({value * value}, context.device())};
      },
      input);
  EXPECT_THAT(elements(ab[0].values()[0]), ElementsAre(2));
  EXPECT_THAT(elements(ab[0].values()[1]), ElementsAre(4));
  EXPECT_THAT(elements(ab[1].values()[0]), ElementsAre(1));
  EXPECT_THAT(elements(ab[1].values()[1]), ElementsAre(4));
  const PerReplica total = strategy.run(
      [](ReplicaContext& context, const std::vector<Tensor>& in, float c) {
        return vector_of<float>({elements(in[0])[0] + 2 * elements(in[1])[0] + c},
                                context.device());
      },
      ab, 2.0F);
  EXPECT_THAT(elements(total.values()[0]), ElementsAre(6));
  EXPECT_THAT(elements(total.values()[1]), ElementsAre(14));
  MirroredStrategy one(on_cpus(1));
  EXPECT_THAT(one.run([](ReplicaContext&, int x) { return x * 2 + x * x + 18; }, 4),
              ElementsAre(42));
}

TEST_P(StrategyConformance, S26_ExceptionsPropagateAndStructuresMustAgree) {
  EXPECT_EQ(thrown<std::domain_error>([&] {
              strategy.run([](ReplicaContext&) { throw std::domain_error("from a replica"); });
            }),
            "from a replica");
  EXPECT_EQ(thrown<std::domain_error>([&] {
              strategy.run([](ReplicaContext& context) {
                context.merge_call([](Strategy&) { throw std::domain_error("from the merge"); });
              });
            }),
            "from the merge");
  if (replicas == 1) return;
  EXPECT_THROW((void)strategy.run([](ReplicaContext& context) {
    return std::vector<Tensor>(context.replica_id_in_sync_group(),
                               scalar_of(1.0F, context.device()));
  }),
               ValueError);
}

TEST_P(StrategyConformance, S27_ReduceToCpuAndNested) {
  const PerReplica ids =
      strategy.run([](ReplicaContext& c) { return scalar_of(id(c), c.device()); });
  const Tensor sum = strategy.reduce("SUM", ids, std::nullopt);
  EXPECT_THAT(elements(sum), ElementsAre(n() * (n() - 1) / 2));
  EXPECT_EQ(sum.device(), Device("CPU:0"));
  const auto pairs = strategy.run(
      [](ReplicaContext& context, float x) {
        return std::pair(scalar_of(x + 1, context.device()), scalar_of(x - 1, context.device()));
      },
      3.0F);
  const auto [first, second] = strategy.reduce("SUM", regroup(pairs), std::nullopt);
  EXPECT_THAT(elements(first), ElementsAre(4 * n()));
  EXPECT_THAT(elements(second), ElementsAre(2 * n()));
}

template <class T>
void reduce_ragged(std::size_t replicas) {
  MirroredStrategy strategy(on_cpus(replicas));
  const PerReplica value = strategy.run([](ReplicaContext& context) {
    const std::size_t own = context.replica_id_in_sync_group();
    return vector_of(std::vector<T>(own + 1, static_cast<T>(own)), context.device());
  });
  double sum = 0;
  double count = 0;
  for (std::size_t r = 0; r < replicas; ++r) {
    sum += static_cast<double>(r * (r + 1));
    count += static_cast<double>(r + 1);
  }
  EXPECT_THAT(elements<T>(strategy.reduce("SUM", value, 0)), ElementsAre(static_cast<T>(sum)));
  const Tensor mean = strategy.reduce("MEAN", value, 0);
  EXPECT_EQ(mean.dtype(), mean_dtype(dtype_of<T>));
  if (mean.dtype() == DType::FLOAT32) {
    EXPECT_THAT(elements<float>(mean), ElementsAre(static_cast<float>(sum / count)));
  } else {
    EXPECT_THAT(elements<double>(mean), ElementsAre(sum / count));
  }
}

TEST_P(StrategyConformance, S28_ReduceAlongAnAxisOfDifferentLengths) {
  reduce_ragged<float>(replicas);
  reduce_ragged<std::int32_t>(replicas);
}

TEST(StrategyConformanceOfTwo, S29_AllReduceSumAndMean) {
  MirroredStrategy strategy(on_cpus(2));
  const PerReplica a = per_replica<float>({{1}, {3}});
  const PerReplica b = per_replica<float>({{39, 2}, {3, 41}});
  const auto reduce_both = [&](const char* op) {
    return strategy.run(
        [op](ReplicaContext& context, const Tensor& x, const Tensor& y) {
          return context.all_reduce(op, std::vector{x, y});
        },
        a, b);
  };
  const std::vector<PerReplica> sum = reduce_both("SUM");
  expect_mirrored(sum[0], cpus(2), {4});
  expect_mirrored(sum[1], cpus(2), {42, 43});
  const std::vector<PerReplica> mean = reduce_both("MEAN");
  expect_mirrored(mean[0], cpus(2), {2});
  expect_mirrored(mean[1], cpus(2), {21, 21.5F});
  MirroredStrategy one(on_cpus(1));
  for (const char* op : {"SUM", "MEAN"}) {
    expect_mirrored(
        one.run([op](ReplicaContext& c) { return c.all_reduce(op, scalar_of(5.0F, c.device())); }),
        cpus(1), {5});
  }
}

TEST(StrategyConformanceOfTwo, S30_S31_TheDefaultOpsWorkAndTheUsersOpsAreAlwaysUsed) {
  MirroredStrategy all_cpu({.devices = {"CPU:0", "CPU:1"}});
  EXPECT_NE(dynamic_cast<ReductionToOneDevice*>(&all_cpu.extended().cross_device_ops()), nullptr);
  class CountingNccl : public NcclAllReduce {
   public:
    std::vector<DType> dtypes;

   protected:
    std::vector<Mirrored> batch_reduce_implementation(
        ReduceOp op, std::span<const ValueDestinationPair> pairs,
        const CommunicationOptions& options) override {
      for (const ValueDestinationPair& pair : pairs) dtypes.push_back(pair.value.dtype());
      return NcclAllReduce::batch_reduce_implementation(op, pairs, options);
    }
  };
  const auto ops = std::make_shared<CountingNccl>();
  MirroredStrategy chosen(on_cpus(2, ops));
  chosen.run([](ReplicaContext& context) {
    (void)context.all_reduce("SUM", std::vector{scalar_of(1.0F, context.device()),
                                                scalar_of<std::int32_t>(1, context.device())});
  });
  EXPECT_THAT(ops->dtypes, ElementsAre(DType::FLOAT32, DType::INT32));
}

TEST(StrategyConformanceOfThree, S32_ThreeDevicesMergeTheirVariable) {
  MirroredStrategy strategy(on_cpus(3));
  const std::shared_ptr<DistributedVariable> variable =
      strategy.make_variable(scalar(1), {.name = "foo"});
  EXPECT_EQ(variable->name(), "foo");
  EXPECT_EQ(variable->devices(), cpus(3));
  const std::vector<bool> same = strategy.run([&](ReplicaContext& context) {
    return context.merge_call(
        [&](Strategy&, const DistributedVariable& merged) { return &merged == variable.get(); },
        *variable);
  });
  EXPECT_THAT(same, ElementsAre(true, true, true));
}

TEST_P(StrategyConformance, VL5_DistributedValuesFromAFunction) {
  const PerReplica ones = each_replica(strategy, [](std::size_t) { return 1; });
  for (const Tensor& component : ones.values()) EXPECT_THAT(elements(component), ElementsAre(1));
  const PerReplica constant =
      strategy.experimental_distribute_values_from_function([](const ValueContext& c) {
        return vector_of<float>({1, 2, 3}, cpu(c.replica_id_in_sync_group));
      });
  expect_mirrored(constant, cpus(replicas), {1, 2, 3});
  const auto tuple =
      strategy.experimental_distribute_values_from_function([](const ValueContext& c) {
        const std::size_t r = c.replica_id_in_sync_group;
        const auto at = [r](float x) { return scalar_of(static_cast<float>(r) * x, cpu(r)); };
        return std::tuple(at(1), at(2), at(3));
      });
  for (std::size_t r = 0; r < replicas; ++r) {
    EXPECT_THAT(elements(std::get<2>(tuple).values()[r]), ElementsAre(3 * static_cast<float>(r)));
  }
  const PerReplica sparse =
      strategy.experimental_distribute_values_from_function([](const ValueContext& c) {
        return slices_of({1}, {2}, {5, 1}, cpu(c.replica_id_in_sync_group));
      });
  EXPECT_TRUE(sparse.is_sparse());
  EXPECT_EQ(sparse.size(), replicas);
  const PerReplica range = each_replica(strategy, [](std::size_t r) { return r; });
  const PerReplica squares = strategy.run(
      [](ReplicaContext& context, const Tensor& x) {
        return scalar_of(elements(x)[0] * elements(x)[0], context.device());
      },
      range);
  for (std::size_t r = 0; r < replicas; ++r) {
    EXPECT_THAT(elements(squares.values()[r]), ElementsAre(static_cast<float>(r * r)));
    EXPECT_EQ(range.values()[r].device(), cpu(r));
  }
}

}  // namespace
}  // namespace crossdevice
