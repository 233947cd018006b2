// SPDX-License-Identifier: Apache-2.0
/// What every engine of several workers promises, on each of them. Workers are threads.
#include "crossdevice/collective/collective_engine.h"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/shared_collectives.h"
#include "crossdevice/collective/transport_collectives.h"
#include "crossdevice/collective/two_level_collectives.h"
#include "crossdevice/comm/in_process_transport.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/reduce_kernel.h"

#include "support/sanitizers.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using testing::no_errors;
using testing::run_clusters;

enum class Kind { SHARED, TRANSPORT, TWO_LEVEL };

CollectiveRequest request_of(ReduceOp op) {
  return {.kind = "test", .sequence = 1, .op = op, .deadline = Deadline::after_timeout_seconds(60)};
}

class CollectiveEngineTest : public ::testing::TestWithParam<Kind> {
 protected:
  static std::size_t num_ranks() { return GetParam() == Kind::TWO_LEVEL ? 4 : 3; }
  /// Runs `work` on every rank, with an engine of the kind under test.
  static std::vector<std::string> run(
      const std::function<void(CollectiveEngine& engine, std::size_t rank)>& work) {
    std::vector<std::unique_ptr<Transport>> transports =
        make_in_process_transports(static_cast<int>(num_ranks()));
    return run_clusters(num_ranks(), [&](const std::shared_ptr<Cluster>& cluster) {
      const auto rank = static_cast<std::size_t>(cluster->rank());
      if (GetParam() == Kind::SHARED) {
        SharedCollectives engine(cluster);
        work(engine, rank);
        return;
      }
      if (GetParam() == Kind::TWO_LEVEL) {
        const int machines[] = {0, 1, 0, 1};  // as if they were on two
        TwoLevelCollectives engine(cluster, std::move(transports[rank]), machines);
        work(engine, rank);
        return;
      }
      TransportCollectives engine(cluster, std::move(transports[rank]));
      work(engine, rank);
    });
  }
};
std::string name_of_kind(const ::testing::TestParamInfo<Kind>& kind) {
  return kind.param == Kind::SHARED      ? "Shared"
         : kind.param == Kind::TRANSPORT ? "Transport"
                                         : "TwoLevel";
}

INSTANTIATE_TEST_SUITE_P(Engines, CollectiveEngineTest,
                         ::testing::Values(Kind::SHARED, Kind::TRANSPORT, Kind::TWO_LEVEL),
                         name_of_kind);

/// A value of a batch that keeps its tensors.
struct Value {
  std::vector<Tensor> inputs{};
  std::vector<Tensor> outputs{};
  [[nodiscard]] CollectiveValue view() const { return {inputs, outputs}; }
};

std::vector<CollectiveValue> views(const std::vector<Value>& values) {
  std::vector<CollectiveValue> result;
  result.reserve(values.size());
  for (const Value& value : values) result.push_back(value.view());
  return result;
}

/// Elements whose sums and products are rounded differently in every order and grouping, and stay finite.
Tensor random_tensor(DType dtype, std::size_t count, std::size_t seed) {
  std::mt19937 random(static_cast<unsigned>(seed * 7919 + count));
  const Tensor tensor = Tensor::empty(dtype, {count}, "CPU:0");
  auto* const bytes = static_cast<unsigned char*>(tensor.data());
  const auto fill = [&]<class T>(std::type_identity<T>, std::size_t components = 1) {
    std::uniform_real_distribution<float> number(0.5F, 1.5F);
    for (std::size_t i = 0; i < count * components; ++i) {
      const T value(number(random));
      std::memcpy(bytes + i * sizeof value, &value, sizeof value);
    }
  };
  switch (dtype) {
    case DType::FLOAT8_E4M3:
      fill(std::type_identity<float8_e4m3>{});
      break;
    case DType::FLOAT8_E5M2:
      fill(std::type_identity<float8_e5m2>{});
      break;
    case DType::FLOAT16:
      fill(std::type_identity<float16>{});
      break;
    case DType::BFLOAT16:
      fill(std::type_identity<bfloat16>{});
      break;
    case DType::FLOAT32:
      fill(std::type_identity<float>{});
      break;
    case DType::FLOAT64:
      fill(std::type_identity<double>{});
      break;
    case DType::COMPLEX64:
      fill(std::type_identity<float>{}, 2);
      break;
    case DType::COMPLEX128:
      fill(std::type_identity<double>{}, 2);
      break;
    default:
      for (std::size_t i = 0; i < tensor.size_bytes(); ++i) {
        bytes[i] = static_cast<unsigned char>(dtype == DType::BOOL ? random() & 1U : random());
      }
  }
  return tensor;
}

