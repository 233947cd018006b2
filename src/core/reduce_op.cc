// SPDX-License-Identifier: Apache-2.0
// The names of reduce ops.
#include "crossdevice/core/reduce_op.h"

#include <algorithm>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

// Not std::toupper, which follows the locale.
char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM:
      return "SUM";
    case ReduceOp::MEAN:
      return "MEAN";
    case ReduceOp::MIN:
      return "MIN";
    case ReduceOp::MAX:
      return "MAX";
    case ReduceOp::PROD:
      return "PROD";
  }
  return "invalid reduce op";
}

ReduceOp reduce_op_from_string(std::string_view name) {
  for (const ReduceOp op : kAllReduceOps) {
    if (std::ranges::equal(name, to_string(op), {}, upper)) return op;
  }
  throw ValueError(fmt::format("reduce op: expected SUM, MEAN, MIN, MAX or PROD, got '{}'", name));
}

}  // namespace crossdevice
