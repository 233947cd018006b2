// SPDX-License-Identifier: Apache-2.0
/// The `op` of the strategy layer: a ReduceOp, or its name in any case ("sum", "MEAN"), as TF takes both here.
#pragma once

#include <string>
#include <string_view>

#include "crossdevice/core/reduce_op.h"

namespace crossdevice {

/// Errors   ValueError: a name that no ReduceOp has.
class ReduceOpArgument {
 public:
  // NOLINTBEGIN(google-explicit-constructor): TF takes the name too
  ReduceOpArgument(ReduceOp op) : op_(op) {}
  ReduceOpArgument(const char* name) : op_(reduce_op_from_string(name)) {}
  ReduceOpArgument(std::string_view name) : op_(reduce_op_from_string(name)) {}
  ReduceOpArgument(const std::string& name) : op_(reduce_op_from_string(name)) {}
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] ReduceOp op() const { return op_; }

 private:
  ReduceOp op_;
};

}  // namespace crossdevice
