// SPDX-License-Identifier: Apache-2.0
// Communicator through NCCL, of workers that are threads with an emulated GPU each: values, what is called, who waits, and what takes NCCL's place.
#include <algorithm>
#include <barrier>
#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/collective/communicator.h"
#include "crossdevice/core/error.h"

#include "support/gpu_values.h"
#include "support/log_keeper.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

[[maybe_unused]] const bool kInstalled = (testing::install_emulated_gpus(), true);

using ::testing::AllOf;
using ::testing::Each;
using testing::elements;
using testing::Elements;
using testing::emulated_cuda;
using testing::emulated_nccl;
using testing::gpu;
using testing::GpuStream;
using testing::has_bytes;
using ::testing::HasSubstr;
using testing::no_errors;
using testing::ReduceCase;
using testing::run_clusters;
using testing::vector_of;
using ClusterPtr = std::shared_ptr<Cluster>;
using Bytes = std::vector<std::byte>;

constexpr ReduceOp kOps[] = {ReduceOp::SUM, ReduceOp::MEAN, ReduceOp::MIN, ReduceOp::MAX,
                             ReduceOp::PROD};
constexpr CommunicatorOptions kSoon{.timeout_seconds = 60};

Device gpu_of(const Cluster& cluster) { return gpu(static_cast<std::size_t>(cluster.rank())); }

/// On `device`, with these bytes.
Tensor made_of(const Bytes& bytes, DType dtype, const Device& device) {
  const Shape shape{bytes.size() / size_in_bytes(dtype)};
  Tensor made = Tensor::empty(dtype, shape, device);
  copy(made, Tensor::view(static_cast<const void*>(bytes.data()), dtype, shape, "CPU:0"));
  return made;
}
Tensor poison(DType dtype, std::size_t count, const Device& device) {
  return made_of(Bytes(count * size_in_bytes(dtype), testing::kPoison), dtype, device);
}
/// A part of a tensor, as a tensor.
Tensor part_of(const Tensor& whole, std::size_t part, std::size_t num_parts) {
  const std::size_t count = whole.num_elements() / num_parts;
  return Tensor::view(static_cast<void*>(static_cast<std::byte*>(whole.data()) +
                                         part * count * size_in_bytes(whole.dtype())),
                      whole.dtype(), Shape{count}, whole.device());
}
::testing::AssertionResult holds(const Tensor& tensor, const Bytes& expected) {
  if (tensor.size_bytes() != expected.size()) {
    return ::testing::AssertionFailure() << tensor.size_bytes() << " bytes";
  }
  const Tensor here =
      tensor.device().is_host() ? Tensor(tensor) : copy_to_device(tensor, Device("CPU:0"));
  return has_bytes(here.data(), expected);
}

/// What the workers of a test have, by rank, and what they must come to.
struct Case {
  ReduceOp op;
  DType dtype;
  std::size_t count;  ///< a multiple of the number of workers
  std::vector<Bytes> inputs;
  Bytes reduced;
  Bytes gathered;
};

Case case_of(ReduceOp op, DType dtype, std::size_t count, std::size_t num_workers,
             std::mt19937& random) {
  ReduceCase made(op, dtype, count, num_workers, false, Elements::EXACT, random);
  Case result{op, dtype, count, {}, std::move(made.expected), {}};
  for (Bytes& memory : made.memory) {
    memory.resize(memory.size() - ReduceCase::kGuard);
    result.gathered.insert(result.gathered.end(), memory.begin(), memory.end());
    result.inputs.push_back(std::move(memory));
  }
  return result;
}

std::vector<Case> cases(std::size_t num_workers) {
  std::mt19937 random(17);
  std::vector<Case> all;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kOps) {
      if (!is_supported(op, dtype)) continue;
      for (const std::size_t part : {0U, 1U, 67U}) {
        all.push_back(case_of(op, dtype, part * num_workers, num_workers, random));
      }
    }
  }
  return all;
}

