// SPDX-License-Identifier: Apache-2.0
/// Packs: TF's vectors, one after the other, and what must hold for every batch.
#include "crossdevice/collective/pack.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using IndexRun = IndexRuns::Run;

std::vector<TensorSize> float32_tensors(const std::vector<std::size_t>& counts) {
  std::vector<TensorSize> tensors;
  for (const std::size_t count : counts) tensors.push_back({DType::FLOAT32, count});
  return tensors;
}

std::vector<std::size_t> element_counts(const std::vector<Pack>& packs) {
  std::vector<std::size_t> counts;
  for (const Pack& pack : packs) counts.push_back(pack.num_elements());
  return counts;
}

/// The tensors that have a range in each pack.
std::vector<std::vector<std::size_t>> members(const std::vector<Pack>& packs) {
  std::vector<std::vector<std::size_t>> result;
  for (const Pack& pack : packs) {
    std::vector<std::size_t>& tensors = result.emplace_back();
    for (const ElementRange& range : pack.ranges) tensors.push_back(range.tensor);
  }
  return result;
}

std::vector<std::size_t> counting_up_to(std::size_t count) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  return indices;
}

using Values = std::vector<std::vector<int>>;

/// Every element of the batch gets a number of its own, counted through the batch.
Values number_elements(const std::vector<TensorSize>& tensors) {
  Values values;
  int next = 0;
  for (const TensorSize& tensor : tensors) {
    values.emplace_back(tensor.num_elements);
    for (int& value : values.back()) value = next++;
  }
  return values;
}

/// What a staging engine does: gather each pack's ranges into one flat buffer.
Values pack_values(const Values& tensors, const std::vector<Pack>& packs) {
  Values flat;
  for (const Pack& pack : packs) {
    std::vector<int>& buffer = flat.emplace_back();
    for (const ElementRange& range : pack.ranges) {
      for (std::size_t i = 0; i < range.count; ++i) {
        buffer.push_back(tensors.at(range.tensor).at(range.begin + i));
      }
    }
  }
  return flat;
}

/// The way back, into tensors of -1.
Values unpack_values(const Values& flat, const std::vector<TensorSize>& tensors,
                     const std::vector<Pack>& packs) {
  Values values;
  for (const TensorSize& tensor : tensors) values.emplace_back(tensor.num_elements, -1);
  for (std::size_t p = 0; p < packs.size(); ++p) {
    std::size_t at = 0;
    for (const ElementRange& range : packs[p].ranges) {
      for (std::size_t i = 0; i < range.count; ++i) {
        values.at(range.tensor).at(range.begin + i) = flat.at(p).at(at++);
      }
    }
    EXPECT_EQ(at, flat.at(p).size());
  }
  return values;
}

void expect_round_trip(const std::vector<TensorSize>& tensors, const std::vector<Pack>& packs) {
  const Values values = number_elements(tensors);
  EXPECT_EQ(unpack_values(pack_values(values, packs), tensors, packs), values);
}

// --- group_by_size

TEST(PackConformance, U6_PreferLargerPack) {
  const std::vector<std::size_t> sizes{128, 32, 800, 4};
  EXPECT_THAT(group_by_size(sizes, 200), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3)));
}

