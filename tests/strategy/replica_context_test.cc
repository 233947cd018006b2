// SPDX-License-Identifier: Apache-2.0
// The collective calls of replicas: values, structures, memory; failures are in replica_failures_test.cc.
#include "crossdevice/strategy/replica_context.h"

#include <array>
#include <map>
#include <numeric>
#include <random>
#include <thread>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/strategy/mirrored_variable.h"

#include "support/replicas.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Element i of replica r's value v: exact in float32, different everywhere.
float element(std::size_t r, std::size_t v, std::size_t i) {
  return static_cast<float>((r + 1) * 7 + v * 3 + i % 101);
}
std::vector<float> block(std::size_t r, std::size_t v, std::size_t size) {
  std::vector<float> elements(size);
  for (std::size_t i = 0; i < size; ++i) elements[i] = element(r, v, i);
  return elements;
}
std::vector<float> sum_of_blocks(std::size_t replicas, std::size_t v, std::size_t size) {
  std::vector<float> sum(size, 0.0F);
  for (std::size_t r = 0; r < replicas; ++r) {
    for (std::size_t i = 0; i < size; ++i) sum[i] += element(r, v, i);
  }
  return sum;
}

struct Case {
  std::size_t replicas;
  std::size_t size;
};
class AllReduceOf : public ::testing::TestWithParam<Case> {
 protected:
  std::size_t replicas = GetParam().replicas;
  std::size_t size = GetParam().size;
  MirroredStrategy strategy{on_cpus(replicas)};
};
INSTANTIATE_TEST_SUITE_P(Cases, AllReduceOf,
                         ::testing::Values(Case{1, 1}, Case{2, 0}, Case{2, 1}, Case{3, 7},
                                           Case{4, 127}, Case{5, 1009}, Case{8, 100003},
                                           Case{2, 1000003}),
                         [](const auto& given) {
                           return std::to_string(given.param.replicas) + "replicas_" +
                                  std::to_string(given.param.size) + "elements";
                         });

TEST_P(AllReduceOf, EveryReplicaGetsTheSumOnItsDeviceAndTheInputStays) {
  const std::vector<bool> right = strategy.run([&](ReplicaContext& context) {
    const std::size_t r = context.replica_id_in_sync_group();
    const Tensor value = vector_of(block(r, 0, size), context.device());
    const Tensor sum = context.all_reduce(ReduceOp::SUM, value);
    return sum.device() == context.device() && sum.shape() == value.shape() &&
           elements(sum) == sum_of_blocks(replicas, 0, size) &&
           elements(value) == block(r, 0, size) && !overlaps(sum, value);
  });
  EXPECT_EQ(right, std::vector<bool>(replicas, true));
}

TEST_P(AllReduceOf, InPlaceTheReplicasOwnMemoryIsWrittenAndNothingBehindIt) {
  const std::vector<bool> right = strategy.run([&](ReplicaContext& context) {
    const std::size_t r = context.replica_id_in_sync_group();
    std::vector<float> initial = block(r, 0, size);
    initial.push_back(-77.0F);
    const Tensor memory = vector_of(initial, context.device());
    const Tensor value = Tensor::view(static_cast<float*>(memory.data()), {size}, context.device());
    context.all_reduce_into(ReduceOp::SUM, value);
    std::vector<float> expected = sum_of_blocks(replicas, 0, size);
    expected.push_back(-77.0F);
    return elements(memory) == expected;
  });
  EXPECT_EQ(right, std::vector<bool>(replicas, true));
}

TEST_P(AllReduceOf, ListsKeepTheirOrderWithAnyPacking) {
  const std::vector<bool> right = strategy.run([&](ReplicaContext& context) {
    const std::size_t r = context.replica_id_in_sync_group();
    std::vector<Tensor> values;
    for (std::size_t v = 0; v < 5; ++v) {
      values.push_back(vector_of(block(r, v, size / (v + 1)), context.device()));
    }
    bool all_right = true;
    for (const std::int64_t bytes_per_pack : {0, 1, 4096}) {
      const std::vector<Tensor> sums =
          context.all_reduce("sum", values, {.bytes_per_pack = bytes_per_pack});
      for (std::size_t v = 0; v < 5; ++v) {
        all_right = all_right && elements(sums[v]) == sum_of_blocks(replicas, v, size / (v + 1));
      }
    }
    context.all_reduce_into("sum", std::span<const Tensor>(values));
    for (std::size_t v = 0; v < 5; ++v) {
      all_right = all_right && elements(values[v]) == sum_of_blocks(replicas, v, size / (v + 1));
    }
    return all_right;
  });
  EXPECT_EQ(right, std::vector<bool>(replicas, true));
}

