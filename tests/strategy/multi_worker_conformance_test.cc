// SPDX-License-Identifier: Apache-2.0
// TensorFlow's own tests of strategies with several workers (catalogue 8.8, C14-6, C2-7 to C2-9), with processes. Names are the catalogue's ids, numbers
// are its rows'. Each row runs with 1 and 2 devices per worker.
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/comm/simple_cluster_resolver.h"
#include "crossdevice/strategy/mirrored_variable.h"
#include "crossdevice/strategy/sync_on_read_variable.h"

#include "support/machines_fixture.h"
#include "support/multi_worker.h"
#include "support/replicas.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Ne;

/// What a row works with: the strategy, and how many replicas it has.
struct Job {
  Job(Cluster& all, std::size_t num_devices)
      : cluster(all), devices(num_devices), strategy(on_workers(all, num_devices)) {}

  [[nodiscard]] std::size_t replicas() const { return strategy.num_replicas_in_sync(); }
  [[nodiscard]] float n() const { return static_cast<float>(replicas()); }
  [[nodiscard]] std::size_t workers() const {
    return static_cast<std::size_t>(cluster.num_workers());
  }

  Cluster& cluster;
  std::size_t devices;
  MultiWorkerMirroredStrategy strategy;
};

float id(const ReplicaContext& context) {
  return static_cast<float>(context.replica_id_in_sync_group());
}
Tensor scalar(float value) { return scalar_of(value, cpu(0)); }
float value_of(const Tensor& tensor) { return elements(tensor).at(0); }

void s12(Job& job) {
  Strategy& strategy = job.strategy;
  const auto ones = strategy.run([](ReplicaContext& c) { return scalar_of(1.0F, c.device()); });
  EXPECT_THAT(elements(strategy.reduce("SUM", ones, std::nullopt)), ElementsAre(job.n()));
  {
    const StrategyScope scope = strategy.scope();
    EXPECT_THAT(elements(strategy.reduce("SUM", ones, std::nullopt)), ElementsAre(job.n()));
  }
  const auto pairs = strategy.run([](ReplicaContext& c) {
    return vector_of<float>({1, 2}, c.device());
  });
  EXPECT_THAT(elements(strategy.reduce("MEAN", pairs, 0)), ElementsAre(1.5F));
  EXPECT_THAT(elements(strategy.reduce("SUM", pairs, 0)), ElementsAre(3 * job.n()));
}

void s13(Job& job) {
  using Update = void (*)(VariableComponent&, const VariableValue&);
  struct Row {
    Update update;
    float expected;
  };
  for (const Row& row :
       {Row{[](VariableComponent&v, const VariableValue&x) { v.assign(x); }, 1},
        Row{[](VariableComponent&v, const VariableValue&x) { v.assign_add(x); }, 8},
        Row{[](VariableComponent&v, const VariableValue&x) { v.assign_sub(x); }, 2}}) {
    MirroredVariable variable(job.strategy, scalar(5));
    job.strategy.run([&](ReplicaContext& context) {
      context.update(variable, row.update, scalar_of(2.0F, context.device()));
      context.update(variable, row.update, 1.0);
    });
    expect_mirrored(variable.components(), cpus(job.devices), {row.expected});
  }
}

/// `value` at `row` of (5, 1).
IndexedSlices sparse_at(const ReplicaContext& context, float value, std::int64_t row) {
  return slices_of({value}, {row}, {5, 1}, context.device());
}
std::vector<float> only(float value, std::size_t row) {
  std::vector<float> dense(5, 0.0F);
  dense[row] = value;
  return dense;
}
std::vector<float> dense(const IndexedSlices& slices) { return elements(to_dense(slices)); }

void s14(Job& job) {
  const float n = job.n();
  job.strategy.run([&](ReplicaContext& context) {
    const Tensor one = scalar_of(1.0F, context.device());
    const IndexedSlices sparse = sparse_at(context, 1, 0);
    const IndexedSlices twice = sparse_at(context, 2, 0);
    EXPECT_EQ(value_of(context.all_reduce("SUM", one)), n);
    const IndexedSlices sum = context.all_reduce("SUM", sparse);
    EXPECT_EQ(dense(sum), only(n, 0));
    EXPECT_EQ(sum.values.shape()[0], std::int64_t(job.replicas()));
    EXPECT_NEAR(dense(context.all_reduce("MEAN", sparse))[0], 1, 1e-6F);
    const auto both = context.all_reduce("SUM", std::vector<IndexedSlices>{sparse, twice});
    EXPECT_EQ(dense(both[0]), only(n, 0));
    EXPECT_EQ(dense(both[1]), only(2 * n, 0));
    const auto nest = context.all_reduce(
        "SUM", std::tuple(one, sparse, scalar_of(2.0F, context.device()), std::vector{twice}));
    EXPECT_EQ(value_of(std::get<0>(nest)), n);
    EXPECT_EQ(dense(std::get<1>(nest)), only(n, 0));
    EXPECT_EQ(value_of(std::get<2>(nest)), 2 * n);
    EXPECT_EQ(dense(std::get<3>(nest)[0]), only(2 * n, 0));
  });
}

