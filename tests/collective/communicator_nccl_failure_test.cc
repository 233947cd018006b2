// SPDX-License-Identifier: Apache-2.0
// What goes wrong with a Communicator through NCCL, of workers that are threads with an emulated GPU each. Built twice, the second time for
// CROSSDEVICE_STRICT=1, where calls are compared before they are made.
#include <chrono>
#include <cstddef>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/core/counters.h"
#include "crossdevice/core/error.h"

#include "support/gpu_values.h"
#include "support/log_keeper.h"
#include "support/strict_program.h"
#include "support/threaded_cluster.h"
#include "support/thrown.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

using ::testing::AllOf;
using ::testing::Each;
using testing::elements;
using testing::emulated_cuda;
using testing::gpu;
using ::testing::HasSubstr;
using testing::kIsStrict;
using testing::no_errors;
using ::testing::Not;
using testing::run_clusters;
using testing::thrown;
using testing::vector_of;
using ClusterPtr = std::shared_ptr<Cluster>;

constexpr std::size_t kCount = 120;  // for 2 and 3 workers
constexpr CommunicatorOptions kSoon{.timeout_seconds = 60};

class CommunicatorNcclFailure : public ::testing::Test {
 protected:
  void TearDown() override {
    emulated_cuda().calls().clear_faults();
    EXPECT_TRUE(emulated_cuda().synchronize());
    EXPECT_EQ(emulated_cuda().violations(), std::vector<std::string>());
  }
};

/// A worker with its communicator and tensors.
struct Worker {
  explicit Worker(const ClusterPtr& cluster)
      : device(gpu(static_cast<std::size_t>(cluster->rank()))), world(cluster, device) {}

  [[nodiscard]] Tensor tensor(std::size_t count) const {
    return vector_of(std::vector<float>(count, 1.0F), device);
  }
  Device device;
  Communicator world;
  Tensor one = tensor(kCount);
  Tensor other = tensor(kCount);
};

/// Until it is known: what check() throws.
std::string await_failure(const Communicator& world) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < limit) {
    const std::string text = thrown<OpError>([&] { world.check(); });
    if (!text.empty()) return text;
  }
  return "nobody has found anything";
}

/// One call; `differs`: not like the others'.
struct Difference {
  std::string name;
  std::function<void(Worker& worker, bool differs)> call;
  std::string text;          ///< of the worker that differs
  bool is_on_hosts = false;  ///< there, and in NCCL elsewhere
};

std::vector<Difference> differences() {
  return {{"number of elements",
           [](Worker& worker, bool differs) {
             worker.world.all_reduce(ReduceOp::SUM, worker.tensor(differs ? 101 : 100));
           },
           "SUM of 1 float32 value, 404 bytes"},
          {"op",
           [](Worker& worker, bool differs) {
             worker.world.all_reduce(differs ? ReduceOp::MEAN : ReduceOp::SUM, worker.one);
           },
           "MEAN of 1 float32 value"},
          {"dtype",
           [](Worker& worker, bool differs) {
             const Tensor tensor =
                 Tensor::zeros(differs ? DType::INT32 : DType::FLOAT32, {100}, worker.device);
             worker.world.broadcast(tensor, 0);
           },
           "1 int32 value"},
          {"root",
           [](Worker& worker, bool differs) {
             worker.world.reduce(ReduceOp::SUM, worker.one, worker.other, differs ? 1 : 0);
           },
           "reduce #2"},
          {"kind of call",
           [](Worker& worker, bool differs) {
             const Tensor all =
                 worker.tensor(kCount * static_cast<std::size_t>(worker.world.num_workers()));
             if (differs) return worker.world.gather(worker.one, all, 0);
             worker.world.all_gather(worker.one, all);
           },
           " gather #2"},
          {"op that NCCL does not do",
           [](Worker& worker, bool differs) {
             worker.world.all_reduce(differs ? ReduceOp::MAX : ReduceOp::SUM, worker.one);
           },
           "MAX of 1 float32 value", true},
          {"option",
           [](Worker& worker, bool differs) {
             worker.world.all_reduce(ReduceOp::SUM, worker.one, {.deterministic = differs});
           },
           "all_reduce #2", true},
          {"barrier",
           [](Worker& worker, bool differs) {
             if (differs) return worker.world.barrier();
             worker.world.all_reduce(ReduceOp::SUM, worker.one);
           },
           "barrier #2", true}};
}

