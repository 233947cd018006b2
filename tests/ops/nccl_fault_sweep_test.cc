// SPDX-License-Identifier: Apache-2.0
// Any call of CUDA, of NCCL or of our kernels' launchers may fail, be late or hang: packed means of NcclAllReduce with each call of theirs failing in its turn.
// What comes of it is an error or right values; the rules of both are kept, nothing is lost, and a new object works on the same GPUs.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "crossdevice/comm/flight_record.h"
#include "crossdevice/comm/gpu_watchdog.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/exception_text.h"
#include "crossdevice/device/memory_pool.h"
#include "crossdevice/ops/nccl_all_reduce.h"

#include "comm/detail/nccl_reaper.h"
#include "support/forked_cases.h"
#include "support/gpu_values.h"
#include "support/log_keeper.h"
#include "support/sanitizers.h"

namespace crossdevice {
namespace {

using testing::emulated_cuda;
using testing::emulated_nccl;
using testing::Fault;
using testing::FaultKind;
using testing::gpu;

/// For what comes soon where it comes at all.
constexpr std::chrono::seconds kLimit{20};
constexpr std::size_t kCounts[] = {100, 60, 100, 700};  // three to a pack, and one beside
const CommunicationOptions kOptions{.bytes_per_pack = 1000, .timeout_seconds = 10};

struct Setting {
  std::string name;
  std::size_t num_gpus = 2;
  bool is_cold = true;  // the process has used no GPU before
  bool is_in_place = true;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

/// Element e of value i is e + (i + 1) * (r + 1) on GPU r, so that all of this is exact.
float element_of(std::size_t i, std::size_t r, std::size_t e) {
  return static_cast<float>(e + (i + 1) * (r + 1));
}
float mean_of(std::size_t i, std::size_t num_gpus, std::size_t e) {
  return static_cast<float>(e) + static_cast<float>((i + 1) * (num_gpus + 1)) / 2;
}

std::vector<PerReplica> batch_on(std::size_t num_gpus) {
  std::vector<PerReplica> batch;
  for (std::size_t i = 0; i < std::size(kCounts); ++i) {
    std::vector<Tensor> components;
    for (std::size_t r = 0; r < num_gpus; ++r) {
      std::vector<float> elements;
      for (std::size_t e = 0; e < kCounts[i]; ++e) elements.push_back(element_of(i, r, e));
      components.push_back(testing::vector_of(elements, gpu(r)));
    }
    batch.emplace_back(components);
  }
  return batch;
}

/// Without a call of CUDA's.
template <class Value, class Expected>
void expect_elements(const std::vector<Value>& values, const Expected& expected) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::vector<Tensor> tensors(values[i].values().begin(), values[i].values().end());
    for (std::size_t r = 0; r < tensors.size(); ++r) {
      const float* const elements =
          emulated_cuda().view(static_cast<const float*>(std::as_const(tensors[r]).data()));
      std::size_t num_wrong = 0;
      for (std::size_t e = 0; e < kCounts[i]; ++e) {
        num_wrong += static_cast<std::size_t>(elements[e] != expected(i, r, e));
      }
      EXPECT_EQ(num_wrong, 0U) << "value " << i << " on GPU " << r << ", element 0 is "
                               << elements[0];
    }
  }
}

/// Until the watchdog knows the end of everything.
void await_ends() {
  EXPECT_TRUE(emulated_cuda().synchronize(kLimit));
  const Deadline deadline = Deadline::after(kLimit);
  const auto are_over = [] {
    return std::ranges::all_of(flight_record(), [](const FlightEntry& each) {
      return each.state == FlightState::COMPLETED || each.state == FlightState::FAILED;
    });
  };
  while (!are_over() && !deadline.has_passed()) {
    detail::look_at_watched();
    std::this_thread::yield();
  }
  EXPECT_TRUE(are_over());
}

/// One use of an object, to its end; throws what it came to.
void use(NcclAllReduce& ops, const Setting& setting) {
  const std::vector<PerReplica> batch = batch_on(setting.num_gpus);
  const auto before = [](std::size_t i, std::size_t r, std::size_t e) {
    return element_of(i, r, e);
  };
  std::vector<Mirrored> results;
  try {
    if (setting.is_in_place) {
      ops.batch_reduce_into(ReduceOp::MEAN, batch, kOptions);
    } else {
      std::vector<ValueDestinationPair> pairs;
      for (const PerReplica& value : batch) pairs.push_back({value, value});
      results = ops.batch_reduce(ReduceOp::MEAN, pairs, kOptions);
    }
    await_ends();
    ops.check();
  } catch (const OpError& error) {
    await_ends();
    if (error.inputs_intact()) expect_elements(batch, before);
    throw;
  }
  const auto mean = [&](std::size_t i, std::size_t, std::size_t e) {
    return mean_of(i, setting.num_gpus, e);
  };
  if (setting.is_in_place) return expect_elements(batch, mean);
  expect_elements(batch, before);
  expect_elements(results, mean);
}

/// What is left of it when all objects and values are gone, and which calls were made in the part that faults are for.
struct Trail {
  std::map<std::string, std::size_t, std::less<>> calls;
  std::map<std::string, std::size_t, std::less<>> left;
  bool has_said_loss = false;  // of memory that CUDA did not take back
};

void note_what_is_left(const Setting& setting, Trail& trail) {
  EXPECT_TRUE(emulated_cuda().synchronize(kLimit));
  for (std::size_t r = 0; r < setting.num_gpus; ++r) {
    trail.left["bytes"] += MemoryPool::of(gpu(r)).statistics().bytes_in_use;
  }
  // Not what is pinned: a window whose last use cannot be asked for stays, and another is made.
  trail.left["blocks"] = emulated_cuda().num_allocations() - emulated_cuda().num_pinned();
  trail.left["streams"] = emulated_cuda().num_streams();
  trail.left["communicators"] = emulated_nccl().num_communicators();
}

/// In a process of its own. What the use came to where something was to go wrong; null: right values.
std::exception_ptr run(const Setting& setting, const std::optional<Fault>& fault, Trail& trail) {
  const testing::LogKeeper log;
  testing::install_emulated_gpus(static_cast<int>(setting.num_gpus));
  std::exception_ptr outcome;
  try {
    std::optional<NcclAllReduce> ops;
    if (!setting.is_cold) {
      ops.emplace(1);
      for (int i = 0; i < 2; ++i) use(*ops, setting);
    }
    emulated_cuda().calls().clear();
    if (fault.has_value()) emulated_cuda().calls().inject(*fault);
    if (setting.is_cold) ops.emplace(1);
    try {
      use(*ops, setting);
    } catch (const OpError&) {
      outcome = std::current_exception();
    }
  } catch (const OpError& error) {
    ADD_FAILURE() << "not where the fault was: " << error.what();
  }
  trail.calls = emulated_cuda().calls().counts();
  emulated_cuda().calls().clear_faults();
  emulated_cuda().calls().release_hangs();
  trail.has_said_loss = log.texts().find("could not be given back") != std::string::npos;
  {
    NcclAllReduce again(1);
    for (int i = 0; i < 2; ++i) EXPECT_NO_THROW(use(again, setting));
  }
  note_what_is_left(setting, trail);
  EXPECT_THAT(emulated_cuda().violations(), ::testing::IsEmpty());
  EXPECT_THAT(emulated_nccl().mismatches(), ::testing::IsEmpty());
  return outcome;
}

// ---- what happens where nothing goes wrong, from a process of its own

void write(std::ostream& out, const Trail& trail) {
  for (const auto& [name, count] : trail.calls) out << "call " << name << ' ' << count << '\n';
  for (const auto& [name, count] : trail.left) out << "left " << name << ' ' << count << '\n';
}

Trail read(std::istream& in) {
  Trail trail;
  std::string kind;
  std::string name;
  std::size_t count = 0;
  while (in >> kind >> name >> count) (kind == "call" ? trail.calls : trail.left)[name] = count;
  return trail;
}

Trail trail_without_faults(const Setting& setting) {
  const std::string path =
      ::testing::TempDir() + "crossdevice_fault_sweep." + std::to_string(::getpid()) + setting.name;
  testing::ForkedCases cases;
  cases.run(setting.name, [&] {
    Trail trail;
    EXPECT_EQ(run(setting, std::nullopt, trail), nullptr);
    std::ofstream out(path);
    write(out, trail);
  });
  cases.await_all();
  std::ifstream in(path);
  const Trail trail = read(in);
  (void)::unlink(path.c_str());
  return trail;
}

// ---- what happens where something does

/// Queries, which are made as often as it takes, fail that often at most.
constexpr std::size_t kMostOfOne = 120;
constexpr std::size_t kAtOnce = 4;
/// What is instrumented takes many times as long, so that it sees some of the calls.
constexpr std::size_t kStep = testing::kIsSanitized ? 11 : 1;

int status_for(const std::string& function, std::size_t k) {
  if (function.starts_with("nccl."))
    return k % 2 == 0 ? 1 : 3;  // unhandled CUDA error, internal error
  return k % 2 == 0 ? 999 : 2;  // unknown error, out of memory
}

/// What of it failed must have been heard of. Elsewhere the library asks again, does without, or has nobody to tell.
bool is_fatal(const Setting& setting, const std::string& function) {
  return !setting.is_cold && (function.starts_with("nccl.") || function.starts_with("kernels.") ||
                              function == "cuda.memcpy_async");
}

/// Each call of each function, in a process of its own, with a fault of that kind.
void sweep(
    const Setting& setting, const Trail& usual, Fault fault,
    const std::function<void(const Fault&, const std::exception_ptr&, const Trail&)>& check) {
  testing::ForkedCases cases(kAtOnce);
  for (const auto& [function, count] : usual.calls) {
    if (function == "cuda.get_device_count") continue;  // is found out once, for good
    for (std::size_t k = 0; k < std::min(count, kMostOfOne); k += kStep) {
      fault.function = function;
      fault.skip = k;
      fault.status = status_for(function, k);
      cases.run(fmt::format("call {} of {}", k, function), [&] {
        Trail trail;
        const std::exception_ptr outcome = run(setting, fault, trail);
        check(fault, outcome, trail);
      });
    }
  }
}

class NcclFaultSweep : public ::testing::TestWithParam<Setting> {};

TEST_P(NcclFaultSweep, EachCallFails) {
  const Setting& setting = GetParam();
  const Trail usual = trail_without_faults(setting);
  ASSERT_GT(usual.calls.size(), 12U);
  sweep(setting, usual, {.function = "", .kind = FaultKind::FAIL_CALL},
        [&](const Fault& fault, const std::exception_ptr& outcome, const Trail& trail) {
          EXPECT_TRUE(outcome != nullptr || !is_fatal(setting, fault.function));
          // What cannot be ended stays.
          if (fault.function == "cuda.stream_destroy" || trail.has_said_loss) return;
          EXPECT_EQ(trail.left, usual.left);
        });
}

TEST_P(NcclFaultSweep, EachCallIsLate) {
  const Setting& setting = GetParam();
  const Trail usual = trail_without_faults(setting);
  ASSERT_GT(usual.calls.size(), 12U);
  sweep(setting, usual,
        {.function = "", .kind = FaultKind::DELAY_CALL, .delay = std::chrono::milliseconds(10)},
        [&](const Fault&, const std::exception_ptr& outcome, const Trail& trail) {
          EXPECT_EQ(outcome, nullptr) << detail::exception_text(outcome);
          EXPECT_EQ(trail.left, usual.left);
        });
}

INSTANTIATE_TEST_SUITE_P(Means, NcclFaultSweep,
                         ::testing::Values(Setting{"ColdInPlace2", 2, true, true},
                                           Setting{"WarmInPlace2", 2, false, true},
                                           Setting{"ColdOutOfPlace2", 2, true, false},
                                           Setting{"WarmOutOfPlace2", 2, false, false},
                                           Setting{"ColdInPlace3", 3, true, true},
                                           Setting{"WarmInPlace3", 3, false, true}),
                         [](const auto& setting) { return setting.param.name; });

// ---- what never comes back

struct Hang {
  std::string name;
  Fault fault;
  bool is_cold = false;
  bool ends_with_abort = false;  // as what waits inside NCCL for other ranks
};
void PrintTo(const Hang& hang, std::ostream* out) { *out << hang.name; }

/// What the first error is, of the call or of those that ask later.
void expect_to_be_given_up(NcclAllReduce& ops, const std::vector<PerReplica>& batch) {
  const Deadline deadline = Deadline::after(kLimit);
  try {
    ops.batch_reduce_into(ReduceOp::MEAN, batch, {.bytes_per_pack = 1000, .timeout_seconds = 0.3});
    while (!deadline.has_passed()) ops.check();
    ADD_FAILURE() << "nothing was said";
  } catch (const OpError& error) {
    EXPECT_THAT(error.code(),
                ::testing::AnyOf(StatusCode::DEADLINE_EXCEEDED, StatusCode::UNAVAILABLE))
        << error.what();
    EXPECT_FALSE(deadline.has_passed()) << error.what();
  }
}

/// When what hung has come back after all.
void expect_new_objects_to_work(const Setting& setting) {
  const Deadline deadline = Deadline::after(kLimit);
  for (;;) {
    try {
      NcclAllReduce ops(1);
      return use(ops, setting);
    } catch (const OpError& error) {
      if (deadline.has_passed()) FAIL() << error.what();
    }
  }
}

void run(const Hang& hang) {
  const Setting setting{.name = hang.name, .is_cold = hang.is_cold};
  const testing::LogKeeper log;
  (void)::setenv("CROSSDEVICE_DEFAULT_TIMEOUT", "1", 1);  // for making communicators
  detail::set_nccl_grace(std::chrono::milliseconds(200));
  testing::install_emulated_gpus(2);
  {
    const std::vector<PerReplica> batch = batch_on(2);
    NcclAllReduce ops(1);
    if (!hang.is_cold) use(ops, setting);
    EXPECT_TRUE(emulated_cuda().synchronize(kLimit));
    emulated_cuda().calls().clear();
    emulated_cuda().calls().inject(hang.fault);
    std::thread nccl([&hang] {
      if (!hang.ends_with_abort) return;
      EXPECT_TRUE(emulated_cuda().calls().await_count("nccl.comm_revoke", 1, kLimit));
      emulated_cuda().calls().release_hangs();
    });
    expect_to_be_given_up(ops, batch);
    nccl.join();
    emulated_cuda().calls().clear_faults();
    emulated_cuda().calls().release_hangs();
    emulated_cuda().release_everything();
    EXPECT_TRUE(emulated_cuda().synchronize(kLimit));
  }
  expect_new_objects_to_work(setting);
  EXPECT_THAT(emulated_cuda().violations(), ::testing::IsEmpty());
}

class NcclHangs : public ::testing::TestWithParam<Hang> {};

TEST_P(NcclHangs, AreGivenUpInTime) {
  testing::ForkedCases cases;
  cases.run(GetParam().name, [] { run(GetParam()); });
}

Fault call_of(const char* function, std::size_t skip = 0) {
  return {.function = function, .kind = FaultKind::HANG_CALL, .skip = skip};
}
Fault operation_of(const char* function, std::size_t skip = 0) {
  return {.function = function, .kind = FaultKind::HANG_OPERATION, .skip = skip};
}

INSTANTIATE_TEST_SUITE_P(
    Means, NcclHangs,
    ::testing::Values(Hang{"TheFirstPack", operation_of("kernels.copy_ranges")},
                      Hang{"TheLastUnpack", operation_of("kernels.copy_ranges", 5)},
                      Hang{"AnOrderOfStreams", operation_of("cuda.stream_wait_event")},
                      Hang{"AKernelOfNccls", operation_of("nccl.all_reduce")},
                      Hang{"TheLastKernelOfNccls", operation_of("nccl.all_reduce", 3)},
                      Hang{"ACallInAGroup", call_of("nccl.all_reduce"), false, true},
                      Hang{"TheEndOfAGroup", call_of("nccl.group_end"), false, true},
                      Hang{"ALaunch", call_of("nccl.launch", 1), false, true},
                      Hang{"AnId", call_of("nccl.get_unique_id"), true},
                      Hang{"ARankThatIsMade", call_of("nccl.comm_init_rank"), true},
                      Hang{"TheSecondRankThatIsMade", call_of("nccl.comm_init_rank", 1), true},
                      Hang{"TheEndOfMaking", call_of("nccl.group_end"), true},
                      Hang{"TheWarmUp", call_of("nccl.group_end", 1), true, true},
                      Hang{"TheWarmUpsKernel", operation_of("nccl.all_reduce"), true}),
    [](const auto& hang) { return hang.param.name; });

}  // namespace
}  // namespace crossdevice
