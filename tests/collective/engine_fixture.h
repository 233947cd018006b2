// SPDX-License-Identifier: Apache-2.0
/// Workers that make one call of an engine, and what it has left of their memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/collective_engine.h"
#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/error.h"

#include "support/threaded_cluster.h"

namespace crossdevice::testing {

/// Collective: this worker's engine.
using EngineMaker =
    std::function<std::unique_ptr<CollectiveEngine>(const std::shared_ptr<Cluster>& cluster)>;

/// An engine, and what carries its bytes.
struct EngineCase {
  std::string name;
  std::size_t num_ranks = 3;
  /// Once for a group of workers that are threads.
  std::function<EngineMaker()> prepare;
  friend std::ostream& operator<<(std::ostream& out, const EngineCase& value) {
    return out << value.name;
  }
};

inline constexpr double kPatienceSeconds = 60;

inline CollectiveRequest request_within(double timeout_seconds, std::string_view kind = "test") {
  return {.kind = kind,
          .sequence = 1,
          .op = ReduceOp::SUM,
          .deadline = Deadline::after_timeout_seconds(timeout_seconds)};
}

/// How a worker's call ended.
struct CallOutcome {
  std::optional<StatusCode> code{};
  std::string text{};  // empty: well
  std::vector<int> culprits{};
  bool inputs_intact = true;
};

template <class Call>
CallOutcome outcome_of_call(Call call) {
  CallOutcome outcome;
  try {
    call();
  } catch (const OpError& error) {
    outcome = {.code = error.code(),
               .text = error.what(),
               .culprits = {},
               .inputs_intact = error.inputs_intact()};
    for (const RankInfo& each : error.culprits()) outcome.culprits.push_back(each.rank);
  } catch (const std::exception& error) {
    outcome.text = error.what();
  }
  return outcome;
}

/// What a worker's call reads and writes; numbers that are different on every rank.
class CallMemory {
 public:
  /// Pool: the others may write straight into it. Foreign: memory of the program's own.
  enum class From : bool { POOL, PROGRAM };

  CallMemory(std::size_t count, std::size_t num_ranks, std::size_t rank, From from = From::POOL)
      : rank_(rank) {
    const std::size_t counts[] = {count, count * num_ranks, count, count * num_ranks, count};
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (from == From::POOL) {
        tensors_[i] = Tensor::empty(DType::INT32, {counts[i]}, "CPU:0");
      } else {
        own_[i].resize(counts[i]);
        tensors_[i] = Tensor::view(std::span(own_[i]), "CPU:0");
      }
    }
    fill(kBefore);
  }

  [[nodiscard]] const Tensor& part() const { return tensors_[0]; }      // input
  [[nodiscard]] const Tensor& all() const { return tensors_[1]; }       // input
  [[nodiscard]] const Tensor& part_out() const { return tensors_[2]; }  // output
  [[nodiscard]] const Tensor& all_out() const { return tensors_[3]; }   // output
  [[nodiscard]] const Tensor& in_place() const { return tensors_[4]; }  // both

  static constexpr std::int32_t kBefore = 1;
  static constexpr std::int32_t kAfterwards = 2;
  void fill(std::int32_t seed) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const std::span<std::int32_t> elements = tensors_[i].span<std::int32_t>();
      for (std::size_t at = 0; at < elements.size(); ++at) elements[at] = number(seed, i, at);
    }
  }
  [[nodiscard]] bool are_inputs(std::int32_t seed) const { return is(seed, 0) && is(seed, 1); }
  [[nodiscard]] bool is_in_place(std::int32_t seed) const { return is(seed, 4); }
  [[nodiscard]] bool is_all(std::int32_t seed) const {
    return are_inputs(seed) && is(seed, 2) && is(seed, 3) && is_in_place(seed);
  }

 private:
  [[nodiscard]] std::int32_t number(std::int32_t seed, std::size_t tensor, std::size_t at) const {
    return static_cast<std::int32_t>(rank_ * 100'003 + tensor * 10'007 + at * 31) * seed;
  }
  [[nodiscard]] bool is(std::int32_t seed, std::size_t tensor) const {
    const std::span<const std::int32_t> elements = tensors_[tensor].span<const std::int32_t>();
    for (std::size_t at = 0; at < elements.size(); ++at) {
      if (elements[at] != number(seed, tensor, at)) return false;
    }
    return true;
  }

  std::size_t rank_;
  std::array<std::vector<std::int32_t>, 5> own_;
  std::array<Tensor, 5> tensors_;
};

