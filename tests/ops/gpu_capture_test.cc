// SPDX-License-Identifier: Apache-2.0
// Whole calls captured into a graph on emulated GPUs: launched again with new values, and refused where that cannot be, with the capture as it was.
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/gpu_values.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kInstalled = [] {
  testing::install_emulated_gpus();
  // 6 and 7 reach nobody, and nobody them.
  for (int lonely = 6; lonely < 8; ++lonely) {
    for (int other = 0; other < 8; ++other) {
      if (other == lonely) continue;
      testing::emulated_cuda().set_peers(lonely, other, false);
      testing::emulated_cuda().set_peers(other, lonely, false);
    }
  }
  return true;
}();

using detail::CudaStatus;
using detail::CudaStream;
using testing::CaptureMode;
using testing::elements;
using testing::emulated_cuda;
using testing::EmulatedGraph;
using testing::gpu;
using testing::GpuStream;
using ::testing::HasSubstr;
using testing::thrown;
using testing::vector_of;

constexpr CudaStatus kOk = CudaStatus::SUCCESS;

/// What an application does: streams on some GPUs, of which the first begins the capture and the others join it and come back.
class Application {
 public:
  explicit Application(std::vector<int> devices) : devices_(std::move(devices)) {
    for (const int device : devices_) {
      streams_.push_back(std::make_unique<GpuStream>(device));
      const detail::CurrentCudaDevice current(emulated_cuda(), device);
      events_.push_back(nullptr);
      EXPECT_EQ(emulated_cuda().event_create(&events_.back()), kOk);
    }
  }
  ~Application() {
    EXPECT_TRUE(emulated_cuda().synchronize());
    for (const detail::CudaEvent event : events_) {
      EXPECT_EQ(emulated_cuda().event_destroy(event), kOk);
    }
  }
  Application(const Application&) = delete;
  Application& operator=(const Application&) = delete;

  [[nodiscard]] std::size_t size() const { return devices_.size(); }
  [[nodiscard]] CudaStream stream(std::size_t i) const { return streams_[i]->get(); }
  [[nodiscard]] Device device(std::size_t i) const {
    return gpu(static_cast<std::size_t>(devices_[i]));
  }
  /// Replica r holds base + r * (i + 1) at i.
  [[nodiscard]] PerReplica value(std::size_t count, float base) const {
    std::vector<Tensor> components;
    for (std::size_t r = 0; r < size(); ++r) {
      components.push_back(
          Tensor::empty(DType::FLOAT32, Shape{count}, device(r), from_cuda(stream(r))));
    }
    PerReplica made{std::span<const Tensor>(components)};
    fill(made, base);
    return made;
  }
  static void fill(const PerReplica& value, float base) {
    for (std::size_t r = 0; r < value.size(); ++r) {
      const Tensor& component = value.values()[r];
      std::vector<float> numbers(component.num_elements());
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = base + static_cast<float>(r * (i + 1));
      }
      copy(component, vector_of(numbers, "CPU:0"));
    }
  }
  /// What the sum of them is, divided.
  void expect_reduced(const PerReplica& value, float base, float divisor) const {
    const std::size_t n = size();
    for (const Tensor& component : value.values()) {
      std::vector<float> expected(component.num_elements());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] =
            (base * static_cast<float>(n) + static_cast<float>(n * (n - 1) / 2 * (i + 1))) /
            divisor;
      }
      EXPECT_EQ(elements(copy_to_device(component, "CPU:0")), expected)
          << component.device().short_name();
    }
  }

  /// `num_joining` streams, the first among them.
  void begin(CaptureMode mode, std::size_t num_joining) const {
    ASSERT_EQ(emulated_cuda().begin_capture(stream(0), mode), kOk);
    for (std::size_t i = 1; i < num_joining; ++i) pass(0, i);
  }
  [[nodiscard]] CudaStatus end(EmulatedGraph* graph, std::size_t num_joined) const {
    for (std::size_t i = 1; i < num_joined; ++i) pass(i, 0);
    return emulated_cuda().end_capture(stream(0), graph);
  }
  void launch(EmulatedGraph graph) const {
    ASSERT_EQ(emulated_cuda().launch_graph(graph, stream(0)), kOk);
    for (std::size_t i = 1; i < size(); ++i) pass(0, i);  // whoever reads there comes after it
  }
  /// Streams wait for what the others have: values that were copied there, before the graph that begins on the first.
  void meet() const {
    for (std::size_t i = 1; i < size(); ++i) pass(i, 0);
  }

 private:
  void pass(std::size_t from, std::size_t to) const {
    {
      const detail::CurrentCudaDevice current(emulated_cuda(), devices_[from]);
      ASSERT_EQ(emulated_cuda().event_record(events_[from], stream(from)), kOk);
    }
    const detail::CurrentCudaDevice current(emulated_cuda(), devices_[to]);
    ASSERT_EQ(emulated_cuda().stream_wait_event(stream(to), events_[from]), kOk);
  }

  std::vector<int> devices_;
  std::vector<std::unique_ptr<GpuStream>> streams_;
  std::vector<detail::CudaEvent> events_;
};

