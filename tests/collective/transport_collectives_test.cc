// SPDX-License-Identifier: Apache-2.0
/// Workers are threads, each with a cluster and an in-process transport of its own.
#include "crossdevice/collective/transport_collectives.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/comm/in_process_transport.h"
#include "crossdevice/core/error.h"

#include "support/sanitizers.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using testing::no_errors;
using testing::run_clusters;

constexpr double kPatience = 60;

CollectiveRequest request_of(ReduceOp op, double timeout_seconds = kPatience) {
  static std::atomic<std::uint64_t> sequence{0};
  return {.kind = "test",
          .sequence = ++sequence,
          .op = op,
          .deadline = Deadline::after_timeout_seconds(timeout_seconds)};
}

/// Runs `work` on every rank.
std::vector<std::string> run(std::size_t n,
                             const std::function<void(TransportCollectives&, Cluster&)>& work) {
  std::vector<std::unique_ptr<Transport>> transports =
      make_in_process_transports(static_cast<int>(n));
  return run_clusters(n, [&](const std::shared_ptr<Cluster>& cluster) {
    TransportCollectives collectives(
        cluster, std::move(transports[static_cast<std::size_t>(cluster->rank())]));
    work(collectives, *cluster);
  });
}

template <class T>
Tensor tensor_of(const std::vector<T>& values) {
  return Tensor::copy_of(std::span(values), Shape({static_cast<std::int64_t>(values.size())}),
                         "CPU:0");
}

template <class T>
std::vector<T> values_of(const Tensor& tensor) {
  const auto* const data = static_cast<const T*>(tensor.data());
  return {data, data + tensor.num_elements()};
}

/// Small whole numbers, so that sums are exact in any order; different on every rank.
template <class T>
std::vector<T> numbers(std::size_t count, std::size_t rank, std::size_t replica = 0) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>((i * 7 + rank * 3 + replica * 5) % 11);
  }
  return values;
}

template <class T>
std::vector<T> sums(std::size_t count, std::size_t num_ranks, std::size_t num_replicas) {
  std::vector<T> result(count);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    for (std::size_t replica = 0; replica < num_replicas; ++replica) {
      const std::vector<T> values = numbers<T>(count, rank, replica);
      for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<T>(result[i] + values[i]);
    }
  }
  return result;
}

/// A value of a batch that keeps its tensors.
struct Value {
  std::vector<Tensor> inputs{};
  std::vector<Tensor> outputs{};
  [[nodiscard]] CollectiveValue view() const { return {inputs, outputs}; }
};

template <class T, class Result = T>
Value make_value(std::size_t count, std::size_t rank, std::size_t num_replicas, bool in_place) {
  Value value;
  for (std::size_t replica = 0; replica < num_replicas; ++replica) {
    value.inputs.push_back(tensor_of(numbers<T>(count, rank, replica)));
  }
  if (in_place) {
    value.outputs = value.inputs;
  } else {
    for (int i = 0; i < 2; ++i) value.outputs.push_back(tensor_of(std::vector<Result>(count)));
  }
  return value;
}

template <class T>
void expect_result(const Value& value, const std::vector<T>& expected, const char* what) {
  for (const Tensor& output : value.outputs) {
    EXPECT_EQ(values_of<T>(output), expected) << what;
  }
}

class TransportCollectivesTest : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Workers, TransportCollectivesTest,
                         ::testing::ValuesIn(testing::kIsSanitized
                                                 ? std::vector<std::size_t>{2, 3, 5, 8}
                                                 : std::vector<std::size_t>{2, 3, 4, 5, 8, 17}));

TEST_P(TransportCollectivesTest, ABatchOfEverything) {
  const std::size_t n = GetParam();
  for (const std::size_t replicas : {1UL, 2UL}) {
    for (const bool in_place : {false, true}) {
      EXPECT_EQ(run(n,
                    [&](TransportCollectives& collectives, Cluster& cluster) {
                      const auto rank = static_cast<std::size_t>(cluster.rank());
                      const std::size_t counts[] = {0, 1, n - 1, n + 1, 97, 70'000, 300'001};
                      std::vector<Value> floats;
                      std::vector<Value> shorts;
                      std::vector<CollectiveValue> values;
                      for (const std::size_t count : counts) {
                        floats.push_back(make_value<float>(count, rank, replicas, in_place));
                        shorts.push_back(make_value<std::int16_t>(count, rank, replicas, in_place));
                        values.push_back(floats.back().view());
                        values.push_back(shorts.back().view());
                      }
                      collectives.all_reduce(request_of(ReduceOp::SUM), values);
                      for (std::size_t i = 0; i < std::size(counts); ++i) {
                        expect_result(floats[i], sums<float>(counts[i], n, replicas), "floats");
                        expect_result(shorts[i], sums<std::int16_t>(counts[i], n, replicas),
                                      "shorts");
                      }
                    }),
                no_errors(n));
    }
  }
}

