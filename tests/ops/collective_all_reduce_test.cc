// SPDX-License-Identifier: Apache-2.0
// CollectiveAllReduce among processes: on one machine, as if on two, and as if each were on a machine of its own.
#include "crossdevice/ops/collective_all_reduce.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/comm/argument_agreement.h"
#include "crossdevice/comm/simple_cluster_resolver.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/memory_pool.h"

#include "ops/worker_replicas.h"
#include "support/machines_fixture.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)

Devices devices_of(std::size_t count) {
  std::vector<Device> devices;
  devices.reserve(count);
  for (std::size_t i = 0; i < count; ++i) devices.emplace_back("CPU:" + std::to_string(i));
  return Devices(std::span<const Device>(devices));
}

int reduce(Cluster& cluster, const std::vector<std::size_t>& numbers_of_devices,
           const std::vector<std::size_t>& counts) {
  for (const std::size_t num_devices : numbers_of_devices) {
    const std::size_t group = num_devices * static_cast<std::size_t>(cluster.num_workers());
    CollectiveAllReduce ops(devices_of(num_devices), static_cast<int>(group), {}, shared(cluster));
    int round = 0;
    for (const std::size_t count : counts) {
      for (const Memory memory : {Memory::POOL, Memory::OWN, Memory::EITHER}) {
        ++round;
        Replicas mine = replicas(cluster, num_devices, count, round, is_from_pool(memory, cluster));
        const Mirrored sum = ops.reduce(ReduceOp::SUM, mine.value, mine.value);
        if (sum.size() != num_devices || !is_sum(sum, group, round, 1)) return 1;
        const Mirrored mean = ops.reduce(ReduceOp::MEAN, mine.value, "CPU:0");
        if (mean.size() != 1 || !is_sum(mean, group, round, static_cast<float>(group))) return 2;
        ops.reduce_into(ReduceOp::SUM, mine.value, mine.value);
        if (!is_sum(mine.value, group, round, 1)) return 3;
      }
    }
  }
  return 0;
}

int batch(Cluster& cluster) {
  const std::size_t group = 2 * static_cast<std::size_t>(cluster.num_workers());
  CollectiveAllReduce ops(devices_of(2), static_cast<int>(group), {}, shared(cluster));
  for (int round = 1; round <= 10; ++round) {
    std::vector<Replicas> mine;
    std::vector<PerReplica> values;
    for (const std::size_t count : {0U, 3U, 100000U, 1U, 4097U, 64U}) {
      mine.push_back(replicas(cluster, 2, count, round, round % 2 == 0));
      values.push_back(mine.back().value);
    }
    const CommunicationOptions options{.bytes_per_pack = round % 3 == 0 ? 0 : 5000 * (round % 3)};
    ops.batch_reduce_into(ReduceOp::SUM, values, options);
    for (const PerReplica& value : values) {
      if (!is_sum(value, group, round, 1)) return round;
    }
    std::vector<PerReplica> again;
    for (const std::size_t count : {5U, 70000U}) {
      again.push_back(replicas(cluster, 2, count, round, true).value);
    }
    PendingBatch pending = ops.batch_reduce_into_async(ReduceOp::MEAN, again, options);
    pending.wait();
    for (const PerReplica& value : again) {
      if (!is_sum(value, group, round, static_cast<float>(group))) return 50 + round;
    }
  }
  return 0;
}

