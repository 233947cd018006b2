// SPDX-License-Identifier: Apache-2.0
// MultiWorkerMirroredStrategy with real processes: ids, variables, values of workers and of replicas, failures.
#include "crossdevice/strategy/multi_worker_mirrored_strategy.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/comm/simple_cluster_resolver.h"
#include "crossdevice/ops/collective_all_reduce.h"
#include "crossdevice/strategy/mirrored_variable.h"
#include "crossdevice/strategy/sync_on_read_variable.h"

#include "support/allocation_counter.h"
#include "support/machines_fixture.h"
#include "support/multi_worker.h"
#include "support/replicas.h"
#include "support/worker_processes.h"

namespace crossdevice {
namespace {

using namespace crossdevice::testing;  // NOLINT(google-build-using-namespace)
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kShortDefaultSeconds = 3;

float id(const ReplicaContext& context) {
  return static_cast<float>(context.replica_id_in_sync_group());
}

/// 0 + 1 + ... + (n - 1).
float sum_of_ids(std::size_t n) {
  const std::size_t sum = n * (n - 1) / 2;
  return static_cast<float>(sum);
}

void ids_and_shares(Cluster& cluster) {
  const auto workers = static_cast<std::size_t>(cluster.num_workers());
  const auto rank = static_cast<std::size_t>(cluster.rank());
  for (const std::size_t devices : {1U, 2U, 3U}) {
    MultiWorkerMirroredStrategy strategy(on_workers(cluster, devices));
    EXPECT_EQ(strategy.num_replicas_in_sync(), devices * workers);
    EXPECT_EQ(strategy.extended().num_workers(), workers);
    EXPECT_EQ(strategy.extended().should_checkpoint(), rank == 0);
    EXPECT_EQ(strategy.extended().should_save_summary(), rank == 0);
    const InputContext input = strategy.extended().make_input_context();
    EXPECT_EQ(input.num_input_pipelines, workers);
    EXPECT_EQ(input.input_pipeline_id, rank);
    EXPECT_EQ(input.num_replicas_in_sync, devices * workers);
    const std::vector<std::size_t> ids = strategy.run([&](ReplicaContext& context) {
      EXPECT_EQ(context.num_replicas_in_sync(), devices * workers);
      return context.replica_id_in_sync_group();
    });
    for (std::size_t r = 0; r < devices; ++r) EXPECT_EQ(ids[r], rank * devices + r);
  }
  MultiWorkerMirroredStrategy by_default({.cluster = shared(cluster)});
  if (num_gpus() == 0) {
    EXPECT_EQ(by_default.extended().worker_devices(), Devices{"CPU:0"});
  }
}

void all_calls_of_replicas(Cluster& cluster) {
  for (const std::size_t devices : {1U, 2U}) {
    MultiWorkerMirroredStrategy strategy(on_workers(cluster, devices));
    const std::size_t n = strategy.num_replicas_in_sync();
    strategy.run([&](ReplicaContext& context) {
      const Tensor own = vector_of<float>({id(context), 1}, context.device());
      EXPECT_THAT(elements(context.all_reduce("SUM", own)),
                  ElementsAre(sum_of_ids(n), static_cast<float>(n)));
      EXPECT_THAT(elements(context.all_reduce("MAX", own)),
                  ElementsAre(static_cast<float>(n - 1), 1));
      const Tensor all = context.all_gather(own, 0);
      ASSERT_EQ(all.num_elements(), 2 * n);
      for (std::size_t r = 0; r < n; ++r) EXPECT_EQ(elements(all)[2 * r], static_cast<float>(r));
      context.all_reduce_into("MEAN", own);
      EXPECT_THAT(elements(own), ElementsAre(sum_of_ids(n) / static_cast<float>(n), 1));
      // A tensor that is not on the replica's device.
      EXPECT_THAT(elements(context.all_reduce("SUM", scalar_of(1.0F, cpu(0)))),
                  ElementsAre(static_cast<float>(n)));
      // The merge brings this worker's replicas together, the reduction in it all workers'.
      const Tensor merged = context.merge_call(
          [](Strategy& s, const PerReplica& value) {
            return s.extended().reduce_to("SUM", value, value);
          },
          scalar_of(id(context), context.device()));
      EXPECT_THAT(elements(merged), ElementsAre(sum_of_ids(n)));
    });
  }
}

void values_of_workers_and_of_replicas(Cluster& cluster) {
  const auto workers = static_cast<float>(cluster.num_workers());
  for (const std::size_t devices : {1U, 2U, 3U}) {
    MultiWorkerMirroredStrategy strategy(on_workers(cluster, devices));
    StrategyExtended& extended = strategy.extended();
    const float replicas = workers * static_cast<float>(devices);
    // One tensor of this worker: combined over the workers.
    const Tensor own = scalar_of(2.0F, cpu(0));
    EXPECT_THAT(elements(strategy.reduce("SUM", own, std::nullopt)), ElementsAre(2 * workers));
    EXPECT_THAT(elements(strategy.reduce("MEAN", own, std::nullopt)), ElementsAre(2));
    EXPECT_THAT(elements(strategy.reduce("SUM", PerReplica(std::vector<Tensor>(devices, own)),
                                         std::nullopt)),
                ElementsAre(2 * replicas));
    expect_mirrored(extended.reduce_to("SUM", own, own), {"CPU:0"}, {2 * workers});
    expect_mirrored(extended.reduce_to("SUM", own, cpus(2)), cpus(2), {2 * workers});
    // What is equal everywhere is that value, and talks to nobody: only the chief asks.
    const Mirrored equal = extended.broadcast_to(own, cpus(devices));
    if (cluster.rank() == 0) {
      EXPECT_THAT(elements(strategy.reduce("MEAN", equal, std::nullopt)), ElementsAre(2));
      if (replicas > 1) {
        EXPECT_THAT(thrown<ValueError>([&] { (void)extended.reduce_to("SUM", equal, own); }),
                    HasSubstr("the same on all"));
      }
      EXPECT_THAT(elements(strategy.reduce(
                      "MEAN", Mirrored(std::vector<Tensor>{vector_of<float>({1, 3}, cpu(0))}), 0)),
                  ElementsAre(2));
    }
    // Along an axis, with different lengths.
    const auto rank = static_cast<std::size_t>(cluster.rank());
    const Tensor ragged = vector_of(std::vector<float>(rank + 1, static_cast<float>(rank)), cpu(0));
    float sum = 0;
    float count = 0;
    for (int w = 0; static_cast<float>(w) < workers; ++w) {
      sum += static_cast<float>(w * (w + 1));
      count += static_cast<float>(w + 1);
    }
    EXPECT_THAT(elements(strategy.reduce("SUM", ragged, 0)), ElementsAre(sum));
    EXPECT_THAT(elements(strategy.reduce("MEAN", ragged, 0)), ElementsAre(sum / count));
    // Any mix in one batch, in order.
    const PerReplica on_devices =
        strategy.run([](ReplicaContext& context) { return scalar_of(1.0F, context.device()); });
    const auto batch = extended.batch_reduce_to(
        "SUM", {{own, own}, {on_devices, on_devices}, {own, "CPU:1"}, {on_devices, "CPU:0"}});
    expect_mirrored(batch[0], {"CPU:0"}, {2 * workers});
    expect_mirrored(batch[1], cpus(devices), {replicas});
    expect_mirrored(batch[2], {"CPU:1"}, {2 * workers});
    expect_mirrored(batch[3], {"CPU:0"}, {replicas});
    if (devices != 3) continue;
    EXPECT_THAT(thrown<ValueError>([&] {
                  (void)extended.reduce_to("SUM", PerReplica({own, own}), own);
                }),
                HasSubstr("expected one component per replica of this worker (3), or one"));
  }
}

void variables(Cluster& cluster) {
  const auto rank = static_cast<float>(cluster.rank());
  for (const std::size_t devices : {1U, 2U}) {
    MultiWorkerMirroredStrategy strategy(on_workers(cluster, devices));
    const std::size_t n = strategy.num_replicas_in_sync();
    const auto count = static_cast<float>(n);
    // They begin with the chief's value, also scalars, matrices and nothing at all.
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{0}, Shape{2, 0}}) {
      const Tensor initial = Tensor::empty(DType::FLOAT32, shape, cpu(0));
      for (float& element : initial.span<float>()) element = 100 + rank;
      const auto variable = strategy.make_variable(initial, {.name = "v"});
      EXPECT_EQ(variable->shape(), shape);
      expect_mirrored(variable->components(), cpus(devices),
                      std::vector<float>(initial.num_elements(), 100.0F));
    }
    const auto make = [&](VariableAggregation aggregation, VariableSynchronization how) {
      return strategy.make_variable(scalar_of(rank, cpu(0)),
                                    {.aggregation = aggregation, .synchronization = how});
    };
    constexpr auto kWrite = VariableSynchronization::ON_WRITE;
    constexpr auto kRead = VariableSynchronization::ON_READ;
    const auto sum = make(VariableAggregation::SUM, kWrite);
    const auto mean = make(VariableAggregation::MEAN, kWrite);
    const auto first = make(VariableAggregation::ONLY_FIRST_REPLICA, kWrite);
    const auto read_sum = make(VariableAggregation::SUM, kRead);
    const auto read_mean = make(VariableAggregation::MEAN, kRead);
    const auto read_first = make(VariableAggregation::ONLY_FIRST_REPLICA, kRead);
    EXPECT_THAT(elements(read_sum->read()), ElementsAre(0));
    strategy.run([&](ReplicaContext& context) {
      const Tensor own = scalar_of(id(context) + 1, context.device());
      sum->assign(own);
      mean->assign_add(own);
      first->assign(own);
      EXPECT_THAT(elements(sum->read()), ElementsAre(sum_of_ids(n) + count));
      EXPECT_THAT(elements(mean->read()), ElementsAre(sum_of_ids(n) / count + 1));
      EXPECT_THAT(elements(first->read()), ElementsAre(1));
      // Numbers: what the other workers assign counts too.
      mean->assign(id(context));
      EXPECT_THAT(elements(mean->read()), ElementsAre(sum_of_ids(n) / count));
      mean->assign(7);
      EXPECT_THAT(elements(mean->read()), ElementsAre(7));
      read_sum->assign(id(context));
      read_mean->assign(id(context));
      read_first->assign(id(context) + 5);
      EXPECT_THAT(elements(read_sum->read()), ElementsAre(id(context)));
    });
    EXPECT_THAT(elements(read_sum->read()), ElementsAre(sum_of_ids(n)));
    EXPECT_THAT(elements(read_mean->read()), ElementsAre(sum_of_ids(n) / count));
    EXPECT_THAT(elements(read_first->read()), ElementsAre(5));
    // Outside replicas SUM gives each its part.
    read_sum->assign(3.0 * count);
    EXPECT_THAT(elements(read_sum->components().values()[0]), ElementsAre(3));
    EXPECT_THAT(elements(read_sum->read()), ElementsAre(3 * count));
    sum->assign(11);
    expect_mirrored(sum->components(), cpus(devices), {11});
    EXPECT_THAT(elements(strategy.reduce("SUM", *sum, std::nullopt)), ElementsAre(11 * count));
  }
}