Bytes slice(const Bytes& bytes, std::size_t part, std::size_t num_parts) {
  const auto size = static_cast<std::ptrdiff_t>(bytes.size() / num_parts);
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(part) * size;
  return {begin, begin + size};
}

class CommunicatorNccl : public ::testing::Test {
 protected:
  void TearDown() override {
    emulated_cuda().calls().clear_faults();
    EXPECT_TRUE(emulated_cuda().synchronize());
    EXPECT_EQ(emulated_cuda().violations(), std::vector<std::string>());
    EXPECT_EQ(emulated_nccl().mismatches(), std::vector<std::string>());
  }
};

/// Where a worker has its tensors; the communicator's device may be another one.
void reduces(Communicator& world, const Case& test, const Device& device) {
  const auto n = static_cast<std::size_t>(world.num_workers());
  const auto rank = static_cast<std::size_t>(world.rank());
  const DType result = result_dtype(test.op, test.dtype);
  const Bytes& mine = test.inputs[rank];
  const bool may_be_in_place = result == test.dtype;

  const Tensor input = made_of(mine, test.dtype, device);
  const Tensor output = poison(result, test.count, device);
  world.all_reduce(test.op, input, output, kSoon);
  EXPECT_TRUE(holds(output, test.reduced));
  EXPECT_TRUE(holds(input, mine));
  if (may_be_in_place) {
    const Tensor both = made_of(mine, test.dtype, device);
    world.all_reduce(test.op, both, kSoon);
    EXPECT_TRUE(holds(both, test.reduced));
  }

  const Tensor own = poison(result, test.count / n, device);
  world.reduce_scatter(test.op, input, own, kSoon);
  EXPECT_TRUE(holds(own, slice(test.reduced, rank, n)));
  EXPECT_TRUE(holds(input, mine));
  if (may_be_in_place && test.count > 0) {
    const Tensor both = made_of(mine, test.dtype, device);
    world.reduce_scatter(test.op, both, part_of(both, rank, n), kSoon);
    EXPECT_TRUE(holds(part_of(both, rank, n), slice(test.reduced, rank, n)));
  }

  for (std::size_t root = 0; root < n; ++root) {
    const Tensor there = poison(result, test.count, device);
    world.reduce(test.op, input, there, static_cast<int>(root), kSoon);
    EXPECT_TRUE(
        holds(there, rank == root ? test.reduced : Bytes(test.reduced.size(), testing::kPoison)));
    EXPECT_TRUE(holds(input, mine));
    if (!may_be_in_place) continue;
    const Tensor both = made_of(mine, test.dtype, device);
    world.reduce(test.op, both, rank == root ? both : Tensor(), static_cast<int>(root), kSoon);
    EXPECT_TRUE(holds(both, rank == root ? test.reduced : mine));
  }
}

void moves(Communicator& world, const Case& test, const Device& device) {
  const auto n = static_cast<std::size_t>(world.num_workers());
  const auto rank = static_cast<std::size_t>(world.rank());
  const Bytes& mine = test.inputs[rank];
  const Tensor input = made_of(mine, test.dtype, device);
  /// Poison but for this rank's part.
  const auto mostly_poison = [&] {
    const Tensor made = poison(test.dtype, n * test.count, device);
    if (test.count > 0) copy(part_of(made, rank, n), input);
    return made;
  };
  const Tensor all = poison(test.dtype, n * test.count, device);
  world.all_gather(input, all, kSoon);
  EXPECT_TRUE(holds(all, test.gathered));
  EXPECT_TRUE(holds(input, mine));
  if (test.count > 0) {
    const Tensor both = mostly_poison();
    world.all_gather(part_of(both, rank, n), both, kSoon);
    EXPECT_TRUE(holds(both, test.gathered));
  }
  for (std::size_t root = 0; root < n; ++root) {
    const auto root_rank = static_cast<int>(root);
    const Tensor given =
        rank == root ? made_of(mine, test.dtype, device) : poison(test.dtype, test.count, device);
    world.broadcast(given, root_rank, kSoon);
    EXPECT_TRUE(holds(given, test.inputs[root]));

    const Tensor there = poison(test.dtype, n * test.count, device);
    world.gather(input, there, root_rank, kSoon);
    EXPECT_TRUE(
        holds(there, rank == root ? test.gathered : Bytes(test.gathered.size(), testing::kPoison)));
    EXPECT_TRUE(holds(input, mine));
    if (test.count == 0) continue;
    const Tensor both = mostly_poison();
    world.gather(part_of(both, rank, n), both, root_rank, kSoon);
    if (rank != root) continue;
    EXPECT_TRUE(holds(both, test.gathered));
  }
}

