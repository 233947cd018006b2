// SPDX-License-Identifier: Apache-2.0
// Errors carry their code, operation and culprits, read as documented, and copy without throwing.
#include "crossdevice/core/error.h"

#include <exception>
#include <sstream>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/allocation_counter.h"

namespace crossdevice {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(RankInfoTest, ReadsAsDocumented) {
  EXPECT_EQ(
      to_string(RankInfo{.rank = 3, .host = "b", .pid = 4711, .last_operation = "broadcast #1203"}),
      "rank 3 (host b, pid 4711), last seen in broadcast #1203");
  EXPECT_EQ(to_string(RankInfo{.replica = 1, .last_operation = "all_reduce #2"}),
            "replica 1, last seen in all_reduce #2");
}

TEST(RankInfoTest, LeavesOutWhatIsUnknown) {
  EXPECT_EQ(to_string(RankInfo{.rank = 0}), "rank 0");
  EXPECT_EQ(to_string(RankInfo{.replica = 0}), "replica 0");
  EXPECT_EQ(to_string(RankInfo{.rank = 2, .replica = 5}), "rank 2, replica 5");
  EXPECT_EQ(to_string(RankInfo{.rank = 2, .host = "b"}), "rank 2 (host b)");
  EXPECT_EQ(to_string(RankInfo{.rank = 2, .pid = 7}), "rank 2 (pid 7)");
  EXPECT_EQ(to_string(RankInfo{}), "unknown rank");
  EXPECT_EQ(to_string(RankInfo{.host = "b"}), "unknown rank (host b)");
}

TEST(RankInfoTest, StreamsItsText) {
  std::ostringstream out;
  out << RankInfo{.rank = 3, .host = "b", .pid = 4711};
  EXPECT_EQ(out.str(), "rank 3 (host b, pid 4711)");
}

TEST(OperationRecordTest, ReadsAsDocumented) {
  EXPECT_EQ(
      to_string(OperationRecord{
          .kind = "batch_reduce", .sequence = 1204, .num_values = 161, .size_bytes = 102'228'992}),
      "batch_reduce #1204 (161 values, 97.5 MiB)");
  EXPECT_EQ(to_string(OperationRecord{
                .kind = "reduce", .sequence = 1, .num_values = 1, .size_bytes = 512}),
            "reduce #1 (1 value, 512 bytes)");
  EXPECT_EQ(to_string(OperationRecord{.kind = "batch_reduce", .sequence = 2}),
            "batch_reduce #2 (0 values, 0 bytes)");
  EXPECT_EQ(to_string(OperationRecord{}), "unknown operation");
}

TEST(StatusCodeTest, NamesAreTensorFlows) {
  EXPECT_EQ(to_string(StatusCode::CANCELLED), "CANCELLED");
  EXPECT_EQ(to_string(StatusCode::DEADLINE_EXCEEDED), "DEADLINE_EXCEEDED");
  EXPECT_EQ(to_string(StatusCode::FAILED_PRECONDITION), "FAILED_PRECONDITION");
  EXPECT_EQ(to_string(StatusCode::ABORTED), "ABORTED");
  EXPECT_EQ(to_string(StatusCode::UNAVAILABLE), "UNAVAILABLE");
  EXPECT_EQ(to_string(StatusCode::UNIMPLEMENTED), "UNIMPLEMENTED");
  EXPECT_EQ(to_string(StatusCode::RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(to_string(StatusCode::INTERNAL), "INTERNAL");
}

TEST(ValueErrorTest, IsAnInvalidArgumentAndNoOpError) {
  static_assert(std::is_base_of_v<std::invalid_argument, ValueError>);
  static_assert(!std::is_base_of_v<OpError, ValueError>);
  static_assert(!std::is_base_of_v<std::runtime_error, ValueError>);
  static_assert(std::is_nothrow_copy_constructible_v<ValueError>);
  EXPECT_STREQ(ValueError("expected 1, got 2").what(), "expected 1, got 2");
}

template <class E>
class OpErrorTest : public ::testing::Test {};
using Kinds =
    ::testing::Types<CancelledError, DeadlineExceededError, FailedPreconditionError, AbortedError,
                     UnavailableError, UnimplementedError, ResourceExhaustedError, InternalError>;
TYPED_TEST_SUITE(OpErrorTest, Kinds);

OpErrorDetails details() {
  return {.operation = {.kind = "broadcast", .sequence = 4, .num_values = 1, .size_bytes = 8},
          .culprits = {RankInfo{.rank = 1}, RankInfo{.rank = 3, .host = "b"}},
          .inputs_intact = false};
}

TYPED_TEST(OpErrorTest, CarriesItsTextOperationCulpritsAndInputState) {
  const TypeParam error("rank 1 did not come", details());
  EXPECT_STREQ(error.what(), "rank 1 did not come");
  EXPECT_EQ(to_string(error.operation()), "broadcast #4 (1 value, 8 bytes)");
  ASSERT_THAT(error.culprits(), SizeIs(2));
  EXPECT_EQ(to_string(error.culprits()[1]), "rank 3 (host b)");
  EXPECT_FALSE(error.inputs_intact());
}

TYPED_TEST(OpErrorTest, WithoutDetailsNobodyIsToBlameAndInputsAreIntact) {
  const TypeParam error("text");
  EXPECT_EQ(to_string(error.operation()), "unknown operation");
  EXPECT_THAT(error.culprits(), IsEmpty());
  EXPECT_TRUE(error.inputs_intact());
}

TYPED_TEST(OpErrorTest, IsCaughtAsItselfAsOpErrorAndAsRuntimeError) {
  EXPECT_THROW(throw TypeParam("text"), TypeParam);
  EXPECT_THROW(throw TypeParam("text"), OpError);
  EXPECT_THROW(throw TypeParam("text"), std::runtime_error);
}

TYPED_TEST(OpErrorTest, CopiesWithoutThrowingOrAllocatingAndOutlivesTheOriginal) {
  static_assert(std::is_nothrow_copy_constructible_v<TypeParam>);
  static_assert(std::is_nothrow_copy_assignable_v<TypeParam>);
  auto original = std::make_unique<TypeParam>("rank 1 did not come", details());
  const std::size_t before = testing::num_allocations_of_this_thread();
  const TypeParam copy(*original);
  TypeParam moved(std::move(*original));
  EXPECT_EQ(testing::num_allocations_of_this_thread(), before);  // trivially so under a sanitizer
  original.reset();
  EXPECT_STREQ(copy.what(), "rank 1 did not come");
  EXPECT_THAT(copy.culprits(), SizeIs(2));
  EXPECT_THAT(moved.culprits(), SizeIs(2));
}

TYPED_TEST(OpErrorTest, SurvivesTheWayThroughAnExceptionPtr) {
  std::exception_ptr held;
  try {
    throw TypeParam("text", details());
  } catch (...) {
    held = std::current_exception();
  }
  try {
    std::rethrow_exception(held);
  } catch (const OpError& error) {
    EXPECT_NE(dynamic_cast<const TypeParam*>(&error), nullptr);
    EXPECT_THAT(error.culprits(), SizeIs(2));
  }
}

TEST(OpErrorCodeTest, EveryKindHasItsCode) {
  EXPECT_EQ(CancelledError("").code(), StatusCode::CANCELLED);
  EXPECT_EQ(DeadlineExceededError("").code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(FailedPreconditionError("").code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(AbortedError("").code(), StatusCode::ABORTED);
  EXPECT_EQ(UnavailableError("").code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(UnimplementedError("").code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(ResourceExhaustedError("").code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(InternalError("").code(), StatusCode::INTERNAL);
}

TYPED_TEST(OpErrorTest, IsWhatItsCodeThrows) {
  const StatusCode code = TypeParam("").code();
  try {
    throw_op_error(code, "text", {.culprits = {{.rank = 3}}, .inputs_intact = false});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const TypeParam& error) {
    EXPECT_STREQ(error.what(), "text");
    EXPECT_EQ(error.code(), code);
    EXPECT_EQ(error.culprits()[0].rank, 3);
    EXPECT_FALSE(error.inputs_intact());
  }
}

TEST(OpErrorCodeTest, KindsDoNotCatchEachOther) {
  const AbortedError aborted("");
  const OpError& error = aborted;
  EXPECT_EQ(dynamic_cast<const UnavailableError*>(&error), nullptr);
  EXPECT_EQ(dynamic_cast<const DeadlineExceededError*>(&error), nullptr);
}

}  // namespace
}  // namespace crossdevice
