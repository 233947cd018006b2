// SPDX-License-Identifier: Apache-2.0
// TensorFlow's failures injected into its ring and its gatherers (catalogue 8.10, RT-13 and RT-14): one rank's transport fails after so many messages, at
// whatever they are for. Rank 0's file pins the algorithms; the variable is read once, so this is a program of its own.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/collective/transport_collectives.h"
#include "crossdevice/core/error.h"

#include "support/failing_transport.h"
#include "support/sanitizers.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using testing::no_errors;
using testing::PlannedFailure;
using testing::run_clusters;

constexpr std::size_t kFailAfter[] = {1, 7, 11};
constexpr const char* kText = "deliberate failure";
constexpr float kPoison = -77;

const std::string& tuning_file() {
  static const std::string file =
      ::testing::TempDir() + "failing_collectives_" + std::to_string(::getpid());
  return file;
}
// NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
const int kSet = ::setenv("CROSSDEVICE_TUNING_FILE", tuning_file().c_str(), 1);

void pin(AllReduceAlgorithm algorithm) {
  AllReduceTuning tuning;
  tuning.pins.push_back({.up_to_bytes = kMaxExchangeBytes, .algorithm = algorithm});
  const bool is_for_all =
      algorithm != AllReduceAlgorithm::EXCHANGE && algorithm != AllReduceAlgorithm::DOUBLING;
  tuning.pins.push_back({.up_to_bytes = ~std::uint64_t{0},
                         .algorithm = is_for_all ? algorithm : AllReduceAlgorithm::RING});
  std::ofstream(tuning_file()) << to_string(tuning);
}

CollectiveRequest next_request() {
  static std::atomic<std::uint64_t> sequence{0};
  return {.kind = "test",
          .sequence = ++sequence,
          .op = ReduceOp::SUM,
          .deadline = Deadline::after_timeout_seconds(60)};
}

/// Floats between others that nobody may write.
class Buffer {
 public:
  explicit Buffer(std::size_t count) : all_(count + 2 * kGuard, kPoison) {}
  [[nodiscard]] Tensor tensor() {
    return Tensor::view(std::span(all_).subspan(kGuard, all_.size() - 2 * kGuard), "CPU:0");
  }
  void fill(float value) { std::fill(all_.begin() + kGuard, all_.end() - kGuard, value); }
  [[nodiscard]] bool holds(float value) const {
    return std::all_of(all_.begin() + kGuard, all_.end() - kGuard,
                       [value](float each) { return each == value; });
  }
  [[nodiscard]] bool has_whole_guards() const {
    const auto is_poison = [](float each) { return each == kPoison; };
    return std::all_of(all_.begin(), all_.begin() + kGuard, is_poison) &&
           std::all_of(all_.end() - kGuard, all_.end(), is_poison);
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 16;
  std::vector<float> all_;
};

/// What rank r puts in.
float input_of(std::size_t rank) { return static_cast<float>(rank + 1); }

/// A kind of call. Input and output are one where it is in place; `make` expects of a result what it has to be.
struct Call {
  std::string name;
  std::size_t num_inputs;
  std::size_t num_outputs;
  bool is_in_place;
  std::function<void(TransportCollectives&, std::size_t rank, Buffer& input, Buffer& output)> make;
};

Call all_reduce(std::size_t n, std::size_t count, bool is_in_place) {
  const std::size_t sum = n * (n + 1) / 2;
  return {
      .name = fmt::format("all_reduce of {}{}", count, is_in_place ? " in place" : ""),
      .num_inputs = count,
      .num_outputs = count,
      .is_in_place = is_in_place,
      .make = [sum](TransportCollectives& collectives, std::size_t, Buffer& input, Buffer& output) {
        const std::vector<Tensor> inputs{input.tensor()};
        const std::vector<Tensor> outputs{output.tensor()};
        const CollectiveValue value{inputs, outputs};
        collectives.all_reduce(next_request(), {&value, 1});
        EXPECT_TRUE(output.holds(static_cast<float>(sum)));
      }};
}

void expect_in_order(Buffer& output, std::size_t n) {
  const Tensor all = output.tensor();
  const auto got = all.span<const float>();
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], input_of(i / (got.size() / n))) << i;
  }
}