void different_variables(Cluster& cluster) {
  MultiWorkerMirroredStrategy strategy(on_workers(cluster, 1));
  const bool is_last = cluster.rank() == cluster.num_workers() - 1;
  const std::string text = thrown<ValueError>([&] {
    (void)strategy.make_variable(
        Tensor::zeros(DType::FLOAT32, is_last ? Shape{4} : Shape{3}, cpu(0)), {.name = "weights"});
  });
  EXPECT_THAT(
      text, HasSubstr("rank 0 makes 'weights', float32 (3), rank 2 makes 'weights', float32 (4)"));
  // Nothing is broken.
  EXPECT_THAT(elements(strategy.reduce("SUM", scalar_of(1.0F, cpu(0)), std::nullopt)),
              ElementsAre(3));
}

void different_devices(Cluster& cluster) {
  const bool is_first = cluster.rank() == 0;
  EXPECT_THAT(
      thrown<ValueError>(
          [&] { const MultiWorkerMirroredStrategy s(on_workers(cluster, is_first ? 2 : 1)); }),
      ::testing::AllOf(HasSubstr("the workers differ"), HasSubstr("has 2 devices of type CPU"),
                       HasSubstr("has 1 device of type CPU")));
  EXPECT_THAT(thrown<ValueError>([&] {
                const MultiWorkerMirroredStrategy s(
                    on_workers(cluster, 1,
                               {.implementation = is_first ? CommunicationImplementation::RING
                                                           : CommunicationImplementation::AUTO}));
              }),
              HasSubstr("implementation RING"));
  MultiWorkerMirroredStrategy works(on_workers(cluster, 1));
  EXPECT_THAT(elements(works.reduce("SUM", scalar_of(1.0F, cpu(0)), std::nullopt)),
              ElementsAre(static_cast<float>(cluster.num_workers())));
}

