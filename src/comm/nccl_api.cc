// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/nccl_api.h"

namespace crossdevice::detail {
namespace {

std::optional<NcclDataType> data_type(DType dtype) {
  switch (dtype) {
    case DType::BOOL:
    case DType::UINT8:
      return NcclDataType::UINT8;
    case DType::INT8:
      return NcclDataType::INT8;
    case DType::INT32:
      return NcclDataType::INT32;
    case DType::UINT32:
      return NcclDataType::UINT32;
    case DType::INT64:
      return NcclDataType::INT64;
    case DType::UINT64:
      return NcclDataType::UINT64;
    case DType::FLOAT16:
      return NcclDataType::FLOAT16;
    case DType::BFLOAT16:
      return NcclDataType::BFLOAT16;
    case DType::FLOAT32:
    case DType::COMPLEX64:
      return NcclDataType::FLOAT32;
    case DType::FLOAT64:
    case DType::COMPLEX128:
      return NcclDataType::FLOAT64;
    case DType::FLOAT8_E4M3:
      return NcclDataType::FLOAT8_E4M3;
    case DType::FLOAT8_E5M2:
      return NcclDataType::FLOAT8_E5M2;
    case DType::INT16:
    case DType::UINT16:
      break;
  }
  return std::nullopt;
}

bool is_float8(DType dtype) { return dtype == DType::FLOAT8_E4M3 || dtype == DType::FLOAT8_E5M2; }

constexpr int kComputeCapabilityWithFloat8 = 90;

}  // namespace

std::optional<NcclReduction> nccl_reduction(ReduceOp op, DType dtype, NcclVersion version,
                                            int compute_capability) {
  const std::optional<NcclDataType> type = data_type(dtype);
  if (!type.has_value() || !is_supported(op, dtype)) return std::nullopt;
  if (is_float8(dtype) &&
      (version < kNcclWithFloat8 || compute_capability < kComputeCapabilityWithFloat8)) {
    return std::nullopt;
  }
  const bool loses_nan = is_floating(dtype);
  const std::size_t parts = is_complex(dtype) ? 2 : 1;
  switch (op) {
    case ReduceOp::SUM:
      return NcclReduction{*type, NcclRedOp::SUM, parts};
    case ReduceOp::MEAN:
      if (is_integer(dtype)) return std::nullopt;
      return NcclReduction{*type, NcclRedOp::SUM, parts};
    case ReduceOp::PROD:
      if (is_complex(dtype)) return std::nullopt;
      return NcclReduction{*type, dtype == DType::BOOL ? NcclRedOp::MIN : NcclRedOp::PROD, 1};
    case ReduceOp::MIN:
      if (loses_nan) return std::nullopt;
      return NcclReduction{*type, NcclRedOp::MIN, 1};
    case ReduceOp::MAX:
      if (loses_nan) return std::nullopt;
      return NcclReduction{*type, NcclRedOp::MAX, 1};
  }
  return std::nullopt;
}

}  // namespace crossdevice::detail
