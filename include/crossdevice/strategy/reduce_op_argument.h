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
  ReduceOpArgument(ReduceOp op) : op_(op) {}  // NOLINT(google-explicit-constructor)
  ReduceOpArgument(const char* name)
      : op_(reduce_op_from_string(name)) {}  // NOLINT(google-explicit-constructor)
  ReduceOpArgument(std::string_view name)
      : op_(reduce_op_from_string(name)) {}  // NOLINT(google-explicit-constructor)
  ReduceOpArgument(const std::string& name)
      : op_(reduce_op_from_string(name)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] ReduceOp op() const { return op_; }

 private:
  ReduceOp op_;
};

}  // namespace crossdevice
