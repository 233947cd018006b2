// SPDX-License-Identifier: Apache-2.0
// Calls of floor 0 that must not compile.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/core/dtype.h"
#include "crossdevice/core/int64.h"
#include "crossdevice/core/reduce_op.h"
#include "crossdevice/core/shape.h"
#include "crossdevice/core/small_floats.h"

namespace cd = crossdevice;

void right() {
  const std::size_t n = 3;
  [[maybe_unused]] cd::Int64 from_size = n;
  [[maybe_unused]] cd::Shape shape = {n, 4};
  [[maybe_unused]] cd::MaybeShape maybe = {n, 4};
  [[maybe_unused]] cd::DType dtype = cd::dtype_of<float>;
  [[maybe_unused]] cd::float16 half(1.0f);
  [[maybe_unused]] float back = static_cast<float>(half);
}

#if defined(INT64_FROM_BOOL)  // error: conversion
cd::Int64 from_bool = true;
#endif

#if defined(INT64_FROM_DOUBLE)  // error: conversion
cd::Int64 from_double = 1.5;
#endif

#if defined(INT64_FROM_CHAR)  // error: conversion
cd::Int64 from_char = 'a';
#endif

#if defined(INT64_FROM_A_POINTER)  // error: conversion
cd::Int64 from_pointer = nullptr;
#endif

#if defined(INT64_CONSTANT_THAT_DOES_NOT_FIT)  // error: (constant expression|non-.*constexpr)
constexpr cd::Int64 too_large = UINT64_MAX;
#endif

#if defined(SHAPE_WITH_A_FRACTION)  // error: (no matching constructor|could not convert)
cd::Shape fraction = {2.5};
#endif

#if defined(SHAPE_FROM_A_NUMBER)  // error: conversion
cd::Shape number = 3;
#endif

#if defined(SHAPE_FROM_A_VECTOR_IMPLICITLY)  // error: conversion
const std::vector<std::int64_t> dims = {1, 2};
cd::Shape implicit = dims;
#endif

#if defined(DTYPE_OF_A_STRING)  // error: (constraint|invalid variable template)
cd::DType text = cd::dtype_of<std::string>;
#endif

#if defined(DTYPE_OF_A_CONST_TYPE)  // error: (constraint|invalid variable template)
cd::DType constant = cd::dtype_of<const float>;
#endif

#if defined(DTYPE_FROM_A_NUMBER)  // error: cannot (convert|initialize)
cd::DType number_as_dtype = 3;
#endif

#if defined(SMALL_FLOAT_IMPLICITLY)  // error: conversion
cd::bfloat16 implicit_rounding = 1.0f;
#endif

#if defined(SMALL_FLOAT_ARITHMETIC)  // error: (invalid operands|no match)
auto sum = cd::float16(1.0f) + cd::float16(2.0f);
#endif

#if defined(REDUCE_OP_FROM_A_STRING)  // error: cannot (convert|initialize)
cd::ReduceOp op = "SUM";
#endif
