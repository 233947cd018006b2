// SPDX-License-Identifier: Apache-2.0
// Waits of the host for a stream that stands still: each ends, says for what it waited, and leaves nothing that comes later wrong.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/device/stream.h"

#include "support/gpu_fixture.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using testing::elements_on_gpu;
using testing::emulated_cuda;
using ::testing::HasSubstr;
using testing::make_cuda_stream;
using testing::thrown;

// The default timeout is that of the whole process, and is read once.
const bool kInstalled =
    (::setenv("CROSSDEVICE_DEFAULT_TIMEOUT", "0.02", 1), testing::install_emulated_gpus(3), true);

using GpuDeadlineTest = testing::GpuTest;

constexpr std::size_t kLarge = (std::size_t{9} << 20) + 1;

TEST_F(GpuDeadlineTest, OfACopyFromTheHost) {
  const detail::CudaStream stream = make_cuda_stream(0);
  const Tensor there = Tensor::empty(DType::UINT8, {kLarge}, "GPU:0", from_cuda(stream));
  emulated_cuda().block_stream(stream);
  {
    std::vector<unsigned char> ours(kLarge, 7);
    EXPECT_THAT(
        thrown<DeadlineExceededError>([&] { copy(there, Tensor::view(std::span(ours), "CPU:0")); }),
        AllOf(HasSubstr("from the host to uint8 (9437185) on GPU:0"), HasSubstr("CUDA device 0"),
              HasSubstr("CROSSDEVICE_DEFAULT_TIMEOUT is 0.02")));
    std::memset(ours.data(), 1, ours.size());  // pageable memory is ours again
  }
  emulated_cuda().release_stream(stream);
  const std::vector<unsigned char> got = elements_on_gpu(there);
  EXPECT_EQ(got.front(), 7);
  EXPECT_EQ(got[(std::size_t{8} << 20) - 1],
            7);  // both windows went, and nobody wrote into them meanwhile
}

TEST_F(GpuDeadlineTest, OfACopyToTheHost) {
  const detail::CudaStream stream = make_cuda_stream(0);
  const Tensor there = Tensor::empty(DType::UINT8, {kLarge}, "GPU:0", from_cuda(stream));
  emulated_cuda().block_stream(stream);
  std::vector<unsigned char> ours(kLarge, 7);
  EXPECT_THAT(
      thrown<DeadlineExceededError>([&] { copy(Tensor::view(std::span(ours), "CPU:0"), there); }),
      HasSubstr("to the host from uint8 (9437185) on GPU:0"));
  emulated_cuda().release_stream(stream);
  ASSERT_TRUE(emulated_cuda().synchronize());
  EXPECT_TRUE(ours == std::vector<unsigned char>(kLarge, 7));  // nothing comes late
}

TEST_F(GpuDeadlineTest, WindowsThatAStreamStillHasAreNotUsedAgain) {
  const detail::CudaStream blocked = make_cuda_stream(0);
  const Tensor there = Tensor::empty(DType::UINT8, {64}, "GPU:0", from_cuda(blocked));
  emulated_cuda().block_stream(blocked);
  std::vector<unsigned char> first(64, 1);
  EXPECT_THAT(
      thrown<DeadlineExceededError>([&] { copy(there, Tensor::view(std::span(first), "CPU:0")); }),
      HasSubstr("deadline"));
  const Tensor elsewhere = Tensor::empty(DType::UINT8, {64}, "GPU:1");
  std::vector<unsigned char> second(64, 2);
  // On a busy machine this one may be late too; then once more.
  for (;;) {
    try {
      copy(elsewhere, Tensor::view(std::span(second), "CPU:0"));
      break;
    } catch (const DeadlineExceededError&) {
      continue;
    }
  }
  emulated_cuda().release_stream(blocked);
  EXPECT_THAT(elements_on_gpu(there), Each(1));
  EXPECT_THAT(elements_on_gpu(elsewhere), Each(2));
}

TEST_F(GpuDeadlineTest, OfATensorMadeOfHostElements) {
  const Tensor warm = Tensor::zeros(DType::UINT8, {4}, "GPU:0");
  emulated_cuda().block_stream(testing::gpu("GPU:0").own_stream());
  const std::vector<float> elements(10, 1.0F);
  EXPECT_THAT(thrown<DeadlineExceededError>(
                  [&] { (void)Tensor::copy_of(std::span(elements), {10}, "GPU:0"); }),
              HasSubstr("float32 (10) on GPU:0"));
}

TEST_F(GpuDeadlineTest, OfAStreamThatIsToStop) {
  Stream stream("GPU:1", "held");
  emulated_cuda().block_stream(stream.view().cuda());
  EXPECT_THAT(thrown<DeadlineExceededError>([&] { stream.stop(); }), HasSubstr("CUDA device 1"));
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { stream.launch([] {}); }), HasSubstr("stopped"));
}

}  // namespace
}  // namespace crossdevice