/// Bits must not depend on who reduces what: sums of values that round.
int agree(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  for (const std::size_t count : {100U, 300000U}) {
    std::vector<float> elements(count);
    for (std::size_t i = 0; i < count; ++i) {
      elements[i] = 1.0F / static_cast<float>(i + 3 + 7 * static_cast<std::size_t>(cluster.rank()));
    }
    const PerReplica value{
        Tensor::copy_of(std::span<const float>(elements), Shape({count}), Device("CPU:0"))};
    std::vector<float> own = elements;
    const PerReplica foreign{Tensor::view(std::span<float>(own), Device("CPU:0"))};
    ops.reduce_into(ReduceOp::SUM, foreign, foreign, {.deterministic = true});
    ops.reduce_into(ReduceOp::SUM, value, value, {.deterministic = true});
    const std::span<const float> sum = value.values()[0].span<const float>();
    if (std::memcmp(sum.data(), own.data(), sum.size_bytes()) != 0) return 4;
    std::uint64_t hash = 0;
    for (const float each : sum) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &each, sizeof bits);
      hash = hash * 1099511628211U + bits;
    }
    for (const std::string& theirs : cluster.all_gather_bytes(std::to_string(hash))) {
      if (theirs != std::to_string(hash)) return 1;
    }
    // Whatever the algorithm, all have the same bits.
    const PerReplica again{
        Tensor::copy_of(std::span<const float>(elements), Shape({count}), Device("CPU:0"))};
    ops.reduce_into(ReduceOp::SUM, again, again);
    const std::span<const float> other = again.values()[0].span<const float>();
    const std::string bytes(reinterpret_cast<const char*>(other.data()), other.size_bytes() / 4);
    for (const std::string& theirs : cluster.all_gather_bytes(bytes)) {
      if (theirs != bytes) return 3;
    }
    // By rank, in float32.
    for (std::size_t i = 0; i < count; i += 97) {
      float wanted = 1.0F / static_cast<float>(i + 3);
      for (int rank = 1; rank < cluster.num_workers(); ++rank) {
        wanted += 1.0F / static_cast<float>(i + 3 + 7 * static_cast<std::size_t>(rank));
      }
      if (sum[i] != wanted) return 2;
    }
  }
  return 0;
}

/// Worker w has w rows of its own; worker 0 has none.
int reduce_sparse(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  const auto rows = static_cast<std::size_t>(cluster.rank());
  std::vector<float> values(2 * rows, static_cast<float>(cluster.rank()));
  std::vector<std::int64_t> indices(rows);
  std::iota(indices.begin(), indices.end(), 10 * cluster.rank());
  const IndexedSlices mine{
      .values = Tensor::copy_of(std::span<const float>(values), Shape({rows, 2}), Device("CPU:0")),
      .indices =
          Tensor::copy_of(std::span<const std::int64_t>(indices), Shape({rows}), Device("CPU:0")),
      .dense_shape = {1000, 2}};
  const Mirrored all = ops.reduce(ReduceOp::SUM, PerReplica{mine}, "CPU:0");
  const IndexedSlices& merged = all.slices()[0];
  std::size_t row = 0;
  for (int rank = 0; rank < cluster.num_workers(); ++rank) {
    for (int i = 0; i < rank; ++i, ++row) {
      if (merged.indices.span<const std::int64_t>()[row] != 10 * rank + i) return 1;
      if (merged.values.span<const float>()[2 * row + 1] != static_cast<float>(rank)) return 2;
    }
  }
  if (static_cast<std::size_t>(merged.indices.num_elements()) != row) return 3;
  return merged.dense_shape == MaybeShape{1000, 2} ? 0 : 4;
}

/// First dimensions differ.
int gather(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  const auto rows = static_cast<std::size_t>(cluster.rank() + 1);
  std::vector<int> elements(3 * rows, cluster.rank());
  const PerReplica value{
      Tensor::copy_of(std::span<const int>(elements), Shape({rows, 3}), Device("CPU:0"))};
  const Mirrored all = ops.gather(value, "CPU:0", 0);
  const std::size_t total =
      static_cast<std::size_t>(cluster.num_workers() * (cluster.num_workers() + 1) / 2);
  if (!(all.shape() == Shape({total, 3}))) return 1;
  std::size_t i = 0;
  for (int rank = 0; rank < cluster.num_workers(); ++rank) {
    for (int k = 0; k < 3 * (rank + 1); ++k) {
      if (all.tensor().span<const int>()[i++] != rank) return 2;
    }
  }
  const auto are_equal = [&](const Tensor& tensor) {
    return std::memcmp(tensor.data(), all.tensor().data(), all.tensor().size_bytes()) == 0;
  };
  const PerReplica into{Tensor::zeros(DType::INT32, Shape({total, 3}), Device("CPU:0"))};
  ops.gather_into(value, into, 0);
  if (!are_equal(into.values()[0])) return 3;

  PendingBatch pending = ops.gather_async(value, "CPU:0", 0);
  pending.wait();
  if (!(pending.value(0).shape() == Shape({total, 3})) || !are_equal(pending.value(0).tensor())) {
    return 4;
  }
  const PerReplica later{Tensor::zeros(DType::INT32, Shape({total, 3}), Device("CPU:0"))};
  pending = ops.gather_async(value, Destinations::into(later), 0);
  pending.wait();
  if (!are_equal(later.values()[0])) return 5;

  // The last worker's buffers are too long, or of another width: the others' results are right all the same.
  const bool is_wrong = cluster.rank() + 1 == cluster.num_workers();
  const PerReplica longer{
      Tensor::zeros(DType::INT32, Shape({total + (is_wrong ? 1 : 0), 3}), Device("CPU:0"))};
  try {
    ops.gather_into(value, longer, 0);
    if (is_wrong || !are_equal(longer.values()[0])) return 6;
  } catch (const ValueError&) {
    if (!is_wrong) return 7;
  }
  const PerReplica wider{Tensor::zeros(DType::INT32, Shape({total, 4}), Device("CPU:0"))};
  try {
    ops.gather_into(value, wider, 0);
    return 8;
  } catch (const ValueError&) {
    cluster.barrier(60);  // nobody has begun anything
  }
  return 0;
}