TEST_F(CommunicatorNccl, EveryCallOfEveryDType) {
  for (const std::size_t num_workers : {1U, 2U, 3U, 4U}) {
    const std::vector<Case> all = cases(num_workers);
    EXPECT_EQ(run_clusters(num_workers,
                           [&](const ClusterPtr& cluster) {
                             Communicator world(cluster, gpu_of(*cluster));
                             EXPECT_TRUE(world.has_nccl());
                             for (const Case& test : all) {
                               SCOPED_TRACE(std::string(to_string(test.op)) + " of " +
                                            std::to_string(test.count) + " " +
                                            std::string(to_string(test.dtype)));
                               reduces(world, test, gpu_of(*cluster));
                               if (test.op == ReduceOp::SUM || test.dtype == DType::BOOL) {
                                 moves(world, test, gpu_of(*cluster));
                               }
                             }
                             world.check();
                             world.barrier(kSoon);
                           }),
              no_errors(num_workers));
  }
}

TEST_F(CommunicatorNccl, TensorsElsewhereAreCopiedThereAndBack) {
  std::mt19937 random(18);
  const Case floats = case_of(ReduceOp::MEAN, DType::FLOAT32, 300, 3, random);
  const Case shorts = case_of(ReduceOp::SUM, DType::INT16, 300, 3, random);
  EXPECT_EQ(run_clusters(3,
                         [&](const ClusterPtr& cluster) {
                           Communicator world(cluster, gpu_of(*cluster));
                           // On another GPU, on a host, and where the communicator has it; by turns.
                           const auto rank = static_cast<std::size_t>(cluster->rank());
                           const Device places[] = {gpu(rank + 4), Device("CPU:1"), gpu(rank)};
                           for (std::size_t turn = 0; turn < 3; ++turn) {
                             const Device& device = places[(turn + rank) % 3];
                             for (const Case* const test : {&floats, &shorts}) {
                               reduces(world, *test, device);
                               moves(world, *test, device);
                             }
                           }
                           world.check();
                           world.barrier(kSoon);
                         }),
            no_errors(3));
}

/// Two streams of the program's: what comes before the call on either is seen by it, what comes after it sees the result.
TEST_F(CommunicatorNccl, RunsInTheOrderOfTheTensorsStreams) {
  EXPECT_EQ(run_clusters(2,
                         [&](const ClusterPtr& cluster) {
                           Communicator world(cluster, gpu_of(*cluster));
                           const GpuStream first(cluster->rank());
                           const GpuStream second(cluster->rank());
                           const Device device = gpu_of(*cluster);
                           const Tensor source = vector_of(std::vector<float>(1000, 3.0F), device);
                           const Tensor input = Tensor::empty(DType::FLOAT32, {1000}, device,
                                                              from_cuda(first.get()));
                           const Tensor output = Tensor::empty(DType::FLOAT32, {1000}, device,
                                                               from_cuda(second.get()));
                           const Tensor result = Tensor::zeros(DType::FLOAT32, {1000}, device);
                           copy(input, source);
                           world.all_reduce(ReduceOp::SUM, input, output, kSoon);
                           copy(result, output);
                           EXPECT_EQ(elements(result), std::vector<float>(1000, 6.0F));
                           world.check();
                           world.barrier(kSoon);
                         }),
            no_errors(2));
}

