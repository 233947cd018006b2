// SPDX-License-Identifier: Apache-2.0
/// What the guide's pieces for GPUs take for granted: memory and streams of a program's own on two GPUs, emulated ones.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "docs/surroundings.h"
#include "support/emulated_gpus.h"

// CUDA's names, as far as the guide has them.
using cudaStream_t = CUstream_st*;
inline void cudaStreamSynchronize(cudaStream_t stream) {
  if (!crossdevice::testing::emulated_cuda().synchronize(stream)) {
    throw std::runtime_error("a stream does not come to its end");
  }
}

namespace crossdevice::guide {

/// GPU:0 has bfloat16 ones, GPU:1 threes.
struct GpuSurroundings : Surroundings {
  GpuSurroundings() : Surroundings(Joins::BY_ITSELF) {
    for (const int device : {0, 1}) {
      const auto i = static_cast<std::size_t>(device);
      (void)cuda.set_device(device);
      (void)cuda.stream_create(&streams[i]);
      pointers[i] = cuda.malloc_device(device, kCount * sizeof(std::uint16_t));
      std::fill_n(on_host(device), kCount, device == 0 ? kOne : kThree);
    }
    (void)cuda.set_device(0);
  }
  void finish() override {
    if (!cuda.synchronize()) throw std::runtime_error("something enqueued does not end");
    for (const std::string& violation : cuda.violations()) throw std::runtime_error(violation);
  }
  void expect_means() {
    finish();  // a piece may have waited for one of both streams only
    for (const int device : {0, 1}) {
      const std::uint16_t* const begin = on_host(device);
      if (std::any_of(begin, begin + kCount, [](std::uint16_t bits) { return bits != kTwo; })) {
        throw std::runtime_error("not the mean on GPU:" + std::to_string(device));
      }
    }
  }

  static constexpr std::size_t kCount = std::size_t{4096} * 4096;
  static constexpr std::uint16_t kOne = 0x3f80;
  static constexpr std::uint16_t kTwo = 0x4000;
  static constexpr std::uint16_t kThree = 0x4040;
  std::uint16_t* on_host(int device) {
    return static_cast<std::uint16_t*>(cuda.view(pointers[static_cast<std::size_t>(device)]));
  }

  cd::testing::EmulatedCuda& cuda = cd::testing::emulated_cuda();
  std::array<void*, 2> pointers{};
  std::array<cudaStream_t, 2> streams{};
  void*& d_ptr0 = pointers[0];
  void*& d_ptr1 = pointers[1];
  cudaStream_t& stream0 = streams[0];
  cudaStream_t& stream1 = streams[1];
};

}  // namespace crossdevice::guide
