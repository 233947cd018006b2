// SPDX-License-Identifier: Apache-2.0
#include "ops/detail/host_part.h"

#include "crossdevice/comm/group_operation.h"
#include "crossdevice/core/fingerprint.h"

#include "ops/detail/component_reduce.h"
#include "ops/detail/kind_text.h"

namespace crossdevice::detail {
namespace {

/// Differs from what NCCL's calls have, where the kind is too long to say so.
constexpr std::uint64_t kOnHosts = 1;

/// What all workers must agree on. Of values of any size that is what the engine compares.
GroupOperationInfo operation_of(const HostPart::Call& call, const KindText& kind) {
  Fingerprint fingerprint;
  fingerprint.add(
      call.request.fingerprint, kOnHosts,
      (call.request.deterministic ? 1U : 0U) | (call.request.grouping_independent ? 2U : 0U));
  GroupOperationInfo operation{.kind = call.request.kind,
                               .reduce_op = call.request.op,
                               .fingerprint = fingerprint.value(),
                               .sequence = call.request.sequence};
  const auto add = [&operation](const PerReplica& value) {
    if (operation.num_values++ == 0) operation.dtype = value.dtype();
    if (!value.is_sparse()) operation.size_bytes += value.values()[0].size_bytes();
  };
  for (const PerReplica& value : call.value) add(value);
  for (const ValueDestinationPair& pair : call.batch) add(pair.value);
  if (operation.num_values > 0) operation.kind = kind.view();
  return operation;
}

}  // namespace

void HostPart::compare() {
  if (call_.is_compared) {
    call_.nccl->continue_on_hosts();
  } else {
    // Where others go through NCCL, that is the difference.
    const KindText kind("{} on hosts", call_.request.kind);
    call_.nccl->begin_on_hosts(operation_of(call_, kind), gpu_operation(call_.active));
  }
  has_begun_ = true;
}

void HostPart::end() {
  if (has_begun_) call_.nccl->end_on_hosts();
}

void HostPart::fail(const std::exception_ptr& error) {
  const bool is_counted = has_begun_ || call_.is_compared;
  const bool is_known = call_.num_unknown == call_.num_unknown_before;
  if (is_counted && !is_known) call_.nccl->fail_on_hosts(error);
  end();
  std::rethrow_exception(error);
}

}  // namespace crossdevice::detail