TEST_F(CommunicatorNcclFailure, WhoWaitsForWhomIsSaidAfterAWhile) {
  const auto work = [](const ClusterPtr& cluster) {
    Worker worker(cluster);
    cluster->barrier(60);  // what is said from now on is of the call
    if (cluster->rank() == 1) {
      const testing::LogKeeper log;
      EXPECT_TRUE(log.await(" for rank 1 (", Deadline::after(std::chrono::seconds(30))));
      EXPECT_THAT(log.texts(), HasSubstr("rank 0 still waits in all_gather_bytes #"));
    }
    worker.world.all_reduce(ReduceOp::SUM, worker.one, kSoon);
    EXPECT_EQ(elements(worker.one), std::vector<float>(kCount, 2.0F));
    cluster->barrier(60);
  };
  EXPECT_EQ(run_clusters(2, work, {.timeout_seconds = 60, .stall_warning_seconds = 0.05}),
            no_errors(2));
}

TEST_F(CommunicatorNcclFailure, CallsThatDifferAreAnErrorOnEveryWorkerThatSaysWhoAndHow) {
  testing::allow_mismatches();  // some are launched before they are found
  for (const Difference& difference : differences()) {
    for (const int num_workers : {2, 3}) {
      SCOPED_TRACE(difference.name + ", " + std::to_string(num_workers) + " workers");
      std::latch have_heard(num_workers);
      std::latch have_called(num_workers - 1);  // as the others do
      EXPECT_EQ(run_clusters(static_cast<std::size_t>(num_workers),
                             [&](const ClusterPtr& cluster) {
                               Worker worker(cluster);
                               difference.call(worker, false);
                               const bool differs = cluster->rank() == num_workers - 1;
                               // Beside the calls: before the last one there is no difference, and whoever makes that may hear of it at once.
                               if (differs && !kIsStrict) have_called.wait();
                               const auto call = [&] { difference.call(worker, differs); };
                               std::string text = thrown<InternalError>(call);
                               if (!differs) have_called.count_down();
                               if (!differs || kIsStrict) {
                                 EXPECT_EQ(!text.empty(), kIsStrict);
                               } else if (difference.is_on_hosts) {
                                 EXPECT_FALSE(text.empty());
                               }
                               if (text.empty()) text = await_failure(worker.world);
                               EXPECT_THAT(text,
                                           AllOf(HasSubstr("workers make different calls"),
                                                 HasSubstr("rank 0 "), HasSubstr(difference.text)));
                               have_heard.arrive_and_wait();
                               EXPECT_THROW(difference.call(worker, false), OpError);
                               EXPECT_THROW(worker.world.barrier(), OpError);
                               // Where nobody was kept on hosts the communicator is broken, the job is not.
                               if (kIsStrict || !difference.is_on_hosts) cluster->barrier(60);
                             }),
                no_errors(static_cast<std::size_t>(num_workers)));
    }
  }
}

TEST_F(CommunicatorNcclFailure, WhatIsWrongIsSaidBeforeItCounts) {
  EXPECT_EQ(
      run_clusters(
          2,
          [](const ClusterPtr& cluster) {
            Worker worker(cluster);
            Communicator& world = worker.world;
            if (cluster->rank() == 0) {
              const Tensor& one = worker.one;
              EXPECT_THROW(world.all_reduce(ReduceOp::SUM, one, worker.tensor(7)), ValueError);
              EXPECT_THROW(world.all_gather(one, worker.other), ValueError);
              EXPECT_THROW(world.reduce_scatter(ReduceOp::SUM, worker.tensor(7), one), ValueError);
              EXPECT_THROW(world.reduce_scatter(ReduceOp::SUM, one, worker.other), ValueError);
              EXPECT_THROW(world.broadcast(one, 2), ValueError);
              EXPECT_THROW(world.reduce(ReduceOp::SUM, one, worker.tensor(7), 0), ValueError);
              EXPECT_THROW(world.reduce(ReduceOp::SUM, one, worker.other, -1), ValueError);
              EXPECT_THROW(world.gather(one, worker.other, 0), ValueError);
              const Tensor fixed = Tensor::view(static_cast<const void*>(one.data()),
                                                DType::FLOAT32, {kCount}, one.device());
              EXPECT_THROW(world.broadcast(fixed, 0), ValueError);
            }
            for (int i = 0; i < 50; ++i) {
              world.all_reduce(ReduceOp::SUM, worker.one, worker.other, kSoon);
            }
            EXPECT_EQ(elements(worker.other), std::vector<float>(kCount, 2.0F));
            world.barrier(kSoon);
            world.check();
            cluster->barrier(60);  // who leaves breaks what the other one asks
          }),
      no_errors(2));
}

