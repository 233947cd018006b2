// SPDX-License-Identifier: Apache-2.0
/// What the control plane says that ends what members of a group do together.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/error.h"

namespace crossdevice::detail {

/// Threads  told by the control plane's, asked by any.
class GroupNews {
 public:
  enum class Kind : std::uint8_t { NONE, LOST, ABORTED };
  /// What the group calls somebody of whom the cluster speaks.
  using Name = std::function<RankInfo(const RankInfo&)>;

  GroupNews() = default;
  GroupNews(const GroupNews&) = delete;
  GroupNews& operator=(const GroupNews&) = delete;

  /// Of members that have said goodbye: whether they are missed like others that are gone, or had no part in it any more.
  enum class Leavers : bool { ARE_MISSED, ARE_NOT_MISSED };

  /// From now on, until this ends; `name` is called then. What was said before is told at once.
  void listen(Cluster& cluster, Name name, Leavers leavers = Leavers::ARE_MISSED);

  [[nodiscard]] Kind kind() const { return kind_.load(std::memory_order_acquire); }
  struct Item {
    Kind kind = Kind::NONE;
    std::string text{};  // "rank 1 is gone: ..."
    RankInfo culprit{};
  };
  /// The first loss counts, and the first abort more, also if it comes after a loss was read.
  [[nodiscard]] Item item() const;

 private:
  void tell(Kind kind, const RankInfo& who,
            const std::function<std::string(const RankInfo&)>& text);

  std::atomic<Kind> kind_{Kind::NONE};
  mutable std::mutex mutex_;  // guards the next
  Item item_;
  Name name_;
  std::shared_ptr<void> listening_;  // last: it ends first
};

}  // namespace crossdevice::detail
