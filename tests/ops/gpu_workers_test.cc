// SPDX-License-Identifier: Apache-2.0
// Workers that are processes, all on one real GPU, through the real NCCL: values, calls that differ, a worker that stays away, one that dies, one that is
// left behind. To NCCL and to this library each worker says that it is a machine of its own, because both refuse one GPU twice on one machine; NCCL then
// talks over loopback, and the GPU gives each process a slice of its time in turns. So what is proved is what is computed, never how fast.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/comm/flight_record.h"
#include "crossdevice/comm/job_news.h"
#include "crossdevice/comm/nccl_library.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/copy.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "support/real_gpu.h"
#include "support/reduce_cases.h"
#include "support/thrown.h"
#include "support/values.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

constexpr CommunicationOptions kSoon{.timeout_seconds = 60};

// ---------------------------------------------------------------------------------------------- what each worker does

/// Makes a call that cannot succeed, and waits for what goes wrong, here or later on the GPU: its kind and text, empty after a minute.
std::string what_goes_wrong(CollectiveAllReduce& ops, std::size_t count,
                            const CommunicationOptions& options = kSoon) {
  const PerReplica value{vector_of(std::vector<float>(count, 1.0F), Device("GPU:0"))};
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  try {
    ops.reduce_into(ReduceOp::SUM, value, value, options);
    while (std::chrono::steady_clock::now() < limit) {
      ops.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  } catch (const OpError& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& expected) {
  if (text.find(expected) != std::string::npos) return true;
  std::cerr << "expected '" << expected << "', heard '" << text << "'\n";
  return false;
}

/// Whether the sum of rank + 1 over all workers is what it should be.
bool sums(CollectiveAllReduce& ops, const Cluster& cluster, std::size_t count = 10'007) {
  const Tensor mine =
      vector_of(std::vector<float>(count, static_cast<float>(cluster.rank() + 1)), Device("GPU:0"));
  const PerReplica value{mine};
  ops.reduce_into(ReduceOp::SUM, value, value, kSoon);
  const int n = cluster.num_workers();
  const int sum = n * (n + 1) / 2;
  const bool is_right = elements(mine) == std::vector<float>(count, static_cast<float>(sum));
  if (!is_right) std::cerr << "rank " << cluster.rank() << ": a wrong sum\n";
  return is_right;
}

/// Which sums through NCCL: its operations are on record, those of hosts are not.
std::shared_ptr<CollectiveAllReduce> ops_of(Cluster& cluster) {
  auto ops = std::make_shared<CollectiveAllReduce>(Devices({"GPU:0"}), cluster.num_workers(),
                                                   CommunicationOptions{}, shared(cluster));
  const std::size_t num_before = flight_record().size();
  if (!sums(*ops, cluster)) throw std::runtime_error("the first sum is wrong");
  if (flight_record().size() == num_before) throw std::runtime_error("NCCL serves nobody");
  return ops;
}

/// Two objects, each called by a thread of its own, which on each worker come in another order.
int call_two_objects(Cluster& cluster) {
  const std::shared_ptr<CollectiveAllReduce> first = ops_of(cluster);
  const std::shared_ptr<CollectiveAllReduce> second = ops_of(cluster);
  const auto call = [&](CollectiveAllReduce& ops, unsigned seed) {
    std::minstd_rand random(seed);
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      if (!sums(ops, cluster)) return false;
    }
    return true;
  };
  bool is_second_right = false;
  std::string trouble;
  std::thread other([&] {
    trouble = thrown<OpError>(
        [&] { is_second_right = call(*second, static_cast<unsigned>(cluster.rank()) + 11); });
  });
  const std::string own = thrown<OpError>([&] {
    if (!call(*first, static_cast<unsigned>(cluster.rank()) + 1)) {
      throw InternalError("a wrong sum");
    }
  });
  other.join();
  if (!own.empty() || !trouble.empty()) std::cerr << own << trouble << '\n';
  if (!own.empty() || !is_second_right) return 1;
  first->check();
  second->check();
  cluster.barrier(60);
  return 0;
}

/// Every op and dtype, small and large, out of place and in place, in batches of all dtypes.
int reduce_everything(Cluster& cluster) {
  const std::shared_ptr<CollectiveAllReduce> ops = ops_of(cluster);
  std::mt19937 random(20190517);  // the same on every worker
  const auto rank = static_cast<std::size_t>(cluster.rank());
  for (const ReduceOp op : kAllReduceOps) {
    std::vector<ReduceCase> cases;
    for (const std::size_t size : {1U, 0U, 1021U, 70'001U}) {
      for (const DType dtype : kAllDTypes) {
        if (!is_supported(op, dtype)) continue;
        // The sign of a zero depends on the order of the factors, which hosts choose.
        if (op == ReduceOp::PROD && is_complex(dtype)) continue;
        cases.emplace_back(op, dtype, size, static_cast<std::size_t>(cluster.num_workers()), false,
                           Elements::WHOLE, random);
      }
    }
    std::vector<ValueDestinationPair> pairs;
    std::vector<PerReplica> in_place;
    std::vector<const ReduceCase*> in_place_cases;
    for (ReduceCase& each : cases) {
      const PerReplica value{copy_to_device(each.view(rank, "CPU:0"), "GPU:0")};
      pairs.push_back({value, value});
      if (result_dtype(op, each.dtype) != each.dtype) continue;
      in_place.push_back(value);
      in_place_cases.push_back(&each);
    }
    const std::vector<Mirrored> results = ops->batch_reduce(op, pairs, kSoon);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Tensor here = copy_to_device(results[i].values()[0], "CPU:0");
      EXPECT_TRUE(has_bytes(here.data(), cases[i].expected))
          << to_string(op) << " " << to_string(cases[i].dtype) << " " << cases[i].count;
    }
    ops->batch_reduce_into(op, in_place, {.bytes_per_pack = 100'000, .timeout_seconds = 60});
    for (std::size_t i = 0; i < in_place.size(); ++i) {
      const Tensor here = copy_to_device(in_place[i].values()[0], "CPU:0");
      EXPECT_TRUE(has_bytes(here.data(), in_place_cases[i]->expected))
          << to_string(op) << " " << to_string(in_place_cases[i]->dtype) << " in place";
    }
  }
  ops->check();
  cluster.barrier(60);
  return 0;
}

int communicate(Cluster& cluster) {
  Communicator world(shared(cluster), "GPU:0");
  if (!world.has_nccl()) return 1;
  const auto n = static_cast<std::size_t>(cluster.num_workers());
  const auto rank = static_cast<float>(cluster.rank());
  const auto each = [](std::size_t count, float value) { return std::vector<float>(count, value); };
  const auto on_gpu = [](const std::vector<float>& values) {
    return vector_of(values, Device("GPU:0"));
  };
  constexpr std::size_t kCount = 5003;
  const float sum = static_cast<float>(n * (n + 1)) / 2;
  const Tensor mine = on_gpu(each(kCount, rank + 1));
  const Tensor result = on_gpu(each(kCount, -1));
  world.all_reduce(ReduceOp::SUM, mine, result);
  EXPECT_EQ(elements(result), each(kCount, sum));
  world.all_reduce(ReduceOp::MEAN, mine, result);
  EXPECT_EQ(elements(result), each(kCount, sum / static_cast<float>(n)));
  world.reduce(ReduceOp::SUM, mine, result, 1);
  EXPECT_EQ(elements(result),
            cluster.rank() == 1 ? each(kCount, sum) : each(kCount, sum / static_cast<float>(n)));
  const Tensor parts = on_gpu(each(n * kCount, rank + 1));
  world.reduce_scatter(ReduceOp::SUM, parts, result);
  EXPECT_EQ(elements(result), each(kCount, sum));
  std::vector<float> by_rank;
  for (std::size_t r = 0; r < n; ++r) {
    by_rank.insert(by_rank.end(), kCount, static_cast<float>(r + 1));
  }
  world.all_gather(mine, parts);
  EXPECT_EQ(elements(parts), by_rank);
  const Tensor gathered = on_gpu(each(n * kCount, -1));
  world.gather(mine, gathered, 1);
  EXPECT_EQ(elements(gathered), cluster.rank() == 1 ? by_rank : each(n * kCount, -1));
  world.broadcast(mine, 1);
  EXPECT_EQ(elements(mine), each(kCount, 2));
  world.barrier();
  world.check();
  return 0;
}

/// The last worker asks for another sum than the others.
int differ(Cluster& cluster) {
  const std::shared_ptr<CollectiveAllReduce> ops = ops_of(cluster);
  if (!sums(*ops, cluster)) return 1;
  const bool is_other = cluster.rank() == cluster.num_workers() - 1;
  const std::string said = what_goes_wrong(*ops, is_other ? 70'000 : 100'000);
  await_the_others();
  return says(said, "400000 B") && says(said, "280000 B") ? 0 : 2;
}

/// The last worker stops; the others hear of it by their deadline.
int stay_away(Cluster& cluster) {
  const std::shared_ptr<CollectiveAllReduce> ops = ops_of(cluster);
  if (!sums(*ops, cluster)) return 1;
  cluster.barrier(60);
  if (cluster.rank() == cluster.num_workers() - 1) ::kill(::getpid(), SIGSTOP);
  const std::string said = what_goes_wrong(*ops, 100'000, {.timeout_seconds = 1});
  await_the_others();
  const std::string missing = "waiting for rank " + std::to_string(cluster.num_workers() - 1);
  return says(said, "after 1 s") && says(said, missing) ? 0 : 2;
}

/// The last worker is killed; the others go on without it.
int lose_one(Cluster& cluster) {
  std::shared_ptr<CollectiveAllReduce> ops = ops_of(cluster);
  if (!sums(*ops, cluster)) return 1;
  const auto completed = detail::last_completed(cluster);
  const Deadline limit = Deadline::after(std::chrono::seconds(10));
  while (*completed != 2 && !limit.has_passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  cluster.barrier(60);
  if (cluster.rank() == cluster.num_workers() - 1) ::kill(::getpid(), SIGKILL);
  const std::string said = what_goes_wrong(*ops, 100'000);
  std::cerr << "rank " << cluster.rank() << " heard: " << said << '\n';
  const std::string last = "rank " + std::to_string(cluster.num_workers() - 1);
  if (!said.starts_with("UNAVAILABLE: ") || !says(said, last)) return 2;
  const Rebuilt rebuilt = cluster.rebuild(
      Survivors::ONLY, {.timeout_seconds = 30, .min_workers = cluster.num_workers() - 1});
  if (rebuilt.last_completed != CompletedOperation{1, 2}) return 4;  // not what was lost
  ops = nullptr;
  ops = ops_of(*rebuilt.cluster);
  for (int i = 0; i < 5; ++i) {
    if (!sums(*ops, *rebuilt.cluster)) return 3;
  }
  ops->check();
  rebuilt.cluster->barrier(60);
  return 0;
}

/// Continues a stopped process; at its own end at the latest, so that no test waits for who is stopped.
class Waker {
 public:
  explicit Waker(std::int64_t process) : process_(static_cast<pid_t>(process)) {}
  ~Waker() { wake(); }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;
  void wake() const { (void)::kill(process_, SIGCONT); }

 private:
  pid_t process_;
};

/// Of a worker that the others have left behind: its call is an error, however long it waits, and a cluster anew is not for it.
int find_itself_left_out(Cluster& cluster, CollectiveAllReduce& ops) {
  const std::string said = what_goes_wrong(ops, 100'000);
  std::cerr << "rank " << cluster.rank() << " heard: " << said << '\n';
  const std::string why = thrown<AbortedError>(
      [&] { (void)cluster.rebuild(Survivors::ONLY, {.timeout_seconds = 30}); });
  await_the_others();
  if (!said.starts_with("ABORTED: ") && !said.starts_with("UNAVAILABLE: ")) return 11;
  return says(why, "epoch 2") ? 0 : 12;
}

/// The last worker stops before its call; the others go on without it, and it is continued then.
int leave_one_behind(Cluster& cluster) {
  std::shared_ptr<CollectiveAllReduce> before = ops_of(cluster);
  if (!sums(*before, cluster)) return 1;
  cluster.barrier(60);
  const int last = cluster.num_workers() - 1;
  if (cluster.rank() == last) {
    ::kill(::getpid(), SIGSTOP);
    return find_itself_left_out(cluster, *before);
  }
  const Waker waker(cluster.worker(last).pid);
  const std::string said = what_goes_wrong(*before, 100'000, {.timeout_seconds = 1});
  if (!says(said, "DEADLINE_EXCEEDED: ") ||
      !says(said, "waiting for rank " + std::to_string(last))) {
    return 2;
  }
  before = nullptr;
  const Rebuilt rebuilt = cluster.rebuild(
      Survivors::ONLY, {.timeout_seconds = 30, .patience_seconds = 2, .min_workers = last});
  if (rebuilt.left_out.size() != 1 || rebuilt.left_out[0].rank != last) return 3;
  const std::shared_ptr<CollectiveAllReduce> ops = ops_of(*rebuilt.cluster);
  const auto go_on = [&](int count) {
    for (int i = 0; i < count; ++i) {
      if (!sums(*ops, *rebuilt.cluster)) return false;
    }
    ops->check();
    rebuilt.cluster->barrier(60);
    return true;
  };
  if (!go_on(5)) return 4;
  waker.wake();
  if (!go_on(20)) return 5;  // it finds out meanwhile, and changes nothing
  await_the_others();
  return go_on(5) ? 0 : 6;
}

// ---------------------------------------------------------------------------------------------- the tests

class GpuWorkers : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { CROSSDEVICE_SKIP_WITHOUT_NCCL(); }
  static std::vector<int> run(const std::string& work, int stopped = -1) {
    return run_workers(work, GetParam(), stopped, Machines::ONE_EACH);
  }
  /// How they end where the last one is killed.
  static std::vector<int> well_but_for_the_last() {
    std::vector<int> results = all_well(GetParam());
    results.back() = -SIGKILL;
    return results;
  }
};

TEST_P(GpuWorkers, ReduceEveryDTypeByEveryOp) {
  EXPECT_EQ(run("reduce_everything"), all_well(GetParam()));
}
TEST_P(GpuWorkers, CommunicateThroughNccl) { EXPECT_EQ(run("communicate"), all_well(GetParam())); }
TEST_P(GpuWorkers, CallTwoObjectsInAnotherOrderOnEach) {
  EXPECT_EQ(run("call_two_objects"), all_well(GetParam()));
}
TEST_P(GpuWorkers, CallsThatDifferAreSaidOnAll) { EXPECT_EQ(run("differ"), all_well(GetParam())); }
TEST_P(GpuWorkers, AWorkerThatStaysAwayIsADeadline) {
  EXPECT_EQ(run("stay_away", GetParam() - 1), well_but_for_the_last());
}
TEST_P(GpuWorkers, GoOnWithoutOneThatWasKilled) {
  EXPECT_EQ(run("lose_one"), well_but_for_the_last());
}
TEST_P(GpuWorkers, GoOnWithoutOneThatWasStoppedAndFindsItselfLeftOut) {
  EXPECT_EQ(run("leave_one_behind"), all_well(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(OnOneGpu, GpuWorkers, ::testing::Values(2, 4),
                         [](const auto& test) { return std::to_string(test.param); });

/// For NCCL: machines of their own over loopback, with few blocks of threads, so that those of all ranks find room.
void pretend_to_be_apart(const char* rank) {
  const auto set = [](const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 0);  // NOLINT(concurrency-mt-unsafe): before any thread
  };
  set("NCCL_HOSTID", std::string("crossdevice-test-rank-") + rank);
  set("NCCL_NET", "Socket");
  set("NCCL_NET_PLUGIN", "none");
  set("NCCL_SOCKET_IFNAME", "=lo");
  set("NCCL_SOCKET_FAMILY", "AF_INET");
  set("NCCL_IB_DISABLE", "1");
  set("NCCL_MNNVL_ENABLE", "0");
  set("NCCL_NVLS_ENABLE", "0");
  set("NCCL_RAS_ENABLE", "0");
  set("NCCL_MAX_CTAS", "2");
  set("NCCL_ALGO", "Ring");
  set("NCCL_PROTO", "Simple");
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
  if (const char* const rank = std::getenv(crossdevice::kRankVariable)) {
    crossdevice::pretend_to_be_apart(rank);
  }
  return crossdevice::testing::worker_main(argc, argv,
                                           {{"reduce_everything", crossdevice::reduce_everything},
                                            {"communicate", crossdevice::communicate},
                                            {"call_two_objects", crossdevice::call_two_objects},
                                            {"differ", crossdevice::differ},
                                            {"stay_away", crossdevice::stay_away},
                                            {"lose_one", crossdevice::lose_one},
                                            {"leave_one_behind", crossdevice::leave_one_behind}});
}