/// The last worker alone is given what cannot be.
void bad_devices(Cluster& cluster) {
  const int last = cluster.num_workers() - 1;
  const bool is_last = cluster.rank() == last;
  const auto refused = [&](const Devices& theirs, const CommunicationOptions& options,
                           const std::string& text) {
    EXPECT_THAT(
        thrown<ValueError>([&] {
          const MultiWorkerMirroredStrategy s(
              {.communication_options = is_last ? options : CommunicationOptions{},
               .devices = is_last ? theirs : cpus(1),
               .cluster = shared(cluster)});
        }),
        ::testing::AllOf(HasSubstr("rank " + std::to_string(last) + " ("), HasSubstr(text)));
  };
  refused({"CPU:0", "CPU:0"}, {}, "expected distinct devices, got [CPU:0, CPU:0]");
  refused({"GPU:99"}, {}, "GPU:99");
  refused({"CPU:0"}, {.bytes_per_pack = -1}, "bytes_per_pack");
  refused({"CPU:0"}, {.timeout_seconds = -1.0}, "timeout_seconds");
  MultiWorkerMirroredStrategy works(on_workers(cluster, 1));
}

/// Of a worker that throws, the others hear at once, what they wait for notwithstanding; and in what they begin later.
void one_throws(Cluster& cluster) {
  MultiWorkerMirroredStrategy strategy(on_workers(cluster, 2));
  const auto step = [&](ReplicaContext& context) {
    (void)context.all_reduce("SUM", scalar_of(1.0F, context.device()));
    if (context.replica_id_in_sync_group() == 3) throw std::domain_error("no such batch");
    (void)context.all_reduce("SUM", scalar_of(1.0F, context.device()));
  };
  if (cluster.rank() == 1) {
    EXPECT_EQ(thrown<std::domain_error>([&] { strategy.run(step); }), "no such batch");
  } else {
    EXPECT_THAT(thrown<AbortedError>([&] { strategy.run(step); }),
                ::testing::AllOf(HasSubstr("run failed: no such batch"), HasSubstr("rank 1")));
  }
  // Other ops of the strategy.
  EXPECT_THAT(thrown<AbortedError>(
                  [&] { (void)strategy.reduce("SUM", scalar_of(1.0F, cpu(0)), std::nullopt); }),
              HasSubstr("no such batch"));
  EXPECT_THAT(thrown<AbortedError>([&] { strategy.run([](ReplicaContext&) {}); }),
              HasSubstr("no such batch"));
  EXPECT_THAT(thrown<AbortedError>([&] { (void)strategy.make_variable(scalar_of(1.0F, cpu(0))); }),
              HasSubstr("no such batch"));
  EXPECT_THAT(thrown<AbortedError>([&] { cluster.barrier(); }), HasSubstr("no such batch"));
  await_the_others();  // they are to hear of that one, and not of this one's end
}

