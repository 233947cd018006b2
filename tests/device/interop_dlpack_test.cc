// SPDX-License-Identifier: Apache-2.0
/// interop_dlpack.h behind a program's own DLPack header from before 1.0 adds the versioned tensor and nothing else.

// What such a header declares, in its own way: C's typedefs, no fixed underlying types, no versions.
#define DLPACK_DLPACK_H_
#define DLPACK_VERSION 60
#include <cstdint>
extern "C" {
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 } DLDeviceType;
typedef struct {
  DLDeviceType device_type;
  int device_id;
} DLDevice;
typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U, kDLBfloat = 4U } DLDataTypeCode;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;
}

#include <gtest/gtest.h>

#include "crossdevice/device/dlpack.h"
#include "crossdevice/device/interop_dlpack.h"

namespace crossdevice {
namespace {

TEST(InteropDlpackTest, BothFormsPassThroughAnOldHeadersTypes) {
  const Tensor tensor = Tensor::zeros(DType::FLOAT32, {2, 3}, "CPU:0");
  DLManagedTensor* old_form = to_dlpack(tensor);
  EXPECT_EQ(old_form->dl_tensor.data, tensor.data());
  EXPECT_EQ(old_form->dl_tensor.shape[1], 3);
  EXPECT_EQ(from_dlpack(old_form).data(), tensor.data());

  DLManagedTensorVersioned* new_form = to_dlpack_versioned(tensor.as_read_only());
  EXPECT_EQ(new_form->version.major, 1U);
  EXPECT_EQ(new_form->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
  EXPECT_EQ(new_form->dl_tensor.device.device_type, kDLCPU);
  const Tensor back = from_dlpack(new_form);
  EXPECT_TRUE(back.is_read_only());
  EXPECT_EQ(back.shape(), Shape({2, 3}));
}

TEST(InteropDlpackTest, TheOldHeaderStaysWhatItWas) {
#ifdef DLPACK_MAJOR_VERSION
  FAIL() << "an old header must not look like a new one";
#endif
  EXPECT_EQ(DLPACK_VERSION, 60);
}

}  // namespace
}  // namespace crossdevice