class GpuCapture : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(emulated_cuda().synchronize());
    EXPECT_EQ(emulated_cuda().violations(), std::vector<std::string>());
    emulated_cuda().clear_violations();
  }
};

struct Way {
  std::string name;
  std::shared_ptr<CrossDeviceOps> ops;
  std::vector<int> devices;
};

std::shared_ptr<CrossDeviceOps> collective_of(const std::vector<int>& devices) {
  std::vector<Device> names;
  names.reserve(devices.size());
  for (const int device : devices) names.push_back(gpu(static_cast<std::size_t>(device)));
  return std::make_shared<CollectiveAllReduce>(Devices(std::span<const Device>(names)),
                                               static_cast<int>(devices.size()));
}

std::vector<Way> ways() {
  return {{"NCCL, 2 GPUs", std::make_shared<NcclAllReduce>(1), {0, 1}},
          {"NCCL, 1 GPU", std::make_shared<NcclAllReduce>(1), {3}},
          {"NCCL, 3 GPUs", std::make_shared<NcclAllReduce>(1), {2, 0, 1}},
          {"NCCL, 4 GPUs", std::make_shared<NcclAllReduce>(1), {0, 1, 2, 3}},
          {"NCCL, 8 GPUs", std::make_shared<NcclAllReduce>(1), {7, 6, 5, 4, 3, 2, 1, 0}},
          {"a worker that is alone, 1 GPU", collective_of({2}), {2}},
          {"a worker that is alone, 3 GPUs", collective_of({1, 0, 2}), {1, 0, 2}},
          {"a worker that is alone, 8 GPUs",
           collective_of({0, 1, 2, 3, 4, 5, 6, 7}),
           {0, 1, 2, 3, 4, 5, 6, 7}},
          {"kernels, 1 GPU", std::make_shared<HierarchicalCopyAllReduce>(1), {4}},
          {"kernels, 4 GPUs", std::make_shared<HierarchicalCopyAllReduce>(1), {3, 1, 2, 0}},
          {"kernels, 8 GPUs", std::make_shared<ReductionToOneDevice>(), {0, 1, 2, 3, 4, 5, 6, 7}},
          {"NCCL, 5 GPUs", std::make_shared<NcclAllReduce>(2), {4, 1, 0, 2, 3}},
          {"NCCL, GPUs apart", std::make_shared<NcclAllReduce>(0), {6, 7}},
          {"kernels, 2 GPUs", std::make_shared<HierarchicalCopyAllReduce>(1), {0, 1}},
          {"kernels, 3 GPUs", std::make_shared<ReductionToOneDevice>(), {2, 0, 1}},
          {"kernels, GPUs apart", std::make_shared<HierarchicalCopyAllReduce>(1), {6, 7}}};
}