void reduce_into(ReduceOp op, const std::vector<Tensor>& inputs, const Tensor& output) {
  std::vector<const void*> addresses;
  addresses.reserve(inputs.size());
  for (const Tensor& input : inputs) addresses.push_back(input.data());
  void* const outputs[] = {output.data()};
  const ReducePass pass{
      .op = op, .dtype = inputs[0].dtype(), .inputs = addresses, .outputs = outputs};
  find_reduce_kernel(op, inputs[0].dtype())(pass, 0, output.num_elements());
}

/// As one worker with all replicas has it: one pass over all of them, by rank.
Tensor result_of_all(ReduceOp op, const std::vector<std::vector<Tensor>>& by_rank) {
  const Tensor& first = by_rank[0][0];
  const Tensor result = Tensor::empty(result_dtype(op, first.dtype()), first.shape(), "CPU:0");
  std::vector<Tensor> all;
  for (const std::vector<Tensor>& own : by_rank) all.insert(all.end(), own.begin(), own.end());
  reduce_into(op, all, result);
  return result;
}

/// By definition: each worker's inputs are combined and stored, then these, by rank. Integers are combined exactly, or wrap, so order is no matter; of
/// them the kernel's own mean.
Tensor deterministic_result(ReduceOp op, const std::vector<std::vector<Tensor>>& by_rank) {
  const Tensor& first = by_rank[0][0];
  const Tensor result = Tensor::empty(result_dtype(op, first.dtype()), first.shape(), "CPU:0");
  if (op == ReduceOp::MEAN && is_integer(first.dtype())) return result_of_all(op, by_rank);
  const ReduceOp combination = op == ReduceOp::MEAN ? ReduceOp::SUM : op;
  std::vector<Tensor> combined;
  for (const std::vector<Tensor>& own : by_rank) {
    combined.push_back(Tensor::empty(first.dtype(), first.shape(), "CPU:0"));
    reduce_into(combination, own, combined.back());
  }
  if (op == ReduceOp::MEAN && by_rank[0].size() == 1) {
    reduce_into(op, combined, result);
    return result;
  }
  reduce_into(combination, combined, result);
  if (op == ReduceOp::MEAN) {
    divide_elements(first.dtype(), result.data(), result.num_elements(),
                    static_cast<double>(by_rank.size() * by_rank[0].size()));
  }
  return result;
}

/// What all ranks put into one value, and what comes out of it.
struct Case {
  std::vector<std::vector<Tensor>> inputs{};  // by rank
  Tensor expected;
};

template <class ResultOf>
std::vector<Case> cases_of(ReduceOp op, std::size_t num_ranks, std::size_t replicas,
                           std::size_t count, const ResultOf& result_of) {
  std::vector<Case> cases;
  for (const DType dtype : kAllDTypes) {
    if (!is_supported(op, dtype)) continue;
    std::vector<std::vector<Tensor>> inputs(num_ranks);
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      for (std::size_t i = 0; i < replicas; ++i) {
        inputs[rank].push_back(random_tensor(dtype, count, rank * 16 + i));
      }
    }
    const Tensor expected = result_of(op, inputs);
    cases.push_back({std::move(inputs), expected});
  }
  return cases;
}

/// Copies of tensors in memory that is not from a pool.
class OwnMemory {
 public:
  [[nodiscard]] Tensor copy_of(const Tensor& tensor) {
    std::vector<std::max_align_t>& memory =
        blocks_.emplace_back(tensor.size_bytes() / sizeof(std::max_align_t) + 1);
    std::memcpy(memory.data(), tensor.data(), tensor.size_bytes());
    return Tensor::view(static_cast<void*>(memory.data()), tensor.dtype(), tensor.shape(), "CPU:0");
  }

