// SPDX-License-Identifier: Apache-2.0
// TensorFlow's tests of its collective runtime (catalogue 8.10), with processes. Names are the catalogue's ids, numbers are its rows'.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/comm/environment_cluster_resolver.h"
#include "crossdevice/core/counters.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/small_floats.h"

#include "ops/worker_group.h"
#include "support/machines_fixture.h"
#include "support/thrown.h"
#include "support/values.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

void rt1_rt3(Cluster& cluster) {
  Group group(cluster, 4);
  const PerReplica ranks =
      group.value([](std::size_t r) { return std::vector<float>{static_cast<float>(r)}; });
  std::vector<float> in_order;
  for (std::size_t r = 0; r < group.size; ++r) in_order.push_back(static_cast<float>(r));
  expect_mirrored(group.ops.gather(ranks, ranks, 0), group.devices, in_order);
  const PerReplica ones = group.value([](std::size_t) { return std::vector<float>{1}; });
  expect_mirrored(group.ops.reduce(ReduceOp::SUM, ones, ones), group.devices,
                  {static_cast<float>(group.size)});
  cluster.barrier();  // what follows ends what a slower one is still in
  // Another kind of call on one of them.
  EXPECT_THAT(thrown<InternalError>([&] {
                if (cluster.rank() == 0) {
                  (void)group.ops.gather(ones, ones, 0);
                } else {
                  (void)group.ops.reduce(ReduceOp::SUM, ones, ones);
                }
              }),
              AllOf(ContainsRegex("make different calls: .*rank 0.* gather "),
                    ContainsRegex("rank [1-9].* reduce "), Not(HasSubstr("0 bytes"))));
  await_the_others();  // who is late is to hear of it, and not that this one has gone
}

/// Groups {1, 2} and {3, 4} -> 3 and 7, beside a group of all.
void rt2(Cluster& cluster) {
  const int pair = cluster.rank() / 2;
  const std::shared_ptr<Cluster> two = cluster.subgroup({2 * pair, 2 * pair + 1});
  Group small(*two, 1);
  Group all(cluster, 1);
  const PerReplica value{scalar_of(static_cast<float>(cluster.rank()) + 1, cpu(0))};
  for (int i = 0; i < 20; ++i) {
    expect_mirrored(small.ops.reduce(ReduceOp::SUM, value, value), cpus(1),
                    {pair == 0 ? 3.0F : 7.0F});
    expect_mirrored(all.ops.reduce(ReduceOp::SUM, value, value), cpus(1), {10});
  }
}

/// Groups of two and of three, at the same time.
void rt2_sizes(Cluster& cluster) {
  const bool in_first = cluster.rank() < 2;
  const std::shared_ptr<Cluster> part =
      in_first ? cluster.subgroup({0, 1}) : cluster.subgroup({2, 3, 4});
  Group group(*part, 1);
  const PerReplica one{scalar_of(1.0F, cpu(0))};
  for (int i = 0; i < 100; ++i) {
    expect_mirrored(group.ops.reduce(ReduceOp::SUM, one, one), cpus(1), {in_first ? 2.0F : 3.0F});
  }
}

