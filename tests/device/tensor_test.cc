// SPDX-License-Identifier: Apache-2.0
/// Tensors own or borrow exactly the memory they say, share it between handles,
/// and refuse what is not one.
#include "crossdevice/device/tensor.h"

#include <array>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/memory_pool.h"

#include "support/allocation_counter.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

using crossdevice::testing::thrown;
using ::testing::HasSubstr;

std::size_t bytes_in_use(const Device& device) {
  return MemoryPool::of(device).statistics().bytes_in_use;
}

TEST(TensorTest, ADefaultConstructedHandleIsNoTensor) {
  Tensor tensor;
  EXPECT_FALSE(tensor);
  EXPECT_EQ(tensor.to_string(), "no tensor");
  tensor = Tensor::zeros(DType::FLOAT32, {2}, "CPU:0");
  EXPECT_TRUE(tensor);
}

TEST(TensorTest, EmptyTakesFromTheDevicesPoolAndTheLastHandleGivesBack) {
  for (const DType dtype : kAllDTypes) {
    const std::size_t before = bytes_in_use("CPU:3");
    {
      const Tensor tensor = Tensor::empty(dtype, {3, 5}, "CPU:3");
      EXPECT_EQ(tensor.dtype(), dtype);
      EXPECT_EQ(tensor.shape(), Shape({3, 5}));
      EXPECT_EQ(tensor.device(), Device("CPU:3"));
      EXPECT_EQ(tensor.num_elements(), 15U);
      EXPECT_EQ(tensor.size_bytes(), 15 * size_in_bytes(dtype));
      EXPECT_FALSE(tensor.is_read_only());
      EXPECT_FALSE(tensor.stream().has_value());
      EXPECT_TRUE(tensor.readiness().is_ready());
      EXPECT_TRUE(MemoryPool::of("CPU:3").locate(tensor.data()).has_value());
      std::memset(tensor.data(), 0x77, tensor.size_bytes());
      std::optional<Tensor> other = tensor;
      const Tensor third = tensor.reshape({15}).as_read_only();
      other.reset();
      EXPECT_GT(bytes_in_use("CPU:3"), before);
      EXPECT_EQ(third.data(), tensor.data());
    }
    EXPECT_EQ(bytes_in_use("CPU:3"), before);
  }
}

TEST(TensorTest, ScalarsAndTensorsWithoutElementsExist) {
  const Tensor scalar = Tensor::zeros(DType::FLOAT64, {}, "CPU:0");
  EXPECT_EQ(scalar.num_elements(), 1U);
  EXPECT_EQ(scalar.span<double>()[0], 0.0);
  const Tensor nothing = Tensor::empty(DType::FLOAT64, {4, 0}, "CPU:0");
  EXPECT_EQ(nothing.num_elements(), 0U);
  EXPECT_EQ(nothing.size_bytes(), 0U);
  EXPECT_TRUE(nothing.span<double>().empty());
}

TEST(TensorTest, ZerosOverwritesWhatWasThere) {
  for (const std::int64_t count : {1, 7, 100000, 3 << 20}) {
    {
      const Tensor dirty = Tensor::empty(DType::INT8, {count}, "CPU:4");
      std::memset(dirty.data(), 0x5a, dirty.size_bytes());
    }
    const Tensor tensor = Tensor::zeros(DType::INT8, {count}, "CPU:4");
    for (const signed char element : tensor.span<signed char>()) ASSERT_EQ(element, 0);
  }
}

TEST(TensorTest, CopyOfCopiesEveryElement) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{2000003}}) {
    std::vector<float> elements(count);
    std::iota(elements.begin(), elements.end(), 1.0F);
    const Tensor tensor = Tensor::copy_of(std::span<const float>(elements), {count}, "CPU:1");
    EXPECT_NE(static_cast<const void*>(elements.data()), tensor.data());
    std::fill(elements.begin(), elements.end(), -1.0F);
    ASSERT_EQ(tensor.num_elements(), count);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(tensor.span<const float>()[i], static_cast<float>(i) + 1.0F);
    }
  }
  const std::array<int, 6> numbers{1, 2, 3, 4, 5, 6};
  const Tensor matrix = Tensor::copy_of(std::span(numbers), {2, 3}, "CPU:0");
  EXPECT_EQ(matrix.dtype(), DType::INT32);
  EXPECT_FALSE(matrix.is_read_only());
  EXPECT_EQ(matrix.span<int>()[5], 6);
}