void c2_7_8_9(Job& job) {
  const float g = job.n();
  job.strategy.run([&](ReplicaContext& context) {
    const Tensor one = scalar_of(1.0F, context.device());
    const auto pair = std::pair(one, scalar_of(2.0F, context.device()));
    const auto sum = context.all_reduce("SUM", pair);
    const auto mean = context.all_reduce("MEAN", pair);
    EXPECT_EQ(value_of(sum.first), g);
    EXPECT_EQ(value_of(sum.second), 2 * g);
    EXPECT_EQ(value_of(mean.first), 1);
    EXPECT_EQ(value_of(mean.second), 2);
    const auto sparse =
        context.all_reduce("SUM", std::pair(sparse_at(context, 1, 0), sparse_at(context, 1, 2)));
    EXPECT_EQ(dense(sparse.first), only(g, 0));
    EXPECT_EQ(dense(sparse.second), only(g, 2));
    const auto mixed = context.all_reduce(
        "SUM", std::tuple(sparse_at(context, 1, 0), one, sparse_at(context, 3, 4), pair.second));
    EXPECT_EQ(dense(std::get<0>(mixed)), only(g, 0));
    EXPECT_EQ(value_of(std::get<1>(mixed)), g);
    EXPECT_EQ(dense(std::get<2>(mixed)), only(3 * g, 4));
    EXPECT_EQ(value_of(std::get<3>(mixed)), 2 * g);
  });
}

void s15(Job& job) {
  SyncOnReadVariable variable(job.strategy, scalar(0), {.aggregation = VariableAggregation::MEAN});
  job.strategy.run([&](ReplicaContext& context) {
    variable.assign(3 * id(context));
    EXPECT_EQ(value_of(context.all_reduce("SUM", variable)), 3 * job.n() * (job.n() - 1) / 2);
  });
}

void s16(Job& job) {
  StrategyExtended& extended = job.strategy.extended();
  const auto w = static_cast<float>(job.workers());
  // Of the host: one value per worker. (With one worker a plain value is the same on all replicas, which MEAN takes.)
  if (job.workers() > 1) {
    const Tensor host = scalar(1);
    EXPECT_EQ(value_of(job.strategy.reduce("SUM", host, std::nullopt)), w);
    expect_mirrored(extended.reduce_to("SUM", host, host), {"CPU:0"}, {w});
    const auto batch = extended.batch_reduce_to("SUM", {{host, host}, {host, host}});
    expect_mirrored(batch[0], {"CPU:0"}, {w});
    expect_mirrored(batch[1], {"CPU:0"}, {w});
  }
  // Of the devices.
  const PerReplica ones =
      job.strategy.run([](ReplicaContext& c) { return scalar_of(1.0F, c.device()); });
  EXPECT_EQ(value_of(job.strategy.reduce("SUM", ones, std::nullopt)), job.n());
  expect_mirrored(extended.reduce_to("SUM", ones, ones), cpus(job.devices), {job.n()});
  const auto batch = extended.batch_reduce_to("SUM", {{ones, ones}, {ones, ones}});
  expect_mirrored(batch[0], cpus(job.devices), {job.n()});
  expect_mirrored(batch[1], cpus(job.devices), {job.n()});
}

struct GatherRow {
  std::vector<float> value;
  Shape shape;
  int axis;
};

/// `n` copies of `row.value` along its axis, the slow way: outer blocks of (axis x inner) elements, each repeated.
std::vector<float> repeated(const GatherRow& row, std::size_t n) {
  std::size_t block = 1;
  for (std::size_t i = static_cast<std::size_t>(row.axis); i < row.shape.rank(); ++i)
    block *= static_cast<std::size_t>(row.shape[i]);
  std::vector<float> result;
  for (std::size_t begin = 0; begin < row.value.size(); begin += block) {
    for (std::size_t copy = 0; copy < n; ++copy) {
      for (std::size_t i = 0; i < block; ++i) result.push_back(row.value[begin + i]);
    }
  }
  return result;
}

