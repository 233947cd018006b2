// SPDX-License-Identifier: Apache-2.0
// The all-reduces that are no schedule, so that all_schedules_test does not see them: for 1 to 64 ranks, an exchange for as many as it is for, and batches that nobody
// chose, every element of every rank is what a plain loop makes of all inputs. Rank 0's file pins them; the variable is read once, so this is a program of its own.
#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/collective/transport_collectives.h"
#include "crossdevice/comm/in_process_transport.h"
#include "crossdevice/core/counters.h"
#include "crossdevice/core/small_floats.h"

#include "collective/detail/transport_group.h"
#include "support/reduce_cases.h"
#include "support/reference.h"
#include "support/sanitizers.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using testing::has_bytes;
using testing::kPoison;
using testing::no_errors;
using testing::run_clusters;
using testing::store_element;

using Random = std::mt19937_64;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kMaxRanks = 64;
constexpr std::size_t kFewRanks = 8;
constexpr std::size_t kGuard = 64;
/// In a block a tensor begins at a multiple of this.
constexpr std::size_t kAlignment = 64;

const std::string& tuning_file() {
  static const std::string file =
      ::testing::TempDir() + "unscheduled_reduces_" + std::to_string(::getpid());
  return file;
}
// NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
const int kSet = ::setenv("CROSSDEVICE_TUNING_FILE", tuning_file().c_str(), 1);

std::size_t below(Random& random, std::size_t limit) { return random() % limit; }

/// Nothing and one element as often as all that there is room for.
std::size_t any_count(Random& random, std::size_t most) {
  switch (below(random, 8)) {
    case 0:
      return 0;
    case 1:
      return std::min<std::size_t>(most, 1);
    case 2:
      return most;
    default:
      return below(random, (most >> below(random, 8)) + 1);
  }
}

/// What is promised of the order in which the inputs are combined.
enum class Order {
  OF_RANKS,  // and of each rank's replicas: whatever is rounded is rounded so
  ANY,       // so that no order may round
};

/// Products of whole numbers that are odd never become 0.
template <class T>
void fill(ReduceOp op, Order order, void* data, std::size_t count, Random& random) {
  const bool is_product = op == ReduceOp::PROD;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random();
    if constexpr (std::is_integral_v<T>) {
      store_element(data, i, static_cast<T>(is_product ? bits | 1U : bits));
    } else if (order == Order::ANY) {
      const int sign = bits % 2 == 0 ? 1 : -1;
      const int whole = sign * static_cast<int>(is_product ? 1 : bits % 1000);
      store_element(data, i, T(static_cast<float>(whole)));
    } else {
      const float size = 0.5F + static_cast<float>(bits % 4096) / 4096.0F;
      store_element(data, i, T((bits >> 12) % 2 == 0 ? size : -size));
    }
  }
}
template <class T>
void fill_components(ReduceOp op, Order order, void* data, std::size_t count, Random& random) {
  fill<T>(op, order, data, 2 * count, random);
}

struct Type {
  DType dtype;
  void (*fill)(ReduceOp op, Order order, void* data, std::size_t count, Random& random);
};
const Type kTypes[] = {
    {DType::FLOAT32, fill<float>},
    {DType::FLOAT64, fill<double>},
    {DType::INT32, fill<std::int32_t>},
    {DType::INT8, fill<std::int8_t>},
    {DType::UINT16, fill<std::uint16_t>},
    {DType::INT64, fill<std::int64_t>},
    {DType::COMPLEX64, fill_components<float>},
    {DType::FLOAT16, fill<float16>},
    {DType::BFLOAT16, fill<bfloat16>},
    {DType::FLOAT8_E4M3, fill<float8_e4m3>},
};

/// A value of a batch: all replicas of all ranks, each with a guard behind it, and what they must become.
struct DrawnValue {
  DType dtype = DType::FLOAT32;
  std::size_t count = 0;
  std::vector<Bytes> inputs{};  // by rank, and by replica
  Bytes expected{};
};

/// The same for all ranks.
struct DrawnBatch {
  ReduceOp op = ReduceOp::SUM;
  std::size_t num_replicas = 1;
  bool deterministic = false;
  bool grouping_independent = false;
  bool is_in_place = false;
  std::vector<DrawnValue> values{};
};

/// A way of reducing, and what it accepts.
struct Form {
  const char* name;
  const char* tuning;
  Order order = Order::ANY;
  std::size_t max_ranks = kMaxRanks;
  std::size_t num_batches = 1;  // of each number of ranks; of up to kFewRanks four times as many

  [[nodiscard]] bool accepts(ReduceOp op, DType dtype) const {
    if (!is_supported(op, dtype)) return false;
    if (order == Order::OF_RANKS) return true;
    // Sums of 64 bits, and what is rounded to 16, go elsewhere. Whether a part of a product is 0 or -0 is a matter of order.
    if (is_integer(dtype)) return op != ReduceOp::MEAN;
    return size_in_bytes(dtype) > 2 && !(is_complex(dtype) && op == ReduceOp::PROD);
  }
};
constexpr Form kExchange{
    .name = "exchange",
    .tuning =
        R"({"all_reduce": [{"up_to_bytes": 16384, "algorithm": "exchange"}, {"algorithm": "ring"}]})",
    .order = Order::OF_RANKS,
    .max_ranks = detail::TransportGroup::kMeshRanks,
    .num_batches = 20};
