// SPDX-License-Identifier: Apache-2.0
// In steady state no form of NcclAllReduce waits for a GPU, or asks for one: called while every stream stands still, it returns, and who enqueued has asked CUDA
// for the end of nothing.
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/ops/nccl_all_reduce.h"

#include "support/gpu_fixture.h"
#include "support/gpu_values.h"

namespace crossdevice {
namespace {

using testing::elements;
using testing::emulated_cuda;
using testing::gpu;
using testing::gpus;
using testing::vector_of;

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

/// For calls that return, where they do.
constexpr std::chrono::seconds kLimit{20};

/// Values on each of n GPUs, and what calls make of them.
struct Case {
  explicit Case(std::size_t n) : devices(gpus(n)), value(value_on(1000)), outputs(value_on(1000)) {
    for (const std::size_t count : {100U, 1U, 300U, 64U, 100U}) batch.push_back(value_on(count));
    pairs.reserve(batch.size());
    for (const PerReplica& each : batch) pairs.push_back({each, each});
    std::vector<Tensor> rows;
    for (const Device& device : devices) {
      rows.push_back(vector_of(std::vector<float>(1000 * n, 0), device));
    }
    gathered.emplace(rows);
  }
  [[nodiscard]] PerReplica value_on(std::size_t count) const {
    std::vector<Tensor> components;
    for (std::size_t r = 0; r < devices.size(); ++r) {
      components.push_back(
          vector_of(std::vector<float>(count, static_cast<float>(r + 1)), devices[r]));
    }
    return PerReplica(components);
  }

