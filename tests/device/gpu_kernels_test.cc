// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels on a GPU: the cases that their bodies pass on the host, bit by bit the same.
#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/device/gpu_platform.h"

#include "device/kernel_cases.h"
#include "support/real_gpu.h"

namespace crossdevice {
namespace {

using testing::Bytes;
using testing::must_succeed;

constexpr std::size_t kArenaBytes = std::size_t{128} << 20;
constexpr std::size_t kGuardBytes = 256;
constexpr std::byte kGuard{0x5A};

/// One piece of memory on the device, and pinned memory of the same layout; made once.
class DeviceMemory : public testing::KernelMemory {
 public:
  DeviceMemory() : cuda_(*detail::gpu_platform().cuda) {
    must_succeed(cuda_.set_device(0), "set_device");
    must_succeed(cuda_.stream_create(&stream_), "stream_create");
    must_succeed(cuda_.create_pool(&pool_, 0), "create_pool");
    void* pointer = nullptr;
    must_succeed(cuda_.malloc_from_pool_async(&pointer, kArenaBytes, pool_, stream_), "malloc");
    device_ = static_cast<std::byte*>(pointer);
    must_succeed(cuda_.malloc_host(&pointer, kArenaBytes), "malloc_host");
    host_ = static_cast<std::byte*>(pointer);
  }

  void* make(const Bytes& contents, std::size_t misalignment) override {
    const std::size_t begin = used_ + kGuardBytes + misalignment % 256;
    const std::size_t end = begin + contents.size();
    const std::size_t next = (end + kGuardBytes + 255) / 256 * 256;
    if (next > kArenaBytes) throw std::logic_error("the test's arena is too small");
    std::fill(host_ + used_, host_ + begin, kGuard);
    std::copy(contents.begin(), contents.end(), host_ + begin);
    std::fill(host_ + end, host_ + next, kGuard);
    must_succeed(cuda_.memcpy_async(device_ + used_, host_ + used_, next - used_, stream_),
                 "memcpy_async");
    blocks_.push_back({used_, begin, end, next});
    used_ = next;
    return device_ + begin;
  }
  Bytes read(const void* pointer, std::size_t size_bytes) override {
    Bytes bytes(size_bytes);
    if (size_bytes == 0) return bytes;
    must_succeed(cuda_.memcpy_async(bytes.data(), pointer, size_bytes, stream_), "memcpy_async");
    testing::wait_for_stream(stream_);
    return bytes;
  }
  bool guards_are_intact() override {
    const Bytes all = read(device_, used_);
    const auto is_guard = [](std::byte b) { return b == kGuard; };
    const auto at = [&](std::size_t offset) {
      return all.begin() + static_cast<std::ptrdiff_t>(offset);
    };
    return std::all_of(blocks_.begin(), blocks_.end(), [&](const Block& block) {
      return std::all_of(at(block.before), at(block.begin), is_guard) &&
             std::all_of(at(block.end), at(block.next), is_guard);
    });
  }
  void clear() override {
    testing::wait_for_stream(stream_);
    blocks_.clear();
    used_ = 0;
  }
  [[nodiscard]] detail::CudaStream stream() const override { return stream_; }

