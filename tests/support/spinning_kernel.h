// SPDX-License-Identifier: Apache-2.0
/// A user's kernel that does not end: it holds a multiprocessor, as one does that waits for what never comes. Its half for the GPU is in spinning_kernel.cu.
#pragma once

#include <chrono>
#include <new>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace crossdevice::testing {

/// Returns a cudaError_t as the number it is. `state` lies in pinned host memory.
int launch_spinning_kernel(void* stream, volatile unsigned* state, double limit_seconds);

/// Spins on a stream from the construction on until open(), or a minute has passed, which fails the test: somebody has waited for it.
class SpinningKernel {
 public:
  static constexpr unsigned kSpins = 0;
  static constexpr unsigned kOpened = 1;
  static constexpr unsigned kEnded = 2;
  static constexpr unsigned kGaveUp = 3;

  explicit SpinningKernel(cudaStream_t stream) {
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, sizeof(unsigned), cudaHostAllocDefault) != cudaSuccess) {
      throw std::bad_alloc();
    }
    state_ = new (memory) unsigned(kSpins);
    EXPECT_EQ(launch_spinning_kernel(stream, state_, kLimit.count()), cudaSuccess);
  }
  ~SpinningKernel() {
    open();
    const auto limit = std::chrono::steady_clock::now() + 2 * kLimit;
    while (now() < kEnded && std::chrono::steady_clock::now() < limit) {
    }
    EXPECT_EQ(now(), kEnded) << "who waited?";
    if (now() >= kEnded) (void)cudaFreeHost(const_cast<unsigned*>(state_));
  }
  SpinningKernel(const SpinningKernel&) = delete;
  SpinningKernel& operator=(const SpinningKernel&) = delete;
  void open() {
    if (now() == kSpins) *state_ = kOpened;
  }

 private:
  static constexpr std::chrono::duration<double> kLimit = std::chrono::seconds(60);
  [[nodiscard]] unsigned now() const { return *state_; }
  volatile unsigned* state_ = nullptr;  // written by the GPU, too
};

}  // namespace crossdevice::testing
