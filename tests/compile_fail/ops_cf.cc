// SPDX-License-Identifier: Apache-2.0
// What the interface of the ops must refuse to compile, and (outside the sections) what it must accept.
#include <cstdint>
#include <string>
#include <vector>

#include "crossdevice/crossdevice.h"

namespace cd = crossdevice;

void accepted(cd::CrossDeviceOps& ops, const cd::PerReplica& value, const cd::Tensor& tensor,
              const cd::IndexedSlices& slices, const cd::Variable& variable) {
  const std::string name = "CPU:1";
  const std::string_view view = name;
  const std::size_t run_time_size = 7;
  const std::int32_t negative = -1;
  const std::vector<std::string> names{"CPU:0"};
  (void)ops.reduce(cd::ReduceOp::SUM, value, "CPU:0");
  (void)ops.reduce(cd::ReduceOp::SUM, value, name);
  (void)ops.reduce(cd::ReduceOp::SUM, value, view);
  (void)ops.reduce(cd::ReduceOp::SUM, value, tensor);
  (void)ops.reduce(cd::ReduceOp::SUM, value, variable);
  (void)ops.reduce(cd::ReduceOp::SUM, tensor, value, {.bytes_per_pack = run_time_size});
  (void)ops.reduce(cd::ReduceOp::SUM, value, value, {.bytes_per_pack = negative});
  (void)ops.batch_reduce(cd::ReduceOp::SUM, {{value, value}, {tensor, "CPU:0"}});
  (void)cd::PerReplica{tensor, slices};
  (void)cd::Shape{run_time_size, 3};
  (void)cd::IndexedSlices{.values = tensor, .indices = tensor, .dense_shape = {run_time_size, 3}};
  (void)cd::Devices{{"CPU:0", "CPU:1"}};
  (void)cd::Devices(names);
}

#if defined(A_NULL_STREAM_LITERAL)  // error: deleted function
auto stream = cd::from_cuda(nullptr);
#endif

#if defined(A_STREAM_FROM_NOTHING)  // error: deleted
cd::StreamView stream;
#endif

#if defined(A_LIST_OF_STRINGS_AS_DEVICES)  // error: (conversion from|no viable conversion)
cd::Devices devices = std::vector<std::string>{"CPU:0", "CPU:1"};
#endif

#if defined(STRINGS_AS_DESTINATIONS)  // error: (cannot convert|no viable conversion)
cd::Mirrored result(cd::CrossDeviceOps& ops, const cd::PerReplica& value) {
  return ops.reduce(cd::ReduceOp::SUM, value, std::vector<std::string>{"CPU:0"});
}
#endif

#if defined(A_BOOL_AS_A_SIZE)  // error: (could not convert|no viable conversion)
cd::CommunicationOptions options{.bytes_per_pack = true};
#endif

#if defined(A_PER_REPLICA_AS_A_TENSOR)  // error: (conversion from|no viable conversion)
cd::Tensor tensor = cd::PerReplica();
#endif

#if defined(ARITHMETIC_ON_MIRRORED)  // error: (no match for|invalid operands)
auto sum = cd::Mirrored() + cd::Mirrored();
#endif

#if defined(COPYING_OPS)  // error: deleted
cd::ReductionToOneDevice copy(const cd::ReductionToOneDevice& ops) { return ops; }
#endif

#if defined(AN_ABSTRACT_OPS)  // error: (abstract|protected)
cd::CrossDeviceOps ops;
#endif

#if defined(MIRRORED_FROM_PER_REPLICA)  // error: (no matching function|invalid initialization)
cd::Tensor first(const cd::PerReplica& group) {
  return cd::select_replica_mirrored<cd::Tensor>(0, group);
}
#endif

#if defined(ITS_RESULT_UNUSED)  // error: (ignoring return value|nodiscard)
#pragma GCC diagnostic error "-Wunused-result"
void unused(cd::CrossDeviceOps& ops, const cd::PerReplica& value) {
  ops.reduce(cd::ReduceOp::SUM, value, value);
}
#endif
