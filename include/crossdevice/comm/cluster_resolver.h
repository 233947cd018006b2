// SPDX-License-Identifier: Apache-2.0
/// How a process learns who it is among its workers and where they meet. TF counterpart: ClusterResolver.
///
/// One kind per launcher, a header each; detect_cluster_resolver.h picks the one that started this process. A launcher that
/// none of them knows: CROSSDEVICE_RANK and its companions (environment_cluster_resolver.h), or a class of one's own.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/comm/cluster_spec.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// What a process knows before it meets the others.
struct CROSSDEVICE_EXPORT WorkerIdentity {
  int rank = 0;
  int num_workers = 1;
  /// Its place among the workers of its host, and their number; both or neither, nothing where the launcher does not say.
  std::optional<int> local_rank = std::nullopt;
  std::optional<int> local_num_workers = std::nullopt;
  /// "host:port" where rank 0 listens for the others. Empty for a single worker, and where only an all-gather
  /// (ClusterResolver::all_gather) can tell, or nobody.
  std::string chief_address{};
  /// Of rank 0's host too: tried in turn where that does not answer.
  std::vector<std::string> more_chief_addresses{};
  /// Who said so, for messages: "TF_CONFIG", "torchrun", "Open MPI", "CROSSDEVICE_*", "single process", ...
  std::string launcher = "single process";
  /// The task's name among its cluster's: TF's task_type and task_id.
  std::string job = "worker";
  int task_index = 0;
  /// What the launcher calls this job, the same on all its workers and on those of no other job: "4711.0" of Slurm's step 0. Workers
  /// of another one are refused where they meet these. Empty: the launcher does not say.
  std::string job_id{};
  /// All tasks, where the launcher tells.
  std::optional<ClusterSpec> cluster_spec = std::nullopt;
};

/// Checks that an identity makes sense by itself.
///
/// Errors   ValueError: num_workers not in 1 .. 1,000,000, rank not below it; a local rank without the local number of workers or
///          the other way round, or not below it; more local workers than workers; an address that is no "host:port".
CROSSDEVICE_EXPORT void validate(const WorkerIdentity& identity);

/// "rank 2 of 4 (local 0 of 2), chief at host-a:2222, from torchrun".
[[nodiscard]] CROSSDEVICE_EXPORT std::string to_string(const WorkerIdentity& identity);

/// Gives `mine` to all workers and gets everybody's bytes, in rank order, into `all` (num_workers times as many as `mine`; every
/// worker gives equally many). With MPI:
///   [=](std::span<const std::byte> mine, std::span<std::byte> all) {
///     MPI_Allgather(mine.data(), mine.size(), MPI_BYTE, all.data(), mine.size(), MPI_BYTE, comm);
///   }
using AllGatherBytes =
    std::function<void(std::span<const std::byte> mine, std::span<std::byte> all)>;

/// Reads what a launcher left for this worker, anew at every call.
///
/// Errors   ValueError from every member: what the launcher left is incomplete, contradictory or no number where one is needed; names
///          the variable and its value.
/// Threads  const members: any; setters of the kinds: not while another member runs.
class CROSSDEVICE_EXPORT ClusterResolver {
 public:
  virtual ~ClusterResolver();

  /// Who this worker is; has passed validate().
  [[nodiscard]] WorkerIdentity identity() const;

  // TF's properties. Where a launcher knows no jobs, every worker is a task of the job "worker" and its rank is its index.

  /// The jobs and their tasks; empty where the launcher does not list them.
  [[nodiscard]] virtual ClusterSpec cluster_spec() const;
  /// The job this process belongs to; nothing where TF says None.
  [[nodiscard]] virtual std::optional<std::string> task_type() const;
  /// Its index in that job.
  [[nodiscard]] virtual std::optional<int> task_id() const;
  /// The address of a task (default: this one's), as "rpc_layer://host:port"; "" where there is nobody to talk to.
  [[nodiscard]] virtual std::string master(
      const std::optional<std::string>& task_type = std::nullopt,
      std::optional<int> task_id = std::nullopt,
      const std::optional<std::string>& rpc_layer = std::nullopt) const;
  /// How many accelerators a task (default: this one) has, by type: {"GPU": 2}. Types with none are absent. Here: those of this
  /// process, whatever the task.
  [[nodiscard]] virtual std::map<std::string, int> num_accelerators(
      const std::optional<std::string>& task_type = std::nullopt,
      std::optional<int> task_id = std::nullopt) const;
  /// Where this runs, as far as somebody said so: "cloud"; else "".
  [[nodiscard]] virtual std::string environment() const;
  /// The protocol that master() puts before addresses; nothing: none.
  [[nodiscard]] virtual std::optional<std::string> rpc_layer() const;

  /// Whether all_gather() works: the workers can exchange bytes before they have met.
  [[nodiscard]] virtual bool can_all_gather() const;
  /// Every worker's bytes, by rank. Lengths may differ between workers.
  ///
  /// Ranks    collective: every worker calls it equally often.
  /// Errors   FailedPreconditionError: can_all_gather() is false. ValueError: more than 1 MiB, from any worker, on every one of them;
  ///          what the caller's function throws.
  [[nodiscard]] std::vector<std::string> all_gather(std::string_view mine) const;

 protected:
  ClusterResolver() = default;
  ClusterResolver(const ClusterResolver&) = default;
  ClusterResolver& operator=(const ClusterResolver&) = default;
  ClusterResolver(ClusterResolver&&) = default;
  ClusterResolver& operator=(ClusterResolver&&) = default;

  /// identity() without the check.
  [[nodiscard]] virtual WorkerIdentity identity_implementation() const = 0;
  /// Equally many bytes from every worker; called only where can_all_gather() is true.
  virtual void all_gather_implementation(std::span<const std::byte> mine,
                                         std::span<std::byte> all) const;
};

/// "rpc_layer://address", or the address alone where rpc_layer is empty. TF counterpart: format_master_url.
[[nodiscard]] CROSSDEVICE_EXPORT std::string format_master_url(
    const std::string& address, const std::optional<std::string>& rpc_layer = std::nullopt);

}  // namespace crossdevice
