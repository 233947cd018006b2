// SPDX-License-Identifier: Apache-2.0
// The names and DLPack codes of element types.
#include "crossdevice/core/dtype.h"

namespace crossdevice {

static_assert(size_in_bytes(static_cast<DType>(kNumDTypes)) == 0, "kAllDTypes lacks a dtype");

namespace {

// DLPack's DLDataTypeCode, as far as it has a DType (the float8 codes came with DLPack 1.1).
constexpr std::uint8_t kDlInt = 0;
constexpr std::uint8_t kDlUint = 1;
constexpr std::uint8_t kDlFloat = 2;
constexpr std::uint8_t kDlBfloat = 4;
constexpr std::uint8_t kDlComplex = 5;
constexpr std::uint8_t kDlBool = 6;
constexpr std::uint8_t kDlFloat8E4m3fn = 10;
constexpr std::uint8_t kDlFloat8E5m2 = 12;

}  // namespace

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::BOOL:
      return "bool";
    case DType::INT8:
      return "int8";
    case DType::INT16:
      return "int16";
    case DType::INT32:
      return "int32";
    case DType::INT64:
      return "int64";
    case DType::UINT8:
      return "uint8";
    case DType::UINT16:
      return "uint16";
    case DType::UINT32:
      return "uint32";
    case DType::UINT64:
      return "uint64";
    case DType::FLOAT8_E4M3:
      return "float8_e4m3fn";
    case DType::FLOAT8_E5M2:
      return "float8_e5m2";
    case DType::FLOAT16:
      return "float16";
    case DType::BFLOAT16:
      return "bfloat16";
    case DType::FLOAT32:
      return "float32";
    case DType::FLOAT64:
      return "float64";
    case DType::COMPLEX64:
      return "complex64";
    case DType::COMPLEX128:
      return "complex128";
  }
  return "invalid dtype";
}

std::optional<DType> dtype_from_string(std::string_view name) {
  for (const DType dtype : kAllDTypes) {
    if (name == to_string(dtype)) return dtype;
  }
  if (name == "half") return DType::FLOAT16;
  if (name == "float") return DType::FLOAT32;
  if (name == "double") return DType::FLOAT64;
  return std::nullopt;
}

DlpackType to_dlpack_type(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_in_bytes(dtype));
  switch (dtype) {
    case DType::BOOL:
      return {kDlBool, bits};
    case DType::INT8:
    case DType::INT16:
    case DType::INT32:
    case DType::INT64:
      return {kDlInt, bits};
    case DType::UINT8:
    case DType::UINT16:
    case DType::UINT32:
    case DType::UINT64:
      return {kDlUint, bits};
    case DType::FLOAT8_E4M3:
      return {kDlFloat8E4m3fn, bits};
    case DType::FLOAT8_E5M2:
      return {kDlFloat8E5m2, bits};
    case DType::BFLOAT16:
      return {kDlBfloat, bits};
    case DType::FLOAT16:
    case DType::FLOAT32:
    case DType::FLOAT64:
      return {kDlFloat, bits};
    case DType::COMPLEX64:
    case DType::COMPLEX128:
      return {kDlComplex, bits};
  }
  return {};
}

std::optional<DType> dtype_from_dlpack(DlpackType type) {
  for (const DType dtype : kAllDTypes) {
    if (type == to_dlpack_type(dtype)) return dtype;
  }
  return std::nullopt;
}

}  // namespace crossdevice
