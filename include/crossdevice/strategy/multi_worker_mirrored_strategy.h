// SPDX-License-Identifier: Apache-2.0
/// Replicas on the devices of several workers. TF counterpart: tf.distribute.MultiWorkerMirroredStrategy.
#pragma once

#include <memory>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/cluster_resolver.h"
#include "crossdevice/core/export.h"
#include "crossdevice/device/device.h"
#include "crossdevice/ops/communication_options.h"
#include "crossdevice/ops/cross_device_ops.h"
#include "crossdevice/strategy/strategy.h"

namespace crossdevice {

struct MultiWorkerMirroredStrategyOptions {
  /// Says who the workers are. Null: detect_cluster_resolver(), so the launcher says it.
  std::shared_ptr<const ClusterResolver> cluster_resolver{};
  /// What the options of each call are merged into. Equal implementation on all workers.
  CommunicationOptions communication_options{};
  /// This worker's, equally many and of one type on every worker. Empty: its share of the machine's GPUs, else CPU:0.
  Devices devices{};
  /// Workers that have met already, or have been rebuilt, instead of a resolver.
  std::shared_ptr<Cluster> cluster{};
  /// How the workers meet; with `cluster` they have.
  JoinOptions join_options{};
  /// Reduces one component per device of this worker over all workers. Null: CollectiveAllReduce.
  std::shared_ptr<CrossDeviceOps> cross_device_ops{};
};

/// Every worker runs the same program. Replica ids count through the workers: worker w of W with n devices has n w .. n w + n - 1 of n W.
///
/// Shapes   of reduce, gather and their kin: a value with one component per device of this worker is combined over all replicas; one with a single
///          component, and a plain Tensor, is this worker's and is combined over the workers. A Mirrored is equal everywhere and talks to nobody.
///          Results are equal on all workers.
/// Memory   components that are not on the worker's devices are copied there first; the in-place forms refuse them.
/// Ranks    the constructor is collective; the rest as Strategy. merge_call brings this worker's replicas together, what it calls brings the
///          workers together.
/// Errors   constructor: ValueError: a resolver and a cluster both, devices absent or named twice, invalid options (on every worker where they have met
///          already, in a cluster that was given); on every worker: they have different numbers or types of devices, or another implementation, names
///          both. Else as Cluster::join and CollectiveAllReduce.
///          A worker that dies: UnavailableError names it, from every call that communicates and at once. An exception that leaves run() is
///          announced: the others get AbortedError with its text, in what they wait for and what they begin later. After either the strategy is of no
///          more use: make a new one of what cluster()->rebuild() returns.
/// TF       no health-check thread: the cluster's connections are watched all the time. ONLY_FIRST_REPLICA is replica 0 of the whole job.
///          Variables of different names or shapes are noticed when they are made.
class CROSSDEVICE_EXPORT MultiWorkerMirroredStrategy : public Strategy {
 public:
  explicit MultiWorkerMirroredStrategy(const MultiWorkerMirroredStrategyOptions& options = {});
  ~MultiWorkerMirroredStrategy() override;
  MultiWorkerMirroredStrategy(const MultiWorkerMirroredStrategy&) = delete;
  MultiWorkerMirroredStrategy& operator=(const MultiWorkerMirroredStrategy&) = delete;

  [[nodiscard]] const std::shared_ptr<Cluster>& cluster() const { return cluster_; }
  /// Null where a cluster was given.
  [[nodiscard]] const std::shared_ptr<const ClusterResolver>& cluster_resolver() const {
    return resolver_;
  }

 private:
  struct Parts;
  explicit MultiWorkerMirroredStrategy(Parts parts);
  static Parts prepare(const MultiWorkerMirroredStrategyOptions& options);

  std::shared_ptr<const ClusterResolver> resolver_;
  std::shared_ptr<Cluster> cluster_;
};

}  // namespace crossdevice