TEST(PackConformance, U7_ZeroBytesPerPackIsOnePack) {
  const std::vector<std::size_t> sizes{4, 4, 400, 4};
  EXPECT_THAT(group_by_size(sizes, 0), ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(group_by_size({}, 0), ElementsAre(IsEmpty()));
}

TEST(PackConformance, GroupBySizeExecutedVectors) {
  const std::vector<std::size_t> fours{4, 4, 4, 4};
  EXPECT_THAT(group_by_size(fours, 8), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3)));
  EXPECT_THAT(group_by_size(fours, 7), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(group_by_size(fours, 1),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  const std::vector<std::size_t> three{4, 4, 4};
  EXPECT_THAT(group_by_size(three, 4), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  const std::vector<std::size_t> empty_first{0, 0, 4};
  EXPECT_THAT(group_by_size(empty_first, 4), ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(group_by_size({}, 4), IsEmpty());
}

TEST(GroupBySizeTest, AnOversizeTensorJoinsThePackThatIsNotYetOver) {
  const std::vector<std::size_t> sizes{10, 5000, 10, 10};
  EXPECT_THAT(group_by_size(sizes, 100), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST(GroupBySizeTest, TheLargestLimitIsOnePack) {
  const std::vector<std::size_t> sizes{128, 32, 800, 4};
  EXPECT_EQ(group_by_size(sizes, std::numeric_limits<std::int64_t>::max()).size(), 1u);
}

TEST(GroupBySizeTest, ANegativeLimitIsAValueError) {
  EXPECT_THROW((void)group_by_size({}, -1), ValueError);
}

// --- split_sizes

TEST(PackConformance, ConcatAndSplitExecutedVectors) {
  EXPECT_THAT(split_sizes(10, 3), ElementsAre(3, 3, 4));
  EXPECT_THAT(split_sizes(17, 4), ElementsAre(4, 4, 4, 5));
  EXPECT_THAT(split_sizes(2, 4), ElementsAre(0, 0, 0, 2));
}

TEST(SplitSizesTest, AddUpForEveryTotalAndCount) {
  for (std::size_t total = 0; total < 40; ++total) {
    for (std::int64_t packs = 1; packs < 20; ++packs) {
      const std::vector<std::size_t> sizes = split_sizes(total, packs);
      ASSERT_EQ(sizes.size(), static_cast<std::size_t>(packs));
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}), total);
      for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
        EXPECT_EQ(sizes[i], total / static_cast<std::size_t>(packs));
      }
    }
  }
}

TEST(SplitSizesTest, NoPacksIsAValueErrorThatSaysSo) {
  EXPECT_THROW((void)split_sizes(10, 0), ValueError);
  try {
    (void)split_sizes(10, -3);
    FAIL() << "no error";
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("num_packs"));
    EXPECT_THAT(error.what(), HasSubstr("-3"));
  }
}

// --- extract_ranges

TEST(PackConformance, TB2_ExtractRanges) {
  const std::vector<std::size_t> mixed{1, 3, 4, 6, 7, 8, 9};
  IndexRuns runs = extract_ranges(mixed, 32);
  EXPECT_THAT(runs.runs, ElementsAre(IndexRun{3, 4}, IndexRun{6, 9}));
  EXPECT_THAT(runs.singles, ElementsAre(1));

  const std::vector<std::size_t> two_ranges{1, 2, 3, 4, 6, 7, 8, 9};
  runs = extract_ranges(two_ranges, 32);
  EXPECT_THAT(runs.runs, ElementsAre(IndexRun{1, 4}, IndexRun{6, 9}));
  EXPECT_THAT(runs.singles, IsEmpty());

  const std::vector<std::size_t> apart{1, 3, 6, 9};
  runs = extract_ranges(apart, 32);
  EXPECT_THAT(runs.runs, IsEmpty());
  EXPECT_THAT(runs.singles, ElementsAre(1, 3, 6, 9));
}

TEST(PackConformance, ExtractRangesExecutedVectors) {
  const std::vector<std::size_t> twenty = counting_up_to(20);
  std::vector<IndexRun> pairs;
  for (std::size_t i = 0; i < 20; i += 2) pairs.push_back({i, i + 1});
  EXPECT_EQ(extract_ranges(twenty, 0).runs, pairs);
  EXPECT_THAT(extract_ranges(twenty, 1).runs,
              ElementsAre(IndexRun{0, 2}, IndexRun{3, 5}, IndexRun{6, 8}, IndexRun{9, 11},
                          IndexRun{12, 14}, IndexRun{15, 17}, IndexRun{18, 19}));
  EXPECT_THAT(extract_ranges(twenty, 2).runs,
              ElementsAre(IndexRun{0, 3}, IndexRun{4, 7}, IndexRun{8, 11}, IndexRun{12, 15},
                          IndexRun{16, 19}));
  EXPECT_THAT(extract_ranges(twenty, 10).runs, ElementsAre(IndexRun{0, 11}, IndexRun{12, 19}));
  for (const std::size_t limit : {0u, 1u, 2u, 10u}) {
    EXPECT_THAT(extract_ranges(twenty, limit).singles, IsEmpty());
  }
  const IndexRuns none = extract_ranges({}, 10);
  EXPECT_THAT(none.runs, IsEmpty());
  EXPECT_THAT(none.singles, IsEmpty());
}