TEST(TensorTest, AViewIsTheCallersMemory) {
  std::vector<double> elements{1, 2, 3, 4, 5, 6};
  const std::size_t before = bytes_in_use("CPU:2");
  const Tensor tensor = Tensor::view(std::span(elements), {2, 3}, "CPU:2");
  EXPECT_EQ(tensor.data(), elements.data());
  EXPECT_EQ(tensor.shape(), Shape({2, 3}));
  tensor.span<double>()[4] = 50;
  EXPECT_EQ(elements[4], 50);
  EXPECT_EQ(bytes_in_use("CPU:2"), before);

  EXPECT_EQ(Tensor::view(std::span(elements), "CPU:2").shape(), Shape({6}));
  EXPECT_EQ(Tensor::view(elements.data(), {6, 1}, "CPU:2").dtype(), DType::FLOAT64);
  std::array<bool, 3> flags{true, false, true};
  EXPECT_EQ(Tensor::view(std::span(flags), "CPU:0").dtype(), DType::BOOL);
  void* untyped = elements.data();
  EXPECT_EQ(Tensor::view(untyped, DType::INT64, {6}, "CPU:0").data(), untyped);
}

TEST(TensorTest, ConstMemoryGivesAReadOnlyTensor) {
  const std::vector<float> elements{1, 2, 3};
  for (const Tensor& tensor :
       {Tensor::view(std::span(elements), "CPU:0"), Tensor::view(elements.data(), {3}, "CPU:0"),
        Tensor::view(static_cast<const void*>(elements.data()), DType::FLOAT32, {3}, "CPU:0")}) {
    EXPECT_TRUE(tensor.is_read_only());
    EXPECT_EQ(tensor.span<const float>()[2], 3.0F);
    EXPECT_THAT(thrown<ValueError>([&] { (void)tensor.span<float>(); }), HasSubstr("read-only"));
    EXPECT_TRUE(tensor.reshape({3, 1}).is_read_only());
  }
}

TEST(TensorTest, AsReadOnlySharesTheMemoryAndLeavesTheOriginalWritable) {
  const Tensor tensor = Tensor::zeros(DType::INT32, {2}, "CPU:0");
  const Tensor locked = tensor.as_read_only();
  EXPECT_EQ(locked.data(), tensor.data());
  EXPECT_TRUE(locked.is_read_only());
  EXPECT_FALSE(tensor.is_read_only());
  EXPECT_FALSE(locked.is_same(tensor));
  EXPECT_TRUE(locked.as_read_only().is_same(locked));
  tensor.span<int>()[1] = 9;
  EXPECT_EQ(locked.span<const int>()[1], 9);
}

TEST(TensorTest, ReshapeKeepsMemoryAndRefusesAnotherNumberOfElements) {
  const Tensor tensor = Tensor::zeros(DType::FLOAT32, {4, 3}, "CPU:0");
  const Tensor flat = tensor.reshape({12});
  EXPECT_EQ(flat.shape(), Shape({12}));
  EXPECT_EQ(flat.data(), tensor.data());
  EXPECT_EQ(&flat.readiness(), &tensor.readiness());
  EXPECT_THAT(thrown<ValueError>([&] { (void)tensor.reshape({11}); }),
              AllOf(HasSubstr("float32 (4, 3) on CPU:0"), HasSubstr("12"), HasSubstr("(11)")));
}

TEST(TensorTest, IsSameMeansTheSameHandle) {
  std::vector<float> elements(4);
  const Tensor a = Tensor::view(std::span(elements), "CPU:0");
  const Tensor b = a;
  EXPECT_TRUE(a.is_same(b));
  EXPECT_FALSE(a.is_same(Tensor::view(std::span(elements), "CPU:0")));
}

TEST(TensorTest, SpanRefusesAnotherElementType) {
  const Tensor tensor = Tensor::zeros(DType::FLOAT32, {2}, "CPU:0");
  EXPECT_THAT(thrown<ValueError>([&] { (void)tensor.span<double>(); }),
              AllOf(HasSubstr("float32 (2) on CPU:0"), HasSubstr("float64")));
  EXPECT_THROW((void)tensor.span<const int>(), ValueError);
}

TEST(TensorTest, SpanWaitsForOperationsOnAnyTensorOverTheMemory) {
  const Tensor tensor = Tensor::zeros(DType::INT32, {1000}, "CPU:0");
  const Tensor alias = tensor.reshape({10, 100});
  for (int round = 0; round < 50; ++round) {
    tensor.readiness().add();
    std::thread writer([&tensor, round] {
      auto* elements = static_cast<int*>(tensor.data());
      for (int i = 0; i < 1000; ++i) elements[i] = round + i;
      tensor.readiness().remove();
    });
    int i = 0;
    for (const int element : alias.span<const int>()) ASSERT_EQ(element, round + i++);
    writer.join();
  }
}

