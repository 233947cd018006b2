// SPDX-License-Identifier: Apache-2.0
/// Workers that exchange messages, and how an operation among them begins, fails and is explained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/collective/all_reduce_choice.h"
#include "crossdevice/collective/collective_request.h"
#include "crossdevice/collective/schedule_executor.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/comm/group_operation.h"
#include "crossdevice/comm/transport.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"

#include "collective/detail/inquest.h"
#include "collective/detail/message_barrier.h"
#include "collective/detail/scratch_memory.h"

namespace crossdevice::detail {

/// Threads  one at a time.
class TransportGroup {
 public:
  /// So many workers are connected to each other from the start; of more, each to those that a barrier needs.
  static constexpr int kMeshRanks = 16;

  /// Collective. Connects everybody to whom it needs, and to its `peers`, who name it too; then measures the links where a
  /// choice depends on them; all of it by the deadline.
  TransportGroup(std::shared_ptr<Cluster> cluster, std::unique_ptr<Transport> transport,
                 const Deadline& deadline, std::span<const int> peers = {});
  TransportGroup(const TransportGroup&) = delete;
  TransportGroup& operator=(const TransportGroup&) = delete;

  [[nodiscard]] Cluster& cluster() const { return *cluster_; }
  [[nodiscard]] Transport& transport() const { return *transport_; }
  [[nodiscard]] ScheduleExecutor& executor() { return executor_; }
  [[nodiscard]] std::size_t num_ranks() const { return num_ranks_; }
  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] bool is_mesh() const { return is_mesh_; }
  /// With links, unless every size is pinned.
  [[nodiscard]] const AllReduceTuning& tuning() const { return tuning_; }

  /// Runs an operation so that all workers learn how it failed. `body` may send and receive.
  template <class Body>
  void run(const CollectiveRequest& request, const GroupOperationInfo& info, Body body) {
    require_whole();
    outputs_are_written_ = false;
    const Presence presence(*cluster_, request.kind, request.sequence);
    try {
      inquest_.begin(pack_operation(info), request.deadline);
      transport_->begin(info);
      body();
      // The others may have given up before this worker came, though their messages were still there.
      transport_->poll();
    } catch (const OpError& failure) {
      explain(request, failure);
    } catch (const std::exception& failure) {
      tell(request, failure);
      throw;
    }
  }
  /// Of the operation under way, from now on: outputs that are inputs may be written.
  void set_outputs_written() { outputs_are_written_ = true; }
  /// Returns when all are known to be in the operation under way.
  void agree(const Deadline& deadline) { barrier_.wait(deadline); }
  /// What else is to be ended when an operation has failed, after the others have been told and before they are met. Must not throw.
  void on_failure(std::function<void(const std::string& text)> end) { end_ = std::move(end); }

 private:
  /// Tells the control plane that this worker is in an operation.
  class Presence {
   public:
    Presence(Cluster& cluster, std::string_view kind, std::uint64_t sequence) : cluster_(cluster) {
      cluster_.enter_operation(kind, sequence);
    }
    ~Presence() { cluster_.leave_operation(); }
    Presence(const Presence&) = delete;
    Presence& operator=(const Presence&) = delete;

   private:
    Cluster& cluster_;
  };

  void meet(std::span<const int> peers, const Deadline& deadline);
  void require_whole() const;
  [[noreturn]] void explain(const CollectiveRequest& request, const OpError& failure);
  void tell(const CollectiveRequest& request, const std::exception& failure);
  void await_end_of_transport();
  void break_off(StatusCode code, const std::string& text, std::vector<RankInfo> culprits);

  std::shared_ptr<Cluster> cluster_;
  std::unique_ptr<Transport> transport_;
  Inquest inquest_;
  ScheduleExecutor executor_;
  MessageBarrier barrier_;
  ScratchMemory scratch_;
  std::size_t num_ranks_;
  std::size_t rank_;
  bool is_mesh_;
  AllReduceTuning tuning_;
  std::string broken_text_;          // empty: not broken
  std::vector<RankInfo> broken_by_;  // whom that blames
  bool outputs_are_written_ = false;
  std::function<void(const std::string& text)> end_;
  std::shared_ptr<void> listening_;
};

}  // namespace crossdevice::detail
