// SPDX-License-Identifier: Apache-2.0
/// All operations of the engine of workers that exchange messages, over a network of which a seed draws every move. The workers meet over a real
/// control plane; then each operation takes its turns.
#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/collective/transport_collectives.h"
#include "crossdevice/core/error.h"

#include "collective/interleaving_cases.h"
#include "support/choices.h"
#include "support/drawn_network.h"
#include "support/sanitizers.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using testing::Choices;
using testing::DrawnNetwork;

constexpr std::uint64_t kUsualSeeds = testing::kIsSanitized ? 8 : 40;

/// Says which algorithm is taken, in place of measurements. The environment is read once.
const std::string kTuningFile =
    (std::filesystem::temp_directory_path() / ("interleavings_" + std::to_string(::getpid())))
        .string();
const int kSet = ::setenv("CROSSDEVICE_TUNING_FILE", kTuningFile.c_str(), 1);

void write_tuning(Choices& choices) {
  constexpr AllReduceAlgorithm kAlgorithms[] = {
      AllReduceAlgorithm::EXCHANGE, AllReduceAlgorithm::DOUBLING, AllReduceAlgorithm::SHUFFLE,
      AllReduceAlgorithm::HALVING_DOUBLING, AllReduceAlgorithm::RING};
  AllReduceTuning tuning{.links = LinkModel(), .pins = {}};
  tuning.pins.push_back({.up_to_bytes = 64, .algorithm = choices.one_of(kAlgorithms)});
  tuning.pins.push_back({.up_to_bytes = 1000, .algorithm = choices.one_of(kAlgorithms)});
  tuning.pins.push_back(
      {.up_to_bytes = ~std::uint64_t{0}, .algorithm = choices.one_of(kAlgorithms)});
  std::ofstream(kTuningFile) << to_string(tuning);
}

using Number = std::int64_t;  // as it is computed; small enough for every dtype below

Number number(std::size_t i, std::size_t rank, std::size_t salt) {
  return static_cast<Number>((i * 7 + rank * 3 + salt * 5) % 11);
}

template <class T>
Tensor tensor_of(const std::vector<Number>& numbers) {
  std::vector<T> values(numbers.begin(), numbers.end());
  return Tensor::copy_of(std::span<const T>(values),
                         Shape({static_cast<std::int64_t>(values.size())}), "CPU:0");
}
Tensor tensor_of(DType dtype, const std::vector<Number>& numbers) {
  if (dtype == DType::FLOAT32) return tensor_of<float>(numbers);
  if (dtype == DType::INT16) return tensor_of<std::int16_t>(numbers);
  return tensor_of<double>(numbers);
}
std::vector<Number> numbers_of(const Tensor& tensor) {
  const auto read = [&]<class T>(T) {
    const auto* const data = static_cast<const T*>(tensor.data());
    return std::vector<Number>(data, data + tensor.num_elements());
  };
  if (tensor.dtype() == DType::FLOAT32) return read(float{});
  if (tensor.dtype() == DType::INT16) return read(std::int16_t{});
  return read(double{});
}

/// One operation, equal on all ranks, and what it has to give.
struct Operation {
  enum class Kind : std::uint8_t {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    REDUCE,
    GATHER,
    BARRIER,
    SHARE
  };
  Kind kind = Kind::BARRIER;
  DType dtype = DType::FLOAT32;
  bool is_deterministic = false;
  bool is_in_place = false;
  std::size_t num_replicas = 1;
  std::size_t salt = 0;
  std::size_t root = 0;
  std::vector<std::size_t> counts{};

  Operation(Choices& choices, std::size_t n) {
    constexpr DType kDTypes[] = {DType::FLOAT32, DType::INT16, DType::FLOAT64};
    kind = static_cast<Kind>(choices.below(8));
    if (choices.once_in(3)) kind = Kind::ALL_REDUCE;
    dtype = choices.one_of(kDTypes);
    is_deterministic = choices.once_in(2);
    is_in_place = choices.once_in(2);
    num_replicas = 1 + choices.below(2);
    salt = choices.below(100);
    root = choices.below(n);
    const std::size_t num_values = kind == Kind::ALL_REDUCE ? 1 + choices.below(3) : 1;
    for (std::size_t i = 0; i < num_values; ++i) {
      const std::size_t some[] = {0, 1, 3, n, 31, choices.below(3000)};
      counts.push_back(choices.one_of(some));
    }
    // Some are sent and received where they lie.
    if (choices.once_in(8)) counts[0] = (std::size_t{1} << 20) / size_in_bytes(dtype) + 3 * n;
    if (kind == Kind::REDUCE_SCATTER) counts[0] = counts[0] / n * n;
  }