TEST(TensorTest, BadViewsAreRefusedWithWhatWasExpected) {
  std::vector<float> elements(12);
  float* null = nullptr;
  EXPECT_THAT(thrown<ValueError>([&] { (void)Tensor::view(null, {3}, "CPU:0"); }),
              AllOf(HasSubstr("float32 (3) on CPU:0"), HasSubstr("null")));
  EXPECT_TRUE(Tensor::view(null, {3, 0}, "CPU:0"));
  EXPECT_THAT(thrown<ValueError>([&] {
                (void)Tensor::view(std::span(elements), {3, 5}, "CPU:0");
              }),
              AllOf(HasSubstr("12"), HasSubstr("(3, 5)"), HasSubstr("15")));
  EXPECT_THAT(
      thrown<ValueError>([&] { (void)Tensor::copy_of(std::span(elements), {11}, "CPU:0"); }),
      HasSubstr("12"));
  void* shifted = reinterpret_cast<char*>(elements.data()) + 2;
  EXPECT_THAT(
      thrown<ValueError>([&] { (void)Tensor::view(shifted, DType::FLOAT32, {2}, "CPU:0"); }),
      AllOf(HasSubstr("float32 (2) on CPU:0"), HasSubstr("aligned to 4 bytes")));
  EXPECT_TRUE(Tensor::view(shifted, DType::FLOAT16, {2}, "CPU:0"));
  // A product of dimensions that fits, of bytes that does not.
  EXPECT_THROW((void)Tensor::view(elements.data(), {std::int64_t{1} << 62}, "CPU:0"), ValueError);
  EXPECT_THROW((void)Tensor::empty(DType::FLOAT32, {std::int64_t{1} << 62}, "CPU:0"), ValueError);
  EXPECT_THROW(
      (void)Tensor::empty(DType::INT8, {std::int64_t{1} << 32, std::int64_t{1} << 32}, "CPU:0"),
      ValueError);
  EXPECT_THROW((void)Tensor::empty(DType::INT8, {-1}, "CPU:0"), ValueError);
}

TEST(TensorTest, ComplexElementsAreAlignedAsTheirPartsAre) {
  alignas(16) std::array<std::complex<double>, 3> elements{};
  void* half_way = reinterpret_cast<double*>(elements.data()) + 1;
  EXPECT_TRUE(Tensor::view(half_way, DType::COMPLEX128, {2}, "CPU:0"));
  void* quarter_way = static_cast<char*>(half_way) + 4;
  EXPECT_THROW((void)Tensor::view(quarter_way, DType::COMPLEX128, {1}, "CPU:0"), ValueError);
}

TEST(TensorTest, AbsentDevicesAreRefusedEverywhere) {
  std::vector<float> elements(4);
  const auto expected = HasSubstr("GPU:9: this host has 0 GPUs");
  EXPECT_THAT(thrown<ValueError>([&] { (void)Tensor::empty(DType::FLOAT32, {4}, "GPU:9"); }),
              expected);
  EXPECT_THAT(thrown<ValueError>([&] { (void)Tensor::zeros(DType::FLOAT32, {4}, "GPU:9"); }),
              expected);
  EXPECT_THAT(thrown<ValueError>([&] { (void)Tensor::copy_of(std::span(elements), {4}, "GPU:9"); }),
              expected);
  EXPECT_THAT(thrown<ValueError>([&] { (void)Tensor::view(std::span(elements), "GPU:9"); }),
              expected);
  CUstream_st* stream = nullptr;
  EXPECT_THAT(thrown<ValueError>([&] {
                (void)Tensor::view(elements.data(), DType::FLOAT32, {4}, "GPU:9",
                                   from_cuda(stream));
              }),
              expected);
  EXPECT_THROW((void)Tensor::view(std::span(elements), "CPU:4095"), ValueError);
}

TEST(TensorTest, AViewKeepsTheCallersStream) {
  std::vector<float> elements(4);
  auto* stream = reinterpret_cast<CUstream_st*>(&elements);  // only compared, never used
  const Tensor tensor = Tensor::view(static_cast<void*>(elements.data()), DType::FLOAT32, {4},
                                     "CPU:0", from_cuda(stream));
  ASSERT_TRUE(tensor.stream().has_value());
  EXPECT_EQ(tensor.stream()->cuda(), stream);
  EXPECT_TRUE(tensor.reshape({2, 2}).stream().has_value());
  const Tensor locked = Tensor::view(static_cast<const void*>(elements.data()), DType::FLOAT32, {4},
                                     "CPU:0", from_cuda(stream));
  EXPECT_TRUE(locked.is_read_only());
  EXPECT_EQ(locked.stream()->cuda(), stream);
}