template <class Error>
int expect_error(const std::string& text, int culprit, const std::function<void()>& call) {
  try {
    call();
    std::cerr << "no error\n";
  } catch (const Error& error) {
    const bool blames =
        culprit < 0 || (error.culprits().size() == 1 && error.culprits()[0].rank == culprit);
    if (std::string(error.what()).find(text) != std::string::npos && blames) return 0;
    std::cerr << "unexpected: " << error.what() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "another kind of error: " << error.what() << '\n';
  }
  return 1;
}

int lose_one(Cluster& cluster, Memory memory) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  const Replicas mine = replicas(cluster, 1, 1 << 20, 1, is_from_pool(memory, cluster));
  ops.reduce_into(ReduceOp::SUM, mine.value, mine.value);
  cluster.barrier(
      60);  // a death fails what others are still in, though the dead one has finished it
  if (cluster.rank() == 1) ::kill(::getpid(), SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  int result = expect_error<UnavailableError>("is gone", 1, [&] {
    for (;;) ops.reduce_into(ReduceOp::SUM, mine.value, mine.value);
  });
  // Within a second, as it is promised; the rest is room for a machine that has other things to do, and still less
  // than for how long a heartbeat may be missed.
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  if (taken.count() > 5) {
    std::cerr << "ended after " << taken.count() << " s\n";
    result = 20;
  }
  await_the_others();  // else they might hear first that this one has gone
  return result != 0 ? result : expect_error<FailedPreconditionError>("is broken since", 1, [&] {
    ops.reduce_into(ReduceOp::SUM, mine.value, mine.value);
  });
}

/// A worker that is stopped in the middle and goes on later must not write into memory that the others use again.
int stop_one(Cluster& cluster, Memory memory) {
  constexpr std::size_t kCount = 4 << 20;
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  const Replicas mine = replicas(cluster, 1, kCount, 1, is_from_pool(memory, cluster));
  const std::vector<std::string> pids = cluster.all_gather_bytes(std::to_string(::getpid()));
  if (cluster.rank() == 1) {
    try {
      for (;;) ops.reduce_into(ReduceOp::SUM, mine.value, mine.value, {.timeout_seconds = 20});
    } catch (const OpError&) {
      cluster.barrier();  // it has gone on, and is told that the others have given up
      return 0;
    }
  }
  int result = expect_error<DeadlineExceededError>("rank 1", 1, [&] {
    for (int i = 0;; ++i) {
      if (i == 5 && cluster.rank() == 0) ::kill(std::stoi(pids[1]), SIGSTOP);
      ops.reduce_into(ReduceOp::SUM, mine.value, mine.value, {.timeout_seconds = 4});
    }
  });
  // The memory is this worker's again.
  const std::span<float> elements = mine.value.values()[0].span<float>();
  std::fill(elements.begin(), elements.end(), 7.0F);
  // When all others have given up: else they might hear of it from the one that goes on.
  std::vector<int> others(static_cast<std::size_t>(cluster.num_workers()));
  std::iota(others.begin(), others.end(), 0);
  std::erase(others, 1);
  cluster.subgroup(others)->barrier();
  if (cluster.rank() == 0) ::kill(std::stoi(pids[1]), SIGCONT);
  cluster.barrier();
  for (const float each : elements) {
    if (each != 7.0F) return 9;
  }
  return result;
}

