// SPDX-License-Identifier: Apache-2.0
// What the flight record says of the ops' calls on GPUs: each group of a batch with its own bytes and dtype, and every launch that fails.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "crossdevice/comm/flight_record.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/gpu_fixture.h"
#include "support/gpu_values.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

// Ends what no deadline of a call's ends.
[[maybe_unused]] const bool kInstalled =
    (::setenv("CROSSDEVICE_DEFAULT_TIMEOUT", "20", 1), testing::install_emulated_gpus(), true);

using testing::emulated_cuda;
using testing::gpu;
using ::testing::HasSubstr;
using testing::thrown;
using testing::vector_of;

class GpuFlightRecord : public testing::EmulatedGpuTest {};

template <class T>
PerReplica on_two_gpus(std::size_t count) {
  return PerReplica{vector_of(std::vector<T>(count, T(1)), gpu(0)),
                    vector_of(std::vector<T>(count, T(1)), gpu(1))};
}

/// Entries that have come since there were so many of them in all.
std::vector<FlightEntry> entries_after(std::uint64_t number) {
  std::vector<FlightEntry> all = flight_record();
  std::erase_if(all, [number](const FlightEntry& entry) { return entry.number <= number; });
  return all;
}

std::uint64_t last_number() {
  const std::vector<FlightEntry> all = flight_record();
  return all.empty() ? 0 : all.back().number;
}

TEST_F(GpuFlightRecord, EachGroupOfABatchHasItsOwnBytesAndDType) {
  NcclAllReduce ops(1);
  // NCCL takes the first two, our kernels the 16-bit integers.
  const std::vector<PerReplica> batch{on_two_gpus<float>(100), on_two_gpus<double>(10),
                                      on_two_gpus<std::int16_t>(7), on_two_gpus<std::int16_t>(3)};
  const std::uint64_t before = last_number();
  ops.batch_reduce_into(ReduceOp::SUM, batch);
  const std::vector<FlightEntry> entries = entries_after(before);
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].size_bytes, 480U);
  EXPECT_EQ(entries[1].size_bytes, 20U);
  EXPECT_EQ(entries[1].dtype, DType::INT16);
  for (const FlightEntry& entry : entries) EXPECT_EQ(entry.operation.size_bytes, 500U);
  const nlohmann::json all = nlohmann::json::parse(flight_record_json()).at("operations");
  EXPECT_EQ(all.at(all.size() - 2).at("dtype"), "mixed");
  EXPECT_EQ(all.back().at("dtype"), "int16");
}

TEST_F(GpuFlightRecord, EveryLaunchThatFailsIsInIt) {
  struct Case {
    std::string kind;
    const char* function;
    std::size_t skip;
    std::function<void()> call;
  };
  HierarchicalCopyAllReduce ops(1);
  ReductionToOneDevice mean({.accumulation_fn = [](std::span<const Tensor> parts) {
    return copy_to_device(parts[0], parts[0].device());
  }});
  const PerReplica value = on_two_gpus<float>(10);
  const std::vector<Case> cases = {
      {"broadcast", "cuda.memcpy_async", 0,
       [&] { (void)ops.broadcast(value.values()[0], "GPU:1"); }},
      {"gather", "kernels.copy_ranges", 0, [&] { (void)ops.gather(value, "GPU:1", 0); }},
      // Its reduction, of one tensor, is a kernel too, but another.
      {"reduce", "kernels.copy_ranges", 0,
       [&] { (void)mean.reduce(ReduceOp::MEAN, value, "GPU:0"); }},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.kind + " " + each.function);
    each.call();
    ASSERT_TRUE(emulated_cuda().synchronize());
    const std::uint64_t before = last_number();
    emulated_cuda().calls().inject({.function = each.function, .skip = each.skip, .status = 98});
    EXPECT_NE(thrown<InternalError>(each.call), "");
    emulated_cuda().calls().clear_faults();
    const std::vector<FlightEntry> entries = entries_after(before);
    ASSERT_FALSE(entries.empty());
    EXPECT_EQ(entries.back().state, FlightState::FAILED);
    EXPECT_EQ(entries.back().operation.kind, each.kind);
    EXPECT_NE(entries.back().error, "");
    each.call();
  }
}