 private:
  struct Block {
    std::size_t before;
    std::size_t begin;
    std::size_t end;
    std::size_t next;
  };
  detail::CudaApi& cuda_;
  detail::CudaStream stream_ = nullptr;
  detail::CudaPool pool_ = nullptr;
  std::byte* device_ = nullptr;
  std::byte* host_ = nullptr;
  std::size_t used_ = 0;
  std::vector<Block> blocks_;
};

/// Kept for the whole program: CUDA gives it back with the process.
DeviceMemory& device_memory() {
  static auto& memory = *new DeviceMemory();
  return memory;
}

detail::KernelApi& kernels() { return *detail::gpu_platform().kernels; }

class GpuReduceTest : public ::testing::TestWithParam<std::tuple<ReduceOp, DType>> {};

TEST_P(GpuReduceTest, GivesTheBitsOfTheHostKernels) {
  CROSSDEVICE_SKIP_WITHOUT_GPU();
  const auto [op, dtype] = GetParam();
  testing::check_all_reductions(device_memory(), kernels(), op, dtype);
}

TEST_P(GpuReduceTest, GivesManyTensorsTheBitsOfEach) {
  CROSSDEVICE_SKIP_WITHOUT_GPU();
  const auto [op, dtype] = GetParam();
  testing::check_all_reductions_of_many(device_memory(), kernels(), op, dtype);
}

INSTANTIATE_TEST_SUITE_P(EveryOpAndDType, GpuReduceTest,
                         ::testing::ValuesIn(testing::all_reductions()), [](const auto& test) {
                           return std::string(to_string(std::get<0>(test.param))) + "_" +
                                  std::string(to_string(std::get<1>(test.param)));
                         });

TEST(GpuReduceLargeTest, MoreTilesThanMultiprocessorsHold) {
  CROSSDEVICE_SKIP_WITHOUT_GPU();
  std::mt19937_64 random(13);
  for (const DType dtype : {DType::FLOAT32, DType::BFLOAT16, DType::UINT8}) {
    for (const std::size_t num_inputs : {2U, 3U}) {
      testing::check_reduce(device_memory(), kernels(),
                            {.op = ReduceOp::SUM,
                             .dtype = dtype,
                             .num_inputs = num_inputs,
                             .count = (std::size_t{24} << 20) / size_in_bytes(dtype) + 7},
                            random);
    }
  }
}

TEST(GpuReduceLargeTest, MoreTensorsThanALaunchTakesSmallAndLarge) {
  CROSSDEVICE_SKIP_WITHOUT_GPU();
  std::mt19937_64 random(19);
  std::vector<std::size_t> counts;
  for (std::size_t t = 0; t < 1000; ++t) counts.push_back(t % 61 * 7);
  counts[300] = 300'001;
  for (const std::size_t num_inputs : {2U, 7U, 8U}) {
    testing::check_reduce_many(device_memory(), kernels(), {.num_inputs = num_inputs}, counts,
                               random);
  }
  counts[700] = 5'000'000;  // has a launch of its own
  testing::check_reduce_many(device_memory(), kernels(), {.num_inputs = 2}, counts, random);
}

class GpuCopyTest : public ::testing::TestWithParam<std::pair<DType, DType>> {};

TEST_P(GpuCopyTest, ConvertsWithOneRounding) {
  CROSSDEVICE_SKIP_WITHOUT_GPU();
  const auto [source, destination] = GetParam();
  testing::check_all_copies(device_memory(), kernels(), source, destination);
}

INSTANTIATE_TEST_SUITE_P(EveryPair, GpuCopyTest, ::testing::ValuesIn(testing::copied_pairs()),
                         [](const auto& test) {
                           return std::string(to_string(test.param.first)) + "_to_" +
                                  std::string(to_string(test.param.second));
                         });

TEST(GpuCopyManyTest, AsManyRangesAsALaunchTakesAndMore) {
  CROSSDEVICE_SKIP_WITHOUT_GPU();
  std::mt19937_64 random(5);
  for (const std::size_t num_ranges : {127U, 128U, 129U, 999U, 1000U, 1001U, 2500U}) {
    for (const DType destination : {DType::FLOAT32, DType::BFLOAT16}) {
      testing::CopyCase c{.source = DType::FLOAT32,
                          .destination = destination,
                          .counts = {},
                          .source_misalignment = 1,
                          .destination_misalignment = 3};
      for (std::size_t r = 0; r < num_ranges; ++r) c.counts.push_back(r % 37 == 5 ? 0 : r % 61);
      c.counts[num_ranges / 2] = 400000;
      testing::check_copy(device_memory(), kernels(), c, random);
    }
  }
}

TEST(GpuKernelErrorsTest, TooManyBuffersIsAStatus) {
  CROSSDEVICE_SKIP_WITHOUT_GPU();
  const std::vector<const void*> inputs(detail::kMaxReduceBuffers + 1);
  const std::vector<void*> outputs(1);
  EXPECT_EQ(kernels().reduce({.inputs = inputs, .outputs = outputs, .num_elements = 1}),
            detail::CudaStatus::INVALID_VALUE);
}

}  // namespace
}  // namespace crossdevice
