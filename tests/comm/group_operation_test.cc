// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/group_operation.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossdevice {
namespace {

TEST(GroupOperation, IsNamedForPeople) {
  const GroupOperation operation = pack_operation({.kind = "all_reduce",
                                                   .reduce_op = ReduceOp::MAX,
                                                   .dtype = DType::FLOAT16,
                                                   .num_values = 2,
                                                   .size_bytes = 1536,
                                                   .fingerprint = 0x9af0});
  EXPECT_EQ(to_string(operation),
            "all_reduce MAX of 2 float16 values, 1.5 KiB = 1536 B (fingerprint 9af0)");
}

TEST(GroupOperation, WhatHasNoValuesOrReducesNothingDoesNotSeemTo) {
  EXPECT_EQ(describe(pack_operation({.kind = "barrier", .sequence = 1})), "barrier #1");
  EXPECT_EQ(describe(pack_operation({.kind = "gather on hosts", .sequence = 2})),
            "gather on hosts #2");
  EXPECT_EQ(describe(pack_operation({.kind = "reduce sparse", .sequence = 3})),
            "reduce sparse #3 SUM");
  EXPECT_EQ(describe(pack_operation({.kind = "broadcast", .num_values = 1, .size_bytes = 4})),
            "broadcast of 1 float32 value, 4 bytes");
}

TEST(GroupOperation, EveryFieldTells) {
  const GroupOperationInfo info{.kind = "reduce", .num_values = 1, .size_bytes = 4};
  const GroupOperation operation = pack_operation(info);
  EXPECT_EQ(pack_operation(info), operation);
  std::set<std::uint64_t> digests{digest_of(operation)};
  const auto expect_different = [&](const GroupOperationInfo& info_of_other) {
    EXPECT_NE(pack_operation(info_of_other), operation);
    EXPECT_TRUE(digests.insert(digest_of(pack_operation(info_of_other))).second);
  };
  GroupOperationInfo other = info;
  other.kind = "reduce2";
  expect_different(other);
  other = info;
  other.reduce_op = ReduceOp::MIN;
  expect_different(other);
  other = info;
  other.dtype = DType::FLOAT64;
  expect_different(other);
  other = info;
  other.num_values = 2;
  expect_different(other);
  other = info;
  other.size_bytes = 8;
  expect_different(other);
  other = info;
  other.fingerprint = 1;
  expect_different(other);
}

TEST(GroupOperation, TheNumberIsNotComparedButSaid) {
  const GroupOperation first = pack_operation({.kind = "reduce", .sequence = 1});
  const GroupOperation second = pack_operation({.kind = "reduce", .sequence = 12});
  EXPECT_EQ(first, second);
  EXPECT_EQ(to_string(second).substr(0, 15), "reduce #12 SUM ");
  EXPECT_EQ(short_name(second), "reduce #12");
  EXPECT_EQ(short_name(pack_operation({.kind = "reduce"})), "reduce");
}

TEST(GroupOperation, WhoIsInNoneSinceItOrALaterOneHasLeftIt) {
  const GroupOperation operation = pack_operation({.kind = "reduce", .sequence = 12});
  EXPECT_TRUE(has_left("no operation since reduce #12", operation));
  EXPECT_TRUE(has_left("no operation since all_gather #13", operation));
  EXPECT_TRUE(has_left("no operation since reduce #12 or a later one", operation));
  EXPECT_TRUE(has_left("barrier #5 of the cluster after reduce #12", operation));
  EXPECT_FALSE(has_left("barrier #5 of the cluster after reduce #11", operation));
  EXPECT_FALSE(has_left("barrier #15 of the cluster", operation));
  for (const char* const other :
       {"", "reduce #12", "reduce #13", "no operation", "no operation since reduce #11",
        "no operation since reduce", "no operation since reduce #", "no operation since #12x",
        "no operation since reduce #99999999999999999999"}) {
    EXPECT_FALSE(has_left(other, operation)) << other;
  }
  EXPECT_FALSE(has_left("no operation since reduce #12", pack_operation({.kind = "reduce"})));
}

TEST(GroupOperation, ALongKindIsCut) {
  const GroupOperation operation = pack_operation({.kind = "a kind of more than 23 (characters)"});
  EXPECT_EQ(operation.kind.back(), '\0');
  EXPECT_EQ(to_string(operation).substr(0, 23), "a kind of more than 23 ");
}

TEST(GroupOperation, AKindOfAnyLengthIsCopied) {
  const std::string letters = "abcdefghijklmnopqrstuvwxyz";
  for (std::size_t size = 0; size <= letters.size(); ++size) {
    // Of its own memory, so that whoever reads beyond it is found by a sanitizer.
    const std::vector<char> kind(letters.begin(),
                                 letters.begin() + static_cast<std::ptrdiff_t>(size));
    std::array<char, 24> expected{};
    std::copy_n(kind.begin(), std::min<std::size_t>(size, 23), expected.begin());
    EXPECT_EQ(pack_operation({.kind = {kind.data(), size}}).kind, expected) << size;
  }
}

TEST(GroupOperation, AnyBytesCanBePrinted) {
  GroupOperation operation;
  operation.kind.fill('x');  // no end
  operation.dtype = 77;
  operation.reduce_op = 99;
  operation.num_values = 2;
  EXPECT_EQ(to_string(operation),
            std::string(24, 'x') + " unknown of 2 unknown values, 0 bytes (fingerprint 0)");
}

}  // namespace
}  // namespace crossdevice
