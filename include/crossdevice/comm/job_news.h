// SPDX-License-Identifier: Apache-2.0
/// What operations among workers hear of the job beside their messages, and what it hears of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/export.h"
#include "crossdevice/device/wait_limit.h"

namespace crossdevice::detail {

/// What ends an operation on a worker that waits for something else at the moment. Hears from its construction on, and of what was before, whether a member of the cluster is gone or has given the job up. Behind others
/// one that has left counts no more: it has done its part.
///
/// Errors   throw_if_interrupted(): UnavailableError, AbortedError, with the member to blame; the first loss counts, and an abort more.
/// Threads  any.
class CROSSDEVICE_EXPORT JobNews final : public WaitInterrupter {
 public:
  explicit JobNews(Cluster& cluster);
  ~JobNews() override;
  void throw_if_interrupted() const override;
  [[nodiscard]] const WaitInterrupter& behind_others() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// What Cluster::set_completed() sets, for those who may do so after the cluster's end.
[[nodiscard]] CROSSDEVICE_EXPORT std::shared_ptr<std::atomic<std::uint64_t>> last_completed(
    const Cluster& cluster);

/// "rank 1 (host a, pid 7) aborted: boom"; but who merely passes on that there is a new cluster, perhaps this worker itself, has aborted nothing.
[[nodiscard]] CROSSDEVICE_EXPORT std::string abort_text(const RankInfo& origin,
                                                        const std::string& text);

}  // namespace crossdevice::detail