/// Memory of the program's own, which rank 1 is killed in the middle of reducing: inputs are what they were, where the error says so, and always where they are
/// no outputs.
int lose_one_in_the_middle(Cluster& cluster, bool in_place) {
  constexpr std::size_t kCount = 4 << 20;
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  const Replicas mine = replicas(cluster, 1, kCount, 1, false);
  const Replicas sums = replicas(cluster, 1, kCount, 2, false);
  const std::vector<float> before = mine.own[0];
  const std::vector<std::string> pids = cluster.all_gather_bytes(std::to_string(::getpid()));
  std::thread killer;
  bool is_intact = false;
  try {
    for (int i = 0;; ++i) {
      std::copy(before.begin(), before.end(), mine.value.values()[0].span<float>().begin());
      if (i == 3 && cluster.rank() == 0) {
        killer = std::thread([victim = std::stoi(pids[1])] {
          std::this_thread::sleep_for(std::chrono::milliseconds(3));
          ::kill(victim, SIGKILL);
        });
      }
      const PerReplica& results = in_place ? mine.value : sums.value;
      ops.reduce_into(ReduceOp::SUM, mine.value, results, {.timeout_seconds = 20});
    }
  } catch (const UnavailableError& error) {
    is_intact = error.inputs_intact();
  }
  if (killer.joinable()) killer.join();
  if (!is_intact) return in_place ? 0 : 1;
  return std::ranges::equal(mine.value.values()[0].span<const float>(), before) ? 0 : 2;
}

/// In seconds: the workers hear meanwhile what each of them does, by two heartbeats at least. So who is slow to say it at the end is not taken for late.
constexpr double kTwoBeats = 6;

int be_late(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {.timeout_seconds = kTwoBeats},
                          shared(cluster), meeting_deadline(60));
  const Replicas mine = replicas(cluster, 1, 100, 1, true);
  const auto reduce_once = [&] { (void)ops.reduce(ReduceOp::SUM, mine.value, "CPU:0"); };
  int result = 0;
  if (cluster.rank() == 1) {
    cluster.barrier();  // until the others have given up
    result = expect_error<DeadlineExceededError>("given up", -1, reduce_once);
  } else {
    result = expect_error<DeadlineExceededError>("), last seen in barrier #", 1, reduce_once);
    cluster.barrier();
  }
  cluster.barrier();  // nobody leaves before all have been told
  return result;
}