// --- make_packs: aggregation of small tensors

PackingOptions aggregate(Int64 max_bytes, Int64 max_group) {
  return {.agg_small_grads_max_bytes = max_bytes, .agg_small_grads_max_group = max_group};
}

TEST(PackConformance, TB3_PackRangeAndUnpackAreInverse) {
  const std::vector<TensorSize> tensors = float32_tensors({4, 4, 3 * 3, 3 * 3});
  const std::vector<Pack> packs = make_packs(tensors, aggregate(256, 10));
  EXPECT_THAT(element_counts(packs), ElementsAre(26));
  expect_round_trip(tensors, packs);
}

TEST(PackConformance, TB4_PackSmallTensors) {
  const std::vector<TensorSize> tensors = float32_tensors({4, 4, 3 * 3, 3 * 3});
  EXPECT_EQ(make_packs(tensors, aggregate(12, 10)), make_packs(tensors, {}));
  EXPECT_THAT(element_counts(make_packs(tensors, aggregate(16, 10))), ElementsAre(8, 9, 9));
  EXPECT_THAT(element_counts(make_packs(tensors, aggregate(256, 10))), ElementsAre(26));
}

TEST(PackConformance, TB5_UnpackPutsTensorsBackInTheirPlaces) {
  const std::vector<TensorSize> tensors = float32_tensors({4, 5, 100, 6, 7, 101});
  const std::vector<Pack> packs = make_packs(tensors, aggregate(40, 10));
  EXPECT_THAT(members(packs),
              ElementsAre(ElementsAre(0, 1), ElementsAre(3, 4), ElementsAre(2), ElementsAre(5)));
  expect_round_trip(tensors, packs);
}

TEST(PackConformance, TB6_PackUnpack0) {
  const std::vector<TensorSize> tensors = float32_tensors({8, 3 * 3, 12, 5 * 5 * 5});
  const std::vector<Pack> packs = make_packs(tensors, aggregate(40, 10));
  EXPECT_THAT(element_counts(packs), ElementsAre(17, 12, 125));
  expect_round_trip(tensors, packs);
}

TEST(PackConformance, TB6_PackUnpack1) {
  const std::vector<TensorSize> tensors = float32_tensors({5 * 5 * 5, 2 * 3, 5});
  const std::vector<Pack> packs = make_packs(tensors, aggregate(40, 10));
  EXPECT_THAT(element_counts(packs), ElementsAre(11, 125));
  expect_round_trip(tensors, packs);
}

TEST(PackConformance, TB6_PackUnpack2) {
  const std::vector<TensorSize> tensors = float32_tensors({5 * 5 * 5, 2 * 3, 1 * 5, 7, 100});
  const std::vector<Pack> packs = make_packs(tensors, aggregate(40, 10));
  EXPECT_THAT(element_counts(packs), ElementsAre(18, 125, 100));
  expect_round_trip(tensors, packs);
}

TEST(AggregationTest, AGroupHoldsAtMostMaxGroupTensors) {
  const std::vector<TensorSize> tensors = float32_tensors(std::vector<std::size_t>(7, 1));
  EXPECT_THAT(members(make_packs(tensors, aggregate(40, 3))),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5), ElementsAre(6)));
  EXPECT_THAT(members(make_packs(tensors, aggregate(40, 7))),
              ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5, 6)));
  EXPECT_EQ(make_packs(tensors, aggregate(40, 1)), make_packs(tensors, {}));
}

