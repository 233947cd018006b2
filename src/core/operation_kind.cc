// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/core/operation_kind.h"

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

constinit const Counter kTimeouts("crossdevice_timeouts_total", "",
                                  "Operations that threw DeadlineExceededError.");

}  // namespace

constinit const OperationKind kReduce("reduce", "kind=\"reduce\"");
constinit const OperationKind kBatchReduce("batch_reduce", "kind=\"batch_reduce\"");
constinit const OperationKind kBroadcast("broadcast", "kind=\"broadcast\"");
constinit const OperationKind kGather("gather", "kind=\"gather\"");
constinit const OperationKind kAllReduce("all_reduce", "kind=\"all_reduce\"");
constinit const OperationKind kReduceScatter("reduce_scatter", "kind=\"reduce_scatter\"");
constinit const OperationKind kAllGather("all_gather", "kind=\"all_gather\"");
constinit const OperationKind kBarrier("barrier", "kind=\"barrier\"");

void OperationKind::count_failure(const std::exception_ptr& error) const noexcept {
  failures.add();
  try {
    std::rethrow_exception(error);
  } catch (const DeadlineExceededError&) {
    kTimeouts.add();
  } catch (...) {  // NOLINT(bugprone-empty-catch): all others are failures alone
  }
}

void count_late_failure(const std::exception_ptr& error) noexcept {
  const OperationKind* found = &kReduce;
  try {
    std::rethrow_exception(error);
  } catch (const OpError& known) {
    for (const OperationKind* each : {&kReduce, &kBatchReduce, &kBroadcast, &kGather, &kAllReduce,
                                      &kReduceScatter, &kAllGather, &kBarrier}) {
      if (known.operation().kind == each->name) found = each;
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): it does not say
  }
  found->count_failure(error);
}

}  // namespace crossdevice::detail