/// A difference among one worker's replicas is that worker's error, which the others hear of.
void replicas_of_one_differ(Cluster& cluster) {
  MultiWorkerMirroredStrategy strategy(on_workers(cluster, 2));
  const auto step = [](ReplicaContext& context) {
    const bool is_other = context.replica_id_in_sync_group() == 1;
    (void)context.all_gather(
        tensor_of<float>({1}, is_other ? Shape{1} : Shape{1, 1}, context.device()), 0);
  };
  if (cluster.rank() == 0) {
    EXPECT_THROW(strategy.run(step), ValueError);
  } else {
    EXPECT_THAT(thrown<AbortedError>([&] { strategy.run(step); }),
                ::testing::AllOf(HasSubstr("run failed: "), HasSubstr("rank 0")));
  }
  await_the_others();
}

void one_dies(Cluster& cluster) {
  MultiWorkerMirroredStrategy strategy(on_workers(cluster, 2));
  const std::string text = thrown<UnavailableError>([&] {
    strategy.run([&](ReplicaContext& context) {
      for (int step = 0;; ++step) {
        if (step == 20 && context.replica_id_in_sync_group() == 2) ::kill(::getpid(), SIGKILL);
        (void)context.all_reduce("SUM", Tensor::zeros(DType::FLOAT32, {10000}, context.device()));
      }
    });
  });
  EXPECT_THAT(text, ::testing::AllOf(HasSubstr("rank 1"), HasSubstr("is gone")));
  EXPECT_THAT(thrown<UnavailableError>(
                  [&] { (void)strategy.reduce("SUM", scalar_of(1.0F, cpu(0)), std::nullopt); }),
              HasSubstr("rank 1"));
  await_the_others();
}

float sum_of_ones(Strategy& strategy) {
  return elements(strategy.reduce("SUM", scalar_of(1.0F, cpu(0)), std::nullopt))[0];
}