#ifndef CROSSDEVICE_TESTS_STRICT
using Call = std::function<void(Worker& worker, const CommunicatorOptions& options)>;

std::vector<Call> all_calls() {
  return {[](Worker& worker, const CommunicatorOptions& options) {
            worker.world.all_reduce(ReduceOp::MEAN, worker.one, worker.other, options);
          },
          [](Worker& worker, const CommunicatorOptions& options) {
            worker.world.reduce_scatter(ReduceOp::SUM, worker.one, worker.tensor(kCount / 2),
                                        options);
          },
          [](Worker& worker, const CommunicatorOptions& options) {
            worker.world.all_gather(worker.one, worker.tensor(2 * kCount), options);
          },
          [](Worker& worker, const CommunicatorOptions& options) {
            worker.world.broadcast(worker.one, 0, options);
          },
          [](Worker& worker, const CommunicatorOptions& options) {
            worker.world.reduce(ReduceOp::SUM, worker.one, worker.other, 1, options);
          },
          [](Worker& worker, const CommunicatorOptions& options) {
            worker.world.gather(worker.one, worker.tensor(2 * kCount), 1, options);
          }};
}

TEST_F(CommunicatorNcclFailure, ADeadlineEndsWhatWaitsForAWorkerThatDoesNotCome) {
  for (const Call& call : all_calls()) {
    std::latch is_missed(1);
    EXPECT_EQ(run_clusters(2,
                           [&](const ClusterPtr& cluster) {
                             Worker worker(cluster);
                             call(worker, kSoon);
                             (void)elements(worker.other);
                             if (cluster->rank() == 1) {
                               is_missed.wait();
                               // It hears of the others' failure, now or from the watchdog.
                               (void)thrown<OpError>([&] { call(worker, {.timeout_seconds = 5}); });
                               EXPECT_NE(await_failure(worker.world), "nobody has found anything");
                               return;
                             }
                             call(worker, {.timeout_seconds = 1});
                             EXPECT_THAT(
                                 await_failure(worker.world),
                                 AllOf(HasSubstr("#2 (1 value, "),
                                       HasSubstr("timed out after 1 s: waiting for rank 1 (")));
                             EXPECT_THROW(call(worker, kSoon), FailedPreconditionError);
                             EXPECT_THROW(worker.world.barrier(kSoon), FailedPreconditionError);
                             EXPECT_EQ(elements(worker.one), std::vector<float>(kCount, 1.0F));
                             is_missed.count_down();
                           }),
              no_errors(2));
  }
}

/// What check() throws when something has been found.
template <class Error, class Look>
void expect_failure(const Communicator& world, Look look) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  try {
    while (std::chrono::steady_clock::now() < limit) world.check();
    ADD_FAILURE() << "nobody has found anything";
  } catch (const Error& error) {
    look(error);
  } catch (const OpError& error) {
    ADD_FAILURE() << "another error: " << error.what();
  }
}

