// SPDX-License-Identifier: Apache-2.0
/// Foreign tensors come in without a copy, keep their owner until the last handle dies, and are refused when they are not
/// dense; ours go out the same way.
#include "crossdevice/device/dlpack.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/error.h"
#include "crossdevice/device/interop_dlpack.h"
#include "crossdevice/device/memory_pool.h"

#include "support/thrown.h"

namespace crossdevice {
namespace {

using crossdevice::testing::thrown;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A float32 (2, 3) tensor as another library would hand it over; counts how often it is given back.
template <class Managed>
struct Foreign {
  Foreign() {
    std::iota(elements.begin(), elements.end(), 0.0F);
    managed.dl_tensor.data = elements.data();
    managed.dl_tensor.device = {kDLCPU, 0};
    managed.dl_tensor.ndim = 2;
    managed.dl_tensor.dtype = {kDLFloat, 32, 1};
    managed.dl_tensor.shape = shape.data();
    managed.dl_tensor.strides = nullptr;
    managed.dl_tensor.byte_offset = 0;
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->num_deletions;
    };
    if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
      managed.version = {1, 0};
      managed.flags = 0;
    }
  }

  alignas(64) std::array<float, 32> elements{};
  std::array<std::int64_t, 4> shape{2, 3, 0, 0};
  std::array<std::int64_t, 4> strides{};
  std::atomic<int> num_deletions{0};
  Managed managed{};
};

template <class Managed>
class DlpackTest : public ::testing::Test {};
using BothForms = ::testing::Types<DLManagedTensor, DLManagedTensorVersioned>;
TYPED_TEST_SUITE(DlpackTest, BothForms);