TEST(AggregationTest, SmallIsMeasuredInBytesOfAnyDType) {
  const std::vector<TensorSize> tensors{{DType::BFLOAT16, 20}, {DType::BFLOAT16, 20},
                                        {DType::FLOAT64, 5},   {DType::FLOAT64, 6},
                                        {DType::INT8, 40},     {DType::INT8, 41}};
  EXPECT_THAT(members(make_packs(tensors, aggregate(40, 10))),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3), ElementsAre(4),
                          ElementsAre(5)));
}

TEST(AggregationTest, NeighboursAreNeighboursWithinTheirDType) {
  const std::vector<TensorSize> tensors{{DType::FLOAT32, 1}, {DType::INT32, 2},
                                        {DType::FLOAT32, 3}, {DType::INT32, 400},
                                        {DType::FLOAT32, 5}, {DType::INT32, 6}};
  EXPECT_THAT(members(make_packs(tensors, aggregate(40, 10))),
              ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1), ElementsAre(3), ElementsAre(5)));
}

TEST(AggregationTest, NeedsBothLimits) {
  const std::vector<TensorSize> tensors = float32_tensors({1, 1, 1});
  EXPECT_EQ(make_packs(tensors, aggregate(40, 0)), make_packs(tensors, {}));
  EXPECT_EQ(make_packs(tensors, aggregate(0, 10)), make_packs(tensors, {}));
}

// --- make_packs: concat-and-split

TEST(ConcatAndSplitTest, IgnoresTheEdgesOfTensors) {
  const std::vector<TensorSize> tensors = float32_tensors({4, 6});
  const std::vector<Pack> packs = make_packs(tensors, {.num_packs = 3});
  ASSERT_EQ(packs.size(), 3u);
  EXPECT_THAT(packs[0].ranges, ElementsAre(ElementRange{0, 0, 3}));
  EXPECT_THAT(packs[1].ranges, ElementsAre(ElementRange{0, 3, 1}, ElementRange{1, 0, 2}));
  EXPECT_THAT(packs[2].ranges, ElementsAre(ElementRange{1, 2, 4}));
}

TEST(ConcatAndSplitTest, EmptyPacksKeepTheirPlace) {
  const std::vector<TensorSize> tensors = float32_tensors({2});
  const std::vector<Pack> packs = make_packs(tensors, {.num_packs = 4});
  EXPECT_THAT(element_counts(packs), ElementsAre(0, 0, 0, 2));
  EXPECT_THAT(packs[3].ranges, ElementsAre(ElementRange{0, 0, 2}));
}

TEST(ConcatAndSplitTest, TensorsWithoutElementsHaveOneEmptyRange) {
  const std::vector<TensorSize> tensors = float32_tensors({0, 4, 0, 4, 0});
  const std::vector<Pack> packs = make_packs(tensors, {.num_packs = 2});
  ASSERT_EQ(packs.size(), 2u);
  EXPECT_THAT(packs[0].ranges,
              ElementsAre(ElementRange{0, 0, 0}, ElementRange{1, 0, 4}, ElementRange{2, 0, 0}));
  EXPECT_THAT(packs[1].ranges, ElementsAre(ElementRange{3, 0, 4}, ElementRange{4, 0, 0}));
}

TEST(ConcatAndSplitTest, CountsPacksPerDType) {
  const std::vector<TensorSize> tensors{
      {DType::FLOAT32, 4}, {DType::INT64, 2}, {DType::FLOAT32, 4}, {DType::INT64, 6}};
  const std::vector<Pack> packs = make_packs(tensors, {.num_packs = 2});
  EXPECT_THAT(members(packs),
              ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(1, 3), ElementsAre(3)));
  EXPECT_EQ(packs[0].dtype, DType::FLOAT32);
  EXPECT_EQ(packs[2].dtype, DType::INT64);
  EXPECT_EQ(packs[2].size_bytes(), 32u);
}

// --- make_packs: grouping by size, and no rule

TEST(BytesPerPackTest, TheLastTensorsFormTheFirstPack) {
  const std::vector<TensorSize> tensors =
      float32_tensors({1, 200, 8, 32});  // 4, 800, 32, 128 bytes
  EXPECT_THAT(members(make_packs(tensors, {.bytes_per_pack = 200})),
              ElementsAre(ElementsAre(3, 2, 1), ElementsAre(0)));
}