const std::vector<GatherRow>& gather_rows() {
  static const std::vector<GatherRow> rows = {
      {{1, 2, 3}, {3}, 0},          {{1, 2, 3}, {1, 3}, 0},       {{1, 2, 3}, {1, 3}, 1},
      {{1, 2, 1, 2}, {1, 2, 2}, 0}, {{1, 2, 1, 2}, {1, 2, 2}, 1}, {{1, 2, 1, 2}, {1, 2, 2}, 2}};
  return rows;
}

void s19(Job& job) {
  for (const GatherRow& row : gather_rows()) {
    const PerReplica value = job.strategy.run(
        [&](ReplicaContext& c) { return tensor_of(row.value, row.shape, c.device()); });
    EXPECT_EQ(elements(job.strategy.gather(value, row.axis)), repeated(row, job.replicas()));
  }
}

/// Replica r's ones: (r + 1, 1) or (1, r + 1).
Tensor growing(const ReplicaContext& context, int axis) {
  const std::size_t length = context.replica_id_in_sync_group() + 1;
  const Shape shape = axis == 0 ? Shape{length, 1} : Shape{1, length};
  return tensor_of(std::vector<float>(length, 1.0F), shape, context.device());
}

void s20(Job& job) {
  const std::size_t total = job.replicas() * (job.replicas() + 1) / 2;
  for (const int axis : {0, 1}) {
    const PerReplica value = job.strategy.run([&](ReplicaContext& c) { return growing(c, axis); });
    const Tensor all = job.strategy.gather(value, axis);
    EXPECT_EQ(elements(all), std::vector<float>(total, 1.0F));
    EXPECT_EQ(all.shape(), axis == 0 ? Shape({total, 1}) : Shape({1, total}));
  }
}

/// Of replica 0 another rank than of the others.
Tensor of_different_rank(const ReplicaContext& context) {
  const bool is_first = context.replica_id_in_sync_group() == 0;
  return tensor_of<float>({1}, is_first ? Shape{1} : Shape{1, 1}, context.device());
}

void s21(Job& job) {
  if (job.replicas() == 1) return;
  const PerReplica columns = job.strategy.run([](ReplicaContext& c) { return growing(c, 1); });
  EXPECT_THROW((void)job.strategy.gather(columns, 0), ValueError);
  if (job.devices > 1)
    return;  // a difference within a worker is that worker's: the others would wait
  const PerReplica ranks = job.strategy.run(of_different_rank);
  EXPECT_THROW((void)job.strategy.gather(ranks, 0), ValueError);
  // Nothing is broken.
  s19(job);
}

void s22(Job& job) {
  const std::vector<IndexedSlices> slices =
      job.strategy.run([](ReplicaContext& c) { return sparse_at(c, 1, 0); });
  EXPECT_THROW((void)job.strategy.gather(PerReplica(slices), 0), UnimplementedError);
  EXPECT_THAT(
      thrown_in_replicas<UnimplementedError>(
          job.strategy, [](ReplicaContext& c) { (void)c.all_gather(sparse_at(c, 1, 0), 0); }),
      Each(Ne("")));
}

void s23(Job& job) {
  const std::size_t total = job.replicas() * (job.replicas() + 1) / 2;
  job.strategy.run([&](ReplicaContext& context) {
    for (const GatherRow& row : gather_rows()) {
      const Tensor all =
          context.all_gather(tensor_of(row.value, row.shape, context.device()), row.axis);
      EXPECT_EQ(elements(all), repeated(row, job.replicas()));
    }
    for (const int axis : {0, 1}) {
      EXPECT_EQ(elements(context.all_gather(growing(context, axis), axis)),
                std::vector<float>(total, 1.0F));
    }
    const auto nest =
        context.all_gather(std::vector{growing(context, 1),
                                       tensor_of<float>({1, 2, 3, 4}, {1, 2, 2}, context.device())},
                           1);
    EXPECT_EQ(nest[0].shape(), Shape({1, total}));
    EXPECT_EQ(elements(nest[1]), repeated({{1, 2, 3, 4}, {1, 2, 2}, 1}, job.replicas()));
  });
  if (job.replicas() == 1) return;
  EXPECT_THAT(thrown_in_replicas<ValueError>(
                  job.strategy, [](ReplicaContext& c) { (void)c.all_gather(growing(c, 1), 0); }),
              Each(Ne("")));
  if (job.devices > 1) return;  // as S-21
  EXPECT_THAT(
      thrown_in_replicas<ValueError>(
          job.strategy, [](ReplicaContext& c) { (void)c.all_gather(of_different_rank(c), 0); }),
      Each(Ne("")));
}