void run_batch(CrossDeviceOps& ops, ReduceOp op, const std::vector<PerReplica>& gradients) {
  // Some packs of several tensors, and one tensor that is more than a pack.
  ops.batch_reduce_into(op, gradients, {.bytes_per_pack = 1000});
}

TEST_F(GpuCapture, AWholeBatchIsLaunchedAgainWithNewValues) {
  for (const CaptureMode mode :
       {CaptureMode::GLOBAL, CaptureMode::THREAD_LOCAL, CaptureMode::RELAXED}) {
    for (const Way& way : ways()) {
      SCOPED_TRACE(way.name + ", mode " + std::to_string(static_cast<int>(mode)));
      const Application application(way.devices);
      std::vector<PerReplica> gradients;
      for (const std::size_t count : {100U, 0U, 1U, 99U, 101U, 50U, 1009U, 3U}) {
        gradients.push_back(application.value(count, 1));
      }
      run_batch(*way.ops, ReduceOp::MEAN, gradients);  // communicators
      application.begin(mode, application.size());
      run_batch(*way.ops, ReduceOp::MEAN, gradients);
      EmulatedGraph graph = nullptr;
      ASSERT_EQ(application.end(&graph, application.size()), kOk);
      for (const float base : {2.0F, 16.0F, -5.0F}) {
        for (const PerReplica& gradient : gradients) Application::fill(gradient, base);
        application.meet();
        application.launch(graph);
        for (const PerReplica& gradient : gradients) {
          application.expect_reduced(gradient, base, static_cast<float>(application.size()));
        }
      }
      // Outside of graphs everything is as before, also between their launches.
      for (const PerReplica& gradient : gradients) Application::fill(gradient, 3);
      run_batch(*way.ops, ReduceOp::SUM, gradients);
      for (const PerReplica& gradient : gradients) application.expect_reduced(gradient, 3, 1);
      for (const PerReplica& gradient : gradients) Application::fill(gradient, 7);
      application.meet();
      application.launch(graph);
      for (const PerReplica& gradient : gradients) {
        application.expect_reduced(gradient, 7, static_cast<float>(application.size()));
      }
      ASSERT_TRUE(emulated_cuda().synchronize());
      ASSERT_EQ(emulated_cuda().destroy_graph(graph), kOk);
      way.ops->check();
    }
  }
}

TEST_F(GpuCapture, TwoGraphsOfOneObjectAndBothFormsOfOneValue) {
  NcclAllReduce ops(1);
  const Application application({0, 1});
  const std::vector<PerReplica> first{application.value(200, 1), application.value(30, 1)};
  const std::vector<PerReplica> second{application.value(10, 1), application.value(3000, 1)};
  run_batch(ops, ReduceOp::SUM, first);
  std::vector<EmulatedGraph> graphs(2);
  for (std::size_t i = 0; i < 2; ++i) {
    application.begin(CaptureMode::GLOBAL, 2);
    run_batch(ops, ReduceOp::SUM, i == 0 ? first : second);
    ops.reduce_into(ReduceOp::MAX, first[0], first[0]);  // not NCCL's
    ASSERT_EQ(application.end(&graphs[i], 2), kOk);
  }
  for (const PerReplica& value : first) Application::fill(value, 4);
  for (const PerReplica& value : second) Application::fill(value, 5);
  application.meet();
  application.launch(graphs[1]);
  application.launch(graphs[0]);
  for (const PerReplica& value : second) application.expect_reduced(value, 5, 1);
  application.expect_reduced(first[1], 4, 1);
  ASSERT_TRUE(emulated_cuda().synchronize());
  for (const EmulatedGraph graph : graphs) ASSERT_EQ(emulated_cuda().destroy_graph(graph), kOk);
}