/// Results do not depend on how the work is cut.
void rt4(Cluster& cluster) {
  Group group(cluster, 1);
  const std::size_t counts[] = {1, 1001, 16, 4097, 70'000};
  std::vector<PerReplica> values;
  std::vector<std::vector<float>> sums;
  for (const std::size_t count : counts) {
    std::vector<float>& sum = sums.emplace_back(count);
    for (std::size_t r = 0; r < group.size; ++r) {  // in the order of replicas
      std::mt19937 random(static_cast<unsigned>(100 * count + r));
      std::uniform_real_distribution<float> uniform(-1, 1);
      std::vector<float> component(count);
      for (std::size_t i = 0; i < count; ++i) {
        component[i] = uniform(random);
        sum[i] = r == 0 ? component[i] : sum[i] + component[i];
      }
      if (r == group.first) values.push_back(PerReplica{vector_of(component, cpu(0))});
    }
  }
  std::vector<ValueDestinationPair> pairs;
  pairs.reserve(values.size());
  for (const PerReplica& value : values) pairs.push_back({value, value});
  for (const int bytes_per_pack : {0, 1, 64, 4004, 50'000, 1 << 20}) {
    const std::vector<Mirrored> results = group.ops.batch_reduce(
        ReduceOp::SUM, pairs, {.bytes_per_pack = bytes_per_pack, .deterministic = true});
    for (std::size_t v = 0; v < results.size(); ++v) {
      EXPECT_TRUE(elements(results[v].tensor()) == sums[v])
          << counts[v] << " elements, packs of " << bytes_per_pack;
    }
  }
}

/// An abort releases who waits, with its text; later calls fail at once, and a rebuilt cluster works.
void rt5(Cluster& cluster) {
  Group group(cluster, 1);
  const PerReplica one{vector_of<float>({1}, cpu(0))};
  cluster.barrier();  // all have their group
  if (cluster.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cluster.abort_collective_ops("peer down");
  }
  EXPECT_THAT(thrown<OpError>([&] {
                for (;;) (void)group.ops.reduce(ReduceOp::SUM, one, one);
              }),
              HasSubstr("peer down"));
  EXPECT_THAT(thrown<OpError>([&] { (void)group.ops.gather(one, one, 0); }),
              HasSubstr("peer down"));
  EXPECT_THAT(thrown<AbortedError>([&] { cluster.barrier(); }), HasSubstr("peer down"));
  const Rebuilt rebuilt = cluster.rebuild(Survivors::ALL, {.timeout_seconds = 60});
  Group again(*rebuilt.cluster, 1);
  expect_mirrored(again.ops.reduce(ReduceOp::SUM, one, one), cpus(1),
                  {static_cast<float>(again.size)});
  await_the_others();  // else they might hear that this one has gone
}

/// The same where the others are in the group's first meeting, and where they have not begun it.
void rt5_waiting(Cluster& cluster) {
  Group group(cluster, 1);
  const PerReplica one{vector_of<float>({1}, cpu(0))};
  std::promise<void> has_aborted;
  const std::shared_ptr<void> listening =
      cluster.listen({.on_lost = nullptr, .on_abort = [&](const RankInfo&, const std::string&) {
                        has_aborted.set_value();
                      }});
  cluster.barrier();  // all have their group
  if (cluster.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // they wait by then, most likely
    cluster.abort_collective_ops("peer down");
  } else {
    if (cluster.rank() == 1) has_aborted.get_future().wait();
    EXPECT_THAT(thrown<AbortedError>([&] { (void)group.ops.reduce(ReduceOp::SUM, one, one); }),
                HasSubstr("peer down"));
  }
  await_the_others();
}

/// Wrong arguments poison nothing.
void rt6_rt7(Cluster& cluster) {
  Group group(cluster, 1);
  const PerReplica one{scalar_of(1.0F, cpu(0))};
  EXPECT_THROW((void)group.ops.reduce(ReduceOp::SUM, PerReplica{}, "CPU:0"), ValueError);
  EXPECT_THROW((void)group.ops.reduce(ReduceOp::SUM, one, "GPU:99"), ValueError);
  EXPECT_THROW((void)group.ops.gather(one, "CPU:0", 0), ValueError);  // a scalar has no axis
  expect_mirrored(group.ops.reduce(ReduceOp::SUM, one, one), cpus(1),
                  {static_cast<float>(group.size)});
}

/// Rank 0's call waits for the others while `beside` is done; then they come, and all have the results of this call and of the next one.
template <class Beside>
void do_beside_a_call_that_waits(Cluster& cluster, Group& group, Beside beside) {
  const PerReplica one{scalar_of(1.0F, cpu(0))};
  const auto sum = static_cast<float>(group.size);
  if (cluster.rank() == 0) {
    const auto num_begun = [] { return counter_value("crossdevice_reductions_total"); };
    const double before = num_begun();
    PendingBatch pending = group.ops.reduce_async(ReduceOp::SUM, one, one);
    const Deadline patience = Deadline::after_timeout_seconds(60);
    while (num_begun() == before && !patience.has_passed()) std::this_thread::yield();
    beside(pending);
    EXPECT_FALSE(pending.is_done());
    cluster.barrier();  // now the others come
    expect_mirrored(pending.value(0), cpus(1), {sum});
    pending.wait();
  } else {
    cluster.barrier();
    expect_mirrored(group.ops.reduce(ReduceOp::SUM, one, one), cpus(1), {sum});
  }
  expect_mirrored(group.ops.reduce(ReduceOp::SUM, one, one), cpus(1), {sum});
}

/// Nor do they while a call waits for the others, nor does what fails beside it: that call succeeds, and later ones do.
void rt7_in_flight(Cluster& cluster) {
  Group group(cluster, 1);
  const std::shared_ptr<Cluster> same = cluster.duplicate();
  Group beside(*same, 1);
  const PerReplica one{scalar_of(1.0F, cpu(0))};
  do_beside_a_call_that_waits(cluster, group, [&](PendingBatch&) {
    EXPECT_THROW((void)group.ops.reduce(ReduceOp::SUM, PerReplica{}, "CPU:0"), ValueError);
    EXPECT_THROW((void)cluster.worker(99), ValueError);
    EXPECT_THROW({ (void)beside.ops.reduce(ReduceOp::SUM, one, one, {.timeout_seconds = 1}); },
                 DeadlineExceededError);
  });
  cluster.barrier();
}

/// A call that waits for the others goes on, whoever would like to cancel it, and gives everybody the result.
void rt6_cancelling(Cluster& cluster) {
  Group group(cluster, 1);
  do_beside_a_call_that_waits(cluster, group, [](PendingBatch& pending) { pending.cancel(); });
}

/// The deadline is kept, and a late peer fails at once even without one of its own. Meanwhile two heartbeats, at least, say what it does.
void rt8(Cluster& cluster) {
  Group group(cluster, 1);
  const PerReplica one{scalar_of(1.0F, cpu(0))};
  if (cluster.rank() == 0) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(
        thrown<DeadlineExceededError>(
            [&] { (void)group.ops.reduce(ReduceOp::SUM, one, one, {.timeout_seconds = 6}); }),
        AllOf(HasSubstr("reduce #1 (1 value, 4 bytes) timed out after 6 s: waiting for rank 1 ("),
              HasSubstr("), last seen in barrier #")));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(6));
  }
  cluster.barrier();
  if (cluster.rank() != 0) {
    EXPECT_THAT(
        thrown<DeadlineExceededError>([&] { (void)group.ops.reduce(ReduceOp::SUM, one, one); }),
        HasSubstr("given up"));
  }
  cluster.barrier();
}