TEST_F(CommunicatorNccl, CallsAreCapturedIntoAGraphAndLaunchedAgainWithNewValues) {
  EXPECT_EQ(
      run_clusters(
          2,
          [&](const ClusterPtr& cluster) {
            const auto rank = static_cast<std::size_t>(cluster->rank());
            const Device device = gpu_of(*cluster);
            Communicator world(cluster, device);
            const GpuStream stream(cluster->rank());
            const auto make = [&](std::size_t count) {
              return Tensor::empty(DType::FLOAT32, Shape{count}, device, from_cuda(stream.get()));
            };
            const Tensor input = make(100);
            const Tensor mean = make(100);
            const Tensor all = make(200);
            const auto call = [&] {
              world.all_reduce(ReduceOp::MEAN, input, mean, kSoon);
              world.gather(mean, all, 1, kSoon);
            };
            testing::write_elements(input, std::vector<float>(100, 1.0F));
            call();
            testing::EmulatedGraph graph = nullptr;
            ASSERT_EQ(
                emulated_cuda().begin_capture(stream.get(), testing::CaptureMode::THREAD_LOCAL),
                detail::CudaStatus::SUCCESS);
            call();
            ASSERT_EQ(emulated_cuda().end_capture(stream.get(), &graph),
                      detail::CudaStatus::SUCCESS);
            for (const float base : {2.0F, -6.0F}) {
              testing::write_elements(
                  input, std::vector<float>(100, base + 2.0F * static_cast<float>(rank)));
              testing::write_elements(all, std::vector<float>(200, -1.0F));
              ASSERT_EQ(emulated_cuda().launch_graph(graph, stream.get()),
                        detail::CudaStatus::SUCCESS);
              EXPECT_EQ(elements(mean), std::vector<float>(100, base + 1));
              EXPECT_EQ(elements(all), std::vector<float>(200, rank == 1 ? base + 1 : -1.0F));
            }
            EXPECT_EQ(emulated_cuda().destroy_graph(graph), detail::CudaStatus::SUCCESS);
            world.check();
            world.barrier(kSoon);
          }),
      no_errors(2));
}

/// One call of each kind, and what NCCL is called for it on a root and elsewhere.
struct PlainCall {
  std::string name;
  std::function<void(Communicator&, const Tensor& one, const Tensor& other, const Tensor& all)>
      call;
  std::vector<std::string> on_root;
  std::vector<std::string> elsewhere;
};

std::vector<PlainCall> plain_calls() {
  const auto both = [](const std::string& function) { return std::vector<std::string>{function}; };
  return {
      {"all_reduce",
       [](auto& world, auto& one, auto& other, auto&) {
         world.all_reduce(ReduceOp::SUM, one, other, kSoon);
       },
       both("nccl.all_reduce"), both("nccl.all_reduce")},
      {"all_reduce in place",
       [](auto& world, auto& one, auto&, auto&) { world.all_reduce(ReduceOp::SUM, one, kSoon); },
       both("nccl.all_reduce"), both("nccl.all_reduce")},
      {"MEAN",
       [](auto& world, auto& one, auto& other, auto&) {
         world.all_reduce(ReduceOp::MEAN, one, other, kSoon);
       },
       {"nccl.all_reduce", "kernels.copy_ranges"},
       {"nccl.all_reduce", "kernels.copy_ranges"}},
      {"reduce",
       [](auto& world, auto& one, auto& other, auto&) {
         world.reduce(ReduceOp::SUM, one, other, 1, kSoon);
       },
       both("nccl.reduce"), both("nccl.reduce")},
      {"MEAN on a root",
       [](auto& world, auto& one, auto& other, auto&) {
         world.reduce(ReduceOp::MEAN, one, other, 1, kSoon);
       },
       {"nccl.reduce", "kernels.copy_ranges"},
       both("nccl.reduce")},
      {"broadcast", [](auto& world, auto& one, auto&, auto&) { world.broadcast(one, 1, kSoon); },
       both("nccl.broadcast"), both("nccl.broadcast")},
      {"reduce_scatter",
       [](auto& world, auto&, auto& other, auto& all) {
         world.reduce_scatter(ReduceOp::SUM, all, other, kSoon);
       },
       both("nccl.reduce_scatter"), both("nccl.reduce_scatter")},
      {"all_gather",
       [](auto& world, auto& one, auto&, auto& all) { world.all_gather(one, all, kSoon); },
       both("nccl.all_gather"), both("nccl.all_gather")},
      {"gather",
       [](auto& world, auto& one, auto&, auto& all) { world.gather(one, all, 1, kSoon); },
       {"nccl.send", "nccl.receive", "nccl.receive"},
       both("nccl.send")},
  };
}