TEST(BytesPerPackTest, EachDTypeIsGroupedOnItsOwnAndPacksLeaveWhenTheirLastTensorIsThere) {
  const std::vector<TensorSize> tensors{{DType::FLOAT32, 1}, {DType::FLOAT16, 2},
                                        {DType::FLOAT32, 1}, {DType::FLOAT16, 2},
                                        {DType::FLOAT32, 1}, {DType::FLOAT16, 2}};
  EXPECT_THAT(members(make_packs(tensors, {.bytes_per_pack = 4})),
              ElementsAre(ElementsAre(5, 3), ElementsAre(4, 2), ElementsAre(1), ElementsAre(0)));
}

TEST(NoRuleTest, EveryTensorIsAPackInInputOrder) {
  const std::vector<TensorSize> tensors{{DType::FLOAT32, 3}, {DType::INT8, 0}, {DType::BOOL, 5}};
  const std::vector<Pack> packs = make_packs(tensors, {});
  ASSERT_EQ(packs.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(packs[i].dtype, tensors[i].dtype);
    EXPECT_THAT(packs[i].ranges, ElementsAre(ElementRange{i, 0, tensors[i].num_elements}));
  }
}

// --- make_packs: precedence and errors

TEST(MakePacksTest, TheFirstRuleThatIsSetApplies) {
  const std::vector<TensorSize> tensors = float32_tensors({1, 2, 100, 3});
  const PackingOptions all{.num_packs = 2,
                           .agg_small_grads_max_bytes = 40,
                           .agg_small_grads_max_group = 10,
                           .bytes_per_pack = 4};
  PackingOptions options = all;
  EXPECT_EQ(make_packs(tensors, options), make_packs(tensors, {.num_packs = 2}));
  options.num_packs = 0;
  EXPECT_EQ(make_packs(tensors, options), make_packs(tensors, aggregate(40, 10)));
  options.agg_small_grads_max_group = 0;
  EXPECT_EQ(make_packs(tensors, options), make_packs(tensors, {.bytes_per_pack = 4}));
}

TEST(MakePacksTest, AnEmptyBatchHasNoPacks) {
  EXPECT_THAT(make_packs({}, {}), IsEmpty());
  EXPECT_THAT(make_packs({}, {.num_packs = 3}), IsEmpty());
  EXPECT_THAT(make_packs({}, aggregate(40, 10)), IsEmpty());
  EXPECT_THAT(make_packs({}, {.bytes_per_pack = 3}), IsEmpty());
}

TEST(MakePacksTest, NegativeOptionsAreValueErrorsThatNameThem) {
  const auto expect_error = [](const PackingOptions& options, const std::string& name) {
    try {
      (void)make_packs({}, options);
      ADD_FAILURE() << "no error for " << name;
    } catch (const ValueError& error) {
      EXPECT_THAT(error.what(), HasSubstr(name));
      EXPECT_THAT(error.what(), HasSubstr("-7"));
    }
  };
  expect_error({.num_packs = -7}, "num_packs");
  expect_error({.agg_small_grads_max_bytes = -7}, "agg_small_grads_max_bytes");
  expect_error({.agg_small_grads_max_group = -7}, "agg_small_grads_max_group");
  expect_error({.bytes_per_pack = -7}, "bytes_per_pack");
}

// --- what holds for every batch

struct Rule {
  const char* name;
  PackingOptions options;
  bool reversed;  ///< tensors of one dtype appear last first
};

std::vector<Rule> all_rules() {
  std::vector<Rule> rules{{"none", {}, false}};
  for (const int n : {1, 2, 3, 7, 50}) rules.push_back({"num_packs", {.num_packs = n}, false});
  for (const int n : {1, 40, 4096}) rules.push_back({"bytes", {.bytes_per_pack = n}, true});
  for (const int n : {1, 2, 10}) rules.push_back({"aggregate", aggregate(64, n), false});
  return rules;
}