/// The same while the group is made: its time is kept then, and who is late to make it fails, too, without a limit of its own.
void rt8_making(Cluster& cluster) {
  const std::shared_ptr<Cluster> meeting = cluster.duplicate();
  if (cluster.rank() == 0) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(thrown<DeadlineExceededError>(
                    [&] { const Group group(*meeting, 1, {.timeout_seconds = 2}); }),
                HasSubstr("waiting for rank 1"));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  }
  cluster.barrier();
  if (cluster.rank() != 0) {
    EXPECT_THAT(thrown<DeadlineExceededError>([&] { const Group group(*meeting, 1); }),
                HasSubstr("waiting for rank 1"));
  }
  cluster.barrier();
}

void rt9(Cluster& cluster) {
  Group group(cluster, 2, {.implementation = CommunicationImplementation::NCCL});
  const PerReplica one = group.value([](std::size_t) { return std::vector<float>{1}; });
  expect_mirrored(group.ops.reduce(ReduceOp::SUM, one, one), cpus(2),
                  {static_cast<float>(group.size)});
}

/// The sum and the mean of element i of replica d: 10^(d mod 3) i, or smaller, so that every sum is exact.
template <class T>
void value_matrix(Group& group, std::size_t count) {
  const auto element = [](std::size_t replica, std::size_t i) {
    constexpr float kPowers[] = {1, 10, 100};
    if (sizeof(T) == 2) return static_cast<T>(static_cast<float>(replica % 3 + i % 4));
    return static_cast<T>(kPowers[replica % 3] * static_cast<float>(i % 64));
  };
  const PerReplica value = group.value([&](std::size_t r) {
    std::vector<T> made;
    made.reserve(count);
    for (std::size_t i = 0; i < count; ++i) made.push_back(element(r, i));
    return made;
  });
  const auto expect = [&]<class R>(const Mirrored& result, double divisor, R /*dtype*/) {
    for (const Tensor& tensor : result.values()) {
      const std::span<const R> got = tensor.span<const R>();
      ASSERT_EQ(got.size(), count);
      for (std::size_t i = 0; i < count; ++i) {
        double wanted = 0;
        for (std::size_t r = 0; r < group.size; ++r) {
          wanted += static_cast<double>(static_cast<float>(element(r, i)));
        }
        wanted /= divisor;
        if constexpr (sizeof(R) == 2) {
          ASSERT_EQ(static_cast<float>(got[i]), static_cast<float>(R(static_cast<float>(wanted))));
        } else {
          ASSERT_EQ(static_cast<double>(got[i]), wanted);
        }
      }
    }
  };
  // Means of these integers are double precision.
  using Mean = std::conditional_t<std::is_integral_v<T>, double, T>;
  expect(group.ops.reduce(ReduceOp::SUM, value, value), 1, T{});
  expect(group.ops.reduce(ReduceOp::MEAN, value, value), static_cast<double>(group.size), Mean{});
}

