// SPDX-License-Identifier: Apache-2.0
/// The three forms of all_reduce_spec: what they mean, and that everything wrong is found when they are made.
#include "crossdevice/ops/all_reduce_spec.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

using Tuples = std::vector<AllReduceSpecTuple>;

Tuples tuples(const AllReduceSpec& spec) { return {spec.tuples().begin(), spec.tuples().end()}; }

std::string error_of(const std::string& text) {
  try {
    (void)AllReduceSpec(text);
  } catch (const ValueError& error) {
    return error.what();
  }
  return "none";
}

TEST(AllReduceSpecTest, ThreeFormsMeanTheSame) {
  const AllReduceSpec list{{"nccl", 2, 1024}, {"pscpu/pscpu", 2, -1}};
  EXPECT_EQ(list, AllReduceSpec("nccl#2:1k:pscpu/pscpu#2"));
  EXPECT_EQ(list, AllReduceSpec(std::string_view("nccl#2:1024:pscpu/pscpu#2")));
  EXPECT_EQ(list, AllReduceSpec(std::string("nccl#2:1K:pscpu/pscpu#2")));
  EXPECT_EQ(list, AllReduceSpec::from_tuples({{"nccl", 2, 1024}, {"pscpu/pscpu", 2}}));
  EXPECT_EQ(list.to_string(), "nccl#2:1024:pscpu/pscpu#2");

  const AllReduceSpec one = {"pscpu/pscpu", 2, -1};
  EXPECT_EQ(one, AllReduceSpec("pscpu/pscpu#2"));
  EXPECT_EQ(one, (AllReduceSpec{{"pscpu/pscpu", 2, -1}}));
  EXPECT_EQ(AllReduceSpec("xring"), (AllReduceSpec{"xring", 1, -1}));
}

// TF's parse_all_reduce_spec, as far as its results are sane.
TEST(AllReduceSpecTest, TextIsParsedAsTfDoes) {
  EXPECT_EQ(tuples("nccl"), (Tuples{{"nccl", 1, -1}}));
  EXPECT_EQ(tuples("xring#2"), (Tuples{{"xring", 2, -1}}));
  EXPECT_EQ(tuples("pscpu:2k:pscpu#2:64k:xring"),
            (Tuples{{"pscpu", 1, 2048}, {"pscpu", 2, 65536}, {"xring", 1, -1}}));
  EXPECT_EQ(tuples("psgpu#4"), (Tuples{{"psgpu", 4, -1}}));
  EXPECT_EQ(tuples("pscpu/pscpu#2"), (Tuples{{"pscpu/pscpu", 2, -1}}));
  EXPECT_EQ(tuples("nccl#1024"), (Tuples{{"nccl", 1024, -1}}));
  EXPECT_EQ(tuples("nccl/xring:1M:nccl/rechd#3"),
            (Tuples{{"nccl/xring", 1, 1 << 20}, {"nccl/rechd", 3, -1}}));
  EXPECT_EQ(tuples("xring:0:nccl/pscpu:1G:rechd:2T:nccl")[2].limit, Int64(std::int64_t{2} << 40));
}

TEST(AllReduceSpecTest, TextRoundTrips) {
  for (const char* const text :
       {"nccl", "xring#2:17:rechd", "pscpu:2048:pscpu#2:65536:nccl/pscpu#1024"}) {
    EXPECT_EQ(AllReduceSpec(text).to_string(), text);
  }
}

TEST(AllReduceSpecTest, ATensorTakesTheFirstAlgorithmWhoseLimitItDoesNotExceed) {
  const AllReduceSpec spec{{"xring", 1, 0}, {"rechd", 1, 100}, {"nccl", 1, -1}};
  EXPECT_EQ(spec.index_for(0), 0u);
  EXPECT_EQ(spec.index_for(1), 1u);
  EXPECT_EQ(spec.index_for(100), 1u);
  EXPECT_EQ(spec.index_for(101), 2u);
  EXPECT_EQ(AllReduceSpec("nccl").index_for(std::size_t{1} << 50), 0u);
}

TEST(AllReduceSpecTest, UnknownAlgorithmsAreValueErrors) {
  for (const char* const text :
       {"", "bogus", "NCCL", " nccl", "nccl ", "collective", "pscpu/xring", "nccl/", "xring:1k:"}) {
    EXPECT_NE(error_of(text).find(
                  "expected one of nccl, xring, rechd, pscpu, psgpu, nccl/xring, nccl/rechd, "
                  "nccl/pscpu, pscpu/pscpu"),
              std::string::npos)
        << "'" << text << "': " << error_of(text);
  }
  EXPECT_THROW((AllReduceSpec{"nccl#2", 1, -1}), ValueError) << "a name is not parsed";
}

TEST(AllReduceSpecTest, WrongShardsAreValueErrors) {
  EXPECT_EQ(error_of("xring#0"), "all_reduce_spec: xring has 1 to 1024 shards, not 0");
  EXPECT_EQ(error_of("nccl#1025"), "all_reduce_spec: nccl has 1 to 1024 shards, not 1025");
  for (const char* const text :
       {"nccl#", "nccl#x", "nccl#-2", "nccl#+2", "nccl#2#3", "nccl# 2", "nccl#1k",
        "nccl#99999999999", "pscpu#2/pscpu", "pscpu#2/pscpu#2"}) {
    EXPECT_NE(error_of(text).find("is no number of shards"), std::string::npos) << text;
  }
  EXPECT_THROW((AllReduceSpec{"nccl", 0, -1}), ValueError);
  EXPECT_THROW((AllReduceSpec{"nccl", -2, -1}), ValueError);
}

TEST(AllReduceSpecTest, WrongLimitsAreValueErrors) {
  for (const char* const text :
       {"nccl:2x:xring", "nccl:1.5k:xring", "nccl:2g:xring", "nccl:-1:xring", "nccl:+5:xring",
        "nccl: 5:xring", "nccl::xring", "nccl:k:xring", "nccl:99999999999999999999:xring",
        "nccl:9999999999T:xring", "nccl:2kk:xring"}) {
    EXPECT_NE(error_of(text).find("is no limit"), std::string::npos) << text;
    EXPECT_NE(error_of(text).find("LIMIT in bytes"), std::string::npos) << text;
  }
  for (const char* const text : {"nccl:", "nccl:2k", "nccl:1:xring:2"}) {
    EXPECT_NE(error_of(text).find("it ends with a limit"), std::string::npos) << text;
  }
  EXPECT_EQ(error_of("nccl:2K:xring:1k:pscpu"),
            "all_reduce_spec: the limit of xring, 1024 bytes, must be more than the one before, "
            "2048");
  EXPECT_THROW(AllReduceSpec("nccl:2k:xring:2k:pscpu"), ValueError);
}

TEST(AllReduceSpecTest, ListsThatDoNotEndOrDoNotAscendAreValueErrors) {
  EXPECT_THROW((AllReduceSpec{"nccl", 1, 1024}), ValueError);
  EXPECT_THROW((AllReduceSpec{{"nccl", 1, 1024}, {"xring", 1, 2048}}), ValueError);
  EXPECT_THROW((AllReduceSpec{{"nccl", 1, -1}, {"xring", 1, -1}}), ValueError);
  EXPECT_THROW((AllReduceSpec{"nccl", 1, -2}), ValueError);
  EXPECT_THROW((void)AllReduceSpec::from_tuples({}), ValueError);
}

}  // namespace
}  // namespace crossdevice
