// SPDX-License-Identifier: Apache-2.0
/// Emulated GPUs with NCCL, streams and buffers for cliques.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/comm/nccl_clique.h"
#include "crossdevice/core/exception_text.h"
#include "crossdevice/device/gpu_event.h"
#include "crossdevice/device/gpu_platform.h"

#include "comm/detail/nccl_reaper.h"
#include "comm/watched_failure.h"
#include "support/emulated_gpus.h"
#include "support/thrown.h"

namespace crossdevice::testing {

using crossdevice::detail::CudaStream;
using crossdevice::detail::GpuDevice;
using crossdevice::detail::GpuEvent;
using crossdevice::detail::NcclClique;
using crossdevice::detail::NcclCliqueState;
using crossdevice::detail::NcclDataType;
using crossdevice::detail::NcclRedOp;
using crossdevice::detail::NcclStatus;
using crossdevice::detail::WatchedOperation;

/// For what comes soon, on a machine that does other things too.
inline constexpr std::chrono::seconds kLong{30};

inline bool await(const std::function<bool()>& is_so) {
  const Deadline deadline = Deadline::after(kLong);
  while (!is_so()) {
    if (deadline.has_passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

/// A stream and some floats for each GPU of a clique.
class Lanes {
 public:
  static constexpr std::size_t kCount = 1000;

  explicit Lanes(const NcclClique& clique) : clique_(clique) {
    for (int i = 0; i < clique.size(); ++i) {
      GpuDevice& gpu = clique.device(i);
      const crossdevice::detail::CurrentCudaDevice current(gpu.cuda(), gpu.ordinal());
      CudaStream stream = nullptr;
      EXPECT_EQ(gpu.cuda().stream_create(&stream), crossdevice::detail::CudaStatus::SUCCESS);
      streams_.push_back(stream);
      buffers_.push_back(static_cast<float*>(
          emulated_cuda().malloc_device(gpu.ordinal(), kCount * sizeof(float))));
      for (std::size_t k = 0; k < kCount; ++k) {
        emulated_cuda().view(buffers_.back())[k] =
            static_cast<float>(k) + static_cast<float>(clique.rank(i));
      }
    }
  }
  ~Lanes() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      emulated_cuda().release_stream(streams_[i]);
      EXPECT_TRUE(emulated_cuda().synchronize(streams_[i]));
      (void)clique_.device(static_cast<int>(i)).cuda().stream_destroy(streams_[i]);
      emulated_cuda().free_device(buffers_[i]);
    }
  }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  [[nodiscard]] CudaStream stream(int i) const { return streams_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] float* buffer(int i) const { return buffers_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] GpuEvent record(int i) const {
    return GpuEvent::record(clique_.device(i), stream(i));
  }
  /// Whether every buffer holds what `num_ranks` ranks sum up to.
  [[nodiscard]] bool have_sums() {
    const auto n = static_cast<float>(clique_.num_ranks());
    for (float* const buffer : buffers_) {
      for (std::size_t k = 0; k < kCount; ++k) {
        const float expected = n * static_cast<float>(k) + n * (n - 1) / 2;
        if (emulated_cuda().view(buffer)[k] != expected) return false;
      }
    }
    return true;
  }
  [[nodiscard]] bool synchronize() {
    for (const CudaStream stream : streams_) {
      if (!emulated_cuda().synchronize(stream)) return false;
    }
    return true;
  }

 private:
  const NcclClique& clique_;
  std::vector<CudaStream> streams_;
  std::vector<float*> buffers_;
};

/// On the ranks of this clique that are below `num_launched`.
inline void all_reduce(NcclClique& clique, const Lanes& lanes, int num_launched) {
  NcclClique::Launch launch(clique);
  for (int i = 0; i < num_launched; ++i) {
    launch.require(clique.api().all_reduce(lanes.buffer(i), lanes.buffer(i), Lanes::kCount,
                                           NcclDataType::FLOAT32, NcclRedOp::SUM,
                                           clique.communicator(i), lanes.stream(i)),
                   "ncclAllReduce");
  }
  launch.end();
}
inline void all_reduce(NcclClique& clique, const Lanes& lanes) {
  all_reduce(clique, lanes, clique.size());
}

/// An operation that was launched on all lanes now.
inline WatchedOperation watched(const std::shared_ptr<NcclClique>& clique, const Lanes& lanes,
                                std::uint64_t sequence, std::optional<double> timeout_seconds,
                                const GpuEvent& start, Failure& failure) {
  WatchedOperation operation{.record = {.kind = "all_reduce",
                                        .sequence = sequence,
                                        .num_values = 1,
                                        .size_bytes = Lanes::kCount * sizeof(float)},
                             .size_bytes = Lanes::kCount * sizeof(float),
                             .timeout_seconds = timeout_seconds,
                             .start = start};
  for (int i = 0; i < clique->size(); ++i) operation.ends.push_back(lanes.record(i));
  operation.clique = clique;
  operation.failed = failure.callback();
  operation.stream = lanes.stream(0);
  return operation;
}

/// Each test begins with NCCL's own grace, and must leave no rule of CUDA's or NCCL's broken.
class NcclCliqueFixture : public ::testing::Test {
 protected:
  void SetUp() override { emulated_cuda().calls().clear(); }
  void TearDown() override {
    emulated_cuda().calls().clear_faults();
    emulated_cuda().calls().release_hangs();
    EXPECT_THAT(emulated_cuda().violations(), ::testing::IsEmpty());
    EXPECT_THAT(emulated_nccl().mismatches(), ::testing::IsEmpty());
  }
  static std::size_t count(std::string_view function) {
    return emulated_cuda().calls().count(function);
  }
  static void inject(Fault fault) { emulated_cuda().calls().inject(std::move(fault)); }
};

}  // namespace crossdevice::testing