/// Which rows of the matrix (workers, devices, lengths) have this number of workers.
void rt13(Cluster& cluster) {
  struct Row {
    int workers;
    std::size_t devices;
    std::vector<std::size_t> lengths;
  };
  const std::vector<Row> rows = {{1, 2, {1, 2, 8, 16, 1001}},
                                 {2, 4, {128}},
                                 {2, 8, {1001, 4096, 9408, 4095, 1045991}},
                                 {4, 4, {1045991}},
                                 // More of ours.
                                 {3, 2, {1, 2, 8, 16, 1001}},
                                 {5, 1, {4, 128, 4095}},
                                 {8, 1, {7, 1001, 9408}}};
  for (const Row& row : rows) {
    if (row.workers != cluster.num_workers()) continue;
    Group group(cluster, row.devices);
    for (const std::size_t length : row.lengths) {
      value_matrix<double>(group, length);
      if (length > 10000) continue;
      value_matrix<bfloat16>(group, length);
      value_matrix<std::int32_t>(group, length);
      value_matrix<std::int64_t>(group, length);
    }
  }
}

/// RT-13's matrix, gathered: replicas in order.
void rt14(Cluster& cluster) {
  for (const auto& [devices, count] :
       std::vector<std::pair<std::size_t, std::size_t>>{{2, 1}, {2, 1001}, {4, 128}, {8, 9408}}) {
    Group group(cluster, devices);
    const auto element = [](std::size_t r, std::size_t i) {
      return static_cast<std::int32_t>(1000000 * r + i);
    };
    const PerReplica value = group.value([&, n = count](std::size_t r) {
      std::vector<std::int32_t> made;
      made.reserve(n);
      for (std::size_t i = 0; i < n; ++i) made.push_back(element(r, i));
      return made;
    });
    const Mirrored all = group.ops.gather(value, "CPU:0", 0);
    const std::vector<std::int32_t> got = elements<std::int32_t>(all.tensor());
    ASSERT_EQ(got.size(), group.size * count);
    for (std::size_t k = 0; k < got.size(); ++k) ASSERT_EQ(got[k], element(k / count, k % count));
  }
}

void rt11(Cluster& cluster) {
  // A group that is larger than the workers, and workers that disagree on it.
  EXPECT_THROW(CollectiveAllReduce(cpus(1), cluster.num_workers() + 1, {}, shared(cluster)),
               ValueError);
  Group group(cluster, 1);
  const auto rank = static_cast<float>(cluster.rank());
  const PerReplica five = group.value([&](std::size_t) {
    std::vector<float> made;
    for (float i = 1; i <= 5; ++i) made.push_back(rank == 0 ? i : 10 * i);
    return made;
  });
  const float most = group.size == 1 ? 1 : 10;
  expect_mirrored(group.ops.reduce(ReduceOp::MAX, five, five), cpus(1),
                  {most, 2 * most, 3 * most, 4 * most, 5 * most});
  expect_mirrored(group.ops.reduce(ReduceOp::MIN, five, five), cpus(1), {1, 2, 3, 4, 5});
  // Gathered along the first axis: 1 to 3 dimensions.
  for (const Shape& shape : {Shape{2}, Shape{2, 3}, Shape{2, 3, 4}}) {
    const auto count = static_cast<std::size_t>(shape.num_elements());
    const std::vector<float> own(count, rank);
    std::vector<float> all;
    for (std::size_t r = 0; r < group.size; ++r) {
      all.insert(all.end(), count, static_cast<float>(r));
    }
    const PerReplica value{tensor_of(own, shape, cpu(0))};
    const Mirrored gathered = group.ops.gather(value, value, 0);
    expect_mirrored(gathered, cpus(1), all);
    std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
    dims[0] *= static_cast<std::int64_t>(group.size);
    EXPECT_EQ(gathered.tensor().shape(), Shape(std::span<const std::int64_t>(dims)));
  }
  {
    Communicator communicator(shared(cluster));
    bool flags[] = {rank == 0, rank != 0, rank == 0};
    communicator.broadcast(Tensor::view(std::span(flags), "CPU:0"), 0);
    EXPECT_THAT(flags, ElementsAre(true, false, true));
  }
  if (group.size == 1) return;
  cluster.barrier();  // what follows ends what a slower one is still in
  const PerReplica other_shape =
      group.value([&](std::size_t r) { return std::vector<float>(r + 2, 1); });
  EXPECT_THAT(
      thrown<InternalError>([&] { (void)group.ops.reduce(ReduceOp::SUM, other_shape, "CPU:0"); }),
      // Of any two that see it: between machines, within one whose workers compare theirs first, or where not all come in time to be compared.
      ContainsRegex("make different calls: rank [0-9].* reduce .*[0-9] bytes.*rank [0-9].* reduce "
                    ".*[0-9] bytes"));
  await_the_others();  // who is late is to hear of it, and not that this one has gone
}