std::vector<TensorSize> random_batch(std::mt19937& random) {
  const DType dtypes[] = {DType::FLOAT32, DType::BFLOAT16, DType::INT64};
  std::vector<TensorSize> tensors(random() % 30);
  for (TensorSize& tensor : tensors) {
    tensor.dtype = dtypes[random() % std::size(dtypes)];
    tensor.num_elements = random() % 3 == 0 ? random() % 1000 : random() % 12;
  }
  return tensors;
}

void expect_every_element_once(const std::vector<TensorSize>& tensors,
                               const std::vector<Pack>& packs) {
  Values seen;
  std::vector<int> num_ranges(tensors.size(), 0);
  for (const TensorSize& tensor : tensors) seen.emplace_back(tensor.num_elements, 0);
  for (const Pack& pack : packs) {
    for (const ElementRange& range : pack.ranges) {
      ASSERT_LT(range.tensor, tensors.size());
      EXPECT_EQ(tensors[range.tensor].dtype, pack.dtype);
      EXPECT_TRUE(range.count > 0 || tensors[range.tensor].num_elements == 0);
      ++num_ranges[range.tensor];
      for (std::size_t i = 0; i < range.count; ++i) ++seen[range.tensor].at(range.begin + i);
    }
  }
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    EXPECT_EQ(seen[t], std::vector<int>(tensors[t].num_elements, 1)) << "tensor " << t;
    if (tensors[t].num_elements == 0) {
      EXPECT_EQ(num_ranges[t], 1);
    }
  }
}

TEST(PackPropertyTest, EveryElementLiesInOneRangeOfAPackOfItsDType) {
  std::mt19937 random(20);
  for (int round = 0; round < 300; ++round) {
    const std::vector<TensorSize> tensors = random_batch(random);
    for (const Rule& rule : all_rules()) {
      SCOPED_TRACE(rule.name);
      const std::vector<Pack> packs = make_packs(tensors, rule.options);
      expect_every_element_once(tensors, packs);
      expect_round_trip(tensors, packs);
    }
  }
}

TEST(PackPropertyTest, RangesOfOneDTypeFollowThePackingOrder) {
  std::mt19937 random(21);
  for (int round = 0; round < 300; ++round) {
    const std::vector<TensorSize> tensors = random_batch(random);
    for (const Rule& rule : all_rules()) {
      SCOPED_TRACE(rule.name);
      const bool groups_come_first = rule.options.agg_small_grads_max_bytes > 0;
      std::vector<ElementRange> last(kNumDTypes, ElementRange{tensors.size(), 0, 0});
      for (const Pack& pack : make_packs(tensors, rule.options)) {
        ElementRange& previous = last[static_cast<std::size_t>(pack.dtype)];
        if (groups_come_first) previous.tensor = tensors.size();
        for (const ElementRange& range : pack.ranges) {
          if (previous.tensor == tensors.size()) {
            EXPECT_EQ(range.begin, 0u);
          } else if (range.tensor == previous.tensor) {
            EXPECT_EQ(range.begin, previous.begin + previous.count);
          } else {
            EXPECT_EQ(range.tensor < previous.tensor, rule.reversed);
            EXPECT_EQ(range.begin, 0u);
          }
          previous = range;
        }
      }
    }
  }
}

TEST(PackPropertyTest, PacksOfSeveralDTypesAreOrderedByTheirLastTensor) {
  std::mt19937 random(22);
  for (int round = 0; round < 300; ++round) {
    const std::vector<TensorSize> tensors = random_batch(random);
    for (const Rule& rule : all_rules()) {
      if (rule.options.agg_small_grads_max_bytes > 0) continue;  // groups first, then the others
      std::size_t last = rule.reversed ? tensors.size() : 0;
      for (const Pack& pack : make_packs(tensors, rule.options)) {
        if (pack.ranges.empty()) continue;
        const std::size_t tensor = pack.ranges.back().tensor;
        EXPECT_TRUE(rule.reversed ? tensor <= last : tensor >= last) << rule.name;
        last = tensor;
      }
    }
  }
}

}  // namespace
}  // namespace crossdevice