void s25_s35(Job& job) {
  std::mutex mutex;
  std::set<std::size_t> ids;
  job.strategy.run([&](ReplicaContext& context) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(context.num_replicas_in_sync(), job.replicas());
    ids.insert(context.replica_id_in_sync_group());
  });
  EXPECT_EQ(job.replicas(), job.devices * job.workers());
  EXPECT_EQ(ids.size(), job.devices);
  const auto rank = static_cast<std::size_t>(job.cluster.rank());
  for (std::size_t r = 0; r < job.devices; ++r) EXPECT_EQ(ids.count(rank * job.devices + r), 1U);
}

void s27(Job& job) {
  const PerReplica ids =
      job.strategy.run([](ReplicaContext& c) { return scalar_of(id(c), c.device()); });
  const Tensor sum = job.strategy.reduce("SUM", ids, std::nullopt);
  EXPECT_THAT(elements(sum), ElementsAre(job.n() * (job.n() - 1) / 2));
  EXPECT_EQ(sum.device(), cpu(0));
  const auto pairs = job.strategy.run(
      [](ReplicaContext& context, float x) {
        return std::pair(scalar_of(x + 1, context.device()), scalar_of(x - 1, context.device()));
      },
      3.0F);
  const auto [first, second] = job.strategy.reduce("SUM", regroup(pairs), std::nullopt);
  EXPECT_THAT(elements(first), ElementsAre(4 * job.n()));
  EXPECT_THAT(elements(second), ElementsAre(2 * job.n()));
}

template <class T>
void reduce_ragged(Job& job) {
  const PerReplica value = job.strategy.run([](ReplicaContext& context) {
    const std::size_t own = context.replica_id_in_sync_group();
    return vector_of(std::vector<T>(own + 1, static_cast<T>(own)), context.device());
  });
  double sum = 0;
  double count = 0;
  for (std::size_t r = 0; r < job.replicas(); ++r) {
    sum += static_cast<double>(r * (r + 1));
    count += static_cast<double>(r + 1);
  }
  EXPECT_THAT(elements<T>(job.strategy.reduce("SUM", value, 0)), ElementsAre(static_cast<T>(sum)));
  const Tensor mean = job.strategy.reduce("MEAN", value, 0);
  if (mean.dtype() == DType::FLOAT32) {
    EXPECT_THAT(elements<float>(mean), ElementsAre(static_cast<float>(sum / count)));
  } else {
    EXPECT_THAT(elements<double>(mean), ElementsAre(sum / count));
  }
}

void s28(Job& job) {
  reduce_ragged<float>(job);
  reduce_ragged<std::int32_t>(job);
}

/// What even and odd replicas hold; a single one keeps it.
void s29(Job& job) {
  const std::vector<float> even{39, 2};
  const std::vector<float> odd{3, 41};
  const auto reduce_both = [&](const char* op) {
    return job.strategy.run([&, op](ReplicaContext& context) {
      const bool is_even = context.replica_id_in_sync_group() % 2 == 0;
      return context.all_reduce(
          op, std::vector{vector_of<float>({is_even ? 1.0F : 3.0F}, context.device()),
                          vector_of(is_even ? even : odd, context.device())});
    });
  };
  const float n = job.n();
  const auto num_odd = static_cast<float>(job.replicas() / 2);
  const float num_even = n - num_odd;
  const float first = num_even + 3 * num_odd;
  const std::vector<float> second{num_even * even[0] + num_odd * odd[0],
                                  num_even * even[1] + num_odd * odd[1]};
  const std::vector<PerReplica> sum = reduce_both("SUM");
  expect_mirrored(sum[0], cpus(job.devices), {first});
  expect_mirrored(sum[1], cpus(job.devices), second);
  const std::vector<PerReplica> mean = reduce_both("MEAN");
  expect_mirrored(mean[0], cpus(job.devices), {first / n});
  expect_mirrored(mean[1], cpus(job.devices), {second[0] / n, second[1] / n});
}