TEST_P(TransportCollectivesTest, MeansOfFloatsAndIntegers) {
  const std::size_t n = GetParam();
  EXPECT_EQ(run(n,
                [&](TransportCollectives& collectives, Cluster& cluster) {
                  const auto rank = static_cast<std::size_t>(cluster.rank());
                  for (const std::size_t count : {3UL, 1000UL, 300'000UL}) {
                    const Value floats = make_value<float>(count, rank, 2, false);
                    const Value bytes = make_value<std::uint8_t, float>(count, rank, 2, false);
                    const Value ints = make_value<std::int32_t, double>(count, rank, 2, false);
                    const CollectiveValue values[] = {floats.view(), bytes.view(), ints.view()};
                    collectives.all_reduce(request_of(ReduceOp::MEAN), values);
                    const std::vector<float> total = sums<float>(count, n, 2);
                    std::vector<float> means;
                    std::vector<double> wide_means;
                    for (const float sum : total) {
                      means.push_back(sum / static_cast<float>(2 * n));
                      wide_means.push_back(static_cast<double>(sum) / static_cast<double>(2 * n));
                    }
                    expect_result(floats, means, "float32");
                    expect_result(bytes, means, "uint8");
                    expect_result(ints, wide_means, "int32");
                  }
                }),
            no_errors(n));
}

TEST_P(TransportCollectivesTest, DeterministicIsTheOrderOfRanks) {
  const std::size_t n = GetParam();
  for (const std::size_t count : {5UL, 1000UL, 300'000UL}) {
    std::vector<std::vector<float>> inputs(n);
    for (std::size_t rank = 0; rank < n; ++rank) {
      for (std::size_t i = 0; i < count; ++i) {
        inputs[rank].push_back(1.0F / static_cast<float>(1 + (i * 31 + rank * 17) % 1009));
      }
    }
    std::vector<float> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      expected[i] = inputs[0][i];
      for (std::size_t rank = 1; rank < n; ++rank) expected[i] += inputs[rank][i];
    }
    EXPECT_EQ(
        run(n,
            [&](TransportCollectives& collectives, Cluster& cluster) {
              Value value;
              value.inputs.push_back(tensor_of(inputs[static_cast<std::size_t>(cluster.rank())]));
              value.outputs = value.inputs;
              const CollectiveValue view = value.view();
              CollectiveRequest request = request_of(ReduceOp::SUM);
              request.deterministic = true;
              collectives.all_reduce(request, {&view, 1});
              EXPECT_EQ(values_of<float>(value.outputs[0]), expected);
            }),
        no_errors(n));
  }
}

TEST_P(TransportCollectivesTest, EverythingElse) {
  const std::size_t n = GetParam();
  EXPECT_EQ(run(n,
                [&](TransportCollectives& collectives, Cluster& cluster) {
                  const auto rank = static_cast<std::size_t>(cluster.rank());
                  for (const std::size_t part : {0UL, 1UL, 100UL, 40'000UL}) {
                    const std::vector<double> all = sums<double>(part * n, n, 1);
                    const Tensor input = tensor_of(numbers<double>(part * n, rank));
                    const Tensor scattered = tensor_of(std::vector<double>(part));
                    collectives.reduce_scatter(request_of(ReduceOp::SUM), input, scattered);
                    const std::vector<double> own(
                        all.begin() + static_cast<std::ptrdiff_t>(rank * part),
                        all.begin() + static_cast<std::ptrdiff_t>((rank + 1) * part));
                    EXPECT_EQ(values_of<double>(scattered), own);

                    const Tensor gathered = tensor_of(std::vector<double>(part * n));
                    collectives.all_gather(request_of(ReduceOp::SUM), scattered, gathered);
                    EXPECT_EQ(values_of<double>(gathered), all);

                    const Tensor shorts = tensor_of(numbers<std::int16_t>(part * n, rank));
                    const Tensor means = tensor_of(std::vector<float>(part));
                    collectives.reduce_scatter(request_of(ReduceOp::MEAN), shorts, means);
                    for (std::size_t i = 0; i < part; ++i) {
                      EXPECT_EQ(values_of<float>(means)[i],
                                static_cast<float>(own[i]) / static_cast<float>(n));
                      if (i > 3) break;
                    }
                  }
                  for (int root = 0; root < static_cast<int>(n); ++root) {
                    for (const std::size_t count : {0UL, 3UL, 50'000UL}) {
                      const Tensor tensor = tensor_of(numbers<float>(count, rank));
                      const Tensor result = tensor_of(std::vector<float>(count, -1.0F));
                      for (const bool deterministic : {false, true}) {
                        CollectiveRequest request = request_of(ReduceOp::SUM);
                        request.deterministic = deterministic;
                        collectives.reduce(request, tensor, result, root);
                      }
                      EXPECT_EQ(values_of<float>(result), cluster.rank() == root
                                                              ? sums<float>(count, n, 1)
                                                              : std::vector<float>(count, -1.0F));
                      EXPECT_EQ(values_of<float>(tensor), numbers<float>(count, rank));
                      const Tensor everybodys = tensor_of(std::vector<float>(count * n));
                      collectives.gather(request_of(ReduceOp::SUM), tensor, everybodys, root);
                      if (cluster.rank() == root) {
                        std::vector<float> expected;
                        for (std::size_t each = 0; each < n; ++each) {
                          const std::vector<float> theirs = numbers<float>(count, each);
                          expected.insert(expected.end(), theirs.begin(), theirs.end());
                        }
                        EXPECT_EQ(values_of<float>(everybodys), expected);
                      }
                      collectives.broadcast(request_of(ReduceOp::SUM), tensor, root);
                      EXPECT_EQ(values_of<float>(tensor),
                                numbers<float>(count, static_cast<std::size_t>(root)));
                    }
                  }
                  collectives.barrier(request_of(ReduceOp::SUM));
                }),
            no_errors(n));
}

TEST_P(TransportCollectivesTest, SharedTensorsMayDifferInEverything) {
  const std::size_t n = GetParam();
  EXPECT_EQ(
      run(n,
          [&](TransportCollectives& collectives, Cluster& cluster) {
            const auto rank = static_cast<std::size_t>(cluster.rank());
            std::vector<Tensor> mine;
            for (std::size_t i = 0; i < rank; ++i) {
              mine.push_back(tensor_of(numbers<float>(rank * 1000 + i, rank)));
            }
            mine.push_back(tensor_of(numbers<std::int64_t>(rank % 2, rank)));
            for (int round = 0; round < 3; ++round) {
              collectives.share(request_of(ReduceOp::SUM), mine, [&](const auto& all) {
                ASSERT_EQ(all.size(), n);
                for (std::size_t each = 0; each < n; ++each) {
                  ASSERT_EQ(all[each].size(), each + 1);
                  for (std::size_t i = 0; i < each; ++i) {
                    const RemoteTensor& tensor = all[each][i];
                    ASSERT_EQ(tensor.dtype, DType::FLOAT32);
                    const std::vector<float> expected = numbers<float>(each * 1000 + i, each);
                    ASSERT_EQ(tensor.shape, Shape({static_cast<std::int64_t>(expected.size())}));
                    EXPECT_EQ(
                        std::memcmp(tensor.data, expected.data(), expected.size() * sizeof(float)),
                        0);
                  }
                  EXPECT_EQ(all[each][each].dtype, DType::INT64);
                  EXPECT_EQ(all[each][each].shape.num_elements(),
                            static_cast<std::int64_t>(each % 2));
                }
              });
            }
          }),
      no_errors(n));
}

/// Expects that `call` throws an Error, of whose text and culprits `look` thinks what it likes.
template <class Error, class Call, class Look>
void expect_error_that(Call call, Look look) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    std::vector<int> blamed;
    for (const RankInfo& rank : error.culprits()) blamed.push_back(rank.rank);
    look(std::string(error.what()), blamed);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error: " << error.what();
  }
}

/// Expects that `call` throws an Error with this text that blames these ranks.
template <class Error, class Call>
void expect_error(const std::string& text, const std::vector<int>& culprits, Call call) {
  expect_error_that<Error>(call, [&](const std::string& what, const std::vector<int>& blamed) {
    EXPECT_THAT(what, ::testing::HasSubstr(text));
    EXPECT_EQ(blamed, culprits) << what;
  });
}

/// Two members see it of each other; who sees it first blames the other one, and tells all.
TEST_P(TransportCollectivesTest, DifferentCallsAreFoundBeforeAnythingIsWritten) {
  const std::size_t n = GetParam();
  const int differing = static_cast<int>(n) - 1;
  const auto look = [&](const std::string& what, const std::vector<int>& blamed) {
    EXPECT_THAT(what, ::testing::HasSubstr(" MAX of 1 float32 value"));
    EXPECT_THAT(what, ::testing::HasSubstr(" SUM of 1 float32 value"));
    EXPECT_THAT(what, ::testing::HasSubstr("rank " + std::to_string(differing) + " "));
    if (n == 2 && what.find("workers make different calls") != std::string::npos) {
      EXPECT_EQ(blamed, (std::vector{0, 1})) << what;  // nobody can say who is right
      return;
    }
    ASSERT_EQ(blamed.size(), 1) << what;
    const bool is_found_by_it =
        what.find("different calls: rank " + std::to_string(differing) + " ") != std::string::npos;
    EXPECT_EQ(blamed[0] != differing, is_found_by_it) << what;
  };
  for (const std::size_t count : {1UL, 1000UL, 300'000UL}) {
    EXPECT_EQ(run(n,
                  [&](TransportCollectives& collectives, Cluster& cluster) {
                    const auto rank = static_cast<std::size_t>(cluster.rank());
                    const bool differs = cluster.rank() == differing;
                    const Value value = make_value<float>(count, rank, 1, true);
                    const CollectiveValue view = value.view();
                    expect_error_that<InternalError>(
                        [&] {
                          collectives.all_reduce(
                              request_of(differs ? ReduceOp::MAX : ReduceOp::SUM), {&view, 1});
                        },
                        look);
                    cluster.barrier(60);  // who is late hears of it, too
                    EXPECT_EQ(values_of<float>(value.outputs[0]), numbers<float>(count, rank));
                    EXPECT_THROW(collectives.barrier(request_of(ReduceOp::SUM)),
                                 FailedPreconditionError);
                  }),
              no_errors(n));
  }
}

TEST_P(TransportCollectivesTest, WhoDoesNotComeIsNamedOnAllThatWait) {
  const std::size_t n = GetParam();
  constexpr int kTries = 10;  // a machine so busy that others do not come in time names them, too
  std::vector<std::vector<int>> named;
  const std::vector<std::vector<int>> expected(n - 1, {1});
  for (int i = 0; i < kTries && named != expected; ++i) {
    named.clear();
    std::mutex mutex;
    EXPECT_EQ(run(n,
                  [&](TransportCollectives& collectives, Cluster& cluster) {
                    const auto rank = static_cast<std::size_t>(cluster.rank());
                    const Value value = make_value<float>(1000, rank, 1, true);
                    const CollectiveValue view = value.view();
                    cluster.barrier(60);
                    if (rank != 1) {
                      expect_error_that<DeadlineExceededError>(
                          [&] {
                            collectives.all_reduce(request_of(ReduceOp::SUM, 0.1), {&view, 1});
                          },
                          [&](const std::string& what, const std::vector<int>& blamed) {
                            const std::lock_guard lock(mutex);
                            named.push_back(blamed);
                            if (blamed == std::vector<int>{1}) {
                              EXPECT_THAT(what,
                                          ::testing::HasSubstr("timed out: waiting for rank 1"));
                            }
                          });
                    }
                    cluster.barrier(60);
                  }),
              no_errors(n));
  }
  EXPECT_EQ(named, expected);
}

TEST_P(TransportCollectivesTest, AnAbortEndsTheWaitOfAll) {
  const std::size_t n = GetParam();
  std::atomic<std::size_t> num_waiting{n - 1};
  EXPECT_EQ(run(n,
                [&](TransportCollectives& collectives, Cluster& cluster) {
                  if (cluster.rank() == 0) {
                    cluster.abort_collective_ops("that is enough");
                  }
                  const Value value =
                      make_value<float>(1000, static_cast<std::size_t>(cluster.rank()), 1, true);
                  const CollectiveValue view = value.view();
                  if (cluster.rank() == 0) {
                    while (num_waiting.load() > 0) std::this_thread::yield();
                    return;
                  }
                  expect_error<AbortedError>("that is enough", {0}, [&] {
                    collectives.all_reduce(request_of(ReduceOp::SUM), {&view, 1});
                  });
                  --num_waiting;
                }),
            no_errors(n));
}

TEST(TransportCollectives, AWorkerThatIsAlone) {
  EXPECT_EQ(run(1,
                [](TransportCollectives& collectives, Cluster&) {
                  EXPECT_EQ(collectives.tuning().links, LinkModel());  // nothing was measured
                  EXPECT_EQ(collectives.counters(), TransportCounters());
                  const Tensor four = tensor_of(numbers<float>(4, 0));
                  const Tensor other = tensor_of(std::vector<float>(4));
                  const CollectiveRequest sum = request_of(ReduceOp::SUM);
                  for (const std::size_t count : {1U, 1000U, 1000000U}) {
                    const Value value = make_value<float>(count, 0, 2, false);
                    const CollectiveValue view = value.view();
                    collectives.all_reduce(sum, {&view, 1});
                    expect_result(value, sums<float>(count, 1, 2), "all_reduce");
                  }
                  collectives.reduce_scatter(sum, four, other);
                  EXPECT_EQ(values_of<float>(other), numbers<float>(4, 0));
                  collectives.all_gather(sum, four, other);
                  collectives.broadcast(sum, four, 0);
                  collectives.reduce(sum, four, other, 0);
                  collectives.gather(sum, four, other, 0);
                  collectives.barrier(sum);
                  EXPECT_EQ(values_of<float>(other), numbers<float>(4, 0));
                  EXPECT_THAT(collectives.explain_all_reduce(1000),
                              ::testing::HasSubstr("expected"));
                }),
            no_errors(1));
}

/// A worker that is alone never waits for anything.
TEST(TransportCollectives, WhoNeverWaitsIsInTimeAllTheSame) {
  const auto work = [](TransportCollectives& collectives, Cluster&) {
    const Tensor input = tensor_of(numbers<float>(1000, 0));
    const Tensor output = tensor_of(std::vector<float>(1000, -1.0f));
    try {
      collectives.reduce_scatter(request_of(ReduceOp::SUM, 1e-9), input, output);
      ADD_FAILURE() << "no error";
    } catch (const DeadlineExceededError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("had not done its own part"));
      EXPECT_TRUE(error.inputs_intact());
    }
    EXPECT_EQ(values_of<float>(output), std::vector<float>(1000, -1.0f));
  };
  EXPECT_EQ(run(1, work), no_errors(1));
}

TEST(TransportCollectives, WrongTensorsAreRefused) {
  EXPECT_EQ(run(2,
                [&](TransportCollectives& collectives, Cluster&) {
                  const Tensor four = tensor_of(std::vector<float>(4));
                  const Tensor three = tensor_of(std::vector<float>(3));
                  const Tensor ints = tensor_of(std::vector<std::int32_t>(2));
                  const CollectiveRequest sum = request_of(ReduceOp::SUM);
                  EXPECT_THROW(collectives.reduce_scatter(sum, four, three), ValueError);
                  EXPECT_THROW(collectives.reduce_scatter(sum, four, ints), ValueError);
                  EXPECT_THROW(collectives.all_gather(sum, three, four), ValueError);
                  EXPECT_THROW(collectives.broadcast(sum, four, 2), ValueError);
                  EXPECT_THROW(collectives.broadcast(sum, four, -1), ValueError);
                  EXPECT_THROW(collectives.reduce(sum, four, four, 7), ValueError);
                  EXPECT_THROW(collectives.gather(sum, four, four, 7), ValueError);
                  const Value one = make_value<float>(4, 0, 1, true);
                  const Value two = make_value<float>(4, 0, 2, true);
                  const CollectiveValue values[] = {one.view(), two.view()};
                  EXPECT_THROW(collectives.all_reduce(sum, values), ValueError);
                  collectives.barrier(sum);  // nothing has happened
                }),
            no_errors(2));
}

}  // namespace
}  // namespace crossdevice
