// SPDX-License-Identifier: Apache-2.0
/// The launches that CUDA's compiler builds, one function for each of its source files. They return cudaError_t as the number it is.
#pragma once

#include "crossdevice/device/cuda_api.h"

#include "device/cuda/copy_plan.h"
#include "device/cuda/reduce_plan.h"

namespace crossdevice::cuda {

int launch_float8_e4m3(ReducePlan& plan, detail::CudaStream stream);
int launch_float8_e5m2(ReducePlan& plan, detail::CudaStream stream);
int launch_float16(ReducePlan& plan, detail::CudaStream stream);
int launch_bfloat16(ReducePlan& plan, detail::CudaStream stream);
int launch_float32(ReducePlan& plan, detail::CudaStream stream);
int launch_float64(ReducePlan& plan, detail::CudaStream stream);
int launch_bits8(ReducePlan& plan, detail::CudaStream stream);
int launch_bits16(ReducePlan& plan, detail::CudaStream stream);
int launch_bits32(ReducePlan& plan, detail::CudaStream stream);
int launch_bits64(ReducePlan& plan, detail::CudaStream stream);

int launch_byte_copies(const detail::CopyLaunch& launch);
int launch_conversions_from_float8_e4m3(const detail::CopyLaunch& launch);
int launch_conversions_from_float8_e5m2(const detail::CopyLaunch& launch);
int launch_conversions_from_float16(const detail::CopyLaunch& launch);
int launch_conversions_from_bfloat16(const detail::CopyLaunch& launch);
int launch_conversions_from_float32(const detail::CopyLaunch& launch);
int launch_conversions_from_float64(const detail::CopyLaunch& launch);

}  // namespace crossdevice::cuda