/// Those that are left make a new strategy of a new cluster; their variables go on from the lowest of them.
void goes_on_after_a_death(Cluster& cluster) {
  MultiWorkerMirroredStrategyOptions options = on_workers(cluster, 2);
  std::vector<float> weights;
  {
    MultiWorkerMirroredStrategy strategy(options);
    const auto weight =
        strategy.make_variable(scalar_of(0.0F, cpu(0)), {.aggregation = VariableAggregation::SUM});
    const auto run = [&] {
      strategy.run([&](ReplicaContext& context) {
        for (int step = 0;; ++step) {
          if (step == 5) {
            context.merge_call([&](Strategy&) {
              cluster.barrier();  // five steps are over on all
              if (cluster.rank() == 0) ::kill(::getpid(), SIGKILL);
            });
          }
          weight->assign_add(scalar_of(1.0F, context.device()));
        }
      });
    };
    std::string missed;
    const std::string lost = thrown<UnavailableError>([&] { missed = thrown<AbortedError>(run); });
    // Who hears of the death later than another survivor may first hear that that one has called rebuild() and misses it.
    if (lost.empty()) {
      EXPECT_THAT(missed, HasSubstr("called rebuild("));
    }
    weights = elements(weight->read());
    EXPECT_EQ(weights[0], 5 * static_cast<float>(strategy.num_replicas_in_sync()));
  }
  options.cluster = cluster.rebuild(Survivors::ONLY).cluster;
  MultiWorkerMirroredStrategy strategy(options);
  EXPECT_EQ(strategy.cluster()->num_workers(), cluster.num_workers() - 1);
  EXPECT_EQ(strategy.extended().should_checkpoint(), cluster.rank() == 1);
  const auto weight = strategy.make_variable(scalar_of(weights[0], cpu(0)));
  EXPECT_EQ(elements(weight->read()), weights);
  EXPECT_EQ(sum_of_ones(strategy), static_cast<float>(cluster.num_workers() - 1));
}

/// After an exception nobody is gone: all go on.
void goes_on_after_an_exception(Cluster& cluster) {
  MultiWorkerMirroredStrategyOptions options = on_workers(cluster, 2);
  for (int round = 0; round < 3; ++round) {
    MultiWorkerMirroredStrategy strategy(options);
    EXPECT_EQ(sum_of_ones(strategy), static_cast<float>(cluster.num_workers()));
    options.cluster->barrier();  // the exception ends what somebody is still in
    const std::string text = thrown([&] {
      strategy.run([&](ReplicaContext& context) {
        if (context.replica_id_in_sync_group() == 1) throw std::domain_error("no such batch");
        (void)context.all_reduce("SUM", scalar_of(1.0F, context.device()));
      });
    });
    EXPECT_THAT(text, HasSubstr("no such batch"));
    options.cluster = options.cluster->rebuild(Survivors::ALL).cluster;
  }
}

/// A worker that does not come is named, on every worker that waits.
void one_stays_away(Cluster& cluster) {
  // For so long that heartbeats have said what each does: else who is slow to say it at the end is taken for late.
  MultiWorkerMirroredStrategy strategy(on_workers(cluster, 1, {.timeout_seconds = 6}));
  if (cluster.rank() == 2) {
    // Until the others have given up: who is late is to hear of it, and not that this one has gone.
    EXPECT_THROW(cluster.barrier(60), AbortedError);
    await_the_others();
    return;
  }
  // On a busy machine one of them hears that the other has given the job up for it, or, in shared memory, sees it.
  EXPECT_THAT(thrown<OpError>([&] {
                strategy.run([](ReplicaContext& context) {
                  (void)context.all_reduce("SUM", scalar_of(1.0F, context.device()));
                });
              }),
              AnyOf(ContainsRegex("timed out after [0-9.]+ s: waiting for rank 2"),
                    ContainsRegex("rank [01] [(].*[)] has given up waiting for rank 2 ")));
  await_the_others();
}

/// Workers that make different calls.
void calls_differ(Cluster& cluster) {
  MultiWorkerMirroredStrategy strategy(on_workers(cluster, 1));
  EXPECT_THAT(thrown<InternalError>([&] {
                strategy.run([&](ReplicaContext& context) {
                  const std::size_t count = cluster.rank() == 1 ? 7 : 8;
                  (void)context.all_reduce(
                      "SUM", Tensor::zeros(DType::FLOAT32, {count}, context.device()));
                });
              }),
              HasSubstr("workers make different calls"));
  await_the_others();  // who is late is to hear of it, and not that this one has gone
}