void s36(Job& job) {
  std::mt19937 random(static_cast<unsigned>(job.cluster.rank()) + 1);  // another value on each
  const float initial = std::uniform_real_distribution<float>(0, 1)(random);
  const auto variable = job.strategy.make_variable(scalar(initial));
  const float mean = value_of(job.strategy.reduce("MEAN", *variable, std::nullopt));
  EXPECT_FLOAT_EQ(value_of(variable->read()), mean);
  if (job.cluster.rank() == 0) {
    EXPECT_EQ(value_of(variable->read()), initial);
  }
}

/// Values d and d + 1 of device d on every worker: MEAN does not see the workers, SUM does.
void c14_6(Job& job) {
  const auto n = static_cast<float>(job.devices);
  const auto w = static_cast<float>(job.workers());
  StrategyExtended& extended = job.strategy.extended();
  std::vector<std::vector<float>> first;
  std::vector<std::vector<float>> second;
  for (float d = 0; d < n; ++d) {
    first.push_back({d});
    second.push_back({d + 1});
  }
  const PerReplica value = per_replica(first);
  const PerReplica value2 = per_replica(second);
  const float mean = (n - 1) / 2;
  for (const Destinations& destination :
       {Destinations(value), Destinations("CPU:0"), Destinations("/device:CPU:1")}) {
    const Devices& on = destination.devices();
    expect_mirrored(extended.reduce_to("MEAN", value, destination), on, {mean});
    expect_mirrored(extended.reduce_to("MEAN", value2, destination), on, {mean + 1});
    expect_mirrored(extended.reduce_to("SUM", value, destination), on, {mean * n * w});
    expect_mirrored(extended.reduce_to("SUM", value2, destination), on, {(mean + 1) * n * w});
    const auto batch =
        extended.batch_reduce_to("SUM", {{value, destination}, {value2, destination}});
    expect_mirrored(batch[0], on, {mean * n * w});
    expect_mirrored(batch[1], on, {(mean + 1) * n * w});
  }
}

/// Worker 1 ends between two calls; the others do not wait for ever.
template <class F>
void expect_unavailable_without(Cluster& cluster, F&& call) {
  cluster.barrier();  // the first is over on all
  if (cluster.rank() == 1) std::_Exit(0);
  EXPECT_THAT(thrown<UnavailableError>(call), HasSubstr("rank 1"));
  await_the_others();  // they are to hear of that one, and not of this one's end
}

void s41_variable(Cluster& cluster) {
  MultiWorkerMirroredStrategy strategy(on_workers(cluster, 1));
  (void)strategy.make_variable(scalar(1));
  expect_unavailable_without(cluster, [&] { (void)strategy.make_variable(scalar(1)); });
}

void s41_reduce(Cluster& cluster) {
  MultiWorkerMirroredStrategy strategy(on_workers(cluster, 1));
  const auto reduce = [&] {
    strategy.run([](ReplicaContext& context) {
      (void)context.all_reduce("SUM", scalar_of(1.0F, context.device()));
    });
  };
  reduce();
  expect_unavailable_without(cluster, reduce);
}

/// The job that is started again.
void s42(Cluster& cluster) {
  MultiWorkerMirroredStrategy strategy(on_workers(cluster, 1));
  const auto variable = strategy.make_variable(scalar(static_cast<float>(cluster.rank()) + 0.5F));
  EXPECT_EQ(value_of(variable->read()), 0.5F);
  const Tensor ones = tensor_of(std::vector<float>(4096, 1.0F), {64, 64}, cpu(0));
  const Tensor sum = strategy.reduce("SUM", ones, std::nullopt);
  EXPECT_EQ(elements(sum), std::vector<float>(4096, static_cast<float>(cluster.num_workers())));
}