TEST_F(GpuCapture, StreamsOfWhichOnlySomeAreCapturedAreRefusedAndTheCaptureGoesOn) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    const Application application(way.devices);
    if (application.size() == 1) continue;
    const std::vector<PerReplica> gradients{application.value(100, 1), application.value(20, 1)};
    run_batch(*way.ops, ReduceOp::SUM, gradients);
    for (const PerReplica& gradient : gradients) Application::fill(gradient, 2);
    application.begin(CaptureMode::THREAD_LOCAL, application.size() - 1);
    EXPECT_THAT(
        thrown<FailedPreconditionError>([&] { run_batch(*way.ops, ReduceOp::SUM, gradients); }),
        HasSubstr("expected all or none"));
    EmulatedGraph graph = nullptr;
    ASSERT_EQ(application.end(&graph, application.size() - 1), kOk);
    ASSERT_EQ(emulated_cuda().destroy_graph(graph), kOk);
    run_batch(*way.ops, ReduceOp::SUM, gradients);
    for (const PerReplica& gradient : gradients) application.expect_reduced(gradient, 2, 1);
  }
}

TEST_F(GpuCapture, CommunicatorsAreNotMadeInACapture) {
  const Application application({2, 1});
  const std::vector<PerReplica> gradients{application.value(100, 1), application.value(20, 1)};
  NcclAllReduce ops(1);
  application.begin(CaptureMode::GLOBAL, 2);
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { run_batch(ops, ReduceOp::SUM, gradients); }),
              HasSubstr("run the operation once before the capture"));
  EmulatedGraph graph = nullptr;
  ASSERT_EQ(application.end(&graph, 2), kOk);
  ASSERT_EQ(emulated_cuda().destroy_graph(graph), kOk);
  run_batch(ops, ReduceOp::SUM, gradients);
  for (const PerReplica& gradient : gradients) application.expect_reduced(gradient, 1, 1);
}

TEST_F(GpuCapture, WhatOurKernelsNeedFirstIsMadeInACapture) {
  // No earlier operation: peer access is asked for in the capture.
  const Application application({5, 4});
  HierarchicalCopyAllReduce ops(1);
  const std::vector<PerReplica> gradients{application.value(100, 1)};
  application.begin(CaptureMode::GLOBAL, 2);
  run_batch(ops, ReduceOp::SUM, gradients);
  EmulatedGraph graph = nullptr;
  ASSERT_EQ(application.end(&graph, 2), kOk);
  Application::fill(gradients[0], 9);
  application.meet();
  application.launch(graph);
  application.expect_reduced(gradients[0], 9, 1);
  ASSERT_TRUE(emulated_cuda().synchronize());
  ASSERT_EQ(emulated_cuda().destroy_graph(graph), kOk);
}

TEST_F(GpuCapture, ResultsInNewMemoryAreRefused) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    const Application application(way.devices);
    const PerReplica value = application.value(100, 1);
    (void)way.ops->reduce(ReduceOp::SUM, value, value);
    application.begin(CaptureMode::GLOBAL, application.size());
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { (void)way.ops->reduce(ReduceOp::SUM, value, value); },
             [&] {
               (void)way.ops->batch_reduce(ReduceOp::SUM, {{value, value}});
             },
             [&] { (void)way.ops->broadcast(value.values()[0], value.devices()); },
             [&] { (void)way.ops->gather(value, value, 0); }}) {
      EXPECT_THAT(thrown<FailedPreconditionError>(call), HasSubstr("capture"));
    }
    EmulatedGraph graph = nullptr;
    ASSERT_EQ(application.end(&graph, application.size()), kOk);
    ASSERT_EQ(emulated_cuda().destroy_graph(graph), kOk);
    (void)way.ops->reduce(ReduceOp::SUM, value, value);
  }
}