TYPED_TEST(DlpackTest, AForeignTensorIsItsOwnersMemory) {
  Foreign<TypeParam> foreign;
  {
    const Tensor tensor = from_dlpack(&foreign.managed);
    EXPECT_EQ(tensor.data(), foreign.elements.data());
    EXPECT_EQ(tensor.dtype(), DType::FLOAT32);
    EXPECT_EQ(tensor.shape(), Shape({2, 3}));
    EXPECT_EQ(tensor.device(), Device("CPU:0"));
    EXPECT_FALSE(tensor.is_read_only());
    EXPECT_THAT(tensor.span<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
    tensor.span<float>()[5] = 50;
    EXPECT_EQ(foreign.elements[5], 50);
    EXPECT_EQ(foreign.num_deletions, 0);
  }
  EXPECT_EQ(foreign.num_deletions, 1);
}

TYPED_TEST(DlpackTest, TheDeleterRunsOnceWhenTheLastHandleDies) {
  Foreign<TypeParam> foreign;
  Tensor tensor = from_dlpack(&foreign.managed);
  Tensor copy = tensor;
  Tensor flat = tensor.reshape({6}).as_read_only();
  tensor = Tensor();
  EXPECT_EQ(foreign.num_deletions, 0);
  copy = Tensor();
  EXPECT_EQ(foreign.num_deletions, 0);
  EXPECT_EQ(flat.span<const float>()[4], 4);
  std::thread([last = std::move(flat)] {}).join();
  EXPECT_FALSE(flat);  // NOLINT(bugprone-use-after-move): that it is empty is the point
  EXPECT_EQ(foreign.num_deletions, 1);
}

TYPED_TEST(DlpackTest, ADeleterMayBeMissing) {
  Foreign<TypeParam> foreign;
  foreign.managed.deleter = nullptr;
  EXPECT_TRUE(from_dlpack(&foreign.managed));
  EXPECT_EQ(foreign.num_deletions, 0);
}

TYPED_TEST(DlpackTest, TheByteOffsetCounts) {
  Foreign<TypeParam> foreign;
  foreign.managed.dl_tensor.byte_offset = 5 * sizeof(float);
  const Tensor tensor = from_dlpack(&foreign.managed);
  EXPECT_EQ(tensor.data(), foreign.elements.data() + 5);
  EXPECT_THAT(tensor.span<float>(), ElementsAre(5, 6, 7, 8, 9, 10));
}

TYPED_TEST(DlpackTest, CompactStridesAreAcceptedAndOthersRefused) {
  struct Case {
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;
    bool is_compact;
  };
  const std::vector<Case> cases{{{2, 3}, {3, 1}, true},
                                {{2, 3}, {1, 2}, false},
                                {{2, 3}, {4, 1}, false},
                                {{2, 3}, {3, 2}, false},
                                {{2, 3}, {-3, 1}, false},
                                {{2, 3}, {0, 0}, false},
                                {{1, 6}, {77, 1}, true},
                                {{6, 1}, {1, 77}, true},
                                {{6, 1}, {2, 1}, false},
                                {{1, 1}, {-5, 99}, true},
                                {{2, 1, 3}, {3, 42, 1}, true},
                                {{2, 0}, {9, 9}, true},
                                {{4}, {1}, true},
                                {{4}, {2}, false},
                                {{}, {}, true},
                                {{2, 2, 3}, {6, 3, 1}, true}};
  for (const Case& test : cases) {
    Foreign<TypeParam> foreign;
    std::ranges::copy(test.shape, foreign.shape.begin());
    std::ranges::copy(test.strides, foreign.strides.begin());
    foreign.managed.dl_tensor.ndim = static_cast<std::int32_t>(test.shape.size());
    foreign.managed.dl_tensor.strides = foreign.strides.data();
    if (test.is_compact) {
      EXPECT_EQ(from_dlpack(&foreign.managed).shape(),
                Shape(std::span<const std::int64_t>(test.shape)));
      EXPECT_EQ(foreign.num_deletions, 1);
    } else {
      EXPECT_THAT(thrown<ValueError>([&] { (void)from_dlpack(&foreign.managed); }),
                  HasSubstr("expected compact row-major"))
          << ::testing::PrintToString(test.shape) << ::testing::PrintToString(test.strides);
      EXPECT_EQ(foreign.num_deletions, 0);
    }
  }
}

TYPED_TEST(DlpackTest, EveryDTypeHasItsCode) {
  for (const DType dtype : kAllDTypes) {
    Foreign<TypeParam> foreign;
    const DlpackType type = to_dlpack_type(dtype);
    foreign.managed.dl_tensor.dtype = {type.code, type.bits, 1};
    EXPECT_EQ(from_dlpack(&foreign.managed).dtype(), dtype);
  }
  const auto dtype_of_code = [](std::uint8_t code, std::uint8_t bits) {
    Foreign<TypeParam> foreign;
    foreign.managed.dl_tensor.dtype = {code, bits, 1};
    return from_dlpack(&foreign.managed).dtype();
  };
  EXPECT_EQ(dtype_of_code(kDLBool, 8), DType::BOOL);
  EXPECT_EQ(dtype_of_code(kDLFloat8_e4m3fn, 8), DType::FLOAT8_E4M3);
  EXPECT_EQ(dtype_of_code(kDLFloat8_e5m2, 8), DType::FLOAT8_E5M2);
  EXPECT_EQ(dtype_of_code(kDLBfloat, 16), DType::BFLOAT16);
  EXPECT_EQ(dtype_of_code(kDLFloat, 16), DType::FLOAT16);
  EXPECT_EQ(dtype_of_code(kDLComplex, 128), DType::COMPLEX128);
  EXPECT_EQ(dtype_of_code(kDLUInt, 64), DType::UINT64);
  EXPECT_EQ(dtype_of_code(kDLInt, 8), DType::INT8);
}

/// What is refused leaves the tensor with its owner.
template <class Managed>
void expect_refused(const std::function<void(DLTensor&)>& spoil, const std::string& text) {
  Foreign<Managed> foreign;
  spoil(foreign.managed.dl_tensor);
  EXPECT_THAT(thrown<ValueError>([&] { (void)from_dlpack(&foreign.managed); }), HasSubstr(text));
  EXPECT_EQ(foreign.num_deletions, 0);
}

TYPED_TEST(DlpackTest, WhatIsNotADenseTensorOfOursIsRefusedAndStaysWithItsOwner) {
  const auto refused = &expect_refused<TypeParam>;
  refused([](DLTensor& tensor) { tensor.dtype.lanes = 4; }, "1 lane, got 4");
  refused([](DLTensor& tensor) { tensor.dtype.lanes = 0; }, "1 lane, got 0");
  refused([](DLTensor& tensor) { tensor.dtype = {kDLOpaqueHandle, 64, 1}; }, "code 3 with 64 bits");
  refused([](DLTensor& tensor) { tensor.dtype = {kDLFloat4_e2m1fn, 4, 1}; }, "code 17 with 4 bits");
  refused([](DLTensor& tensor) { tensor.dtype = {kDLFloat, 80, 1}; }, "code 2 with 80 bits");
  refused([](DLTensor& tensor) { tensor.dtype = {kDLBool, 1, 1}; }, "code 6 with 1 bits");
  refused([](DLTensor& tensor) { tensor.device = {kDLROCM, 0}; }, "device type 10");
  refused([](DLTensor& tensor) { tensor.device.device_type = static_cast<DLDeviceType>(99); },
          "device type 99");
  refused([](DLTensor& tensor) { tensor.device = {kDLCUDA, 9}; }, "GPU:9: this host has 0 GPUs");
  refused([](DLTensor& tensor) { tensor.data = nullptr; }, "null");
  refused([](DLTensor& tensor) { tensor.byte_offset = 2; }, "not aligned to 4 bytes");
  refused([](DLTensor& tensor) { tensor.byte_offset = ~std::uint64_t{3}; }, "no memory lies");
  refused([](DLTensor& tensor) { tensor.ndim = -1; }, "-1 dimensions");
  refused([](DLTensor& tensor) { tensor.shape = nullptr; }, "2 dimensions");
  refused([](DLTensor& tensor) { tensor.shape[1] = -3; }, "-3");
  refused([](DLTensor& tensor) { tensor.shape[0] = tensor.shape[1] = std::int64_t{1} << 40; },
          "signed 64-bit");
  refused([](DLTensor& tensor) { tensor.shape[0] = std::int64_t{1} << 61; }, "overflow");
}

TYPED_TEST(DlpackTest, PinnedAndUnifiedMemoryIsHostMemory) {
  for (const DLDeviceType type : {kDLCPU, kDLCUDAHost, kDLCUDAManaged}) {
    Foreign<TypeParam> foreign;
    foreign.managed.dl_tensor.device = {type, 0};
    EXPECT_EQ(from_dlpack(&foreign.managed).device(), Device("CPU:0"));
  }
}

TYPED_TEST(DlpackTest, WithoutElementsThePointerMayBeNull) {
  Foreign<TypeParam> foreign;
  foreign.shape = {0, 3, 0, 0};
  foreign.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(from_dlpack(&foreign.managed).num_elements(), 0U);
  EXPECT_EQ(foreign.num_deletions, 1);
}

TYPED_TEST(DlpackTest, ScalarsNeedNoShape) {
  Foreign<TypeParam> foreign;
  foreign.managed.dl_tensor.ndim = 0;
  foreign.managed.dl_tensor.shape = nullptr;
  EXPECT_EQ(from_dlpack(&foreign.managed).shape(), Shape());
}

TYPED_TEST(DlpackTest, NullIsRefused) {
  EXPECT_THAT(thrown<ValueError>([] { (void)from_dlpack(static_cast<TypeParam*>(nullptr)); }),
              HasSubstr("null"));
}

TEST(DlpackVersionedTest, TheReadOnlyFlagIsKept) {
  Foreign<DLManagedTensorVersioned> foreign;
  foreign.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED;
  const Tensor tensor = from_dlpack(&foreign.managed);
  EXPECT_TRUE(tensor.is_read_only());
  EXPECT_EQ(tensor.span<const float>()[3], 3);
  EXPECT_THROW((void)tensor.span<float>(), ValueError);
}

TEST(DlpackVersionedTest, AnotherMinorVersionIsFineAnotherMajorOneIsGivenBack) {
  Foreign<DLManagedTensorVersioned> newer;
  newer.managed.version = {1, 99};
  EXPECT_TRUE(from_dlpack(&newer.managed));
  for (const std::uint32_t major : {0U, 2U, 4000000000U}) {
    Foreign<DLManagedTensorVersioned> foreign;
    foreign.managed.version = {major, 3};
    foreign.managed.dl_tensor.ndim = -7;  // whatever lies there has another meaning
    EXPECT_THAT(thrown<ValueError>([&] { (void)from_dlpack(&foreign.managed); }),
                AllOf(HasSubstr("1.x"), HasSubstr(std::to_string(major) + ".3")));
    EXPECT_EQ(foreign.num_deletions, 1);
    foreign.managed.deleter = nullptr;
    EXPECT_THROW((void)from_dlpack(&foreign.managed), ValueError);
  }
}

TEST(ToDlpackTest, ATensorGoesOutWithItsShapeAndLivesUntilTheDeleterRuns) {
  const std::size_t before = MemoryPool::of("CPU:9").statistics().bytes_in_use;
  Tensor tensor = Tensor::zeros(DType::INT16, {2, 3, 4}, "CPU:9");
  std::iota(tensor.span<short>().begin(), tensor.span<short>().end(), short{1});
  DLManagedTensor* out = to_dlpack(tensor);
  const DLTensor& lent = out->dl_tensor;
  EXPECT_EQ(lent.data, tensor.data());
  EXPECT_EQ(lent.device.device_type, kDLCPU);
  EXPECT_EQ(lent.device.device_id, 0);
  EXPECT_EQ(lent.byte_offset, 0U);
  EXPECT_EQ(lent.dtype.code, kDLInt);
  EXPECT_EQ(lent.dtype.bits, 16);
  EXPECT_EQ(lent.dtype.lanes, 1);
  ASSERT_EQ(lent.ndim, 3);
  EXPECT_THAT(std::span(lent.shape, 3), ElementsAre(2, 3, 4));
  EXPECT_THAT(std::span(lent.strides, 3), ElementsAre(12, 4, 1));
  tensor = Tensor();
  EXPECT_GT(MemoryPool::of("CPU:9").statistics().bytes_in_use, before);
  for (short i = 0; i < 24; ++i) EXPECT_EQ(static_cast<const short*>(lent.data)[i], i + 1);
  std::thread([out] { out->deleter(out); }).join();
  EXPECT_EQ(MemoryPool::of("CPU:9").statistics().bytes_in_use, before);
}

TEST(ToDlpackTest, TheVersionedFormSaysItsVersionAndWhetherItIsReadOnly) {
  const Tensor tensor = Tensor::zeros(DType::FLOAT8_E5M2, {5}, "CPU:0");
  DLManagedTensorVersioned* writable = to_dlpack_versioned(tensor);
  EXPECT_EQ(writable->version.major, 1U);
  EXPECT_EQ(writable->version.minor, 1U);
  EXPECT_EQ(writable->flags, 0U);
  EXPECT_EQ(writable->dl_tensor.dtype.code, kDLFloat8_e5m2);
  writable->deleter(writable);
  DLManagedTensorVersioned* locked = to_dlpack_versioned(tensor.as_read_only());
  EXPECT_EQ(locked->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
  locked->deleter(locked);
}

TEST(ToDlpackTest, TheUnversionedFormRefusesReadOnlyTensors) {
  const Tensor tensor = Tensor::zeros(DType::FLOAT32, {5}, "CPU:0");
  EXPECT_THAT(thrown<ValueError>([&] { (void)to_dlpack(tensor.as_read_only()); }),
              HasSubstr("to_dlpack_versioned"));
  EXPECT_THAT(thrown<ValueError>([] { (void)to_dlpack(Tensor()); }), HasSubstr("none"));
  EXPECT_THAT(thrown<ValueError>([] { (void)to_dlpack_versioned(Tensor()); }), HasSubstr("none"));
}

TEST(ToDlpackTest, TensorsWithoutElementsAndScalarsGoOutToo) {
  DLManagedTensor* nothing = to_dlpack(Tensor::empty(DType::FLOAT32, {0, 5, 7}, "CPU:0"));
  EXPECT_EQ(nothing->dl_tensor.data, nullptr);
  EXPECT_EQ(nothing->dl_tensor.shape[0], 0);
  EXPECT_TRUE(from_dlpack(nothing));
  DLManagedTensor* scalar = to_dlpack(Tensor::zeros(DType::FLOAT32, {}, "CPU:0"));
  EXPECT_EQ(scalar->dl_tensor.ndim, 0);
  scalar->deleter(scalar);
}

TEST(ToDlpackTest, EveryDTypeSurvivesTheRoundTrip) {
  for (const DType dtype : kAllDTypes) {
    const Tensor tensor = Tensor::zeros(dtype, {2, 1, 3}, "CPU:0");
    for (const Tensor& back :
         {from_dlpack(to_dlpack(tensor)), from_dlpack(to_dlpack_versioned(tensor))}) {
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.shape(), tensor.shape());
      EXPECT_EQ(back.data(), tensor.data());
    }
  }
}

TEST(ToDlpackTest, ItWaitsForOperationsUnderWay) {
  const Tensor tensor = Tensor::zeros(DType::INT32, {100}, "CPU:0");
  tensor.readiness().add();
  std::thread writer([&tensor] {
    for (int i = 0; i < 100; ++i) static_cast<int*>(tensor.data())[i] = i;
    tensor.readiness().remove();
  });
  DLManagedTensor* out = to_dlpack(tensor);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(static_cast<const int*>(out->dl_tensor.data)[i], i);
  writer.join();
  out->deleter(out);
}

}  // namespace
}  // namespace crossdevice