 private:
  std::vector<std::vector<std::max_align_t>> blocks_;
};

/// Who combines what a worker has before the workers meet.
struct Definition {
  bool grouping_independent = false;
  Tensor (*result)(ReduceOp op, const std::vector<std::vector<Tensor>>& by_rank) = nullptr;
};

class DeterministicBits : public CollectiveEngineTest {
 protected:
  static void expect(const Definition& definition);
};
INSTANTIATE_TEST_SUITE_P(Engines, DeterministicBits,
                         ::testing::Values(Kind::SHARED, Kind::TRANSPORT, Kind::TWO_LEVEL),
                         name_of_kind);

TEST_P(DeterministicBits, AreThoseOfTheDefinition) { expect({false, deterministic_result}); }
TEST_P(DeterministicBits, AreThoseOfOneWorkerWithAllReplicas) { expect({true, result_of_all}); }

void DeterministicBits::expect(const Definition& definition) {
  // In one message, side by side, and where they lie.
  const std::vector<std::size_t> counts = testing::kIsSanitized
                                              ? std::vector<std::size_t>{1, 300}
                                              : std::vector<std::size_t>{1, 300, 140'001};
  for (const ReduceOp op : kAllReduceOps) {
    for (const std::size_t replicas : {1UL, 3UL}) {
      for (const std::size_t count : counts) {
        const std::vector<Case> cases =
            cases_of(op, num_ranks(), replicas, count, definition.result);
        for (const bool is_foreign : {true, false}) {  // the last one may overwrite the cases
          EXPECT_EQ(
              run([&](CollectiveEngine& engine, std::size_t rank) {
                OwnMemory memory;
                const auto place = [&](const Tensor& tensor) {
                  return is_foreign ? memory.copy_of(tensor) : tensor;
                };
                std::vector<Value> values;
                for (const Case& each : cases) {
                  Value& value = values.emplace_back();
                  for (const Tensor& input : each.inputs[rank]) {
                    value.inputs.push_back(place(input));
                  }
                  const DType dtype = each.expected.dtype();
                  const bool in_place = value.inputs[0].dtype() == dtype && values.size() % 2 == 1;
                  value.outputs = in_place
                                      ? value.inputs
                                      : std::vector{place(Tensor::zeros(dtype, {count}, "CPU:0"))};
                }
                CollectiveRequest request = request_of(op);
                request.deterministic = true;
                request.grouping_independent = definition.grouping_independent;
                engine.all_reduce(request, views(values));
                for (std::size_t i = 0; i < values.size(); ++i) {
                  for (const Tensor& output : values[i].outputs) {
                    EXPECT_EQ(
                        std::memcmp(output.data(), cases[i].expected.data(), output.size_bytes()),
                        0)
                        << to_string(op) << " of " << to_string(values[i].inputs[0].dtype()) << ", "
                        << replicas << " replicas of " << count
                        << (is_foreign ? " outside of the pool" : "");
                  }
                }
              }),
              no_errors(num_ranks()));
        }
      }
    }
  }
}

TEST_P(CollectiveEngineTest, WrongTensorsAreRefusedAndTheRightOnesThenWork) {
  const std::vector<float> constant(4, 1.0F);
  EXPECT_EQ(run([&](CollectiveEngine& engine, std::size_t) {
              const Tensor four = random_tensor(DType::FLOAT32, 4, 1);
              const Tensor five = random_tensor(DType::FLOAT32, 5, 1);
              const Tensor flags = random_tensor(DType::BOOL, 3, 1);
              const Tensor flag = random_tensor(DType::BOOL, 1, 1);
              const Tensor complex = random_tensor(DType::COMPLEX64, 3, 1);
              const Tensor read_only = Tensor::view(std::span(constant), "CPU:0");
              const CollectiveRequest sum = request_of(ReduceOp::SUM);
              const auto refused = [&](const CollectiveRequest& request,
                                       const std::vector<Value>& batch) {
                EXPECT_THROW(engine.all_reduce(request, views(batch)), ValueError);
              };
              refused(sum, {{{flags}, {flags}}});
              refused(sum, {{{four}, {four}}, {{flags}, {flags}}});
              refused(request_of(ReduceOp::MAX), {{{complex}, {complex}}});
              refused(sum, {{{four}, {read_only}}});
              refused(sum, {{{four}, {five}}});
              refused(sum, {{{four, five}, {four}}});
              refused(sum, {{{four}, {four}}, {{five, five}, {five}}});
              refused(sum, {{{}, {four}}});
              refused(request_of(ReduceOp::MEAN), {{{random_tensor(DType::INT32, 4, 1)}, {four}}});
              EXPECT_THROW(engine.reduce_scatter(sum, flags, flag), ValueError);
              EXPECT_THROW(engine.reduce_scatter(sum, four, flag), ValueError);
              EXPECT_THROW(engine.reduce(sum, flags, flags, 0), ValueError);
              EXPECT_THROW(engine.reduce(request_of(ReduceOp::MIN), complex, complex, 0),
                           ValueError);
              EXPECT_THROW(engine.broadcast(sum, read_only, 0), ValueError);
              EXPECT_THROW(engine.broadcast(sum, four, static_cast<int>(num_ranks())), ValueError);
              EXPECT_THROW(engine.gather(sum, four, four, -1), ValueError);
              EXPECT_THROW(engine.all_gather(sum, four, five), ValueError);
              engine.barrier(sum);  // nothing has happened
              const Value value{{four}, {four}};
              const CollectiveValue view = value.view();
              engine.all_reduce(sum, {&view, 1});
            }),
            no_errors(num_ranks()));
}

/// Throws nothing if `call` throws an InternalError that leaves inputs as they were.
void expect_different_calls(const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("make different calls"));
    EXPECT_TRUE(error.inputs_intact());
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error: " << error.what();
  }
}