/// A broadcast that nobody sends, each taking another one for the sender: everybody hears it.
void rt21_no_sender(Cluster& cluster) {
  Communicator communicator(shared(cluster));
  const int other = (cluster.rank() + 1) % cluster.num_workers();
  const Tensor tensor = vector_of<float>({static_cast<float>(cluster.rank())}, cpu(0));
  communicator.broadcast(tensor, 0);
  EXPECT_THAT(elements(tensor), ElementsAre(0));
  EXPECT_THROW(communicator.broadcast(tensor, cluster.num_workers()), ValueError);
  cluster.barrier();  // what follows ends what a slower one is still in
  EXPECT_THAT(
      thrown<InternalError>([&] { communicator.broadcast(tensor, other); }),
      AllOf(ContainsRegex("workers make different calls: rank [0-9] broadcast #2 of 1 float32 "
                          "value, 4 bytes, root [0-9]; rank [0-9].*, root [0-9]"),
            Not(HasSubstr("fingerprint"))));
  await_the_others();  // who is late is to hear of it, and not that this one has gone
}

/// Rank 0 gives up while the others wait for it; they hear why.
template <class F>
void abort_instead(Cluster& cluster, const F& call) {
  if (cluster.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // they wait by then, most likely
    cluster.abort_collective_ops("rank 0 does not come");
  } else {
    EXPECT_THAT(thrown<AbortedError>(call), HasSubstr("rank 0 does not come"));
  }
  await_the_others();
}

/// The group is pending: its members are making it.
void rt21_group(Cluster& cluster) {
  cluster.barrier();  // all have come
  abort_instead(cluster, [&] { const Communicator communicator(shared(cluster)); });
}

/// A call is pending: the sender does not come.
void rt21_call(Cluster& cluster) {
  Communicator communicator(shared(cluster));
  const Tensor tensor = vector_of<float>({0}, cpu(0));
  cluster.barrier();  // all have their group
  abort_instead(cluster, [&] { communicator.broadcast(tensor, 0); });
}

/// Healthy; down; a name that nobody has.
void rt22(Cluster& cluster) {
  cluster.barrier();
  EXPECT_THROW((void)cluster.worker(99), ValueError);
  if (cluster.rank() == 1) std::_Exit(0);
  EXPECT_THAT(thrown<UnavailableError>([&] { cluster.barrier(); }), HasSubstr("rank 1"));
  await_the_others();  // they are to hear of that one, and not of this one's end
}

/// Rank 1 dies, and is started again: it is refused, and the others hear that it died.
void rt22_restarted() {
  const EnvironmentClusterResolver resolver;
  const JoinOptions options{.timeout_seconds = 60};
  if (resolver.identity().rank != 1) {
    const std::shared_ptr<Cluster> cluster = Cluster::join(options);
    cluster->barrier();
    EXPECT_THAT(thrown<UnavailableError>([&] { cluster->barrier(); }), HasSubstr("rank 1"));
    return await_the_others();  // the chief is there to refuse it
  }
  const pid_t first = ::fork();
  ASSERT_GE(first, 0);
  if (first == 0) {
    const std::shared_ptr<Cluster> cluster = Cluster::join(options);
    cluster->barrier();
    std::_Exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(first, &status, 0), first);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(thrown<FailedPreconditionError>([&] { (void)Cluster::join(options); }),
              HasSubstr("rank 1"));
}