void several_strategies(Cluster& cluster) {
  MultiWorkerMirroredStrategy outer(on_workers(cluster, 2));
  const auto sum = [](ReplicaContext& context) {
    return elements(context.all_reduce("SUM", scalar_of(1.0F, context.device())))[0];
  };
  for (std::size_t devices = 1; devices <= 3; ++devices) {
    MultiWorkerMirroredStrategy inner(on_workers(cluster, devices));
    const auto n = static_cast<float>(inner.num_replicas_in_sync());
    EXPECT_EQ(inner.run(sum), std::vector<float>(devices, n));
    EXPECT_EQ(outer.run(sum),
              std::vector<float>(2, static_cast<float>(outer.num_replicas_in_sync())));
  }
}

void own_ops(Cluster& cluster) {
  class Counting : public CollectiveAllReduce {
   public:
    using CollectiveAllReduce::CollectiveAllReduce;
    int num_batches = 0;

   protected:
    std::vector<Mirrored> batch_reduce_implementation(
        ReduceOp op, std::span<const ValueDestinationPair> pairs,
        const CommunicationOptions& options) override {
      ++num_batches;
      return CollectiveAllReduce::batch_reduce_implementation(op, pairs, options);
    }
  };
  const auto ops = std::make_shared<Counting>(cpus(2), 2 * cluster.num_workers(),
                                              CommunicationOptions{}, shared(cluster));
  MultiWorkerMirroredStrategy strategy(
      {.devices = cpus(2), .cluster = shared(cluster), .cross_device_ops = ops});
  strategy.run([](ReplicaContext& context) {
    (void)context.all_reduce("SUM", scalar_of(1.0F, context.device()));
  });
  EXPECT_EQ(ops->num_batches, 1);
}

/// The first part of a batch takes longer than the environment would allow, as its ops may; the second one, of the strategy's own ops, must not suffer.
void slow_ops_of_ones_own(Cluster& cluster) {
  class Slow : public CollectiveAllReduce {
   public:
    using CollectiveAllReduce::CollectiveAllReduce;

   protected:
    std::vector<Mirrored> batch_reduce_implementation(
        ReduceOp op, std::span<const ValueDestinationPair> pairs,
        const CommunicationOptions& options) override {
      std::this_thread::sleep_for(std::chrono::duration<double>(kShortDefaultSeconds + 0.5));
      return CollectiveAllReduce::batch_reduce_implementation(op, pairs, options);
    }
  };
  const auto ops =
      std::make_shared<Slow>(cpus(2), 2 * cluster.num_workers(),
                             CommunicationOptions{.timeout_seconds = 60}, shared(cluster));
  MultiWorkerMirroredStrategy strategy(
      {.devices = cpus(2), .cluster = shared(cluster), .cross_device_ops = ops});
  const Tensor own = scalar_of(1.0F, cpu(0));
  const PerReplica both{std::vector<Tensor>{own, scalar_of(1.0F, cpu(1))}};
  const std::vector<ValueDestinationPair> pairs{{both, "CPU:0"}, {PerReplica(own), "CPU:0"}};
  const std::vector<Mirrored> sums = strategy.extended().batch_reduce_to("SUM", pairs);
  const auto workers = static_cast<float>(cluster.num_workers());
  EXPECT_THAT(elements(sums[0].tensor()), ElementsAre(2 * workers));
  EXPECT_THAT(elements(sums[1].tensor()), ElementsAre(workers));
}

/// A step in place allocates nothing once it has run.
void steps_allocate_nothing(Cluster& cluster) {
  if (!can_count_allocations()) return;  // the sanitizer has a heap of its own
  MultiWorkerMirroredStrategy strategy(on_workers(cluster, 2));
  const PerReplica small = per_replica<float>({{1, 2, 3}, {4, 5, 6}});
  const PerReplica large{Tensor::zeros(DType::FLOAT32, {100000}, cpu(0)),
                         Tensor::zeros(DType::FLOAT32, {100000}, cpu(1))};
  std::vector<std::size_t> allocations(2);
  strategy.run([&](ReplicaContext& context) {
    const std::size_t own = context.replica_id_in_sync_group() % 2;
    const std::vector<Tensor> both{small.values()[own], large.values()[own]};
    const auto steps = [&](int count) {
      for (int step = 0; step < count; ++step) {
        context.all_reduce_into("MEAN", std::span(both).first(1));
        context.all_reduce_into("MEAN", std::span(both).last(1));
      }
      context.merge_call([](Strategy&) {});
    };
    steps(10);
    const std::size_t before = num_allocations_of_this_thread();
    steps(50);
    allocations[own] = num_allocations_of_this_thread() - before;
  });
  EXPECT_LE(allocations[0] + allocations[1], 4U);  // the merge calls
}

