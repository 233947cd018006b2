// SPDX-License-Identifier: Apache-2.0
// Every DType has the size, name, class, DLPack code and C++ type that it should have.
#include "crossdevice/core/dtype.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace crossdevice {
namespace {

struct Row {
  DType dtype;
  std::size_t size_bytes;
  const char* name;
  char kind;  // b: bool, i: integer, f: floating, c: complex
  DType mean;
  DlpackType dlpack;
};

constexpr Row kTable[] = {
    {DType::BOOL, 1, "bool", 'b', DType::BOOL, {6, 8}},
    {DType::INT8, 1, "int8", 'i', DType::FLOAT32, {0, 8}},
    {DType::INT16, 2, "int16", 'i', DType::FLOAT32, {0, 16}},
    {DType::INT32, 4, "int32", 'i', DType::FLOAT64, {0, 32}},
    {DType::INT64, 8, "int64", 'i', DType::FLOAT64, {0, 64}},
    {DType::UINT8, 1, "uint8", 'i', DType::FLOAT32, {1, 8}},
    {DType::UINT16, 2, "uint16", 'i', DType::FLOAT32, {1, 16}},
    {DType::UINT32, 4, "uint32", 'i', DType::FLOAT64, {1, 32}},
    {DType::UINT64, 8, "uint64", 'i', DType::FLOAT64, {1, 64}},
    {DType::FLOAT8_E4M3, 1, "float8_e4m3fn", 'f', DType::FLOAT8_E4M3, {10, 8}},
    {DType::FLOAT8_E5M2, 1, "float8_e5m2", 'f', DType::FLOAT8_E5M2, {12, 8}},
    {DType::FLOAT16, 2, "float16", 'f', DType::FLOAT16, {2, 16}},
    {DType::BFLOAT16, 2, "bfloat16", 'f', DType::BFLOAT16, {4, 16}},
    {DType::FLOAT32, 4, "float32", 'f', DType::FLOAT32, {2, 32}},
    {DType::FLOAT64, 8, "float64", 'f', DType::FLOAT64, {2, 64}},
    {DType::COMPLEX64, 8, "complex64", 'c', DType::COMPLEX64, {5, 64}},
    {DType::COMPLEX128, 16, "complex128", 'c', DType::COMPLEX128, {5, 128}},
};

class DTypeTest : public ::testing::TestWithParam<Row> {};

TEST_P(DTypeTest, HasItsSizeAndMeanType) {
  EXPECT_EQ(size_in_bytes(GetParam().dtype), GetParam().size_bytes);
  EXPECT_EQ(mean_dtype(GetParam().dtype), GetParam().mean);
}

TEST_P(DTypeTest, ItsNameReadsBack) {
  EXPECT_EQ(to_string(GetParam().dtype), GetParam().name);
  EXPECT_EQ(dtype_from_string(GetParam().name), GetParam().dtype);
}

TEST_P(DTypeTest, BelongsToOneClass) {
  EXPECT_EQ(is_integer(GetParam().dtype), GetParam().kind == 'i');
  EXPECT_EQ(is_floating(GetParam().dtype), GetParam().kind == 'f');
  EXPECT_EQ(is_complex(GetParam().dtype), GetParam().kind == 'c');
}

TEST_P(DTypeTest, ItsDlpackTypeReadsBack) {
  EXPECT_EQ(to_dlpack_type(GetParam().dtype), GetParam().dlpack);
  EXPECT_EQ(dtype_from_dlpack(GetParam().dlpack), GetParam().dtype);
}

INSTANTIATE_TEST_SUITE_P(All, DTypeTest, ::testing::ValuesIn(kTable),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(AllDTypesTest, HoldsEveryDTypeOnceInDeclarationOrder) {
  ASSERT_EQ(kNumDTypes, std::size(kTable));
  for (std::size_t i = 0; i < kNumDTypes; ++i) {
    EXPECT_EQ(kAllDTypes[i], kTable[i].dtype) << i;
    EXPECT_EQ(static_cast<std::size_t>(kAllDTypes[i]), i);
  }
}

TEST(DTypeFromStringTest, TakesTensorFlowsAliases) {
  EXPECT_EQ(dtype_from_string("half"), DType::FLOAT16);
  EXPECT_EQ(dtype_from_string("float"), DType::FLOAT32);
  EXPECT_EQ(dtype_from_string("double"), DType::FLOAT64);
}

TEST(DTypeFromStringTest, OtherNamesGiveNothing) {
  for (const char* name : {"", "FLOAT32", "float32 ", "string", "int", "float8_e4m3"}) {
    EXPECT_EQ(dtype_from_string(name), std::nullopt) << name;
  }
}

TEST(DTypeFromDlpackTest, AcceptsNoPairOutsideTheTable) {
  std::size_t accepted = 0;
  for (unsigned code = 0; code < 256; ++code) {
    for (unsigned bits = 0; bits < 256; ++bits) {
      const DlpackType type{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits)};
      if (dtype_from_dlpack(type).has_value()) ++accepted;
    }
  }
  EXPECT_EQ(accepted, kNumDTypes);
}

template <class T>
constexpr bool kHasSizeOfItsDType = sizeof(T) == size_in_bytes(dtype_of<T>);

TEST(DTypeOfTest, EveryElementTypeHasADTypeOfItsSize) {
  static_assert(kHasSizeOfItsDType<bool>);
  static_assert(kHasSizeOfItsDType<float8_e4m3>);
  static_assert(kHasSizeOfItsDType<float8_e5m2>);
  static_assert(kHasSizeOfItsDType<float16>);
  static_assert(kHasSizeOfItsDType<bfloat16>);
  static_assert(kHasSizeOfItsDType<float>);
  static_assert(kHasSizeOfItsDType<double>);
  static_assert(kHasSizeOfItsDType<std::complex<float>>);
  static_assert(kHasSizeOfItsDType<std::complex<double>>);
  const std::set<DType> seen = {dtype_of<bool>,
                                dtype_of<std::int8_t>,
                                dtype_of<std::int16_t>,
                                dtype_of<std::int32_t>,
                                dtype_of<std::int64_t>,
                                dtype_of<std::uint8_t>,
                                dtype_of<std::uint16_t>,
                                dtype_of<std::uint32_t>,
                                dtype_of<std::uint64_t>,
                                dtype_of<float8_e4m3>,
                                dtype_of<float8_e5m2>,
                                dtype_of<float16>,
                                dtype_of<bfloat16>,
                                dtype_of<float>,
                                dtype_of<double>,
                                dtype_of<std::complex<float>>,
                                dtype_of<std::complex<double>>};
  EXPECT_EQ(seen.size(), kNumDTypes);
}

TEST(DTypeOfTest, EveryFundamentalIntegerHasOneOfItsSizeAndSign) {
  static_assert(dtype_of<signed char> == DType::INT8);
  static_assert(dtype_of<unsigned char> == DType::UINT8);
  static_assert(dtype_of<short> == DType::INT16);
  static_assert(dtype_of<unsigned short> == DType::UINT16);
  static_assert(dtype_of<int> == DType::INT32);
  static_assert(dtype_of<unsigned> == DType::UINT32);
  static_assert(dtype_of<long long> == DType::INT64);
  static_assert(dtype_of<unsigned long long> == DType::UINT64);
  static_assert(kHasSizeOfItsDType<long> && kHasSizeOfItsDType<unsigned long>);
  static_assert(is_integer(dtype_of<long>) && is_integer(dtype_of<unsigned long>));
  static_assert(dtype_of<long> != dtype_of<unsigned long>);
}

TEST(DTypeOfTest, OtherTypesAreNoElements) {
  static_assert(!Element<char>);
  static_assert(!Element<void>);
  static_assert(!Element<long double>);
  static_assert(!Element<std::string>);
  static_assert(!Element<const float>);
  static_assert(!Element<float&>);
  static_assert(!Element<float*>);
  static_assert(!Element<DType>);
}

}  // namespace
}  // namespace crossdevice
