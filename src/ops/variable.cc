// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/variable.h"

#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice {

std::string_view to_string(VariableAggregation aggregation) {
  switch (aggregation) {
    case VariableAggregation::NONE:
      return "NONE";
    case VariableAggregation::SUM:
      return "SUM";
    case VariableAggregation::MEAN:
      return "MEAN";
    case VariableAggregation::ONLY_FIRST_REPLICA:
      return "ONLY_FIRST_REPLICA";
  }
  return "?";
}

ReduceOp reduce_op_from(VariableAggregation aggregation) {
  switch (aggregation) {
    case VariableAggregation::SUM:
      return ReduceOp::SUM;
    case VariableAggregation::MEAN:
      return ReduceOp::MEAN;
    case VariableAggregation::NONE:
    case VariableAggregation::ONLY_FIRST_REPLICA:
      break;
  }
  throw ValueError(
      fmt::format("aggregation {} is no reduction: only SUM and MEAN are", to_string(aggregation)));
}

Variable::Variable(std::string name, PerReplica components, VariableAggregation aggregation)
    : name_(std::move(name)), components_(std::move(components)), aggregation_(aggregation) {
  if (components_.empty() || components_.is_sparse()) {
    throw ValueError(fmt::format("variable '{}' needs dense components, got {}", name_,
                                 components_.to_string()));
  }
  const DType dtype = components_.dtype();
  if (aggregation_ == VariableAggregation::MEAN && !is_floating(dtype) && !is_complex(dtype)) {
    throw ValueError(
        fmt::format("variable '{}': aggregation MEAN needs a floating-point dtype, not {}", name_,
                    crossdevice::to_string(dtype)));
  }
}

}  // namespace crossdevice