/// As programs make it: whoever started the worker says who it is.
void joins_by_itself() {
  MultiWorkerMirroredStrategy strategy({.communication_options = {.timeout_seconds = 60}});
  EXPECT_EQ(strategy.cluster()->num_workers(), 3);
  ASSERT_NE(strategy.cluster_resolver(), nullptr);
  EXPECT_EQ(strategy.cluster_resolver()->identity().rank, strategy.cluster()->rank());
  EXPECT_THAT(elements(strategy.reduce("SUM", scalar_of(1.0F, cpu(0)), std::nullopt)),
              ElementsAre(3));
}

const Works& works() {
  static const Works all = {{"ids", ids_and_shares},
                            {"calls", all_calls_of_replicas},
                            {"values", values_of_workers_and_of_replicas},
                            {"variables", variables},
                            {"different variables", different_variables},
                            {"different devices", different_devices},
                            {"bad devices", bad_devices},
                            {"throws", one_throws},
                            {"goes on after a death", goes_on_after_a_death},
                            {"goes on after an exception", goes_on_after_an_exception},
                            {"replicas differ", replicas_of_one_differ},
                            {"dies", one_dies},
                            {"stays away", one_stays_away},
                            {"calls differ", calls_differ},
                            {"several", several_strategies},
                            {"own ops", own_ops},
                            {"slow own ops", slow_ops_of_ones_own},
                            {"allocations", steps_allocate_nothing},
                            {"joins", joins_by_itself}};
  return all;
}

class MultiWorkerMirroredStrategyTest : public testing::MachinesTest {};
INSTANTIATE_TEST_SUITE_P(Workers, MultiWorkerMirroredStrategyTest,
                         ::testing::Values(Machines::ONE, Machines::ONE_EACH),
                         testing::machines_name);

TEST_P(MultiWorkerMirroredStrategyTest, ReplicaIdsCountThroughTheWorkers) {
  for (const int n : {1, 2, 3, 5}) EXPECT_EQ(run("ids", n), all_well(n));
}

TEST_P(MultiWorkerMirroredStrategyTest, ReplicasOfAllWorkersMeet) {
  for (const int n : {1, 2, 3, 4, 8}) EXPECT_EQ(run("calls", n), all_well(n));
}

TEST_P(MultiWorkerMirroredStrategyTest, D25_ValuesOfWorkersAndOfReplicas) {
  for (const int n : {2, 3, 4}) EXPECT_EQ(run("values", n), all_well(n));
}

TEST_P(MultiWorkerMirroredStrategyTest, VariablesStayEqualOnAllWorkers) {
  for (const int n : {2, 3, 4}) EXPECT_EQ(run("variables", n), all_well(n));
}

TEST_P(MultiWorkerMirroredStrategyTest, DifferentVariablesAreNamedOnEveryWorker) {
  EXPECT_EQ(run("different variables", 3), all_well(3));
}

TEST_P(MultiWorkerMirroredStrategyTest, D33_DifferentDevicesAreNamedOnEveryWorker) {
  EXPECT_EQ(run("different devices", 2), all_well(2));
  EXPECT_EQ(run("different devices", 3), all_well(3));
}

TEST_P(MultiWorkerMirroredStrategyTest, BadDevicesOfOneWorkerAreAnErrorOnAll) {
  EXPECT_EQ(run("bad devices", 2), all_well(2));
  EXPECT_EQ(run("bad devices", 3), all_well(3));
}

TEST_P(MultiWorkerMirroredStrategyTest, AnExceptionThatLeavesRunReachesTheOtherWorkers) {
  for (const int n : {2, 3, 5}) EXPECT_EQ(run("throws", n), all_well(n));
}

TEST_P(MultiWorkerMirroredStrategyTest, ADifferenceWithinAWorkerReachesTheOthers) {
  EXPECT_EQ(run("replicas differ", 3), all_well(3));
}

TEST_P(MultiWorkerMirroredStrategyTest, AWorkerThatDiesIsNamedByEveryCall) {
  EXPECT_EQ(run("dies", 2), (std::vector<int>{0, -SIGKILL}));
  EXPECT_EQ(run("dies", 4), (std::vector<int>{0, -SIGKILL, 0, 0}));
}

