// SPDX-License-Identifier: Apache-2.0
/// Tests whose workers are processes: the test program starts itself once per rank, with the name of what the worker is to do.
///
///   int main(int argc, char** argv) { return worker_main(argc, argv, {{"meet", [](Cluster& cluster) { ...; return 0; }}}); }
///   TEST(ClusterTest, WorkersMeet) { EXPECT_EQ(run_workers("meet", 3), all_well(3)); }
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "crossdevice/comm/cluster.h"

namespace crossdevice::testing {

/// What a worker does: a function of the cluster it has joined, or of nothing where it joins by itself. Its exit status is what the function returns (void:
/// 0), or 99 where GoogleTest's EXPECT_... found something wrong.
class WorkerTask {
 public:
  template <class F>
  requires(std::is_invocable_v<F&, Cluster&> || std::is_invocable_v<F&>)
      WorkerTask(F work)  // NOLINT(google-explicit-constructor): the values of Works
      : needs_cluster_(std::is_invocable_v<F&, Cluster&>),
        run_([work = std::move(work)]([[maybe_unused]] Cluster* cluster) mutable {
          if constexpr (std::is_invocable_v<F&, Cluster&>) {
            return status([&] { return work(*cluster); });
          } else {
            return status(work);
          }
        }) {}

  [[nodiscard]] bool needs_cluster() const { return needs_cluster_; }
  int operator()(Cluster* cluster) const { return run_(cluster); }

 private:
  template <class F>
  static int status(F&& work) {
    if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
      work();
      return 0;
    } else {
      return work();
    }
  }
  bool needs_cluster_;
  std::function<int(Cluster*)> run_;
};
using Works = std::map<std::string, WorkerTask>;

/// Does a worker's work in a process that run_workers() started, else runs the tests.
int worker_main(
    int argc, char** argv, const Works& works,
    const std::function<JoinOptions(const std::string& work)>& options = [](const std::string&) {
      return JoinOptions{.timeout_seconds = 60};
    });

/// Where the workers believe that they are: on so many machines, the first ranks on the first, and as equal in number as can be. From machine to machine
/// they share no memory and talk over TCP (here over loopback).
enum class Machines { ONE, TWO, THREE, ONE_EACH };
/// "OnOneMachine", "OnTwoMachines", "OnThreeMachines", "OnOneEach".
[[nodiscard]] std::string to_string(Machines machines);

/// Starts the workers and returns how they ended: an exit status, or minus the signal. 100 says that an exception left the work. The worker of
/// rank `stopped` stops itself, and is killed when the others have ended.
[[nodiscard]] std::vector<int> run_workers(const std::string& work, int num_workers,
                                           int stopped = -1, Machines machines = Machines::ONE);

/// In a worker, once: returns when every other one has called this, too, or has ended; but for the one that is `stopped`. Who leaves only then is not what the others
/// hear of before what they are to hear.
void await_the_others();

/// For what keeps its cluster, in a worker that does its work with a reference.
[[nodiscard]] inline std::shared_ptr<Cluster> shared(Cluster& cluster) {
  return {&cluster, [](Cluster*) {}};
}

[[nodiscard]] inline std::vector<int> all_well(int num_workers) {
  return std::vector<int>(static_cast<std::size_t>(num_workers));
}

}  // namespace crossdevice::testing