TEST(TensorTest, OverlapIsDecidedByBytes) {
  std::vector<float> elements(10);
  const auto view = [&](std::size_t begin, std::size_t count) {
    return Tensor::view(elements.data() + begin, {count}, "CPU:0");
  };
  EXPECT_TRUE(overlaps(view(0, 10), view(3, 2)));
  EXPECT_TRUE(overlaps(view(3, 2), view(0, 10)));
  EXPECT_TRUE(overlaps(view(0, 4), view(3, 4)));
  EXPECT_TRUE(overlaps(view(3, 4), view(3, 4)));
  EXPECT_FALSE(overlaps(view(0, 4), view(4, 4)));
  EXPECT_FALSE(overlaps(view(4, 4), view(0, 4)));
  EXPECT_FALSE(overlaps(view(0, 10), view(5, 0)));
  EXPECT_FALSE(overlaps(Tensor(), view(0, 10)));
  EXPECT_FALSE(overlaps(view(0, 10), Tensor()));
}

TEST(TensorTest, MakeTensorSharesWhatItIsGiven) {
  const Tensor whole = Tensor::zeros(DType::INT32, {10}, "CPU:0");
  detail::TensorState state = whole.state();
  state.shape = {4};
  state.data = static_cast<int*>(state.data) + 3;
  state.size_bytes = 4 * sizeof(int);
  std::optional<Tensor> owner = whole;
  const Tensor part = detail::make_tensor(state);
  EXPECT_EQ(&part.readiness(), &whole.readiness());
  part.span<int>()[0] = 7;
  EXPECT_EQ(whole.span<int>()[3], 7);
}

TEST(TensorTest, ItSaysWhatItIs) {
  std::ostringstream out;
  out << Tensor::zeros(DType::BFLOAT16, {3, 4}, "CPU:7");
  EXPECT_EQ(out.str(), "bfloat16 (3, 4) on CPU:7");
}

TEST(TensorTest, InSteadyStateTensorsComeAndGoWithoutTheHeap) {
  if (!testing::can_count_allocations()) GTEST_SKIP() << "a sanitizer owns the heap";
  std::vector<float> elements(100);
  const Device device("CPU:0");
  const Shape shape{5, 20};
  const auto step = [&] {
    const Tensor result = Tensor::empty(DType::FLOAT32, shape, device);
    const Tensor large = Tensor::zeros(DType::FLOAT32, {1 << 18}, device);
    const Tensor view = Tensor::view(std::span(elements), shape, device);
    const Tensor flat = result.reshape({100}).as_read_only();
    return flat.num_elements() + view.num_elements() + large.num_elements();
  };
  (void)step();
  const std::size_t before = testing::num_allocations_of_this_thread();
  for (int i = 0; i < 1000; ++i) (void)step();
  EXPECT_EQ(testing::num_allocations_of_this_thread(), before);
}

TEST(TensorTest, ThreadsMakePassOnAndDropTensors) {
  constexpr int kNumThreads = 4;
  const std::size_t before = bytes_in_use("CPU:5");
  {
    std::vector<std::vector<Tensor>> made(kNumThreads);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kNumThreads; ++thread) {
      threads.emplace_back([&made, thread] {
        for (int i = 0; i < 2000; ++i) {
          Tensor tensor = Tensor::empty(DType::INT32, {i % 7 + 1}, "CPU:5");
          for (int& element : tensor.span<int>()) element = thread * 10000 + i;
          if (i % 10 == 0) made[static_cast<std::size_t>(thread)].push_back(tensor);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int thread = 0; thread < kNumThreads; ++thread) {
      const auto& mine = made[static_cast<std::size_t>(thread)];
      ASSERT_EQ(mine.size(), 200U);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        for (const int element : mine[i].span<const int>()) {
          ASSERT_EQ(element, thread * 10000 + static_cast<int>(i) * 10);
        }
      }
    }
    // Their last handles die elsewhere than they were made.
    std::thread([dropped = std::move(made)] {}).join();
  }
  EXPECT_EQ(bytes_in_use("CPU:5"), before);
}

TEST(TensorTest, AChildOfForkMayDropTensorsAndGetsAnErrorForNewOnes) {
  std::optional<Tensor> tensor = Tensor::zeros(DType::INT32, {1000}, "CPU:6");
  const std::size_t before = bytes_in_use("CPU:6");
  const pid_t child = fork();
  if (child == 0) {
    tensor.reset();
    try {
      tensor = Tensor::empty(DType::INT32, {1000}, "CPU:6");
      _exit(1);
    } catch (const FailedPreconditionError&) {
      _exit(0);
    }
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(bytes_in_use("CPU:6"), before);
  for (const int element : tensor->span<int>()) ASSERT_EQ(element, 0);
}

}  // namespace
}  // namespace crossdevice