TEST_F(CommunicatorNcclFailure, WhoDoesNotComeIsNamedToAllThatWait) {
  for (const int missing : {1, 0}) {  // 0: the chief
    const std::string waiting = "waiting for rank " + std::to_string(missing) + " (";
    std::latch is_missed(2);
    std::latch all_know(3);  // who leaves is a reason of its own
    const auto work = [&](const ClusterPtr& cluster) {
      Worker worker(cluster);
      const auto call = [&](double seconds) {
        worker.world.all_reduce(ReduceOp::SUM, worker.one, worker.other,
                                {.timeout_seconds = seconds});
      };
      call(60);
      (void)elements(worker.other);
      if (cluster->rank() == missing) {
        is_missed.wait();
        EXPECT_THAT(await_failure(worker.world), HasSubstr(waiting));
        all_know.arrive_and_wait();
        return;
      }
      const bool is_late = cluster->rank() == 2;
      call(is_late ? 1 : 600);  // the other one's deadline is far away
      expect_failure<DeadlineExceededError>(worker.world, [&](const DeadlineExceededError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("all_reduce #2 (1 value, "),
                                        HasSubstr("timed out after 1 s: " + waiting),
                                        Not(HasSubstr("has given up"))));
        ASSERT_EQ(error.culprits().size(), 1U);
        EXPECT_EQ(error.culprits()[0].rank, missing);
        EXPECT_EQ(error.operation().sequence, is_late ? 2U : 0U);
        EXPECT_EQ(error.inputs_intact(), is_late);  // of the other one nothing is said
      });
      is_missed.count_down();
      all_know.arrive_and_wait();
    };
    EXPECT_EQ(run_clusters(3, work), no_errors(3));
  }
}

TEST_F(CommunicatorNcclFailure, WhereAllHaveComeTheDeadlineNamesTheGpu) {
  std::latch all_know(2);
  EXPECT_EQ(
      run_clusters(2,
                   [&](const ClusterPtr& cluster) {
                     Worker worker(cluster);
                     cluster->barrier(60);
                     if (cluster->rank() == 0) {
                       emulated_cuda().calls().inject({.function = "nccl.all_reduce",
                                                       .kind = testing::FaultKind::HANG_OPERATION});
                     }
                     cluster->barrier(60);
                     worker.world.all_reduce(ReduceOp::SUM, worker.one, worker.other,
                                             {.timeout_seconds = 1});
                     EXPECT_THAT(await_failure(worker.world),
                                 HasSubstr("timed out after 1 s: waiting for GPU:"));
                     all_know.arrive_and_wait();
                     emulated_cuda().release_everything();
                   }),
      no_errors(2));
}

TEST_F(CommunicatorNcclFailure, WhatNcclRefusesOnOneIsAnErrorOnAll) {
  EXPECT_EQ(run_clusters(3,
                         [&](const ClusterPtr& cluster) {
                           Worker worker(cluster);
                           cluster->barrier(60);
                           if (cluster->rank() == 0) {
                             emulated_cuda().calls().inject(
                                 {.function = "nccl.broadcast", .status = 3, .device = 1});
                           }
                           cluster->barrier(60);
                           const std::string text =
                               thrown<OpError>([&] { worker.world.broadcast(worker.one, 0); });
                           if (cluster->rank() == 1) {
                             EXPECT_THAT(text, HasSubstr("ncclBroadcast"));
                           } else {
                             EXPECT_THAT(text.empty() ? await_failure(worker.world) : text,
                                         HasSubstr("ncclBroadcast"));
                           }
                         }),
            no_errors(3));
}

TEST_F(CommunicatorNcclFailure, ALaunchThatDoesNotComeBackEndsAtItsDeadline) {
  EXPECT_EQ(
      run_clusters(1,
                   [&](const ClusterPtr& cluster) {
                     Worker worker(cluster);
                     emulated_cuda().calls().inject({.function = "nccl.all_reduce",
                                                     .kind = testing::FaultKind::HANG_OPERATION});
                     worker.world.all_reduce(ReduceOp::SUM, worker.one, worker.other,
                                             {.timeout_seconds = 1});
                     EXPECT_THAT(await_failure(worker.world), HasSubstr("timed out"));
                     emulated_cuda().release_everything();
                   }),
      no_errors(1));
}