/// The entry of the launch that hangs while `call` runs, which ends by its deadline.
FlightEntry entry_of_hanging_launch(std::size_t skip, const std::function<void()>& call) {
  const std::uint64_t before = last_number();
  emulated_cuda().calls().clear();
  emulated_cuda().calls().inject(
      {.function = "nccl.group_end", .kind = testing::FaultKind::HANG_CALL, .skip = skip});
  std::string said;
  std::thread caller([&] { said = thrown<DeadlineExceededError>(call); });
  // Behind the record the communicators break, which lets a real launch come back.
  EXPECT_TRUE(emulated_cuda().calls().await_count("nccl.comm_revoke", 2, std::chrono::seconds(30)));
  emulated_cuda().calls().clear_faults();
  emulated_cuda().calls().release_hangs();
  caller.join();
  FlightEntry found;
  for (const FlightEntry& entry : entries_after(before)) {
    if (entry.detail == "(launch)") found = entry;
  }
  EXPECT_THAT(said, HasSubstr("waiting for NCCL to launch it"));
  return found;
}

nlohmann::json json_of(std::uint64_t number) {
  const nlohmann::json all = nlohmann::json::parse(flight_record_json());
  for (const nlohmann::json& each : all.at("operations")) {
    if (each.at("number") == number) return each;
  }
  return {};
}

/// One list of several dtypes is several groups of NCCL's calls.
TEST_F(GpuFlightRecord, ALaunchThatDoesNotComeBackHasWhatItsOwnGroupCarries) {
  const std::vector<PerReplica> batch{on_two_gpus<float>(100), on_two_gpus<double>(10),
                                      on_two_gpus<float>(50)};
  const CommunicationOptions options{.timeout_seconds = 0.5};
  {
    NcclAllReduce ops(1);  // has communicators from here on
    ops.batch_reduce_into(ReduceOp::SUM, batch, {.timeout_seconds = 60});
    ASSERT_TRUE(emulated_cuda().synchronize());
  }
  struct Group {
    DType dtype;
    std::size_t size_bytes;
  };
  std::vector<Group> groups;
  for (std::size_t skip = 0; skip < 2; ++skip) {
    NcclAllReduce ops(1);
    if (skip > 0) ops.batch_reduce_into(ReduceOp::SUM, batch, {.timeout_seconds = 60});
    const FlightEntry entry = entry_of_hanging_launch(
        skip, [&] { ops.batch_reduce_into(ReduceOp::SUM, batch, options); });
    ASSERT_TRUE(entry.dtype.has_value()) << entry.size_bytes;
    EXPECT_EQ(entry.operation.size_bytes, 680U);  // the call's
    EXPECT_EQ(json_of(entry.number).at("dtype"), std::string(to_string(*entry.dtype)));
    EXPECT_EQ(entry.size_bytes, *entry.dtype == DType::FLOAT32 ? 600U : 80U);
    groups.push_back({*entry.dtype, entry.size_bytes});
  }
  EXPECT_NE(groups[0].dtype, groups[1].dtype);
}

/// What NCCL is tried with when communicators are made.
TEST_F(GpuFlightRecord, AFirstLaunchThatDoesNotComeBackIsOfOneElement) {
  NcclAllReduce ops(1);
  const PerReplica value{vector_of(std::vector<float>(10, 1), gpu(2)),
                         vector_of(std::vector<float>(10, 1), gpu(3))};
  // The group before it makes the communicators.
  const FlightEntry entry = entry_of_hanging_launch(
      1, [&] { ops.reduce_into(ReduceOp::SUM, value, value, {.timeout_seconds = 1}); });
  EXPECT_EQ(entry.operation.kind, "warm-up");
  EXPECT_EQ(entry.size_bytes, 4U);
  EXPECT_EQ(entry.dtype, DType::FLOAT32);
}

}  // namespace
}  // namespace crossdevice