const Works& works() {
  static const Works all = {{"RT1", rt1_rt3},
                            {"RT2", rt2},
                            {"RT2 sizes", rt2_sizes},
                            {"RT4", rt4},
                            {"RT5", rt5},
                            {"RT5 waiting", rt5_waiting},
                            {"RT6", rt6_rt7},
                            {"RT6 cancelling", rt6_cancelling},
                            {"RT7 in flight", rt7_in_flight},
                            {"RT8", rt8},
                            {"RT8 making", rt8_making},
                            {"RT9", rt9},
                            {"RT11", rt11},
                            {"RT13", rt13},
                            {"RT14", rt14},
                            {"RT21 no sender", rt21_no_sender},
                            {"RT21 group", rt21_group},
                            {"RT21 call", rt21_call},
                            {"RT22", rt22},
                            {"RT22 restarted", rt22_restarted}};
  return all;
}

class RuntimeAmongWorkers : public testing::MachinesTest {};
INSTANTIATE_TEST_SUITE_P(Workers, RuntimeAmongWorkers,
                         ::testing::Values(Machines::ONE, Machines::TWO, Machines::ONE_EACH),
                         testing::machines_name);

TEST_P(RuntimeAmongWorkers, RT1_RT3_ReduceGatherAndDifferentCalls) {
  expect_well("RT1", {2, 3, 4, 5, 8});
}
TEST_P(RuntimeAmongWorkers, RT2_MultipleGroups) {
  expect_well("RT2", {4});
  expect_well("RT2 sizes", {5});
}
TEST_P(RuntimeAmongWorkers, RT4_SubdivisionsDoNotMatter) { expect_well("RT4", {1, 2, 3, 4, 5, 8}); }
TEST_P(RuntimeAmongWorkers, RT5_Abort) {
  expect_well("RT5", {2, 3, 4, 5, 8});
  expect_well("RT5 waiting", {2, 3, 4, 5, 8});
}
TEST_P(RuntimeAmongWorkers, RT6_RT7_UnrelatedErrorsPoisonNothing) {
  expect_well("RT6", {1, 2, 3, 4, 5, 8});
}
TEST_P(RuntimeAmongWorkers, RT6_RT7_UnrelatedErrorsBesideACallThatWaits) {
  expect_well_at_once("RT7 in flight", {2, 3, 4, 5, 8});
}
TEST_P(RuntimeAmongWorkers, RT6_ACallThatWaitsIsNotCancelled) {
  expect_well("RT6 cancelling", {2, 3, 4, 5, 8});
}
TEST_P(RuntimeAmongWorkers, RT8_Timeout) { expect_well_at_once("RT8", {2, 3, 4, 5, 8}); }
TEST_P(RuntimeAmongWorkers, RT8_TimeoutWhileTheGroupIsMade) {
  expect_well_at_once("RT8 making", {2, 3, 4, 5, 8});
}
TEST_P(RuntimeAmongWorkers, RT9_NcclHintOnHosts) { expect_well("RT9", {1, 2, 3, 4, 5, 8}); }
TEST_P(RuntimeAmongWorkers, RT11_PythonCollectiveOps) { expect_well("RT11", {1, 2, 3, 4, 5, 8}); }
TEST_P(RuntimeAmongWorkers, RT13_RingReducerValueMatrix) {
  expect_well("RT13", {1, 2, 3, 4, 5, 8});
}
TEST_P(RuntimeAmongWorkers, RT14_RingGathererMatrix) { expect_well("RT14", {1, 2, 3, 4, 5, 8}); }
TEST_P(RuntimeAmongWorkers, RT21_ABroadcastWithoutASender) {
  expect_well("RT21 no sender", {2, 3, 4, 5, 8});
}
TEST_P(RuntimeAmongWorkers, RT21_AbortOfWhatIsPending) {
  expect_well("RT21 group", {2, 3, 4, 5, 8});
  expect_well("RT21 call", {2, 3, 4, 5, 8});
}
TEST_P(RuntimeAmongWorkers, RT21_RT22_ARestartedPeerIsRefused) {
  expect_well("RT22 restarted", {2, 3, 4, 5, 8});
}
TEST_P(RuntimeAmongWorkers, RT22_CheckHealth) { expect_well("RT22", {2, 3, 4, 5, 8}); }

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::works());
}