/// What was called for a device, but for events and groups.
std::vector<std::string> work_on(int device) {
  std::vector<std::string> names;
  for (const testing::EmulatedCall& call : emulated_cuda().calls().list()) {
    const bool is_order = call.function.starts_with("cuda.event_") ||
                          call.function.starts_with("nccl.group_") ||
                          call.function == "cuda.set_device";
    if (call.device == device && !is_order) names.emplace_back(call.function);
  }
  return names;
}

TEST_F(CommunicatorNccl, APlainCallIsOneCallOfNcclAndWaitsForNobody) {
  const std::vector<PlainCall> calls = plain_calls();
  std::barrier meet(2);
  EXPECT_EQ(run_clusters(2,
                         [&](const ClusterPtr& cluster) {
                           const int rank = cluster->rank();
                           const Device device = gpu_of(*cluster);
                           Communicator world(cluster, device);
                           const Tensor one = vector_of(std::vector<float>(100, 1.0F), device);
                           const Tensor other = vector_of(std::vector<float>(100, 2.0F), device);
                           const Tensor all = vector_of(std::vector<float>(200, 3.0F), device);
                           for (const PlainCall& plain : calls) {
                             SCOPED_TRACE(plain.name);
                             plain.call(world, one, other, all);
                             EXPECT_EQ(elements(one).size(), 100U);  // is over
                             meet.arrive_and_wait();
                             if (rank == 0) emulated_cuda().calls().clear();
                             meet.arrive_and_wait();
                             // Rank 1 comes when rank 0's call has returned.
                             if (rank == 0) plain.call(world, one, other, all);
                             meet.arrive_and_wait();
                             if (rank == 1) plain.call(world, one, other, all);
                             meet.arrive_and_wait();
                             EXPECT_EQ(work_on(rank), rank == 1 ? plain.on_root : plain.elsewhere);
                             EXPECT_EQ(elements(one).size(), 100U);
                             meet.arrive_and_wait();
                           }
                           world.check();
                           world.barrier(kSoon);
                         }),
            no_errors(2));
}

/// By NCCL in no part.
void expect_hosts(std::size_t num_workers, const std::function<void(const ClusterPtr&)>& work) {
  emulated_cuda().calls().clear();
  EXPECT_EQ(run_clusters(num_workers, work), no_errors(num_workers));
  for (const char* const function : {"nccl.reduce", "nccl.broadcast", "nccl.all_gather",
                                     "nccl.reduce_scatter", "nccl.send", "nccl.receive"}) {
    EXPECT_EQ(emulated_cuda().calls().count(function), 0U) << function;
  }
}