constexpr Form kDoubling{
    .name = "doubling",
    .tuning =
        R"({"all_reduce": [{"up_to_bytes": 16384, "algorithm": "doubling"}, {"algorithm": "ring"}]})",
    .order = Order::ANY,
    .num_batches = 6};
constexpr Form kReplicaExchange{.name = "replica_exchange",
                                .tuning = R"({"all_reduce": [{"algorithm": "ring"}]})",
                                .order = Order::OF_RANKS};

const Type& any_type(const Form& form, ReduceOp op, Random& random) {
  for (;;) {
    const Type& type = kTypes[below(random, std::size(kTypes))];
    if (form.accepts(op, type.dtype)) return type;
  }
}

DrawnValue draw_value(const Form& form, const Type& type, const DrawnBatch& batch,
                      std::size_t num_ranks, std::size_t most_bytes, Random& random) {
  const std::size_t size = size_in_bytes(type.dtype);
  DrawnValue value{.dtype = type.dtype, .count = any_count(random, most_bytes / size)};
  std::vector<const void*> inputs;
  for (std::size_t i = 0; i < num_ranks * batch.num_replicas; ++i) {
    value.inputs.emplace_back(value.count * size + kGuard, kPoison);
    type.fill(batch.op, form.order, value.inputs.back().data(), value.count, random);
    inputs.push_back(value.inputs.back().data());
  }
  value.expected = testing::reference_reduce(batch.op, type.dtype, inputs, value.count);
  return value;
}

DrawnBatch draw_batch(const Form& form, std::size_t num_ranks, Random& random) {
  const bool is_of_replicas = form.name == kReplicaExchange.name;
  DrawnBatch batch{.op = below(random, 2) == 0 ? ReduceOp::SUM : kAllReduceOps[below(random, 5)],
                   .num_replicas = is_of_replicas ? 2 + below(random, 2) : 1 + below(random, 3),
                   .is_in_place = below(random, 2) == 0};
  if (form.order == Order::OF_RANKS) {
    batch.grouping_independent = is_of_replicas || below(random, 3) == 0;
    // Else each worker's own replicas are combined before.
    batch.deterministic =
        batch.grouping_independent || (batch.num_replicas == 1 && below(random, 2) == 0);
  }
  const Type* type = &any_type(form, batch.op, random);
  std::size_t room = kMaxExchangeBytes;  // of all inputs of a worker, each of them aligned
  for (std::size_t left = 1 + below(random, 4); left > 0; --left) {
    const std::size_t most_bytes = room / batch.num_replicas / kAlignment * kAlignment;
    batch.values.push_back(draw_value(form, *type, batch, num_ranks, most_bytes, random));
    const std::size_t bytes = batch.values.back().inputs[0].size() - kGuard;
    room -= (bytes + kAlignment - 1) / kAlignment * kAlignment * batch.num_replicas;
    if (form.order == Order::OF_RANKS) type = &any_type(form, batch.op, random);
  }
  return batch;
}

Tensor view_of(Bytes& bytes, DType dtype, std::size_t count) {
  return Tensor::view(static_cast<void*>(bytes.data()), dtype, Shape{count}, "CPU:0");
}

bool is_guard_whole(const Bytes& bytes) {
  return std::all_of(bytes.end() - static_cast<std::ptrdiff_t>(kGuard), bytes.end(),
                     [](std::byte each) { return each == kPoison; });
}

/// What a rank reads and writes in a call.
class RankMemory {
 public:
  RankMemory(const DrawnBatch& batch, std::size_t rank) : batch_(batch), rank_(rank) {
    for (const DrawnValue& value : batch.values) {
      Place& place = places_.emplace_back();
      place.dtype = result_dtype(batch.op, value.dtype);
      for (std::size_t i = 0; i < batch.num_replicas; ++i) {
        place.inputs.push_back(value.inputs[rank * batch.num_replicas + i]);
        place.outputs.emplace_back(value.expected.size() + kGuard, kPoison);
      }
      const bool is_in_place = batch.is_in_place && place.dtype == value.dtype;
      if (is_in_place) place.outputs.clear();
      for (Bytes& each : place.inputs) {
        place.input_tensors.push_back(view_of(each, value.dtype, value.count));
      }
      for (Bytes& each : place.outputs) {
        place.output_tensors.push_back(view_of(each, place.dtype, value.count));
      }
      if (is_in_place) place.output_tensors = place.input_tensors;
    }
  }

  [[nodiscard]] std::vector<CollectiveValue> values() const {
    std::vector<CollectiveValue> values;
    for (const Place& place : places_)
      values.push_back({place.input_tensors, place.output_tensors});
    return values;
  }

