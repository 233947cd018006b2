// SPDX-License-Identifier: Apache-2.0
// Calls of workers (threads here) captured into graphs, one of each worker's: NCCL's are launched again with new values, those through the hosts are refused.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/gpu_fixture.h"
#include "support/gpu_values.h"
#include "support/threaded_cluster.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

using detail::CudaStatus;
using testing::CaptureMode;
using testing::emulated_cuda;
using testing::EmulatedGraph;
using testing::gpu;
using testing::GpuStream;
using ::testing::HasSubstr;
using testing::run_clusters;
using testing::thrown;
using testing::vector_of;
using ClusterPtr = std::shared_ptr<Cluster>;

/// One worker with one GPU, which has made its call once.
class Worker {
 public:
  explicit Worker(const ClusterPtr& cluster)
      : cluster_(*cluster),
        stream_(cluster->rank()),
        device_(gpu(static_cast<std::size_t>(cluster->rank()))),
        ops_(Devices(device_), cluster->num_workers(), {}, cluster),
        value_(Tensor::empty(DType::FLOAT32, {100}, device_, from_cuda(stream_.get()))) {
    fill(1);
    reduce();
    expect(static_cast<float>(cluster_.num_workers()));
  }
  void fill(float element) const {
    copy(value_.values()[0], vector_of(std::vector<float>(100, element), "CPU:0"));
  }
  void expect(float element) const {
    EXPECT_EQ(testing::elements(copy_to_device(value_.values()[0], "CPU:0")),
              std::vector<float>(100, element));
  }
  void reduce(const CommunicationOptions& options = {}) {
    ops_.reduce_into(ReduceOp::SUM, value_, value_, options);
  }
  template <class Calls>
  [[nodiscard]] EmulatedGraph capture(const Calls& calls) {
    const detail::CurrentCudaDevice current(emulated_cuda(), cluster_.rank());
    EXPECT_EQ(emulated_cuda().begin_capture(stream_.get(), CaptureMode::THREAD_LOCAL),
              CudaStatus::SUCCESS);
    calls();
    EmulatedGraph graph = nullptr;
    EXPECT_EQ(emulated_cuda().end_capture(stream_.get(), &graph), CudaStatus::SUCCESS);
    return graph;
  }
  void launch(EmulatedGraph graph) const {
    EXPECT_EQ(emulated_cuda().launch_graph(graph, stream_.get()), CudaStatus::SUCCESS);
  }
  void end(EmulatedGraph graph) {
    cluster_.barrier(60);
    EXPECT_EQ(emulated_cuda().destroy_graph(graph), CudaStatus::SUCCESS);
    ops_.check();
  }

 private:
  Cluster& cluster_;
  GpuStream stream_;
  Device device_;
  CollectiveAllReduce ops_;
  PerReplica value_;
};

class CollectiveCapture : public testing::EmulatedGpuTest {};

TEST_F(CollectiveCapture, WhatNcclDoesAmongWorkersIsLaunchedAgain) {
  for (const std::size_t num_workers : {2U, 3U}) {
    const std::vector<std::string> errors =
        run_clusters(num_workers, [&](const ClusterPtr& cluster) {
          Worker worker(cluster);
          const EmulatedGraph graph = worker.capture([&] { worker.reduce(); });
          for (const float element : {2.0F, 5.0F}) {
            worker.fill(element);
            worker.launch(graph);
            worker.expect(element * static_cast<float>(num_workers));
          }
          worker.end(graph);
        });
    EXPECT_EQ(errors, testing::no_errors(num_workers));
  }
}

TEST_F(CollectiveCapture, WhatGoesThroughHostsIsRefusedAndTheCaptureGoesOn) {
  const std::vector<std::string> errors = run_clusters(2, [](const ClusterPtr& cluster) {
    Worker worker(cluster);
    const EmulatedGraph graph = worker.capture([&] {
      EXPECT_THAT(thrown<FailedPreconditionError>([&] {
                    worker.reduce({.timeout_seconds = 60,
                                   .implementation = CommunicationImplementation::RING});
                  }),
                  HasSubstr("its stream is being captured"));
      worker.reduce();
    });
    worker.fill(3);
    worker.launch(graph);
    worker.expect(6);
    worker.end(graph);
  });
  EXPECT_EQ(errors, testing::no_errors(2));
}

}  // namespace
}  // namespace crossdevice