TEST_F(CommunicatorNccl, WhereOneWorkerNamesAHostAllIsDoneOnHosts) {
  std::mt19937 random(19);
  const Case test = case_of(ReduceOp::SUM, DType::FLOAT32, 300, 3, random);
  expect_hosts(3, [&](const ClusterPtr& cluster) {
    const Device device = cluster->rank() == 1 ? Device("CPU:2") : gpu_of(*cluster);
    std::unique_ptr<Communicator> world;
    if (cluster->rank() == 2) {
      world = std::make_unique<Communicator>(cluster, device);
    } else {
      world = cluster->rank() == 1 ? std::make_unique<Communicator>(cluster)
                                   : std::make_unique<Communicator>(cluster, device);
    }
    EXPECT_FALSE(world->has_nccl());
    reduces(*world, test, device);
    moves(*world, test, device);
    world->check();
    world->barrier(kSoon);
  });
  EXPECT_EQ(emulated_cuda().calls().count("nccl.comm_init_rank"), 0U);
}

TEST_F(CommunicatorNccl, HostsDoWhatNcclDoesNot) {
  std::mt19937 random(20);
  const Case shorts = case_of(ReduceOp::SUM, DType::INT16, 300, 3, random);
  const Case maxima = case_of(ReduceOp::MAX, DType::FLOAT32, 300, 3, random);
  const Case means = case_of(ReduceOp::MEAN, DType::INT32, 300, 3, random);
  expect_hosts(3, [&](const ClusterPtr& cluster) {
    Communicator world(cluster, gpu_of(*cluster));
    for (const Case* const test : {&shorts, &maxima, &means}) {
      reduces(world, *test, gpu_of(*cluster));
    }
    const Tensor tensor = vector_of(std::vector<float>(10, 1.0F), gpu_of(*cluster));
    world.all_reduce(ReduceOp::SUM, tensor, {.timeout_seconds = 60, .deterministic = true});
    EXPECT_EQ(elements(tensor), std::vector<float>(10, 3.0F));
    world.check();
    world.barrier(kSoon);
  });
}

/// The communicators are made without NCCL, and work; said on the log.
void falls_back(const std::string& reason) {
  std::mt19937 random(21);
  const Case test = case_of(ReduceOp::SUM, DType::FLOAT32, 300, 3, random);
  const testing::LogKeeper log;
  expect_hosts(3, [&](const ClusterPtr& cluster) {
    for (int i = 0; i < 2; ++i) {
      Communicator world(cluster, gpu_of(*cluster));
      EXPECT_FALSE(world.has_nccl());
      reduces(world, test, gpu_of(*cluster));
      moves(world, test, gpu_of(*cluster));
      world.check();
    }
    cluster->barrier(60);
  });
  EXPECT_THAT(log.texts(), AllOf(HasSubstr("Communicator on GPU:"), HasSubstr(reason),
                                 HasSubstr("go through the host instead")));
}

TEST_F(CommunicatorNccl, WhereNcclDoesNotStartOnOneAllGoThroughHosts) {
  emulated_cuda().calls().inject({.function = "nccl.get_unique_id", .count = 2, .status = 2});
  falls_back("ncclGetUniqueId");
}

TEST_F(CommunicatorNccl, ADeviceThatIsNotThereIsAnErrorOnAll) {
  EXPECT_THAT(run_clusters(3,
                           [](const ClusterPtr& cluster) {
                             const Communicator world(
                                 cluster, cluster->rank() == 1 ? gpu(99) : gpu_of(*cluster));
                           }),
              Each(AllOf(HasSubstr("rank 1"), HasSubstr("GPU:99"))));
}

TEST_F(CommunicatorNccl, OneGpuInTwoWorkersIsAnErrorOnAll) {
  EXPECT_THAT(run_clusters(3,
                           [](const ClusterPtr& cluster) {
                             const Communicator world(
                                 cluster, cluster->rank() == 2 ? gpu(0) : gpu_of(*cluster));
                           }),
              Each(HasSubstr("one GPU is in two workers")));
}

}  // namespace
}  // namespace crossdevice
