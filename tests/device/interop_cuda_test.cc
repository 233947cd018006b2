// SPDX-License-Identifier: Apache-2.0
// Streams between a program with CUDA's headers and the library. Where there are none this compiles to nothing, and says so.
#include "support/gpu_fixture.h"

#if __has_include(<cuda_runtime_api.h>)
#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/interop_cuda.h"

#include "support/thrown.h"

namespace crossdevice {
namespace {

using ::testing::Each;
using testing::elements_on_gpu;
using testing::emulated_cuda;
using testing::gpu;
using testing::make_cuda_stream;
using testing::thrown;

const bool kInstalled = (testing::install_emulated_gpus(3), true);

using InteropCudaTest = testing::GpuTest;

TEST_F(InteropCudaTest, StreamsAreLent) {
  const Tensor tensor = Tensor::zeros(DType::UINT8, {4}, "GPU:1");
  const cudaStream_t own = cuda_stream_of(tensor);
  EXPECT_EQ(own, cuda_stream_of(Device("GPU:1")));
  EXPECT_EQ(cuda_device_of("GPU:1"), 1);
  const cudaStream_t mine = make_cuda_stream(1);
  EXPECT_EQ(
      cuda_stream_of(Tensor::view(tensor.data(), DType::UINT8, {4}, "GPU:1", from_cuda(mine))),
      mine);
  EXPECT_EQ(thrown<ValueError>([] { (void)cuda_stream_of(Device("CPU:0")); }),
            "expected a GPU, got CPU:0");
  EXPECT_EQ(thrown<ValueError>([] { (void)cuda_device_of("CPU:0"); }), "expected a GPU, got CPU:0");
}

TEST_F(InteropCudaTest, AProgramsStreamWaitsForATensorAndTheReverse) {
  for (const bool is_default : {false, true}) {
    const cudaStream_t mine = is_default ? nullptr : make_cuda_stream(1);
    const cudaStream_t blocked = make_cuda_stream(1);
    const Tensor source = Tensor::zeros(DType::UINT8, {256}, "GPU:1");
    const Tensor tensor = Tensor::empty(DType::UINT8, {256}, "GPU:1", from_cuda(blocked));
    emulated_cuda().block_stream(blocked);
    copy(tensor, source);
    stream_wait_for_tensor(mine, tensor);
    // The program's own kernel reads the tensor behind the copy, and what the tensor is given next waits for the kernel.
    const Tensor seen = Tensor::empty(DType::UINT8, {256}, "GPU:1");
    tensor_wait_for_stream(seen, mine);
    copy(Tensor::view(seen.data(), DType::UINT8, {256}, "GPU:1"),
         Tensor::view(tensor.data(), DType::UINT8, {256}, "GPU:1"));
    EXPECT_FALSE(detail::GpuEvent::record(gpu("GPU:1"), gpu("GPU:1").own_stream()).has_completed());
    emulated_cuda().release_stream(blocked);
    EXPECT_THAT(elements_on_gpu(seen), Each(0));
  }
}

}  // namespace
}  // namespace crossdevice
#else
TEST(InteropCudaTest, NeedsAToolkit) { GTEST_SKIP() << "this build has no cuda_runtime_api.h"; }
#endif