class Replicas : public ::testing::TestWithParam<std::size_t> {
 protected:
  std::size_t replicas = GetParam();
  MirroredStrategy strategy{on_cpus(replicas)};
  [[nodiscard]] float n() const { return static_cast<float>(replicas); }
};
INSTANTIATE_TEST_SUITE_P(Counts, Replicas, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(Replicas, EveryOpCombinesAllReplicas) {
  const float sum = n() * (n() + 1) / 2;
  float product = 1;
  for (float factor = 1; factor <= n(); ++factor) product *= factor;
  const std::vector<std::vector<float>> results = strategy.run([](ReplicaContext& context) {
    const auto id = static_cast<float>(context.replica_id_in_sync_group() + 1);
    std::vector<float> all;
    for (const ReduceOp op : kAllReduceOps) {
      all.push_back(elements(context.all_reduce(op, scalar_of(id, context.device())))[0]);
    }
    return all;
  });
  const std::vector<float> expected{sum, sum / n(), 1.0F, n(), product};
  EXPECT_EQ(results, std::vector<std::vector<float>>(replicas, expected));
}

TEST_P(Replicas, AnyNestKeepsItsStructureAndSparseLeavesTheirPlace) {
  strategy.run([&](ReplicaContext& context) {
    const std::size_t r = context.replica_id_in_sync_group();
    const Tensor one = scalar_of(1.0F, context.device());
    const IndexedSlices row =
        slices_of({2.0F}, {static_cast<std::int64_t>(r)}, {8, 1}, context.device());
    const std::tuple nest(one, std::map<std::string, IndexedSlices>{{"row", row}},
                          std::pair(std::vector<Tensor>{one, one}, std::array<Tensor, 1>{one}));
    const auto sum = context.all_reduce("SUM", nest);
    const auto expected = std::vector<float>{n()};
    if (elements(std::get<0>(sum)) != expected || elements(std::get<2>(sum).first[1]) != expected ||
        elements(std::get<2>(sum).second[0]) != expected) {
      throw std::runtime_error("a dense leaf is wrong");
    }
    const IndexedSlices& merged = std::get<1>(sum).at("row");
    std::vector<std::int64_t> rows(replicas);
    std::iota(rows.begin(), rows.end(), 0);
    if (elements<std::int64_t>(merged.indices) != rows ||
        elements(merged.values) != std::vector<float>(replicas, 2.0F)) {
      throw std::runtime_error("the sparse leaf is wrong");
    }
  });
}

TEST_P(Replicas, AnEmptyListIsACallLikeAnyOther) {
  const std::vector<std::size_t> sizes = strategy.run([](ReplicaContext& context) {
    context.all_reduce_into("SUM", std::vector<Tensor>());
    return context.all_reduce("SUM", std::vector<Tensor>()).size() +
           context.all_gather(std::vector<Tensor>(), 0).size();
  });
  EXPECT_EQ(sizes, std::vector<std::size_t>(replicas, 0));
}

TEST_P(Replicas, ValuesOnAnotherDeviceAreReducedToTheReplicasOwn) {
  const PerReplica sums = strategy.run(
      [](ReplicaContext& context) { return context.all_reduce("SUM", scalar_of(1.0F, "CPU:20")); });
  expect_mirrored(sums, cpus(replicas), {n()});
}

TEST_P(Replicas, GatherConcatenatesAlongAnyAxisInReplicaOrder) {
  const std::vector<bool> right = strategy.run([&](ReplicaContext& context) {
    const std::size_t r = context.replica_id_in_sync_group();
    const std::size_t total = replicas * (replicas + 1) / 2;
    // Numbers by row and column of the whole, so that both directions have an obvious answer.
    const std::size_t begin = r * (r + 1) / 2;
    std::vector<float> rows;
    std::vector<float> columns;
    for (std::size_t i = 0; i <= r; ++i) rows.insert(rows.end(), 3, static_cast<float>(begin + i));
    for (std::size_t row = 0; row < 2; ++row) {
      for (std::size_t i = 0; i <= r; ++i) columns.push_back(static_cast<float>(begin + i));
    }
    const Tensor down = context.all_gather(tensor_of(rows, {r + 1, 3}, context.device()), 0);
    const auto across =
        context.all_gather(std::array{tensor_of(columns, {2, r + 1}, context.device()),
                                      tensor_of(columns, {1, 2 * (r + 1)}, context.device())},
                           1);
    std::vector<float> expected_down;
    std::vector<float> expected_across;
    for (std::size_t k = 0; k < total; ++k)
      expected_down.insert(expected_down.end(), 3, static_cast<float>(k));
    for (std::size_t k = 0; k < 2 * total; ++k)
      expected_across.push_back(static_cast<float>(k % total));
    return elements(down) == expected_down && down.shape() == Shape({total, 3}) &&
           elements(across[0]) == expected_across && across[0].shape() == Shape({2, total}) &&
           across[1].shape() == Shape({1, 2 * total}) && down.device() == context.device();
  });
  EXPECT_EQ(right, std::vector<bool>(replicas, true));
}

TEST_P(Replicas, MergeCallSeesAllReplicasOnceAndGivesEachItsPart) {
  std::atomic<int> merges = 0;
  const std::vector<bool> right = strategy.run([&](ReplicaContext& context) {
    const std::size_t r = context.replica_id_in_sync_group();
    const Tensor own = scalar_of(static_cast<float>(r), context.device());
    const Tensor back = context.merge_call(
        [&](Strategy& same, const PerReplica& all, const std::vector<std::size_t>& ids) {
          ++merges;
          EXPECT_EQ(&same, &strategy);
          EXPECT_TRUE(in_cross_replica_context());
          EXPECT_EQ(get_replica_context(), nullptr);
          EXPECT_EQ(all.size(), replicas);
          for (std::size_t k = 0; k < replicas; ++k) EXPECT_EQ(ids[k], k * 10);
          return all;
        },
        own, r * 10);
    const std::string text = context.merge_call([](Strategy&) { return std::string("same"); });
    return back.is_same(own) && text == "same" && get_replica_context() == &context;
  });
  EXPECT_EQ(right, std::vector<bool>(replicas, true));
  EXPECT_EQ(merges.load(), 1);
}

TEST_P(Replicas, MergeCallTakesNestsBoolsTextAndVariablesAndGivesNestsBack) {
  MirroredVariable variable(strategy, scalar_of(1.0F, cpu(0)));
  const std::vector<bool> right = strategy.run([&](ReplicaContext& context) {
    const Tensor own = scalar_of(1.0F, context.device());
    const auto [first, second] = context.merge_call(
        [&](Strategy& same, const std::vector<PerReplica>& list, const std::vector<bool>& flags,
            const std::vector<const char*>& words, const MirroredVariable& itself) {
          EXPECT_EQ(&itself, &variable);
          EXPECT_EQ(flags, std::vector<bool>(replicas, true));
          EXPECT_STREQ(words.back(), "word");
          const Mirrored sum = same.extended().reduce_to("SUM", list[1], list[1]);
          return std::pair(std::vector<Mirrored>{sum}, 5);
        },
        std::vector<Tensor>{own, own}, true, "word", variable);
    return elements(first[0]) == std::vector<float>{n()} && second == 5 &&
           first[0].device() == context.device();
  });
  EXPECT_EQ(right, std::vector<bool>(replicas, true));
}

TEST_P(Replicas, UpdateGivesEachComponentItsReplicasArguments) {
  MirroredVariable variable(strategy, scalar_of(5.0F, cpu(0)));
  strategy.run([&](ReplicaContext& context) {
    const auto id = static_cast<float>(context.replica_id_in_sync_group());
    context.update(
        variable,
        [](VariableComponent& component, const Tensor& value, float factor) {
          component.assign_add(value);
          component.assign_add(factor);
        },
        scalar_of(id, context.device()), id * 100);
  });
  for (std::size_t r = 0; r < replicas; ++r) {
    EXPECT_EQ(elements(variable.components().values()[r]),
              std::vector<float>{5.0F + 101.0F * static_cast<float>(r)});
  }
}

TEST_P(Replicas, ManyStepsWithRandomDelaysStayExact) {
  MirroredStrategy hierarchical(on_cpus(replicas, std::make_shared<HierarchicalCopyAllReduce>(2)));
  std::vector<int> wrong(replicas, 0);
  for (int step = 0; step < 20; ++step) {
    hierarchical.run([&](ReplicaContext& context) {
      const std::size_t r = context.replica_id_in_sync_group();
      std::mt19937 random(static_cast<unsigned>(step * 8) + static_cast<unsigned>(r));
      for (std::size_t v = 0; v < 8; ++v) {
        if (random() % 4 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
        const std::size_t size = 1 + v * 997;
        const Tensor value = vector_of(block(r, v, size), context.device());
        if (elements(context.all_reduce("SUM", value)) != sum_of_blocks(replicas, v, size))
          ++wrong[r];
        context.all_reduce_into("SUM", value);
        if (elements(value) != sum_of_blocks(replicas, v, size)) ++wrong[r];
        if (context.merge_call(
                [](Strategy&, const std::vector<std::size_t>& all) { return all.back(); }, v) != v)
          ++wrong[r];
      }
    });
  }
  EXPECT_EQ(wrong, std::vector<int>(replicas, 0));
}

}  // namespace
}  // namespace crossdevice