Call all_gather(std::size_t n, std::size_t count) {
  return {
      .name = fmt::format("all_gather of {}", count),
      .num_inputs = count,
      .num_outputs = n * count,
      .is_in_place = false,
      .make = [n](TransportCollectives& collectives, std::size_t, Buffer& input, Buffer& output) {
        collectives.all_gather(next_request(), input.tensor(), output.tensor());
        expect_in_order(output, n);
      }};
}

Call gather(std::size_t n, std::size_t count) {
  return {.name = fmt::format("gather of {}", count),
          .num_inputs = count,
          .num_outputs = n * count,
          .is_in_place = false,
          .make = [n](TransportCollectives& collectives, std::size_t rank, Buffer& input,
                      Buffer& output) {
            collectives.gather(next_request(), input.tensor(), output.tensor(),
                               static_cast<int>(n - 1));
            if (rank == n - 1) expect_in_order(output, n);
          }};
}

Call share(std::size_t n, std::size_t count) {
  return {.name = fmt::format("share of {}", count),
          .num_inputs = count,
          .num_outputs = 0,
          .is_in_place = false,
          .make = [n](TransportCollectives& collectives, std::size_t, Buffer& input, Buffer&) {
            const Tensor mine = input.tensor();
            collectives.share(next_request(), {&mine, 1}, [&](const RemoteTensors& all) {
              ASSERT_EQ(all.size(), n);
              for (std::size_t rank = 0; rank < n; ++rank) {
                const std::vector<float> wanted(mine.num_elements(), input_of(rank));
                EXPECT_EQ(std::memcmp(all[rank].at(0).data, wanted.data(), mine.size_bytes()), 0);
              }
            });
          }};
}

/// From rank 0, into the others' own.
Call broadcast(std::size_t count) {
  return {.name = fmt::format("broadcast of {}", count),
          .num_inputs = count,
          .num_outputs = count,
          .is_in_place = true,
          .make = [](TransportCollectives& collectives, std::size_t, Buffer&, Buffer& output) {
            collectives.broadcast(next_request(), output.tensor(), 0);
            EXPECT_TRUE(output.holds(input_of(0)));
          }};
}

void expect_all_refused(TransportCollectives& collectives, std::size_t n) {
  Buffer small(n);
  Buffer large(n * n);
  const Tensor tensor = small.tensor();
  const Tensor tensors = large.tensor();
  const CollectiveValue value{{&tensor, 1}, {&tensor, 1}};
  const std::function<void(const CollectiveRequest&)> calls[] = {
      [&](const auto& request) {
        collectives.all_reduce(request, {&value, 1});
      },
      [&](const auto& request) { collectives.reduce_scatter(request, tensors, tensor); },
      [&](const auto& request) { collectives.all_gather(request, tensor, tensors); },
      [&](const auto& request) { collectives.broadcast(request, tensor, 0); },
      [&](const auto& request) { collectives.reduce(request, tensor, tensor, 0); },
      [&](const auto& request) { collectives.gather(request, tensor, tensors, 0); },
      [&](const auto& request) { collectives.barrier(request); },
      [&](const auto& request) {
        collectives.share(request, {&tensor, 1}, [](const auto&) { ADD_FAILURE(); });
      }};
  for (const auto& call : calls) {
    try {
      call(next_request());
      ADD_FAILURE() << "a broken group has done something";
    } catch (const FailedPreconditionError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(kText));
    }
  }
  EXPECT_TRUE(small.holds(kPoison));
  EXPECT_TRUE(large.holds(kPoison));
}

