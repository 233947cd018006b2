// SPDX-License-Identifier: Apache-2.0
// Which family of kernels serves an op and a dtype.
#include "crossdevice/device/reduce_kernel.h"

#include <cstring>

#include "device/host/kernels.h"

namespace crossdevice {
namespace {

bool is_small_float(DType dtype) { return is_floating(dtype) && size_in_bytes(dtype) <= 2; }

}  // namespace

ReduceKernel find_reduce_kernel(ReduceOp op, DType dtype) {
  if (!is_supported(op, dtype)) return nullptr;
  if (is_small_float(dtype)) return host::find_small_float_kernel(op, dtype);
  if (is_integer(dtype)) {
    const bool is_byte_product = op == ReduceOp::PROD && size_in_bytes(dtype) == 1;
    if (op == ReduceOp::MEAN || is_byte_product) return host::find_plain_kernel(op, dtype);
    return host::find_integer_kernel(op, dtype);
  }
  if (dtype == DType::BOOL) return host::find_integer_kernel(op, dtype);
  return host::find_float_kernel(op, dtype);
}

const char* reduce_kernel_target() { return host::kernel_target_name(); }

void divide_elements(DType dtype, void* data, std::size_t count, double divisor) {
  if (is_small_float(dtype)) {
    host::divide_small_floats(dtype, data, count, divisor);
  } else {
    host::divide_floats(dtype, data, count, divisor);
  }
}

void copy_bytes(void* destination, const void* source, std::size_t size_bytes, StoreMode stores) {
  if (size_bytes == 0) return;
  if (stores == StoreMode::STREAMING) {
    host::stream_bytes(destination, source, size_bytes);
  } else {
    std::memcpy(destination, source, size_bytes);
  }
}

void accumulate_elements(DType dtype, void* accumulator, const void* row, std::size_t count) {
  const void* const inputs[] = {accumulator, row};
  void* const outputs[] = {accumulator};
  find_reduce_kernel(ReduceOp::SUM, dtype)(
      {ReduceOp::SUM, dtype, inputs, outputs, 0, StoreMode::CACHED}, 0, count);
}

}  // namespace crossdevice
