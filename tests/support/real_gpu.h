// SPDX-License-Identifier: Apache-2.0
/// For tests that need a GPU: skip with the reason where there is none; wait for streams with a deadline.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "crossdevice/device/gpu_platform.h"

namespace crossdevice::testing {

/// In a test's body or SetUp(): ends it, skipped, where there is no GPU.
#define CROSSDEVICE_SKIP_WITHOUT_GPU()                   \
  if (!::crossdevice::detail::gpu_platform().has_gpus()) \
  GTEST_SKIP() << "no GPU: " << ::crossdevice::detail::gpu_platform().reason_against

#define CROSSDEVICE_SKIP_WITHOUT_NCCL()                     \
  CROSSDEVICE_SKIP_WITHOUT_GPU();                           \
  if (::crossdevice::detail::nccl_library().api == nullptr) \
  GTEST_SKIP() << "no NCCL: " << ::crossdevice::detail::nccl_library().reason_against

/// Fails the test, with CUDA's text, unless `status` is SUCCESS.
#define CROSSDEVICE_ASSERT_CUDA(status)                                          \
  do {                                                                           \
    const ::crossdevice::detail::CudaStatus status_given = (status);             \
    ASSERT_EQ(status_given, ::crossdevice::detail::CudaStatus::SUCCESS)          \
        << ::crossdevice::detail::gpu_platform().cuda->error_text(status_given); \
  } while (false)

inline void must_succeed(detail::CudaStatus status, const char* what) {
  if (status == detail::CudaStatus::SUCCESS) return;
  throw std::runtime_error(std::string(what) + ": " +
                           detail::gpu_platform().cuda->error_text(status));
}

/// Waits until all that is enqueued on `stream` is done; throws what CUDA reports, or after a minute.
inline void wait_for_stream(detail::CudaStream stream) {
  detail::CudaApi& cuda = *detail::gpu_platform().cuda;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (true) {
    const detail::CudaStatus status = cuda.stream_query(stream);
    if (status == detail::CudaStatus::SUCCESS) return;
    if (status != detail::CudaStatus::NOT_READY) must_succeed(status, "stream");
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error("the stream is not done after a minute");
    std::this_thread::yield();
  }
}

}  // namespace crossdevice::testing