/// The workers of a job are killed in the middle of a call, and as soon as all are gone started again, at the same address.
void s42_restarted() {
  const JoinOptions options{.timeout_seconds = 60};
  const pid_t first = ::fork();
  ASSERT_GE(first, 0);
  if (first == 0) {
    const std::shared_ptr<Cluster> cluster = Cluster::join(options);
    s42(*cluster);
    MultiWorkerMirroredStrategy strategy(on_workers(*cluster, 1));
    const bool is_first = cluster->rank() == cluster->num_workers() - 1;
    try {
      for (;;) {
        (void)strategy.reduce("SUM", scalar(1), std::nullopt);
        if (is_first) ::kill(::getpid(), SIGKILL);
      }
    } catch (const UnavailableError& error) {
      // Of the first one, or of another that has heard of it before.
      const bool names_another =
          !error.culprits().empty() && error.culprits()[0].rank != cluster->rank();
      if (names_another && !is_first) ::kill(::getpid(), SIGKILL);
    }
    std::_Exit(1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(first, &status, 0), first);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  await_the_others();  // their first processes have ended, too
  const std::shared_ptr<Cluster> cluster = Cluster::join(options);
  s42(*cluster);
  cluster->barrier();
}

/// Runs a row with 1 and 2 devices per worker.
WorkerTask with_devices(void (*row)(Job&)) {
  return WorkerTask([row](Cluster& cluster) {
    for (const std::size_t devices : {1U, 2U}) {
      Job job(cluster, devices);
      row(job);
    }
  });
}

const Works& works() {
  static const Works all = {{"S12", with_devices(s12)},      {"S13", with_devices(s13)},
                            {"S14", with_devices(s14)},      {"C2_7", with_devices(c2_7_8_9)},
                            {"S15", with_devices(s15)},      {"S16", with_devices(s16)},
                            {"S19", with_devices(s19)},      {"S20", with_devices(s20)},
                            {"S21", with_devices(s21)},      {"S22", with_devices(s22)},
                            {"S23", with_devices(s23)},      {"S25", with_devices(s25_s35)},
                            {"S27", with_devices(s27)},      {"S28", with_devices(s28)},
                            {"S29", with_devices(s29)},      {"S36", with_devices(s36)},
                            {"C14_6", with_devices(c14_6)},  {"S41 variable", s41_variable},
                            {"S41 reduce", s41_reduce},      {"S42", s42},
                            {"S42 restarted", s42_restarted}};
  return all;
}

class MultiWorkerConformance : public testing::MachinesTest {};
INSTANTIATE_TEST_SUITE_P(Workers, MultiWorkerConformance,
                         ::testing::Values(Machines::ONE, Machines::ONE_EACH),
                         testing::machines_name);

TEST_P(MultiWorkerConformance, S12_ReduceBasicAndAlongAnAxis) {
  expect_well("S12", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, S13_DenseUpdateInReplicaContext) {
  expect_well("S13", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, S14_AllReduceDenseSparseTuplesAndNests) {
  expect_well("S14", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, C2_7_C2_8_C2_9_AllReduceDenseSparseAndMixed) {
  expect_well("C2_7", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, S15_SyncOnReadVariableInput) {
  expect_well("S15", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, S16_ReduceHostAndDeviceTensors) {
  expect_well("S16", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, S19_GatherDenseAlongEveryAxis) {
  expect_well("S19", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, S20_GatherDifferentLengthsAlongTheAxis) {
  expect_well("S20", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, S21_GatherRefusesOtherDifferences) {
  expect_well("S21", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, S22_GatherOfSparseValuesIsNotImplemented) {
  expect_well("S22", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, S23_AllGatherInReplicaContext) {
  expect_well("S23", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, S25_S33_S35_ReplicaIdsAndNumReplicas) {
  expect_well("S25", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, S27_ReduceToCpuAndNested) { expect_well("S27", {1, 2, 3, 4, 5, 8}); }
TEST_P(MultiWorkerConformance, S28_ReduceAlongAnAxisOfDifferentLengths) {
  expect_well("S28", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, S29_AllReduceSumAndMean) { expect_well("S29", {1, 2, 3, 4, 5, 8}); }
TEST_P(MultiWorkerConformance, S36_VariablesBeginWithTheChiefsValue) {
  expect_well("S36", {1, 2, 3, 4, 5, 8});
}
TEST_P(MultiWorkerConformance, C14_6_ReductionDistributed) {
  expect_well("C14_6", {1, 2, 3, 4, 5, 8});
}

TEST(MultiWorkerConformanceAlone, S37_AResolverAndAClusterAreOneTooMany) {
  const auto resolver = std::make_shared<SimpleClusterResolver>(ClusterSpec());
  EXPECT_THROW(MultiWorkerMirroredStrategy(
                   {.cluster_resolver = resolver, .cluster = Cluster::join(*resolver)}),
               ValueError);
}

TEST_P(MultiWorkerConformance, S41_APeerThatFailsIsNoticed) {
  expect_well("S41 variable", {2, 3, 4, 5, 8});
  expect_well("S41 reduce", {2, 3, 4, 5, 8});
}

TEST_P(MultiWorkerConformance, S42_TheJobStartedAgainWorks) {
  expect_well("S42", {1, 2, 3, 4, 5, 8});
  expect_well("S42 restarted", {1, 2, 3, 4, 5, 8});
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::works());
}
