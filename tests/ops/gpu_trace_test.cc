// SPDX-License-Identifier: Apache-2.0
// The timeline of operations on GPUs, here emulated ones: what was enqueued for which device, how many bytes, by which algorithm. The variable is read once per
// process, so it is set before anything else.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/trace.h"
#include "crossdevice/core/trace_clock.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"

#include "support/gpu_values.h"

namespace crossdevice {
namespace {

const std::string& trace_path() {
  static const std::string& path = *new std::string(
      ::testing::TempDir() + "crossdevice_gpu_trace_" + std::to_string(::getpid()) + ".json");
  return path;
}
[[maybe_unused]] const bool kSet = [] {
  (void)std::atexit([] { (void)::unlink(trace_path().c_str()); });
  return setenv("CROSSDEVICE_TRACE", trace_path().c_str(), 1) == 0;
}();
[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

using ::testing::ElementsAre;
using testing::emulated_cuda;
using testing::gpus;
using ::testing::IsEmpty;
using testing::vector_of;

using Bars = std::vector<nlohmann::json>;

double begin_of(const nlohmann::json& bar) { return bar.at("ts"); }
double end_of(const nlohmann::json& bar) { return begin_of(bar) + bar.at("dur").get<double>(); }

bool contains(const nlohmann::json& outer, const nlohmann::json& inner) {
  constexpr double kRounding = 0.002;  // of numbers with three places
  return begin_of(outer) <= begin_of(inner) + kRounding &&
         end_of(inner) <= end_of(outer) + kRounding;
}

/// What has been written so far, by track; of each, the bars in the order in which they began, an outer one before those in it.
std::map<std::string, Bars> bars_by_track() {
  flush_trace();
  std::ostringstream text;
  text << std::ifstream(trace_path()).rdbuf();
  std::string events = text.str();
  EXPECT_TRUE(events.ends_with(",\n"));  // the end comes when the process does
  events.replace(events.size() - 2, 2, "]");
  std::map<int, std::string> names;
  std::map<std::string, Bars> bars;
  for (const nlohmann::json& event : nlohmann::json::parse(events)) {
    if (event.at("name") == "thread_name") names[event.at("tid")] = event.at("args").at("name");
    if (event.at("ph") == "X") bars[names.at(event.at("tid"))].push_back(event);
  }
  for (auto& [track, each] : bars) {
    // Bars are written when they end.
    std::reverse(each.begin(), each.end());
    std::stable_sort(
        each.begin(), each.end(),
        [](const nlohmann::json& a, const nlohmann::json& b) { return begin_of(a) < begin_of(b); });
  }
  return bars;
}

/// Of each track that has operations of that name the last one, first, and what lies in it.
std::map<std::string, Bars> last_operation(const std::string& name) {
  std::map<std::string, Bars> found;
  for (const auto& [track, bars] : bars_by_track()) {
    const auto last = std::find_if(bars.rbegin(), bars.rend(), [&](const nlohmann::json& bar) {
      return bar.at("name") == name && bar.at("cat") == "operation";
    });
    if (last == bars.rend()) continue;
    std::copy_if(bars.begin(), bars.end(), std::back_inserter(found[track]),
                 [&](const nlohmann::json& bar) { return contains(*last, bar); });
  }
  return found;
}

std::vector<std::string> names_of(const Bars& bars) {
  std::vector<std::string> names;
  names.reserve(bars.size());
  for (const nlohmann::json& bar : bars) names.push_back(bar.at("name"));
  return names;
}

std::vector<std::string> tracks_of(const std::map<std::string, Bars>& bars) {
  std::vector<std::string> tracks;
  tracks.reserve(bars.size());
  for (const auto& [track, each] : bars) tracks.push_back(track);
  return tracks;
}

PerReplica value_on(const Devices& devices, std::size_t count) {
  std::vector<Tensor> components;
  for (const Device& device : devices) {
    components.push_back(vector_of(std::vector<float>(count, 1.0F), device));
  }
  return PerReplica(components);
}

class GpuTraceTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(emulated_cuda().synchronize());
    EXPECT_THAT(emulated_cuda().violations(), IsEmpty());
  }
};

TEST_F(GpuTraceTest, APackedBatchByNcclIsItsOperationAndWhatEachPackEnqueues) {
  NcclAllReduce ops(1);
  std::vector<PerReplica> gradients;
  for (int i = 0; i < 12; ++i) gradients.push_back(value_on(gpus(2), 100));
  const CommunicationOptions options{.bytes_per_pack = 1000};  // three tensors to a pack
  for (int i = 0; i < 2; ++i) ops.batch_reduce_into(ReduceOp::MEAN, gradients, options);

  const std::map<std::string, Bars> tracks = last_operation("batch_reduce");
  ASSERT_THAT(tracks_of(tracks), ElementsAre("GPU:0", "GPU:1"));
  for (const auto& [track, bars] : tracks) {
    SCOPED_TRACE(track);
    // A pack is filled while NCCL has the one before.
    ASSERT_THAT(names_of(bars),
                ElementsAre("batch_reduce", "communicate",                            //
                            "enqueue pack", "enqueue communicate",                    //
                            "enqueue pack", "enqueue communicate", "enqueue unpack",  //
                            "enqueue pack", "enqueue communicate", "enqueue unpack",  //
                            "enqueue pack", "enqueue communicate", "enqueue unpack",  //
                            "enqueue unpack"));
    const nlohmann::json whole{
        {"sequence", 2}, {"bytes", 4800}, {"dtype", "float32"}, {"algorithm", "nccl"}};
    EXPECT_EQ(bars[0].at("args"), whole);
    EXPECT_EQ(bars[1].at("args"), whole);
    EXPECT_TRUE(contains(bars[0], bars[1]));
    for (std::size_t i = 2; i < bars.size(); ++i) {
      EXPECT_EQ(
          bars[i].at("args"),
          (nlohmann::json{
              {"sequence", 2}, {"bytes", 1200}, {"dtype", "float32"}, {"algorithm", "nccl"}}));
      EXPECT_TRUE(contains(bars[1], bars[i])) << bars[i];
      EXPECT_TRUE(i == 2 || end_of(bars[i - 1]) <= begin_of(bars[i]) + 0.002) << bars[i];
    }
  }
}

TEST_F(GpuTraceTest, OurOwnKernelsSayTheirName) {
  HierarchicalCopyAllReduce ops(1);
  const PerReplica value = value_on(gpus(3), 1000);
  ops.reduce_into(ReduceOp::SUM, value, value);
  const std::map<std::string, Bars> tracks = last_operation("reduce");
  ASSERT_THAT(tracks_of(tracks), ElementsAre("GPU:0", "GPU:1", "GPU:2"));
  for (const auto& [track, bars] : tracks) {
    ASSERT_THAT(names_of(bars), ElementsAre("reduce", "communicate")) << track;
    for (const nlohmann::json& bar : bars) {
      EXPECT_EQ(bar.at("args"), (nlohmann::json{{"sequence", 1},
                                                {"bytes", 4000},
                                                {"dtype", "float32"},
                                                {"algorithm", "gpu_kernels"}}))
          << track;
    }
  }
}

/// The bars of one stream's track, once there are so many: the GPU's clock has to be known, and their ends to have come.
Bars bars_on(const std::string& track, std::size_t count) {
  const Deadline limit = Deadline::after(std::chrono::seconds(30));
  for (;;) {
    std::map<std::string, Bars> all = bars_by_track();
    if (all[track].size() >= count || limit.has_passed()) return all[track];
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Enqueueing is over long before; what counts is when the GPU was at it.
TEST_F(GpuTraceTest, ByTheGpusOwnClocksBarsBeginWhenTheirStreamsComeToThem) {
  NcclAllReduce ops(1);
  const testing::GpuStream first(4);
  const testing::GpuStream second(5);
  std::vector<PerReplica> gradients;
  for (int i = 0; i < 6; ++i) {
    gradients.emplace_back(std::vector<Tensor>{
        Tensor::empty(DType::FLOAT32, {100}, testing::gpu(4), from_cuda(first.get())),
        Tensor::empty(DType::FLOAT32, {100}, testing::gpu(5), from_cuda(second.get()))});
  }
  const CommunicationOptions options{.bytes_per_pack = 1000};  // three tensors to a pack
  ops.batch_reduce_into(ReduceOp::MEAN, gradients, options);
  ASSERT_EQ(bars_on("CUDA device 4, stream 2", 2).size(), 2U);  // clocks are known

  emulated_cuda().block_stream(first.get());
  ops.batch_reduce_into(ReduceOp::MEAN, gradients, options);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double released = static_cast<double>(detail::trace_clock_ns()) / 1000;
  emulated_cuda().release_stream(first.get());
  ASSERT_TRUE(emulated_cuda().synchronize());

  const Bars all = bars_on("CUDA device 4, stream 1", 10);
  ASSERT_EQ(all.size(), 10U);
  const Bars bars(all.begin() + 5, all.end());
  ASSERT_THAT(names_of(bars), ElementsAre("batch_reduce", "pack", "pack", "unpack", "unpack"));
  for (const nlohmann::json& bar : bars) {
    EXPECT_GE(begin_of(bar), released - 2000) << bar;
    EXPECT_TRUE(contains(bars[0], bar)) << bar;
    EXPECT_EQ(bar.at("args").at("sequence"), 2);
    EXPECT_EQ(bar.at("args").at("dtype"), "float32");
  }
  EXPECT_EQ(bars[0].at("args").at("bytes"), 2400);
  EXPECT_EQ(bars[1].at("args").at("bytes"), 1200);
  // NCCL works on a stream of its own, while the next pack is filled: two packs of two calls.
  const Bars communicate = bars_on("CUDA device 4, stream 2", 4);
  ASSERT_EQ(names_of(communicate), std::vector<std::string>(4, "communicate"));
  EXPECT_GE(begin_of(communicate[2]), end_of(bars[1]) - 50);
  EXPECT_GE(begin_of(bars[3]), end_of(communicate[2]) - 50);
}

TEST_F(GpuTraceTest, ByTheGpusOwnClocksOurKernelsAndCopies) {
  HierarchicalCopyAllReduce ops(1);
  const testing::GpuStream first(6);
  const testing::GpuStream second(7);
  const PerReplica value(std::vector<Tensor>{
      Tensor::empty(DType::FLOAT32, {1000}, testing::gpu(6), from_cuda(first.get())),
      Tensor::empty(DType::FLOAT32, {1000}, testing::gpu(7), from_cuda(second.get()))});
  ops.reduce_into(ReduceOp::SUM, value, value);
  const Tensor on_host = copy_to_device(value.values()[0], "CPU:0");
  // One GPU reduces so little.
  EXPECT_THAT(names_of(bars_on("CUDA device 6, stream 1", 3)),
              ElementsAre("reduce", "reduce", "copy to the host"));
  EXPECT_THAT(names_of(bars_on("CUDA device 7, stream 1", 1)), ElementsAre("reduce"));
}

}  // namespace
}  // namespace crossdevice