  void expect_reduced() const {
    for (std::size_t v = 0; v < places_.size(); ++v) {
      const Place& place = places_[v];
      const DrawnValue& value = batch_.values[v];
      for (std::size_t i = 0; i < batch_.num_replicas; ++i) {
        const std::string what = "value " + std::to_string(v) + " of " +
                                 std::string(to_string(value.dtype)) + ", replica " +
                                 std::to_string(i) + " of rank " + std::to_string(rank_);
        EXPECT_TRUE(has_bytes(place.output_tensors[i].data(), value.expected)) << what;
        EXPECT_TRUE(is_guard_whole(place.inputs[i])) << what;
        if (place.outputs.empty()) continue;
        EXPECT_TRUE(is_guard_whole(place.outputs[i])) << what;
        EXPECT_EQ(place.inputs[i], value.inputs[rank_ * batch_.num_replicas + i]) << what;
      }
    }
  }

 private:
  struct Place {
    DType dtype = DType::FLOAT32;  // of the result
    std::vector<Bytes> inputs{};
    std::vector<Bytes> outputs{};  // none: in place
    std::vector<Tensor> input_tensors{};
    std::vector<Tensor> output_tensors{};
  };
  const DrawnBatch& batch_;
  std::size_t rank_;
  std::vector<Place> places_;
};

std::string text_of(const DrawnBatch& batch) {
  std::string text =
      std::string(to_string(batch.op)) + " of " + std::to_string(batch.num_replicas) + " replicas" +
      (batch.is_in_place ? ", in place" : "") + (batch.deterministic ? ", deterministic" : "");
  for (const DrawnValue& value : batch.values) {
    text += ", " + std::to_string(value.count) + " x " + std::string(to_string(value.dtype));
  }
  return text;
}

double num_reductions(const std::string& labels) {
  return counter_value("crossdevice_reductions_total", labels);
}

void expect_reduces(const Form& form, std::size_t num_ranks) {
  Random random(num_ranks);
  std::vector<DrawnBatch> batches;
  const std::size_t num_batches = testing::kIsSanitized    ? 1
                                  : num_ranks <= kFewRanks ? 4 * form.num_batches
                                                           : form.num_batches;
  for (std::size_t i = 0; i < num_batches; ++i)
    batches.push_back(draw_batch(form, num_ranks, random));
  std::ofstream(tuning_file()) << form.tuning;
  const std::string labels = "algorithm=\"" + std::string(form.name) + "\"";
  const double by_form = num_reductions(labels);
  const double by_all = num_reductions("");
  std::vector<std::unique_ptr<Transport>> transports =
      make_in_process_transports(static_cast<int>(num_ranks));
  const auto work = [&](const std::shared_ptr<Cluster>& cluster) {
    const auto rank = static_cast<std::size_t>(cluster->rank());
    TransportCollectives collectives(cluster, std::move(transports[rank]));
    std::uint64_t sequence = 0;
    for (const DrawnBatch& batch : batches) {
      SCOPED_TRACE(text_of(batch));
      const RankMemory memory(batch, rank);
      collectives.all_reduce({.kind = "test",
                              .sequence = ++sequence,
                              .op = batch.op,
                              .deadline = Deadline::after_timeout_seconds(60),
                              .deterministic = batch.deterministic,
                              .grouping_independent = batch.grouping_independent},
                             memory.values());
      memory.expect_reduced();
    }
    cluster->barrier();
  };
  EXPECT_EQ(run_clusters(num_ranks, work), no_errors(num_ranks));
  ::unlink(tuning_file().c_str());
  EXPECT_GT(num_reductions(labels), by_form);
  EXPECT_EQ(num_reductions(labels) - by_form, num_reductions("") - by_all) << "by another form";
}

/// All up to 64; where many threads take long, some of them.
std::vector<std::size_t> numbers_of_ranks() {
  if (testing::kIsSanitized) return {1, 2, 3, 4, 5, 7, 8, 17, 33, 64};
  std::vector<std::size_t> all(kMaxRanks);
  std::iota(all.begin(), all.end(), std::size_t{1});
  return all;
}

void expect_reduces_among_all_numbers(const Form& form) {
  ASSERT_EQ(kSet, 0);
  for (const std::size_t n : numbers_of_ranks()) {
    if (n > form.max_ranks) continue;
    SCOPED_TRACE(std::string(form.name) + " of " + std::to_string(n) + " ranks");
    expect_reduces(form, n);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(UnscheduledReducesTest, AnExchangeGivesEverybodyWhatAPlainLoopDoes) {
  expect_reduces_among_all_numbers(kExchange);
}

TEST(UnscheduledReducesTest, DoublingGivesEverybodyWhatAPlainLoopDoes) {
  expect_reduces_among_all_numbers(kDoubling);
}

TEST(UnscheduledReducesTest, AnExchangeOfReplicasGivesEverybodyWhatAPlainLoopDoes) {
  expect_reduces_among_all_numbers(kReplicaExchange);
}

}  // namespace
}  // namespace crossdevice