/// A call, and who waits for whom in it.
struct EngineCall {
  enum class Waits {
    ALL_FOR_ALL,
    ALL_FOR_ROOT,  // the others' values are no matter
    ROOT_FOR_ALL,  // the others need nobody
  };
  const char* name;
  Waits waits;
  std::function<void(CollectiveEngine&, const CollectiveRequest&, const CallMemory&, int root)>
      make;
};

inline const std::vector<EngineCall>& engine_calls() {
  using Waits = EngineCall::Waits;
  static const std::vector<EngineCall> calls = {
      {"all_reduce", Waits::ALL_FOR_ALL,
       [](CollectiveEngine& engine, const CollectiveRequest& request, const CallMemory& memory,
          int) {
         const CollectiveValue values[] = {
             {std::span(&memory.part(), 1), std::span(&memory.part_out(), 1)},
             {std::span(&memory.in_place(), 1), std::span(&memory.in_place(), 1)}};
         engine.all_reduce(request, values);
       }},
      {"reduce_scatter", Waits::ALL_FOR_ALL,
       [](CollectiveEngine& engine, const CollectiveRequest& request, const CallMemory& memory,
          int) { engine.reduce_scatter(request, memory.all(), memory.part_out()); }},
      {"all_gather", Waits::ALL_FOR_ALL,
       [](CollectiveEngine& engine, const CollectiveRequest& request, const CallMemory& memory,
          int) { engine.all_gather(request, memory.part(), memory.all_out()); }},
      {"broadcast", Waits::ALL_FOR_ROOT,
       [](CollectiveEngine& engine, const CollectiveRequest& request, const CallMemory& memory,
          int root) { engine.broadcast(request, memory.in_place(), root); }},
      {"reduce", Waits::ROOT_FOR_ALL,
       [](CollectiveEngine& engine, const CollectiveRequest& request, const CallMemory& memory,
          int root) { engine.reduce(request, memory.part(), memory.part_out(), root); }},
      {"gather", Waits::ROOT_FOR_ALL,
       [](CollectiveEngine& engine, const CollectiveRequest& request, const CallMemory& memory,
          int root) { engine.gather(request, memory.part(), memory.all_out(), root); }},
      {"barrier", Waits::ALL_FOR_ALL,
       [](CollectiveEngine& engine, const CollectiveRequest& request, const CallMemory&, int) {
         engine.barrier(request);
       }},
      {"share", Waits::ALL_FOR_ALL,
       [](CollectiveEngine& engine, const CollectiveRequest& request, const CallMemory& memory,
          int) {
         engine.share(request, std::span(&memory.part(), 1), [](const RemoteTensors&) {});
       }},
  };
  return calls;
}

class EngineConformance : public ::testing::TestWithParam<EngineCase> {
 protected:
  static std::size_t num_ranks() { return GetParam().num_ranks; }
  static int last_rank() { return static_cast<int>(num_ranks()) - 1; }

  /// `work` on a thread per rank, each with a cluster and an engine of its own.
  static void run(const std::function<void(CollectiveEngine& engine, Cluster& cluster)>& work) {
    const EngineMaker make = GetParam().prepare();
    EXPECT_EQ(run_clusters(num_ranks(),
                           [&](const std::shared_ptr<Cluster>& cluster) {
                             const std::unique_ptr<CollectiveEngine> engine = make(cluster);
                             work(*engine, *cluster);
                           }),
              no_errors(num_ranks()));
  }
  /// Who waits in a call with that root to which `missing` does not come.
  static bool waits(const EngineCall& call, int rank, int root, int missing) {
    if (rank == missing) return false;
    switch (call.waits) {
      case EngineCall::Waits::ALL_FOR_ALL:
        return true;
      case EngineCall::Waits::ALL_FOR_ROOT:
        return missing == root;
      case EngineCall::Waits::ROOT_FOR_ALL:
        return rank == root;
    }
    return false;
  }
  /// The root for which most wait.
  static int root_of(const EngineCall& call, int missing) {
    const int other = missing == 0 ? last_rank() : 0;
    return call.waits == EngineCall::Waits::ALL_FOR_ROOT ? missing : other;
  }
};

}  // namespace crossdevice::testing