  Devices devices;
  PerReplica value;
  PerReplica outputs;
  std::optional<PerReplica> gathered;
  std::vector<PerReplica> batch;
  std::vector<ValueDestinationPair> pairs;
  NcclAllReduce ops{1};
  // What the last call made, kept until everything has run.
  std::vector<Mirrored> results;
  std::vector<PendingBatch> pending;
};

struct Form {
  std::string name;
  std::function<void(Case&)> call;
};

const CommunicationOptions kPacks{.bytes_per_pack = 600, .timeout_seconds = 60};

const Form kForms[] = {
    {"reduce", [](Case& c) { c.results.push_back(c.ops.reduce(ReduceOp::SUM, c.value, c.value)); }},
    {"reduce, MEAN, with a deadline",
     [](Case& c) {
       c.results.push_back(c.ops.reduce(ReduceOp::MEAN, c.value, c.value, {.timeout_seconds = 60}));
     }},
    {"reduce, MAX, which our kernels do",
     [](Case& c) { c.results.push_back(c.ops.reduce(ReduceOp::MAX, c.value, c.value)); }},
    {"reduce, deterministic",
     [](Case& c) {
       c.results.push_back(c.ops.reduce(ReduceOp::SUM, c.value, c.value, {.deterministic = true}));
     }},
    {"reduce to one GPU",
     [](Case& c) { c.results.push_back(c.ops.reduce(ReduceOp::SUM, c.value, "GPU:1")); }},
    {"reduce_into other buffers",
     [](Case& c) { c.ops.reduce_into(ReduceOp::MEAN, c.value, c.outputs); }},
    {"reduce_into, in place", [](Case& c) { c.ops.reduce_into(ReduceOp::MEAN, c.value, c.value); }},
    {"batch_reduce",
     [](Case& c) { c.results = c.ops.batch_reduce(ReduceOp::MEAN, c.pairs, kPacks); }},
    {"batch_reduce_into, in packs",
     [](Case& c) { c.ops.batch_reduce_into(ReduceOp::MEAN, c.batch, kPacks); }},
    {"batch_reduce_into, in one pack",
     [](Case& c) { c.ops.batch_reduce_into(ReduceOp::MEAN, c.batch); }},
    {"broadcast",
     [](Case& c) { c.results.push_back(c.ops.broadcast(c.value.values()[0], c.value)); }},
    {"broadcast_into", [](Case& c) { c.ops.broadcast_into(c.value.values()[0], c.outputs); }},
    {"gather", [](Case& c) { c.results.push_back(c.ops.gather(c.value, c.value, 0)); }},
    {"gather_into", [](Case& c) { c.ops.gather_into(c.value, *c.gathered, 0); }},
    {"reduce_async",
     [](Case& c) { c.pending.push_back(c.ops.reduce_async(ReduceOp::SUM, c.value, c.value)); }},
    {"reduce_into_async",
     [](Case& c) {
       c.pending.push_back(c.ops.reduce_into_async(ReduceOp::MEAN, c.value, c.value));
     }},
    {"batch_reduce_async",
     [](Case& c) {
       c.pending.push_back(c.ops.batch_reduce_async(ReduceOp::MEAN, c.pairs, kPacks));
     }},
    {"batch_reduce_into_async",
     [](Case& c) {
       c.pending.push_back(c.ops.batch_reduce_into_async(ReduceOp::MEAN, c.batch, kPacks));
     }},
    {"broadcast_async",
     [](Case& c) { c.pending.push_back(c.ops.broadcast_async(c.value.values()[0], c.value)); }},
    {"gather_async", [](Case& c) { c.pending.push_back(c.ops.gather_async(c.value, c.value, 0)); }},
};

/// The call, and of what is asynchronous as much as the host has to do.
void finish(const Form& form, Case& value) {
  form.call(value);
  for (PendingBatch& each : value.pending) each.wait_until_enqueued();
}

/// What threads that enqueued something, the caller among them, have asked for. The watchdog's own asks, and enqueues nothing.
std::vector<std::string> waits_of(std::thread::id caller) {
  const std::vector<testing::EmulatedCall> calls = emulated_cuda().calls().list();
  std::set<std::thread::id> who{caller};
  for (const testing::EmulatedCall& call : calls) {
    if (call.function == "nccl.group_start" || call.function.starts_with("kernels.") ||
        call.function == "cuda.event_record" || call.function == "cuda.memcpy_async") {
      who.insert(call.thread);
    }
  }
  std::vector<std::string> waits;
  for (const testing::EmulatedCall& call : calls) {
    for (const std::string_view wait : {"cuda.event_query", "cuda.stream_query",
                                        "cuda.event_synchronize", "cuda.stream_synchronize"}) {
      if (call.function == wait && who.contains(call.thread)) waits.emplace_back(wait);
    }
  }
  return waits;
}

class GpuHostWaits : public testing::EmulatedGpuTest,
                     public ::testing::WithParamInterface<std::size_t> {
 protected:
  void SetUp() override { emulated_cuda().calls().list_queries(); }

  /// With all streams of the tensors' standing still.
  void expect_no_wait(const Form& form, Case& value) {
    SCOPED_TRACE(form.name);
    for (int i = 0; i < 2; ++i) finish(form, value);
    value.results.clear();
    value.pending.clear();
    ASSERT_TRUE(emulated_cuda().synchronize());
    for (const Device& device : value.devices) {
      emulated_cuda().block_stream(detail::GpuDevice::of(device).own_stream());
    }
    emulated_cuda().calls().clear();
    std::future<std::thread::id> call = std::async(std::launch::async, [&] {
      finish(form, value);
      return std::this_thread::get_id();
    });
    EXPECT_EQ(call.wait_for(kLimit), std::future_status::ready) << "it waits for a stream";
    const bool has_enqueued = !emulated_cuda().synchronize(std::chrono::milliseconds(1));
    EXPECT_TRUE(has_enqueued);
    for (const Device& device : value.devices) {
      emulated_cuda().release_stream(detail::GpuDevice::of(device).own_stream());
    }
    EXPECT_THAT(waits_of(call.get()), ::testing::IsEmpty());
    EXPECT_TRUE(emulated_cuda().synchronize());
    value.ops.check();
    value.results.clear();
    value.pending.clear();
  }
};

TEST_P(GpuHostWaits, NoForm) {
  Case value(GetParam());
  for (const Form& form : kForms) expect_no_wait(form, value);
}

INSTANTIATE_TEST_SUITE_P(NumGpus, GpuHostWaits, ::testing::Values(2U, 3U, 4U, 8U));

}  // namespace
}  // namespace crossdevice