TEST_F(GpuCapture, ABatchWithAResultInNewMemoryIsRefusedBeforeAnythingIsWritten) {
  ReductionToOneDevice ops;
  const Application application({0, 1});
  const PerReplica on_gpus = application.value(100, 1);
  const PerReplica on_hosts{vector_of(std::vector<float>(3, 1.0F), "CPU:0"),
                            vector_of(std::vector<float>(3, 2.0F), "CPU:1")};
  (void)ops.reduce(ReduceOp::SUM, on_gpus, on_gpus);
  application.begin(CaptureMode::RELAXED, application.size());
  EXPECT_THAT(thrown<FailedPreconditionError>([&] {
                (void)ops.batch_reduce(
                    ReduceOp::SUM, {{on_hosts, Destinations::into(on_hosts)}, {on_gpus, on_gpus}});
              }),
              HasSubstr("a result in new memory"));
  EXPECT_EQ(elements(on_hosts.values()[0]), std::vector<float>(3, 1.0F));
  EXPECT_EQ(elements(on_hosts.values()[1]), std::vector<float>(3, 2.0F));
  EmulatedGraph graph = nullptr;
  ASSERT_EQ(application.end(&graph, application.size()), kOk);
  ASSERT_EQ(emulated_cuda().destroy_graph(graph), kOk);
}

TEST_F(GpuCapture, BroadcastsAndGathersIntoBuffers) {
  const Application application({1, 0, 2});
  ReductionToOneDevice ops;
  const PerReplica value = application.value(5, 1);
  const PerReplica copies = application.value(5, 1);
  const PerReplica rows = application.value(15, 1);
  application.begin(CaptureMode::GLOBAL, 3);
  ops.broadcast_into(value.values()[1], copies);
  ops.gather_into(value, rows, 0);
  EmulatedGraph graph = nullptr;
  ASSERT_EQ(application.end(&graph, 3), kOk);
  Application::fill(value, 10);
  application.meet();
  application.launch(graph);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(elements(copy_to_device(copies.values()[r], "CPU:0")),
              std::vector<float>({11, 12, 13, 14, 15}));
    EXPECT_EQ(elements(copy_to_device(rows.values()[r], "CPU:0")),
              std::vector<float>({10, 10, 10, 10, 10, 11, 12, 13, 14, 15, 12, 14, 16, 18, 20}));
  }
  ASSERT_TRUE(emulated_cuda().synchronize());
  ASSERT_EQ(emulated_cuda().destroy_graph(graph), kOk);
}

TEST_F(GpuCapture, ASpoiltCaptureIsSaidToBeSo) {
  const Application application({0, 1});
  NcclAllReduce ops(1);
  const std::vector<PerReplica> gradients{application.value(100, 1)};
  run_batch(ops, ReduceOp::SUM, gradients);
  application.begin(CaptureMode::GLOBAL, 2);
  EXPECT_EQ(emulated_cuda().stream_query(application.stream(0)),
            CudaStatus::STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { run_batch(ops, ReduceOp::SUM, gradients); }),
              HasSubstr("end it, and begin again"));
  EmulatedGraph graph = nullptr;
  EXPECT_EQ(emulated_cuda().end_capture(application.stream(0), &graph),
            CudaStatus::STREAM_CAPTURE_INVALIDATED);
}

TEST_F(GpuCapture, EveryCodeOfACaptureSaysWhatToDo) {
  for (int code = 900; code <= 908; ++code) {
    SCOPED_TRACE(code);
    EXPECT_THAT(thrown<FailedPreconditionError>([&] {
                  detail::require_cuda(emulated_cuda(), CudaStatus(code), "cudaSomething");
                }),
                ::testing::AllOf(HasSubstr("cudaSomething: cudaError" + std::to_string(code)),
                                 HasSubstr("; ")));
  }
  EXPECT_NE(thrown<InternalError>(
                [&] { detail::require_cuda(emulated_cuda(), CudaStatus(909), "cudaSomething"); }),
            "");
}

}  // namespace
}  // namespace crossdevice