TEST_P(MultiWorkerMirroredStrategyTest, ANewStrategyGoesOnAfterADeath) {
  EXPECT_EQ(run("goes on after a death", 3), (std::vector<int>{-SIGKILL, 0, 0}));
  EXPECT_EQ(run("goes on after a death", 4), (std::vector<int>{-SIGKILL, 0, 0, 0}));
}

TEST_P(MultiWorkerMirroredStrategyTest, ANewStrategyGoesOnAfterAnException) {
  EXPECT_EQ(run("goes on after an exception", 3), all_well(3));
}

TEST_P(MultiWorkerMirroredStrategyTest, AWorkerThatDoesNotComeIsNamed) {
  EXPECT_EQ(run("stays away", 3), all_well(3));
}

TEST_P(MultiWorkerMirroredStrategyTest, DifferentCallsAreNoticed) {
  EXPECT_EQ(run("calls differ", 3), all_well(3));
}

TEST_P(MultiWorkerMirroredStrategyTest, D32_StrategiesOneAfterAnotherAndSideBySideDoNotMeet) {
  EXPECT_EQ(run("several", 2), all_well(2));
}

TEST_P(MultiWorkerMirroredStrategyTest, OpsOfOnesOwnAreUsed) {
  EXPECT_EQ(run("own ops", 2), all_well(2));
}

TEST_P(MultiWorkerMirroredStrategyTest, TheEnvironmentsTimeoutIsNotThatOfOpsWithOneOfTheirOwn) {
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread
  ::setenv("CROSSDEVICE_DEFAULT_TIMEOUT", std::to_string(kShortDefaultSeconds).c_str(), 1);
  EXPECT_EQ(run("slow own ops", 2), all_well(2));
  ::unsetenv("CROSSDEVICE_DEFAULT_TIMEOUT");
  // NOLINTEND(concurrency-mt-unsafe)
}

TEST_P(MultiWorkerMirroredStrategyTest, AStepInPlaceAllocatesNothingOnceItHasRun) {
  EXPECT_EQ(run("allocations", 2), all_well(2));
}

TEST_P(MultiWorkerMirroredStrategyTest, TheLauncherSaysWhoIsThere) {
  EXPECT_EQ(run("joins", 3), all_well(3));
}

TEST(MultiWorkerMirroredStrategyTestAlone, AProcessThatNobodyLaunchedIsAWorkerAlone) {
  MultiWorkerMirroredStrategy strategy({.devices = cpus(2)});
  EXPECT_EQ(strategy.cluster()->num_workers(), 1);
  EXPECT_TRUE(strategy.extended().should_checkpoint());
  const PerReplica sums = strategy.run([](ReplicaContext& context) {
    return context.all_reduce("SUM", scalar_of(id(context) + 1, context.device()));
  });
  expect_mirrored(sums, cpus(2), {3});
  const auto variable = strategy.make_variable(scalar_of(4.0F, cpu(0)));
  expect_mirrored(variable->components(), cpus(2), {4});
  EXPECT_THAT(elements(strategy.reduce("MEAN", scalar_of(4.0F, cpu(0)), std::nullopt)),
              ElementsAre(4));
  // An exception that leaves run() breaks nothing here.
  EXPECT_THROW(strategy.run([](ReplicaContext&) { throw std::domain_error(""); }),
               std::domain_error);
  EXPECT_THAT(elements(strategy.reduce("SUM", sums, std::nullopt)), ElementsAre(6));
}

TEST(MultiWorkerMirroredStrategyTestAlone, BadOptionsAreRefused) {
  const auto resolver = std::make_shared<SimpleClusterResolver>(ClusterSpec());
  const std::shared_ptr<Cluster> alone = Cluster::join(*resolver);
  EXPECT_THAT(
      thrown<ValueError>([&] {
        const MultiWorkerMirroredStrategy s({.cluster_resolver = resolver, .cluster = alone});
      }),
      HasSubstr("expected one of the two"));
  EXPECT_THROW(MultiWorkerMirroredStrategy({.communication_options = {.bytes_per_pack = -1}}),
               ValueError);
  EXPECT_THROW(MultiWorkerMirroredStrategy({.devices = {"CPU:0", "CPU:0"}}), ValueError);
  EXPECT_THROW(MultiWorkerMirroredStrategy({.devices = {"GPU:99"}}), ValueError);
  const MultiWorkerMirroredStrategy works({.cluster_resolver = resolver});
  EXPECT_EQ(works.cluster_resolver(), resolver);
}

}  // namespace
}  // namespace crossdevice

int main(int argc, char** argv) {
  return crossdevice::testing::worker_main(argc, argv, crossdevice::works());
}