TEST_F(CommunicatorNcclFailure, WhatFailsLaterIsCountedOnce) {
  const auto timeouts = [] { return counter_value("crossdevice_timeouts_total"); };
  const auto failures = [] {
    return counter_value("crossdevice_operation_failures_total", "kind=\"all_reduce\"");
  };
  const auto calls = [] { return counter_value("crossdevice_operations_total"); };
  const double timeouts_before = timeouts();
  const double failures_before = failures();
  const double calls_before = calls();
  EXPECT_EQ(
      run_clusters(1,
                   [&](const ClusterPtr& cluster) {
                     Worker worker(cluster);
                     emulated_cuda().calls().inject({.function = "nccl.all_reduce",
                                                     .kind = testing::FaultKind::HANG_OPERATION});
                     worker.world.all_reduce(ReduceOp::SUM, worker.one, worker.other,
                                             {.timeout_seconds = 0.2});
                     EXPECT_THAT(await_failure(worker.world), HasSubstr("timed out"));
                     // Refused: no operations, and no failures of their own.
                     EXPECT_THROW(worker.world.all_reduce(ReduceOp::SUM, worker.one, kSoon),
                                  FailedPreconditionError);
                     EXPECT_THROW(worker.world.barrier(kSoon), FailedPreconditionError);
                     emulated_cuda().release_everything();
                   }),
      no_errors(1));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (timeouts() == timeouts_before && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();  // the watchdog tells the calls first, and then whoever counts
  }
  EXPECT_EQ(timeouts() - timeouts_before, 1);
  EXPECT_EQ(failures() - failures_before, 1);
  EXPECT_EQ(calls() - calls_before, 1);
}
#endif

#ifdef CROSSDEVICE_TESTS_STRICT
TEST_F(CommunicatorNcclFailure, NoFallBackIsTaken) {
  emulated_cuda().calls().inject({.function = "nccl.get_unique_id", .status = 2});
  EXPECT_THAT(run_clusters(2, [](const ClusterPtr& cluster) { const Worker worker(cluster); }),
              Each(AllOf(HasSubstr("ncclGetUniqueId"), HasSubstr("CROSSDEVICE_STRICT=1"))));
}

/// The other one is late, and then NCCL is: each for less than the timeout, and both together for longer.
TEST_F(CommunicatorNcclFailure, TheWaitForTheOthersAndTheLaunchHaveOneDeadline) {
  std::latch is_over(2);  // who leaves earlier is taken for gone
  EXPECT_EQ(
      run_clusters(2,
                   [&](const ClusterPtr& cluster) {
                     Worker worker(cluster);
                     if (cluster->rank() == 0) {
                       emulated_cuda().calls().inject({.function = "nccl.group_end",
                                                       .kind = testing::FaultKind::DELAY_CALL,
                                                       .count = 2,
                                                       .delay = std::chrono::milliseconds(1800)});
                     }
                     cluster->barrier(60);
                     const double timeout_seconds = cluster->rank() == 0 ? 2 : 60;
                     if (cluster->rank() == 1) {
                       std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                     }
                     const std::string text = thrown<OpError>([&] {
                       worker.world.all_reduce(ReduceOp::SUM, worker.one,
                                               {.timeout_seconds = timeout_seconds});
                     });
                     if (cluster->rank() == 0) {
                       EXPECT_THAT(text, HasSubstr("timed out after 2 s"));
                     }
                     is_over.arrive_and_wait();
                   }),
      no_errors(2));
}

TEST_F(CommunicatorNcclFailure, WhoDoesNotComeIsNamedBeforeAnythingIsLaunched) {
  std::latch is_missed(1);
  EXPECT_EQ(run_clusters(2,
                         [&](const ClusterPtr& cluster) {
                           Worker worker(cluster);
                           if (cluster->rank() == 0) {
                             try {
                               worker.world.all_reduce(ReduceOp::SUM, worker.one,
                                                       {.timeout_seconds = 0.2});
                               ADD_FAILURE() << "nobody else came";
                             } catch (const DeadlineExceededError& error) {
                               ASSERT_EQ(error.culprits().size(), 1U);
                               EXPECT_EQ(error.culprits()[0].rank, 1);
                             }
                             EXPECT_EQ(elements(worker.one), std::vector<float>(kCount, 1.0F));
                             is_missed.count_down();
                           }
                           is_missed.wait();
                         }),
            no_errors(2));
}
#endif

}  // namespace
}  // namespace crossdevice