  [[nodiscard]] std::vector<Number> input(std::size_t rank, std::size_t value,
                                          std::size_t replica) const {
    std::vector<Number> numbers(counts[value]);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = number(i, rank, salt + value + 2 * replica);
    }
    return numbers;
  }
  [[nodiscard]] std::vector<Number> sum(std::size_t n, std::size_t value,
                                        std::size_t replicas) const {
    std::vector<Number> result(counts[value]);
    for (std::size_t rank = 0; rank < n; ++rank) {
      for (std::size_t replica = 0; replica < replicas; ++replica) {
        const std::vector<Number> part = input(rank, value, replica);
        for (std::size_t i = 0; i < result.size(); ++i) result[i] += part[i];
      }
    }
    return result;
  }
  [[nodiscard]] std::vector<Number> gathered(std::size_t n) const {
    std::vector<Number> result;
    for (std::size_t rank = 0; rank < n; ++rank) {
      const std::vector<Number> part = input(rank, 0, 0);
      result.insert(result.end(), part.begin(), part.end());
    }
    return result;
  }
};

/// One rank's part of operations; what is wrong is appended to `troubles`.
class Worker {
 public:
  Worker(TransportCollectives& collectives, std::size_t rank, std::size_t n,
         std::vector<std::string>& troubles)
      : collectives_(collectives), rank_(rank), num_ranks_(n), troubles_(troubles) {}

  void run(const Operation& operation) {
    request_.sequence++;
    request_.deterministic = operation.is_deterministic;
    const Tensor input = tensor_of(operation.dtype, operation.input(rank_, 0, 0));
    const auto empty = [&](std::size_t count) {
      return tensor_of(operation.dtype, std::vector<Number>(count, 99));
    };
    const auto root = static_cast<int>(operation.root);
    const bool is_root = rank_ == operation.root;
    const std::size_t count = operation.counts[0];
    switch (operation.kind) {
      case Operation::Kind::ALL_REDUCE:
        return all_reduce(operation);
      case Operation::Kind::REDUCE_SCATTER: {
        const std::size_t part = count / num_ranks_;
        const Tensor output = empty(part);
        collectives_.reduce_scatter(request_, input, output);
        const std::vector<Number> all = operation.sum(num_ranks_, 0, 1);
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank_ * part);
        return expect(output, {begin, begin + static_cast<std::ptrdiff_t>(part)}, "reduce_scatter");
      }
      case Operation::Kind::ALL_GATHER: {
        const Tensor output = empty(count * num_ranks_);
        collectives_.all_gather(request_, input, output);
        return expect(output, operation.gathered(num_ranks_), "all_gather");
      }
      case Operation::Kind::BROADCAST:
        collectives_.broadcast(request_, input, root);
        return expect(input, operation.input(operation.root, 0, 0), "broadcast");
      case Operation::Kind::REDUCE: {
        const Tensor output = operation.is_in_place ? input : empty(count);
        collectives_.reduce(request_, input, output, root);
        if (is_root) expect(output, operation.sum(num_ranks_, 0, 1), "reduce");
        return;
      }
      case Operation::Kind::GATHER: {
        const Tensor output = empty(is_root ? count * num_ranks_ : 0);
        collectives_.gather(request_, input, output, root);
        if (is_root) expect(output, operation.gathered(num_ranks_), "gather");
        return;
      }
      case Operation::Kind::BARRIER:
        return collectives_.barrier(request_);
      case Operation::Kind::SHARE:
        return share(operation, input);
    }
  }

 private:
  void all_reduce(const Operation& operation) {
    std::vector<std::vector<Tensor>> inputs;
    std::vector<std::vector<Tensor>> outputs;
    std::vector<CollectiveValue> values;
    for (std::size_t v = 0; v < operation.counts.size(); ++v) {
      inputs.emplace_back();
      for (std::size_t replica = 0; replica < operation.num_replicas; ++replica) {
        inputs[v].push_back(tensor_of(operation.dtype, operation.input(rank_, v, replica)));
      }
      outputs.push_back(inputs[v]);
      if (!operation.is_in_place) {
        outputs[v] = {tensor_of(operation.dtype, std::vector<Number>(operation.counts[v], 99))};
      }
    }
    for (std::size_t v = 0; v < inputs.size(); ++v) values.push_back({inputs[v], outputs[v]});
    collectives_.all_reduce(request_, values);
    for (std::size_t v = 0; v < outputs.size(); ++v) {
      for (const Tensor& output : outputs[v]) {
        expect(output, operation.sum(num_ranks_, v, operation.num_replicas), "all_reduce");
      }
    }
  }
  void share(const Operation& operation, const Tensor& input) {
    // Ranks show different numbers of tensors.
    const std::vector<Tensor> mine(rank_ % 3, input);
    collectives_.share(request_, mine, [&](const RemoteTensors& all) {
      for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
        if (all[rank].size() != rank % 3) troubles_.emplace_back("share: other numbers");
        const Tensor theirs = tensor_of(operation.dtype, operation.input(rank, 0, 0));
        for (const RemoteTensor& each : all[rank]) {
          if (theirs.size_bytes() == 0) continue;
          if (std::memcmp(each.data, theirs.data(), theirs.size_bytes()) != 0) {
            troubles_.emplace_back("share: other bytes");
          }
        }
      }
    });
  }
  void expect(const Tensor& output, const std::vector<Number>& numbers, const char* what) {
    if (numbers_of(output) == numbers) return;
    troubles_.push_back(fmt::format("rank {}: {} of {} {} has a wrong result", rank_, what,
                                    numbers.size(), to_string(output.dtype())));
  }

  TransportCollectives& collectives_;
  std::size_t rank_;
  std::size_t num_ranks_;
  std::vector<std::string>& troubles_;
  CollectiveRequest request_{.kind = "drawn"};
};

