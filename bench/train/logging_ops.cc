// SPDX-License-Identifier: Apache-2.0
/// Cross-device ops with a clock around their hooks.
#include "train/logging_ops.h"

#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/ops/hierarchical_copy_all_reduce.h"
#include "crossdevice/ops/multi_worker_all_reduce.h"
#include "crossdevice/ops/nccl_all_reduce.h"
#include "crossdevice/ops/reduction_to_one_device.h"

#include "support/named_ops.h"

namespace crossdevice::train {

namespace {

template <class Ops>
class LoggingOps final : public Ops {
 public:
  template <class... Arguments>
  explicit LoggingOps(CommunicationLog& log, Arguments&&... arguments)
      : Ops(std::forward<Arguments>(arguments)...), log_(log) {}

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    const CommunicationLog::Scope scope(log_);
    return Ops::reduce_implementation(op, value, destinations, options);
  }
  std::vector<Mirrored> batch_reduce_implementation(ReduceOp op,
                                                    std::span<const ValueDestinationPair> pairs,
                                                    const CommunicationOptions& options) override {
    const CommunicationLog::Scope scope(log_);
    if constexpr (std::is_same_v<Ops, ReductionToOneDevice>) {
      return Ops::batch_reduce_together(op, pairs, options);
    } else {
      return Ops::batch_reduce_implementation(op, pairs, options);
    }
  }

 private:
  CommunicationLog& log_;
};

}  // namespace

std::shared_ptr<CrossDeviceOps> make_logging_ops(std::string_view name, const Devices& devices,
                                                 CommunicationLog& log) {
  const std::string actual = programs::make_ops(name, devices, {}).name;
  if (actual == "nccl") return std::make_shared<LoggingOps<NcclAllReduce>>(log);
  if (actual == "hierarchical_copy") {
    return std::make_shared<LoggingOps<HierarchicalCopyAllReduce>>(log);
  }
  if (actual == "multi_worker") {
    return std::make_shared<LoggingOps<MultiWorkerAllReduce>>(log, programs::workers_of(devices),
                                                              static_cast<int>(devices.size()));
  }
  return std::make_shared<LoggingOps<ReductionToOneDevice>>(log);
}

std::shared_ptr<CrossDeviceOps> make_logging_collective_ops(const Devices& devices,
                                                            std::shared_ptr<Cluster> cluster,
                                                            CommunicationLog& log) {
  const int group_size = cluster->num_workers() * static_cast<int>(devices.size());
  return std::make_shared<LoggingOps<CollectiveAllReduce>>(
      log, devices, group_size, CommunicationOptions{}, std::move(cluster));
}

}  // namespace crossdevice::train
