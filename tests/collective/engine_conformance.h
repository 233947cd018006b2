// SPDX-License-Identifier: Apache-2.0
/// How every engine fails, whatever carries its bytes. Workers in shared memory exchange no messages, and so have no Transport: they read what they need where
/// it lies. What they promise is the engines' contract, CollectiveEngine's, and so this suite is where they and the transports are held to the same:
///
///   nobody comes too early or too late   ADeadlineNamesWhoDidNotCome, WhoComesLateHearsItAndWritesNothing, ADeadlineOfOneEndsTheWaitOfAll
///   a worker is gone                     WhoHasLeftIsNamedByAll; as processes: engine_processes.h
///   somebody gives up                    AnAbortEndsTheWaitOfAll
///   calls differ                         DifferentCallsAreFoundBeforeAByteIsWritten, ACallWithoutBytesIsACall
///   afterwards                           EveryCallAfterAFailureIsRefused
///
/// A program instantiates it:
///
///   INSTANTIATE_TEST_SUITE_P(Engines, EngineConformance, ::testing::Values(EngineCase{"shared_memory", 3, ...}));
#pragma once

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collective/engine_fixture.h"

namespace crossdevice::testing {

/// Where messages are few, several, and longer than any buffer.
inline const std::vector<std::size_t>& counts_of_elements() {
  static const std::vector<std::size_t> counts = {1, 1000, 300'000};
  return counts;
}

TEST_P(EngineConformance, ACallWithoutBytesIsACall) {
  std::barrier<> end(static_cast<std::ptrdiff_t>(num_ranks()));
  run([&](CollectiveEngine& engine, Cluster& cluster) {
    const auto rank = static_cast<std::size_t>(cluster.rank());
    const CallMemory nothing(0, num_ranks(), rank);
    for (int round = 0; round < 2; ++round) {
      for (const EngineCall& call : engine_calls()) {
        call.make(engine, request_within(kPatienceSeconds, call.name), nothing, last_rank());
      }
    }
    engine.all_reduce(request_within(kPatienceSeconds), {});
    end.arrive_and_wait();  // or else who is still in the last one hears of the next one's failure
    // A call among them that is not the others' is found, too.
    const CollectiveValue value{std::span(&nothing.part(), 1), std::span(&nothing.part_out(), 1)};
    CollectiveRequest request = request_within(kPatienceSeconds);
    if (cluster.rank() == 1) request.op = ReduceOp::MAX;
    const CallOutcome outcome =
        outcome_of_call([&] { engine.all_reduce(request, std::span(&value, 1)); });
    end.arrive_and_wait();  // who is late hears of this, and not that the others have gone
    EXPECT_EQ(outcome.code, StatusCode::INTERNAL) << outcome.text;
  });
}

/// On a machine so busy that others do not come in time either, they are named, too; but not always.
inline constexpr int kTriesToBeInTime = 10;

inline bool are_others_named(const std::vector<CallOutcome>& outcomes, int missing) {
  return std::ranges::any_of(outcomes, [&](const CallOutcome& each) {
    return std::ranges::any_of(each.culprits, [&](int rank) { return rank != missing; });
  });
}

TEST_P(EngineConformance, ADeadlineNamesWhoDidNotCome) {
  int missing = 0;
  for (const EngineCall& call : engine_calls()) {
    for (const std::size_t count : counts_of_elements()) {
      missing = missing == 1 ? last_rank() : 1;
      const std::string what = std::string(call.name) + " of " + std::to_string(count) + ": ";
      const int root = root_of(call, missing);
      std::vector<CallOutcome> outcomes(num_ranks());
      const auto try_once = [&] {
        std::barrier<> turn(static_cast<std::ptrdiff_t>(num_ranks()));
        run([&](CollectiveEngine& engine, Cluster& cluster) {
          const auto rank = static_cast<std::size_t>(cluster.rank());
          const CallMemory memory(count, num_ranks(), rank);
          CallOutcome& outcome = outcomes[rank];
          turn.arrive_and_wait();
          if (cluster.rank() != missing) {
            outcome = outcome_of_call(
                [&] { call.make(engine, request_within(0.2, call.name), memory, root); });
          }
          turn.arrive_and_wait();  // who has nothing more to do is not gone
          EXPECT_TRUE(memory.are_inputs(CallMemory::kBefore)) << what;
          if (outcome.inputs_intact && call.waits == EngineCall::Waits::ALL_FOR_ALL) {
            EXPECT_TRUE(memory.is_in_place(CallMemory::kBefore)) << what;
          }
        });
      };
      try_once();
      for (int i = 1; i < kTriesToBeInTime && are_others_named(outcomes, missing); ++i) try_once();
      for (int rank = 0; rank <= last_rank(); ++rank) {
        if (!waits(call, rank, root, missing)) continue;
        const CallOutcome& outcome = outcomes[static_cast<std::size_t>(rank)];
        EXPECT_EQ(outcome.code, StatusCode::DEADLINE_EXCEEDED) << what << outcome.text;
        EXPECT_THAT(outcome.text, ::testing::HasSubstr("rank " + std::to_string(missing))) << what;
        EXPECT_EQ(outcome.culprits, std::vector<int>{missing}) << what << outcome.text;
      }
    }
  }
}

/// The others' memory is theirs again once they have thrown.
TEST_P(EngineConformance, WhoComesLateHearsItAndWritesNothing) {
  for (const CallMemory::From from : {CallMemory::From::POOL, CallMemory::From::PROGRAM}) {
    for (const EngineCall& call : engine_calls()) {
      if (call.waits != EngineCall::Waits::ALL_FOR_ALL) continue;
      for (const std::size_t count : counts_of_elements()) {
        if (from == CallMemory::From::PROGRAM && count == 1) continue;
        const std::string what = std::string(call.name) + " of " + std::to_string(count) + ": ";
        std::barrier<> turn(static_cast<std::ptrdiff_t>(num_ranks()));
        run([&](CollectiveEngine& engine, Cluster& cluster) {
          const int rank = cluster.rank();
          CallMemory memory(count, num_ranks(), static_cast<std::size_t>(rank), from);
          CallOutcome outcome;
          const auto make = [&](double timeout_seconds) {
            outcome = outcome_of_call(
                [&] { call.make(engine, request_within(timeout_seconds, call.name), memory, 0); });
          };
          if (rank != 1) {
            make(0.2);
            memory.fill(CallMemory::kAfterwards);
          }
          turn.arrive_and_wait();
          if (rank == 1) make(kPatienceSeconds);
          turn.arrive_and_wait();
          EXPECT_EQ(outcome.code, StatusCode::DEADLINE_EXCEEDED) << what << outcome.text;
          if (rank == 1) {
            EXPECT_TRUE(memory.are_inputs(CallMemory::kBefore)) << what;
          } else {
            EXPECT_TRUE(memory.is_all(CallMemory::kAfterwards)) << what;
          }
        });
      }
    }
  }
}

TEST_P(EngineConformance, ADeadlineOfOneEndsTheWaitOfAll) {
  for (const EngineCall& call : engine_calls()) {
    if (call.waits != EngineCall::Waits::ALL_FOR_ALL) continue;
    const std::string what = std::string(call.name) + ": ";
    std::vector<CallOutcome> outcomes(num_ranks());
    const auto try_once = [&] {
      std::barrier<> turn(static_cast<std::ptrdiff_t>(num_ranks()));
      run([&](CollectiveEngine& engine, Cluster& cluster) {
        const auto rank = static_cast<std::size_t>(cluster.rank());
        const CallMemory memory(1000, num_ranks(), rank);
        turn.arrive_and_wait();
        if (rank != 1) {
          CollectiveRequest request = request_within(0.2, call.name);
          if (rank != 0) request.deadline = Deadline::never();
          outcomes[rank] = outcome_of_call([&] { call.make(engine, request, memory, 0); });
        }
        turn.arrive_and_wait();
      });
    };
    try_once();
    for (int i = 1; i < kTriesToBeInTime && are_others_named(outcomes, 1); ++i) try_once();
    for (std::size_t rank = 0; rank < num_ranks(); ++rank) {
      if (rank == 1) continue;
      const CallOutcome& outcome = outcomes[rank];
      EXPECT_EQ(outcome.code, StatusCode::DEADLINE_EXCEEDED) << what << outcome.text;
      EXPECT_EQ(outcome.culprits, std::vector<int>{1}) << what << outcome.text;
    }
  }
}

TEST_P(EngineConformance, WhoHasLeftIsNamedByAll) {
  for (const int leaver : {1, last_rank()}) {
    for (const EngineCall& call : engine_calls()) {
      const std::string what = std::string(call.name) + ": ";
      const int root = root_of(call, leaver);
      std::barrier<> end(static_cast<std::ptrdiff_t>(num_ranks() - 1));
      run([&](CollectiveEngine& engine, Cluster& cluster) {
        const int rank = cluster.rank();
        if (rank == leaver) return;
        const CallMemory memory(1000, num_ranks(), static_cast<std::size_t>(rank));
        CollectiveRequest request = request_within(kPatienceSeconds, call.name);
        request.deadline = Deadline::never();
        const CallOutcome outcome =
            outcome_of_call([&] { call.make(engine, request, memory, root); });
        end.arrive_and_wait();
        if (!waits(call, rank, root, leaver)) return;
        EXPECT_EQ(outcome.code, StatusCode::UNAVAILABLE) << what << outcome.text;
        EXPECT_EQ(outcome.culprits, std::vector<int>{leaver}) << what << outcome.text;
        EXPECT_TRUE(memory.are_inputs(CallMemory::kBefore)) << what;
      });
    }
  }
}

TEST_P(EngineConformance, AnAbortEndsTheWaitOfAll) {
  for (const int aborting : {0, last_rank()}) {
    for (const EngineCall& call : engine_calls()) {
      const std::string what = std::string(call.name) + ": ";
      const int root = root_of(call, aborting);
      std::barrier<> end(static_cast<std::ptrdiff_t>(num_ranks()));
      run([&](CollectiveEngine& engine, Cluster& cluster) {
        const int rank = cluster.rank();
        const CallMemory memory(1000, num_ranks(), static_cast<std::size_t>(rank));
        CollectiveRequest request = request_within(kPatienceSeconds, call.name);
        request.deadline = Deadline::never();
        CallOutcome outcome;
        if (rank == aborting) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // they wait, most likely
          cluster.abort_collective_ops("that is enough");
        } else {
          outcome = outcome_of_call([&] { call.make(engine, request, memory, root); });
        }
        end.arrive_and_wait();
        if (!waits(call, rank, root, aborting)) return;
        EXPECT_EQ(outcome.code, StatusCode::ABORTED) << what << outcome.text;
        EXPECT_THAT(outcome.text, ::testing::HasSubstr("that is enough")) << what;
        EXPECT_EQ(outcome.culprits, std::vector<int>{aborting}) << what << outcome.text;
        EXPECT_TRUE(memory.are_inputs(CallMemory::kBefore)) << what;
      });
    }
  }
}

/// A way in which one worker's call is not the others'.
struct Difference {
  const char* name;
  std::function<void(CollectiveRequest& request)> make;
};

TEST_P(EngineConformance, DifferentCallsAreFoundBeforeAByteIsWritten) {
  const std::vector<Difference> differences = {
      {"kind", [](CollectiveRequest& request) { request.kind = "another"; }},
      {"fingerprint", [](CollectiveRequest& request) { request.fingerprint = 7; }},
      {"size", {}},
      {"root", {}},
      {"call", {}},
  };
  int differing = 0;
  for (const Difference& difference : differences) {
    for (const EngineCall& call : engine_calls()) {
      const bool is_another_call = std::string(difference.name) == "call";
      const bool is_another_size = std::string(difference.name) == "size";
      const bool is_another_root = std::string(difference.name) == "root";
      // A barrier has no size, and what is shared may be of any.
      const bool has_size =
          call.name != std::string("barrier") && call.name != std::string("share");
      if (is_another_size && !has_size) continue;
      const bool has_root = call.waits != EngineCall::Waits::ALL_FOR_ALL;
      if (is_another_root && !has_root) continue;
      for (const std::size_t count : counts_of_elements()) {
        differing = differing == 0 ? last_rank() : 0;
        const std::string what = std::string(call.name) + " of " + std::to_string(count) +
                                 ", another " + difference.name + ": ";
        std::barrier<> end(static_cast<std::ptrdiff_t>(num_ranks()));
        run([&](CollectiveEngine& engine, Cluster& cluster) {
          const bool differs = cluster.rank() == differing;
          const CallMemory memory(differs && is_another_size ? count + 1 : count, num_ranks(),
                                  static_cast<std::size_t>(cluster.rank()));
          CollectiveRequest request = request_within(kPatienceSeconds, call.name);
          request.deadline = Deadline::never();
          const int root = differs && is_another_root ? 1 : 0;
          const EngineCall* made = &call;
          if (differs && difference.make) difference.make(request);
          if (differs && is_another_call) {
            made = &engine_calls()[&call == engine_calls().data() ? 1 : 0];
            request.kind = made->name;
          }
          const CallOutcome outcome =
              outcome_of_call([&] { made->make(engine, request, memory, root); });
          end.arrive_and_wait();
          EXPECT_EQ(outcome.code, StatusCode::INTERNAL) << what << outcome.text;
          EXPECT_THAT(outcome.text, ::testing::HasSubstr("different calls")) << what;
          EXPECT_TRUE(outcome.inputs_intact) << what;
          EXPECT_TRUE(memory.is_all(CallMemory::kBefore)) << what;
        });
      }
    }
  }
}

TEST_P(EngineConformance, EveryCallAfterAFailureIsRefused) {
  std::barrier<> end(static_cast<std::ptrdiff_t>(num_ranks()));
  run([&](CollectiveEngine& engine, Cluster& cluster) {
    const CallMemory memory(1000, num_ranks(), static_cast<std::size_t>(cluster.rank()));
    CollectiveRequest different = request_within(kPatienceSeconds);
    different.fingerprint = cluster.rank() == 1 ? 4 : 5;
    const CallOutcome outcome =
        outcome_of_call([&] { engine_calls()[0].make(engine, different, memory, 0); });
    end.arrive_and_wait();
    EXPECT_EQ(outcome.code, StatusCode::INTERNAL) << outcome.text;
    for (const EngineCall& call : engine_calls()) {
      const CallOutcome later = outcome_of_call(
          [&] { call.make(engine, request_within(kPatienceSeconds, call.name), memory, 0); });
      EXPECT_EQ(later.code, StatusCode::FAILED_PRECONDITION) << call.name << ": " << later.text;
    }
    EXPECT_TRUE(memory.is_all(CallMemory::kBefore));
  });
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EngineConformance);

}  // namespace crossdevice::testing