struct Outcome {
  std::uint64_t trace = 0;
  std::vector<std::string> troubles{};
};

Outcome run(std::uint64_t seed) {
  constexpr std::size_t kNumRanks[] = {2, 2, 3, 3, 4, 5};
  Choices choices(seed);
  const std::size_t n = choices.one_of(kNumRanks);
  write_tuning(choices);
  std::vector<Operation> operations;
  for (int i = 0; i < 6; ++i) operations.emplace_back(choices, n);
  DrawnNetwork network(n, choices.seed());
  std::vector<std::unique_ptr<Transport>> transports = make_drawn_transports(network);
  std::vector<std::vector<std::string>> troubles(n);
  std::barrier<> end(static_cast<std::ptrdiff_t>(n));
  std::vector<std::string> errors =
      testing::run_clusters(n, [&](const std::shared_ptr<Cluster>& cluster) {
        const auto rank = static_cast<std::size_t>(cluster->rank());
        TransportCollectives collectives(cluster, std::move(transports[rank]));
        network.enter(rank);
        try {
          Worker worker(collectives, rank, n, troubles[rank]);
          for (const Operation& each : operations) worker.run(each);
        } catch (const std::exception& error) {
          troubles[rank].emplace_back(error.what());
        }
        network.leave(rank);
        end.arrive_and_wait();
      });
  Outcome outcome{.trace = network.trace(), .troubles = network.violations()};
  if (!outcome.troubles.empty()) outcome.troubles.push_back(network.last_events());
  for (const std::string& error : errors) {
    if (!error.empty()) outcome.troubles.push_back(error);
  }
  for (const std::vector<std::string>& each : troubles) {
    outcome.troubles.insert(outcome.troubles.end(), each.begin(), each.end());
  }
  return outcome;
}

TEST(CollectivesInterleavings, EveryOrderOfEventsGivesTheResults) {
  const testing::SeedRange seeds = testing::seeds(kUsualSeeds);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const Outcome outcome = run(seed);
    std::string text;
    for (const std::string& trouble : outcome.troubles) text += trouble + '\n';
    ASSERT_EQ(text, "") << "seed " << seed;
  }
  std::filesystem::remove(kTuningFile);
}

TEST(CollectivesInterleavings, ASeedReplaysItsRun) {
  std::set<std::uint64_t> traces;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const std::uint64_t trace = run(seed).trace;
    EXPECT_EQ(run(seed).trace, trace) << seed;
    traces.insert(trace);
  }
  EXPECT_EQ(traces.size(), 4U);
  std::filesystem::remove(kTuningFile);
}

}  // namespace
}  // namespace crossdevice