/// Makes the call until it fails, which it does on every rank: who has all that it needs of one before the failure hears of it in the next.
void call_until_failure(Cluster& cluster, TransportCollectives& collectives, const Call& call,
                        int failing) {
  const auto rank = static_cast<std::size_t>(cluster.rank());
  Buffer first(call.num_inputs);
  Buffer second(call.is_in_place ? 0 : call.num_outputs);
  Buffer& output = call.is_in_place ? first : second;
  std::size_t num_calls = 0;
  try {
    for (; num_calls < 100; ++num_calls) {
      output.fill(kPoison);
      first.fill(input_of(rank));
      call.make(collectives, rank, first, output);
    }
    ADD_FAILURE() << "no error";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(kText));
    ASSERT_EQ(error.culprits().size(), 1U) << error.what();
    EXPECT_EQ(error.culprits()[0].rank, failing) << error.what();
    if (!call.is_in_place) {
      EXPECT_TRUE(error.inputs_intact());
    }
    if (error.inputs_intact()) {
      EXPECT_TRUE(first.holds(input_of(rank)));
    }
  }
  // Nobody touches them any more, however long others are still at it.
  first.fill(1);
  second.fill(2);
  cluster.barrier(60);
  EXPECT_TRUE(first.holds(1));
  EXPECT_TRUE(second.holds(2));
  EXPECT_TRUE(first.has_whole_guards());
  EXPECT_TRUE(second.has_whole_guards());
  expect_all_refused(collectives, static_cast<std::size_t>(cluster.num_workers()));
}

/// Each call with a group of its own, over one cluster: it outlives what breaks.
void fail_each(std::size_t n, const std::vector<Call>& calls) {
  PlannedFailure plan;
  std::vector<std::unique_ptr<Transport>> transports;
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    for (const Call& call : calls) {
      for (const std::size_t after : kFailAfter) {
        SCOPED_TRACE(fmt::format("{} among {}, rank {}, after {}", call.name, n, rank, after));
        const int failing = static_cast<int>(after % n);
        if (rank == 0) {
          plan = {.text = kText};
          transports = make_failing_transports(static_cast<int>(n), failing, plan);
        }
        cluster->barrier(60);
        TransportCollectives collectives(cluster, std::move(transports[rank]));
        EXPECT_EQ(collectives.counters(), TransportCounters());  // nothing is measured
        if (cluster->rank() == failing) plan.num_sends_left = after;
        call_until_failure(*cluster, collectives, call, failing);
        if (cluster->rank() == failing) {
          EXPECT_LE(collectives.counters().messages_sent, after);
        }
        cluster->barrier(60);
      }
    }
  };
  EXPECT_EQ(run_clusters(n, work), no_errors(n));
}

class TransportFailures : public ::testing::TestWithParam<std::size_t> {
 protected:
  void TearDown() override { ::unlink(tuning_file().c_str()); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, TransportFailures,
                         ::testing::ValuesIn(testing::kIsSanitized
                                                 ? std::vector<std::size_t>{2, 3, 5}
                                                 : std::vector<std::size_t>{2, 3, 4, 5, 8, 16}));

TEST_P(TransportFailures, RT13_AllReduceEndsOnEveryRankWithTheFailure) {
  ASSERT_EQ(kSet, 0);
  const std::size_t n = GetParam();
  for (const AllReduceAlgorithm algorithm : {AllReduceAlgorithm::RING, AllReduceAlgorithm::SHUFFLE,
                                             AllReduceAlgorithm::HALVING_DOUBLING}) {
    SCOPED_TRACE(to_string(algorithm));
    pin(algorithm);
    std::vector<Call> calls;
    for (const bool is_in_place : {false, true}) {
      calls.push_back(all_reduce(n, 9408, is_in_place));
      calls.push_back(all_reduce(n, 300'001, is_in_place));  // reduced where it lies
    }
    fail_each(n, calls);
  }
  for (const AllReduceAlgorithm algorithm :
       {AllReduceAlgorithm::EXCHANGE, AllReduceAlgorithm::DOUBLING}) {
    SCOPED_TRACE(to_string(algorithm));
    pin(algorithm);
    fail_each(n, {all_reduce(n, 97, false), all_reduce(n, 97, true)});
  }
}

TEST_P(TransportFailures, RT14_GathersEndOnEveryRankWithTheFailure) {
  const std::size_t n = GetParam();
  pin(AllReduceAlgorithm::RING);
  fail_each(n, {all_gather(n, 1001), all_gather(n, 300'001 / n), gather(n, 1001),
                gather(n, 300'001 / n), share(n, 1001), share(n, 300'001 / n)});
}

TEST_P(TransportFailures, RT14_BroadcastsEndOnEveryRankWithTheFailure) {
  pin(AllReduceAlgorithm::RING);
  fail_each(GetParam(), {broadcast(1001), broadcast(300'001)});  // by a tree and by a chain
}

}  // namespace
}  // namespace crossdevice
