// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/call_difference.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossdevice {
namespace {

ToldCall call(int rank, CallDetails details, std::uint64_t fingerprint = 0) {
  return {.rank = rank,
          .operation = pack_operation({.kind = "reduce",
                                       .num_values = 1,
                                       .size_bytes = 8,
                                       .fingerprint = fingerprint,
                                       .sequence = 4}),
          .details = std::move(details)};
}

TEST(CallDifference, OfTheDetailsThoseAreToldThatDiffer) {
  const std::vector<ToldCall> calls = {
      call(0, {"deterministic", "root 0", "value 0: 2 float32", "value 1: 3 float32"}),
      call(3, {"deterministic", "root 1", "value 0: 3 float32", "value 1: 2 float32"})};
  EXPECT_EQ(
      describe_difference(calls),
      "workers make different calls: rank 0 reduce #4 SUM of 1 float32 value, 8 bytes, root "
      "0, value 0: 2 float32; rank 3 reduce #4 SUM of 1 float32 value, 8 bytes, root 1, value "
      "0: 3 float32");
}

TEST(CallDifference, WhereNothingElseIsKnownTheFingerprintsAreTold) {
  EXPECT_EQ(describe_difference(std::vector<ToldCall>{call(0, {}, 0x1f), call(1, {"x"}, 0x2f)}),
            "workers make different calls: rank 0 reduce #4 SUM of 1 float32 value, 8 bytes "
            "(fingerprint 1f); rank 1 reduce #4 SUM of 1 float32 value, 8 bytes (fingerprint 2f)");
}

TEST(CallDifference, CallsOfOtherKindsHaveNoDetailsInCommon) {
  std::vector<ToldCall> calls = {call(0, {"root 0"}), call(1, {"axis 1"})};
  calls[1].operation = pack_operation({.kind = "barrier", .sequence = 4});
  EXPECT_EQ(describe_difference(calls),
            "workers make different calls: rank 0 reduce #4 SUM of 1 float32 value, 8 bytes; rank "
            "1 barrier #4");
}

TEST(CallDifference, WhatNotAllHaveIsTold) {
  const std::vector<ToldCall> calls = {call(0, {"value 0: 1 float32"}),
                                       call(1, {"value 0: 1 float32", "value 1: 1 float32"})};
  EXPECT_TRUE(describe_difference(calls).ends_with(", value 1: 1 float32"));
}

TEST(CallDifference, DetailsTravel) {
  const CallDetails details = {"deterministic", "", "value 0: 2 float32"};
  EXPECT_EQ(decode_details(encode_details(details)), details);
  EXPECT_EQ(decode_details("nonsense"), CallDetails());
  EXPECT_EQ(decode_details(""), CallDetails());
  const CallDetails many(20'000, std::string(20, 'x'));
  const CallDetails come = decode_details(encode_details(many));
  EXPECT_GT(come.size(), 1000U);
  EXPECT_LT(come.size(), many.size());
}

}  // namespace
}  // namespace crossdevice