/// While rank 1 does not come, a thread of the others counts in a tensor beside the one that is reduced, which is moved out of the others' reach.
int count_beside(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  const Replicas mine = replicas(cluster, 1, 300'000, 1, true);
  const Tensor beside = Tensor::zeros(DType::INT64, Shape({20'000}), Device("CPU:0"));
  std::atomic<bool> is_over{false};
  std::atomic<bool> has_begun{false};
  std::int64_t count = 0;
  std::thread counter([&] {
    volatile std::int64_t* const place = beside.span<std::int64_t>().data();
    while (!is_over.load(std::memory_order_relaxed)) {
      if (*place != count) break;  // so it stays
      *place = ++count;
      has_begun = true;
    }
  });
  while (!has_begun) std::this_thread::yield();
  int result = 0;
  if (cluster.rank() == 1) {
    cluster.barrier();
  } else {
    result = expect_error<DeadlineExceededError>("reduce #1", 1, [&] {
      ops.reduce_into(ReduceOp::SUM, mine.value, mine.value, {.timeout_seconds = kTwoBeats});
    });
    if (MemoryPool::num_moves() == 0) result += 10;
    cluster.barrier();
  }
  is_over = true;
  counter.join();
  if (beside.span<std::int64_t>()[0] != count) result += 20;
  if (beside.span<std::int64_t>()[19'999] != 0) result += 40;
  return result;
}

/// Its calls wait for `gate`.
class HeldAllReduce : public CollectiveAllReduce {
 public:
  using CollectiveAllReduce::CollectiveAllReduce;
  std::promise<void> gate;

 protected:
  Mirrored reduce_implementation(ReduceOp op, const PerReplica& value,
                                 const Destinations& destinations,
                                 const CommunicationOptions& options) override {
    opened_.wait();
    return CollectiveAllReduce::reduce_implementation(op, value, destinations, options);
  }

 private:
  std::shared_future<void> opened_ = gate.get_future().share();
};

/// Three equal calls are queued; the second one is cancelled by some before it begins.
int cancel_one(Cluster& cluster, bool is_cancelled_by_all) {
  HeldAllReduce ops({"CPU:0"}, cluster.num_workers(), {.timeout_seconds = 20.0}, shared(cluster));
  const auto group = static_cast<std::size_t>(cluster.num_workers());
  std::vector<Replicas> mine;
  std::vector<PendingBatch> calls;
  for (int round = 1; round <= 3; ++round) {
    mine.push_back(replicas(cluster, 1, 5000, round, true));
    calls.push_back(ops.reduce_into_async(ReduceOp::SUM, mine.back().value, mine.back().value));
  }
  const bool cancels = is_cancelled_by_all || cluster.rank() == 1;
  if (cancels) calls[1].cancel();
  ops.gate.set_value();
  calls[0].wait();
  int result = is_sum(mine[0].value, group, 1, 1) ? 0 : 1;
  if (is_cancelled_by_all) {
    calls[2].wait();
    return is_sum(mine[2].value, group, 3, 1) ? result : 2;
  }
  const int failing = cancels ? 2 : 1;
  for (const char* const call : {"rank 0 ", "rank 1 ", " reduce #2 ", " reduce #3 "}) {
    result += 10 * expect_error<InternalError>(
                       call, -1, [&] { calls[static_cast<std::size_t>(failing)].wait(); });
  }
  const float own = mine[2].value.values()[0].span<const float>()[0];
  if (own != element(static_cast<std::size_t>(cluster.rank()), 0, 3)) result += 100;
  return result;
}

int differ(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  const Replicas mine = replicas(cluster, 1, cluster.rank() == 2 ? 5001 : 5000, 1, true);
  const int result = expect_error<InternalError>("workers make different calls", -1, [&] {
    ops.reduce_into(ReduceOp::SUM, mine.value, mine.value);
  });
  await_the_others();  // who is late is to hear of it, and not that this one has gone
  return result + (mine.value.values()[0].span<const float>()[0] ==
                           element(static_cast<std::size_t>(cluster.rank()), 0, 1)
                       ? 0
                       : 2);
}

/// Packs are reduced from the last value to the first, in place; only the first differs.
int differ_in_the_last_pack(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  std::vector<Replicas> mine;
  for (const std::size_t count : {cluster.rank() == 2 ? 5001UL : 5000UL, 3000UL, 400'000UL}) {
    mine.push_back(replicas(cluster, 1, count, 1, true));
  }
  std::vector<PerReplica> values;
  for (const Replicas& each : mine) values.push_back(each.value);
  int result = 0;
  try {
    CommunicationOptions packs;
    packs.bytes_per_pack = 8000;
    ops.batch_reduce_into(ReduceOp::SUM, values, packs);
    result = 1;
  } catch (const InternalError& error) {
    if (!error.inputs_intact()) result = 2;
  }
  await_the_others();
  for (const Replicas& each : mine) {
    if (each.value.values()[0].span<const float>()[0] !=
        element(static_cast<std::size_t>(cluster.rank()), 0, 1)) {
      result = 3;
    }
  }
  return result;
}

int gather_along_different_axes(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  const PerReplica value{Tensor::zeros(DType::FLOAT32, Shape({2, 2}), Device("CPU:0"))};
  const int result = expect_error<InternalError>("workers make different calls", -1, [&] {
    (void)ops.gather(value, "CPU:0", cluster.rank() == 1 ? 1 : 0);
  });
  await_the_others();
  return result;
}

/// Rank 1 has two devices, the others one; then everybody has one, but rank 2 another group_size.
int differ_in_devices(Cluster& cluster) {
  const int n = cluster.num_workers();
  const auto refused = [&](std::size_t num_devices, int group_size, const std::string& text) {
    try {
      CollectiveAllReduce ops(devices_of(num_devices), group_size, {}, shared(cluster));
    } catch (const ValueError& error) {
      if (std::string(error.what()).find(text) != std::string::npos) return 0;
      std::cerr << "unexpected: " << error.what() << '\n';
    }
    return 1;
  };
  const std::size_t mine = cluster.rank() == 1 ? 2 : 1;
  int result =
      refused(mine, n * static_cast<int>(mine),
              "rank 0 has 1 of " + std::to_string(n) + " devices, [CPU:0]; rank 1 has 2 of " +
                  std::to_string(2 * n) + " devices, [CPU:0, CPU:1]");
  const std::string last = "rank " + std::to_string(n - 1) + " has 1 of " + std::to_string(n + 1);
  result += refused(1, cluster.rank() == n - 1 ? n + 1 : n, last);
  CollectiveAllReduce ops(devices_of(1), n, {}, shared(cluster));  // the cluster is whole
  return result;
}

/// Rank 1 alone is given what cannot be; all refuse it.
int be_given_nonsense(Cluster& cluster) {
  const int n = cluster.num_workers();
  const auto refused = [&](const Devices& theirs, const CommunicationOptions& options,
                           const std::string& text) {
    const bool is_culprit = cluster.rank() == 1;
    try {
      CollectiveAllReduce ops(is_culprit ? theirs : devices_of(1), n,
                              is_culprit ? options : CommunicationOptions{}, shared(cluster));
    } catch (const ValueError& error) {
      const std::string what = error.what();
      if (what.starts_with("rank 1 (") && what.find("): " + text) != std::string::npos) return 0;
      std::cerr << "unexpected: " << what << '\n';
      return 1;
    }
    std::cerr << "no error: " << text << '\n';
    return 1;
  };
  int result = refused({}, {}, "CollectiveAllReduce needs at least one device");
  result += refused({"CPU:0", "CPU:0"}, {}, "CollectiveAllReduce: a device is named twice");
  result += refused({"GPU:77"}, {}, "");
  result += refused({"CPU:0"}, {.bytes_per_pack = -1}, "bytes_per_pack must be 0 or more, not -1");
  result += refused({"CPU:0"}, {.timeout_seconds = -1.0}, "timeout_seconds must be 0 or more");
  CollectiveAllReduce ops(devices_of(1), n, {}, shared(cluster));  // the cluster is whole
  return result;
}

/// Rank 1 does not come.
int be_missing(Cluster& cluster) {
  int result = 0;
  const std::shared_ptr<Cluster> ops_cluster = cluster.subgroup({0, 1, 2});
  if (cluster.rank() != 1) {
    result = expect_error<DeadlineExceededError>("rank 1", 1, [&] {
      CollectiveAllReduce ops(devices_of(1), 3, {.timeout_seconds = kTwoBeats}, ops_cluster);
    });
  }
  cluster.barrier();
  return result;
}

/// Rank 1 comes late, but in time, to the first thing that the members do together, and not to the next: both are one construction.
int come_to_a_part(Cluster& cluster) {
  int result = 0;
  const std::shared_ptr<Cluster> two = cluster.subgroup({0, 1});
  if (cluster.rank() == 0) {
    const auto begin = std::chrono::steady_clock::now();
    result = expect_error<DeadlineExceededError>("rank 1", 1, [&] {
      CollectiveAllReduce ops(devices_of(1), 2, {.timeout_seconds = 8}, two);
    });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (taken.count() > 11.5) {  // with two deadlines it is 12
      std::cerr << "ended after " << taken.count() << " s\n";
      result = 20;
    }
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(4));
    (void)agree_on_arguments(*two, [] { return "1 of 2 devices, CPU:0\n\non hosts"; });
  }
  cluster.barrier();
  return result;
}

int many(Cluster& cluster) {
  CollectiveAllReduce ops({"CPU:0"}, cluster.num_workers(), {}, shared(cluster));
  const PerReplica value{Tensor::zeros(DType::INT64, Shape({1}), Device("CPU:0"))};
  for (std::int64_t round = 0; round < 20000; ++round) {
    value.values()[0].span<std::int64_t>()[0] = round + cluster.rank();
    ops.reduce_into(ReduceOp::SUM, value, value);
    const std::int64_t n = cluster.num_workers();
    if (value.values()[0].span<std::int64_t>()[0] != n * round + n * (n - 1) / 2) return 1;
  }
  return 0;
}

const Works& works() {
  static const Works all = {
      {"reduce",
       [](Cluster& cluster) {
         return reduce(cluster, {1, 2, 3}, {0, 1, 2, 7, 509, 2048, 2049, 65537, 1000003});
       }},
      {"reduce some",
       [](Cluster& cluster) {
         return reduce(cluster, {1}, {2049, 300'001});
       }},
      {"batch", batch},
      {"agree", agree},
      {"gather", gather},
      {"sparse", reduce_sparse},
      {"lose one", [](Cluster& cluster) { return lose_one(cluster, Memory::POOL); }},
      {"lose one, own memory", [](Cluster& cluster) { return lose_one(cluster, Memory::OWN); }},
      {"lose one in place", [](Cluster& cluster) { return lose_one_in_the_middle(cluster, true); }},
      {"lose one out of place",
       [](Cluster& cluster) { return lose_one_in_the_middle(cluster, false); }},
      {"stop one", [](Cluster& cluster) { return stop_one(cluster, Memory::POOL); }},
      {"stop one, own memory", [](Cluster& cluster) { return stop_one(cluster, Memory::OWN); }},
      {"stop one, either memory",
       [](Cluster& cluster) { return stop_one(cluster, Memory::EITHER); }},
      {"be late", be_late},
      {"count beside", count_beside},
      {"cancel one", [](Cluster& cluster) { return cancel_one(cluster, false); }},
      {"cancel all", [](Cluster& cluster) { return cancel_one(cluster, true); }},
      {"differ", differ},
      {"differ in the last pack", differ_in_the_last_pack},
      {"gather along different axes", gather_along_different_axes},
      {"differ in devices", differ_in_devices},
      {"be given nonsense", be_given_nonsense},
      {"be missing", be_missing},
      {"come to a part", come_to_a_part},
      {"many", many}};
  return all;
}

class CollectiveAllReduceTest : public testing::MachinesTest {};
INSTANTIATE_TEST_SUITE_P(Machines, CollectiveAllReduceTest,
                         ::testing::Values(Machines::ONE, Machines::TWO, Machines::ONE_EACH),
                         testing::machines_name);

TEST_P(CollectiveAllReduceTest, ReducesOverAllWorkersDevices) {
  for (const int workers : {1, 2, 3, 4}) {
    EXPECT_EQ(run("reduce", workers), all_well(workers));
  }
}

TEST(CollectiveAllReduceMemory, MoreWorkersThanCoresReduceWhatLiesAnywhere) {
  for (const int workers : {5, 8}) {
    EXPECT_EQ(run_workers("reduce some", workers), all_well(workers));
  }
}

TEST_P(CollectiveAllReduceTest, ReducesBatches) {
  for (const int workers : {1, 2, 3, 4, 5}) {
    EXPECT_EQ(run("batch", workers), all_well(workers));
  }
}

TEST_P(CollectiveAllReduceTest, BitsAreTheSameOnAllWorkers) {
  for (const int workers : {2, 3, 8}) {
    EXPECT_EQ(run("agree", workers), all_well(workers));
  }
}

TEST_P(CollectiveAllReduceTest, ConcatenatesRaggedSparseValues) {
  for (const int workers : {1, 2, 4}) {
    EXPECT_EQ(run("sparse", workers), all_well(workers));
  }
}

TEST_P(CollectiveAllReduceTest, GathersUnequalFirstDimensions) {
  for (const int workers : {1, 2, 4}) {
    EXPECT_EQ(run("gather", workers), all_well(workers));
  }
}

TEST_P(CollectiveAllReduceTest, ManySmallReductions) {
  EXPECT_EQ(run("many", 2), all_well(2));
  EXPECT_EQ(run("many", 3), all_well(3));
  EXPECT_EQ(run("many", 4), all_well(4));
}

TEST_P(CollectiveAllReduceTest, AKilledWorkerIsNamed) {
  EXPECT_EQ(run("lose one", 3), (std::vector<int>{0, -SIGKILL, 0}));
  EXPECT_EQ(run("lose one", 4), (std::vector<int>{0, -SIGKILL, 0, 0}));
  EXPECT_EQ(run("lose one, own memory", 3), (std::vector<int>{0, -SIGKILL, 0}));
  EXPECT_EQ(run("lose one in place", 3), (std::vector<int>{0, -SIGKILL, 0}));
  EXPECT_EQ(run("lose one out of place", 2), (std::vector<int>{0, -SIGKILL}));
  EXPECT_EQ(run("lose one out of place", 3), (std::vector<int>{0, -SIGKILL, 0}));
}

TEST_P(CollectiveAllReduceTest, AStoppedWorkerThatGoesOnChangesNothing) {
  EXPECT_EQ(run("stop one", 2), all_well(2));
  EXPECT_EQ(run("stop one", 3), all_well(3));
  EXPECT_EQ(run("stop one", 4), all_well(4));
  EXPECT_EQ(run("stop one, own memory", 2), all_well(2));
  EXPECT_EQ(run("stop one, either memory", 3), all_well(3));
}

TEST_P(CollectiveAllReduceTest, ALateWorkerIsNamedAndToldThatItIsLate) {
  EXPECT_EQ(run("be late", 2), all_well(2));
  EXPECT_EQ(run("be late", 4), all_well(4));
}

TEST(CollectiveAllReduceMemory, WhatOtherThreadsWriteDuringAFailureIsNotLost) {
  EXPECT_EQ(run_workers("count beside", 3), all_well(3));
}

TEST_P(CollectiveAllReduceTest, ACallThatOneWorkerHasCancelledIsNotTakenForItsNext) {
  EXPECT_EQ(run("cancel one", 2), all_well(2));
}

TEST_P(CollectiveAllReduceTest, ACallThatAllHaveCancelledIsMissedByNobody) {
  EXPECT_EQ(run("cancel all", 3), all_well(3));
}

TEST_P(CollectiveAllReduceTest, DifferentCallsTouchNothing) {
  EXPECT_EQ(run("differ", 3), all_well(3));
  EXPECT_EQ(run("differ", 4), all_well(4));
}

TEST_P(CollectiveAllReduceTest, ADifferenceInTheLastPackTouchesNothing) {
  EXPECT_EQ(run("differ in the last pack", 3), all_well(3));
  EXPECT_EQ(run("differ in the last pack", 4), all_well(4));
}

TEST_P(CollectiveAllReduceTest, DifferentAxesAreDifferentCalls) {
  EXPECT_EQ(run("gather along different axes", 3), all_well(3));
  EXPECT_EQ(run("gather along different axes", 4), all_well(4));
}

TEST_P(CollectiveAllReduceTest, DifferentNumbersOfDevicesAreAnErrorOnEveryRank) {
  for (const int workers : {2, 3, 5}) {
    EXPECT_EQ(run("differ in devices", workers), all_well(workers));
  }
}

TEST_P(CollectiveAllReduceTest, WrongArgumentsOfOneWorkerAreAnErrorOnEveryRank) {
  for (const int workers : {2, 3, 5}) {
    EXPECT_EQ(run("be given nonsense", workers), all_well(workers));
  }
}

TEST_P(CollectiveAllReduceTest, WhoDoesNotComeToTheConstructionIsNamed) {
  EXPECT_EQ(run("be missing", 3), all_well(3));
}

TEST_P(CollectiveAllReduceTest, AConstructionHasOneDeadline) {
  EXPECT_EQ(run("come to a part", 2), all_well(2));
}

TEST(CollectiveAllReduceArguments, WrongArgumentsAreRefused) {
  EXPECT_THROW(CollectiveAllReduce({"CPU:0"}, 2), ValueError);
  EXPECT_THROW(CollectiveAllReduce({"CPU:0", "CPU:1"}, 3), ValueError);
  EXPECT_THROW(CollectiveAllReduce({"CPU:0", "CPU:0"}, 2), ValueError);
  EXPECT_THROW(CollectiveAllReduce({}, 0), ValueError);
  EXPECT_THROW(CollectiveAllReduce({"CPU:0"}, 1, {.bytes_per_pack = -1}), ValueError);
  CollectiveAllReduce ops({"CPU:0"}, 1);
  const Tensor one = Tensor::zeros(DType::FLOAT32, Shape({1}), Device("CPU:1"));
  EXPECT_THROW((void)ops.reduce(ReduceOp::SUM, PerReplica{one}, "CPU:0"), ValueError);
}

TEST(CollectiveAllReduceArguments, AWorkerThatIsAloneIsToldWhatMakesItOneOfSeveral) {
  const auto said = [](const std::shared_ptr<Cluster>& cluster, const Devices& devices) {
    try {
      CollectiveAllReduce ops(devices, 2, {}, cluster);
    } catch (const ValueError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::shared_ptr<Cluster> alone = Cluster::join(SimpleClusterResolver(ClusterSpec()));
  EXPECT_EQ(said(alone, {"CPU:0"}),
            "group_size must be the devices of all workers, 1 workers with 1 devices each, not 2: "
            "this worker is alone; start it with crossdevice-run, or another launcher");
  EXPECT_EQ(said(nullptr, {"CPU:0"}),
            "group_size must be the devices of all workers, 1 workers with 1 devices each, not 2: "
            "without a Cluster this worker is alone");
  EXPECT_EQ(said(alone, {"CPU:0", "CPU:1"}), "");
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::works());
}