TEST_P(CollectiveEngineTest, WhatIsPartOfADifferentCallTouchesNothing) {
  for (const std::size_t count : {1UL, 100'000UL}) {
    EXPECT_EQ(run([&](CollectiveEngine& engine, std::size_t rank) {
                const Value value{{random_tensor(DType::INT32, count, rank)}};
                const Value in_place{value.inputs, value.inputs};
                const CollectiveValue view = in_place.view();
                CollectiveRequest request = request_of(ReduceOp::SUM);
                request.fingerprint = rank == 1 ? 4 : 5;
                expect_different_calls([&] { engine.all_reduce(request, {&view, 1}); });
                const Tensor before = random_tensor(DType::INT32, count, rank);
                EXPECT_EQ(std::memcmp(value.inputs[0].data(), before.data(), before.size_bytes()),
                          0);
              }),
              no_errors(num_ranks()));
  }
  EXPECT_EQ(run([&](CollectiveEngine& engine, std::size_t rank) {
              CollectiveRequest request = request_of(ReduceOp::SUM);
              request.fingerprint = rank == 1 ? 4 : 5;
              const Tensor shown = random_tensor(DType::INT32, 10, rank);
              expect_different_calls([&] {
                engine.share(request, {&shown, 1},
                             [](const RemoteTensors&) { ADD_FAILURE() << "shown"; });
              });
            }),
            no_errors(num_ranks()));
}

TEST_P(CollectiveEngineTest, ADifferenceInTheLastOfManyValuesTouchesNothing) {
  constexpr std::size_t kCount = 20'000;  // more than fit in one announcement of either engine
  EXPECT_EQ(run([&](CollectiveEngine& engine, std::size_t rank) {
              std::vector<Value> values(kCount);
              for (std::size_t i = 0; i < kCount; ++i) {
                const bool differs = rank == 1 && i + 1 == kCount;
                const Tensor tensor = random_tensor(DType::INT32, differs ? 5 : 4, rank);
                values[i] = {{tensor}, {tensor}};
              }
              expect_different_calls(
                  [&] { engine.all_reduce(request_of(ReduceOp::SUM), views(values)); });
              const Tensor before = random_tensor(DType::INT32, 4, rank);
              for (std::size_t i = 0; i + 1 < kCount; ++i) {
                ASSERT_EQ(
                    std::memcmp(values[i].inputs[0].data(), before.data(), before.size_bytes()), 0);
              }
            }),
            no_errors(num_ranks()));
}

/// Some workers' tensors are views of vectors, others' are from the pool; sizes are those where windows begin and end.
TEST_P(CollectiveEngineTest, MemoryOfTheProgramsOwnIsAsGoodAsThePools) {
  const std::vector<std::size_t> counts{1, 1023, 5000, 0, 524'287, 7, 1'300'000, 1024, 3};
  for (std::size_t num_foreign = 1; num_foreign <= num_ranks(); ++num_foreign) {
    for (const bool in_place : {false, true}) {
      EXPECT_EQ(
          run([&](CollectiveEngine& engine, std::size_t rank) {
            std::vector<std::vector<std::int32_t>> memory;
            const auto make = [&](std::size_t count, std::size_t replica) {
              std::vector<std::int32_t> elements(count);
              for (std::size_t i = 0; i < count; ++i) {
                elements[i] = static_cast<std::int32_t>(i * 31 + rank * 1009 + replica * 77);
              }
              if (rank >= num_foreign)
                return Tensor::copy_of(std::span(elements), {count}, "CPU:0");
              return Tensor::view(std::span(memory.emplace_back(std::move(elements))), "CPU:0");
            };
            std::vector<Value> values;
            for (const std::size_t count : counts) {
              Value& value = values.emplace_back();
              for (std::size_t replica = 0; replica < 2; ++replica) {
                value.inputs.push_back(make(count, replica));
              }
              // In the other order: results of the first input's memory are not staged in its place.
              if (in_place) value.outputs = {value.inputs[1], value.inputs[0]};
              for (std::size_t i = 0; !in_place && i < 3; ++i)
                value.outputs.push_back(make(count, 9));
            }
            engine.all_reduce(request_of(ReduceOp::SUM), views(values));
            for (const Value& value : values) {
              for (const Tensor& output : value.outputs) {
                const std::span<const std::int32_t> result = output.span<const std::int32_t>();
                for (std::size_t i = 0; i < result.size(); ++i) {
                  // 2 n inputs; ranks 0 + 1 + ... twice, replica 1 n times.
                  const std::size_t n = num_ranks();
                  ASSERT_EQ(result[i], static_cast<std::int32_t>(2 * n * i * 31 +
                                                                 n * (n - 1) * 1009 + n * 77));
                }
              }
              for (std::size_t replica = 0; !in_place && replica < 2; ++replica) {
                const std::span<const std::int32_t> input =
                    value.inputs[replica].span<const std::int32_t>();
                for (std::size_t i = 0; i < input.size(); ++i) {
                  ASSERT_EQ(input[i],
                            static_cast<std::int32_t>(i * 31 + rank * 1009 + replica * 77));
                }
              }
            }
          }),
          no_errors(num_ranks()));
    }
  }
}

TEST_P(CollectiveEngineTest, AScatteredPartMayLieInTheInput) {
  EXPECT_EQ(
      run([&](CollectiveEngine& engine, std::size_t rank) {
        for (const std::size_t part : {1UL, 1000UL, 300'000UL}) {
          const std::vector<std::int32_t> ones(part * num_ranks(), 1);
          const Tensor input = Tensor::copy_of(std::span(ones), {part * num_ranks()}, "CPU:0");
          const std::span<std::int32_t> own = input.span<std::int32_t>().subspan(rank * part, part);
          engine.reduce_scatter(request_of(ReduceOp::SUM), input, Tensor::view(own, "CPU:0"));
          for (std::size_t i = 0; i < part * num_ranks(); ++i) {
            ASSERT_EQ(input.span<std::int32_t>()[i],
                      i / part == rank ? static_cast<std::int32_t>(num_ranks()) : 1)
                << i;
          }
        }
      }),
      no_errors(num_ranks()));
}

}  // namespace
}  // namespace crossdevice
