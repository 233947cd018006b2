// SPDX-License-Identifier: Apache-2.0
// Two workers that call each other for long: first one small all-reduce again and again, then all kinds of calls, with a worker that gives up and a cluster that
// is made anew among them. Memory, threads and descriptors must be at the end what they were when half was done. --help says what can be asked for; the exit
// status is 1 where something grew, was wrong or failed.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "chaos/call_memory.h"
#include "chaos/engines.h"
#include "chaos/own_resources.h"
#include "chaos/plan.h"

namespace crossdevice::chaos {
namespace {

constexpr double kTimeoutSeconds = 60;
constexpr std::size_t kMaxDevices = 2;            // of each worker
constexpr std::size_t kMebibytesOfASegment = 16;  // of slack

struct Arguments {
  std::uint64_t calls = 10'000'000;
  std::uint64_t mixed = 100'000;
  int machines = 1;
  std::uint64_t seed = 1;
  std::size_t slack_mebibytes = 2;  // pages of the allocator
};

/// Looks at this process between calls, four hundred times, and compares what comes after the first half, until which caches fill. Of memory the least of the third quarter with
/// the least of the last one: what is lost stays, while what a call holds comes and goes. Of pools the number of their segments: how much of these is resident goes up and down with the sizes
/// that were called last.
class Watch {
 public:
  Watch(std::string what, std::uint64_t calls) : what_(std::move(what)), calls_(calls) {}

  /// So many calls have been made, and nothing of them is held any more.
  void done(std::uint64_t call) {
    if (call % std::max<std::uint64_t>(calls_ / 400, 1) != 0) return;
    if (call * 2 < calls_) return;
    Quarter& quarter = call * 4 < 3 * calls_ ? third_ : last_;
    const std::size_t bytes = private_bytes();
    const std::size_t segments = num_pool_segments(kMaxDevices);
    quarter.segments = std::max(quarter.segments, segments);
    quarter.most_shared_bytes = std::max(quarter.most_shared_bytes, shared_bytes());
    quarter.least_bytes = std::min(quarter.least_bytes, bytes);
    quarter.most_bytes = std::max(quarter.most_bytes, bytes);
    quarter.threads = std::max(quarter.threads, num_threads());
    quarter.descriptors = std::max(quarter.descriptors, num_descriptors() - segments);
  }

  /// Whether nothing grew; says what there was.
  [[nodiscard]] bool is_constant(int rank, std::size_t slack_mebibytes) const {
    const bool is_well = last_.least_bytes <= third_.least_bytes + (slack_mebibytes << 20U) &&
                         last_.threads <= third_.threads &&
                         last_.descriptors <= third_.descriptors &&
                         last_.segments <= third_.segments + slack_mebibytes / kMebibytesOfASegment;
    const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
    fmt::print("rank {}: {} {} calls in {:.1f} s; third quarter {}; last {}: {}\n", rank, calls_,
               what_, seconds, third_.text(), last_.text(), is_well ? "constant" : "GROWS");
    std::fflush(stdout);
    return is_well;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Quarter {
    std::size_t least_bytes = std::numeric_limits<std::size_t>::max();
    std::size_t most_bytes = 0;
    std::size_t threads = 0;
    std::size_t descriptors = 0;
    std::size_t segments = 0;  // of the pools
    std::size_t most_shared_bytes = 0;

    [[nodiscard]] std::string text() const {
      constexpr double kMebibyte = 1 << 20;
      return fmt::format(
          "{:.1f} to {:.1f} MiB and at most {:.1f} of {} segments of pools, {} threads, {} "
          "descriptors",
          static_cast<double>(least_bytes) / kMebibyte, static_cast<double>(most_bytes) / kMebibyte,
          static_cast<double>(most_shared_bytes) / kMebibyte, segments, threads, descriptors);
    }
  };
  std::string what_;
  std::uint64_t calls_;
  Clock::time_point begun_ = Clock::now();
  Quarter third_;
  Quarter last_;
};

bool make_small_calls(const std::shared_ptr<Cluster>& cluster, const Arguments& arguments) {
  const std::uint64_t calls = arguments.calls;
  constexpr std::size_t kCount = 16;
  CollectiveAllReduce ops({"CPU:0"}, cluster->num_workers(), {.timeout_seconds = kTimeoutSeconds},
                          cluster);
  const Tensor tensor = Tensor::zeros(DType::FLOAT32, Shape{kCount}, "CPU:0");
  const PerReplica value{tensor};
  const std::span<float> elements = tensor.span<float>();
  Watch watch("small", calls);
  for (std::uint64_t call = 1; call <= calls; ++call) {
    const auto base = static_cast<float>(call % 1000);
    for (std::size_t i = 0; i < kCount; ++i) {
      elements[i] = base + static_cast<float>(i) * static_cast<float>(cluster->rank() + 1);
    }
    ops.reduce_into(ReduceOp::SUM, value, value);
    for (std::size_t i = 0; i < kCount; ++i) {
      if (elements[i] == 2 * base + 3 * static_cast<float>(i)) continue;
      throw std::runtime_error(fmt::format("call {}: element {} is {}", call, i, elements[i]));
    }
    watch.done(call);
  }
  return watch.is_constant(cluster->rank(), arguments.slack_mebibytes);
}

/// One that exists already, for a worker that gives up.
std::shared_ptr<Cluster> made_anew(const std::shared_ptr<Cluster>& cluster, CallMaker& maker,
                                   std::size_t num_devices, int culprit) {
  cluster->barrier(kTimeoutSeconds);  // what was called before has ended on both
  if (cluster->rank() == culprit) {
    try {
      maker.give_up("on purpose");
    } catch (const std::exception&) {
      // What left run().
    }
  } else {
    CallMemory memory(Call{.count = 1000}, {cluster->rank(), cluster->num_workers(), num_devices},
                      1);
    try {
      maker.make(memory, kTimeoutSeconds);
      throw std::runtime_error("a call without the other worker has succeeded");
    } catch (const AbortedError&) {
      // As it should be.
    }
  }
  return cluster->rebuild(Survivors::ALL, {.timeout_seconds = kTimeoutSeconds}).cluster;
}

void make_one(CallMaker& maker, const Call& each, const Caller& caller, std::uint64_t call) {
  CallMemory memory(each, caller, call);
  maker.make(memory, kTimeoutSeconds);
  const std::string wrong = memory.wrong_results();
  if (wrong.empty()) return;
  throw std::runtime_error(fmt::format("call {}, {}: {}", call, to_string(each), wrong));
}

bool make_mixed_calls(std::shared_ptr<Cluster> cluster, const Arguments& arguments) {
  const std::uint64_t per_cluster =
      std::min<std::uint64_t>(250, std::max<std::uint64_t>(arguments.mixed / 20, 1));
  Watch watch("mixed", arguments.mixed);
  std::uint64_t call = 0;
  int rank = cluster->rank();
  for (std::uint64_t number = 0; call < arguments.mixed; ++number) {
    Plan plan;
    plan.engine = static_cast<Engine>(number % 3);
    plan.num_devices = plan.engine == Engine::COMMUNICATOR ? 1 : 1 + number % kMaxDevices;
    plan.times.join = kTimeoutSeconds;
    const Caller caller{cluster->rank(), cluster->num_workers(), plan.num_devices};
    const std::unique_ptr<CallMaker> maker = make_call_maker(plan, devices_of(plan), cluster);
    for (const Call& each :
         draw_calls(arguments.seed, number, plan.engine, cluster->num_workers(), per_cluster)) {
      make_one(*maker, each, caller, ++call);
      watch.done(call);
    }
    cluster = made_anew(cluster, *maker, plan.num_devices, static_cast<int>(number % 2));
  }
  cluster->barrier(kTimeoutSeconds);
  return watch.is_constant(rank, arguments.slack_mebibytes);
}

int run_worker(const Arguments& arguments) {
  const std::shared_ptr<Cluster> cluster = Cluster::join({.timeout_seconds = kTimeoutSeconds});
  bool is_well = arguments.calls == 0 || make_small_calls(cluster, arguments);
  if (arguments.mixed != 0) is_well &= make_mixed_calls(cluster, arguments);
  return is_well ? 0 : 1;
}

/// NOLINTNEXTLINE(concurrency-mt-unsafe): this process has one thread
void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

int run_both(const Arguments& arguments, char** argv) {
  const auto pid = static_cast<unsigned>(::getpid());
  set(kNumWorkersVariable, "2");
  set(kChiefAddressVariable,
      fmt::format("127.{}.{}.{}:15800", 96 + (pid >> 16U) % 64, (pid >> 8U) & 0xFFU, pid & 0xFFU));
  std::array<pid_t, 2> workers{};
  for (int rank = 0; rank < 2; ++rank) {
    const pid_t worker = ::fork();
    if (worker < 0) throw std::runtime_error("cannot start a worker");
    if (worker == 0) {
      (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
      set(kRankVariable, std::to_string(rank));
      if (arguments.machines == 2) set(kHostIdVariable, fmt::format("machine {} of {}", rank, pid));
      set("CROSSDEVICE_SOAK_WORKER", "1");
      ::execv("/proc/self/exe", argv);
      ::_exit(127);
    }
    workers[static_cast<std::size_t>(rank)] = worker;
  }
  int failures = 0;
  for (const pid_t worker : workers) {
    int status = 0;
    (void)::waitpid(worker, &status, 0);
    failures += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
  }
  return failures == 0 ? 0 : 1;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Two workers call each other for long, on constant memory, threads and descriptors.");
  app.add_option("--calls", arguments.calls, "All-reduces of one small value")
      ->capture_default_str();
  app.add_option("--mixed", arguments.mixed,
                 "Calls of all kinds behind them, with failures and rebuilds")
      ->capture_default_str();
  app.add_option("--machines", arguments.machines,
                 "1: workers share memory; 2: they send messages, as if on two machines")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  app.add_option("--seed", arguments.seed, "What is called depends on it")->capture_default_str();
  app.add_option(
         "--slack-mib", arguments.slack_mebibytes,
         "MiB that a worker may grow by in the second half, and a segment of its pools for each 16 "
         "of them")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);  // NOLINT(concurrency-mt-unsafe): before any thread
  }
  return arguments;
}

}  // namespace
}  // namespace crossdevice::chaos

int main(int argc, char** argv) {
  try {
    const crossdevice::chaos::Arguments arguments = crossdevice::chaos::parse(argc, argv);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
    const bool is_worker = std::getenv("CROSSDEVICE_SOAK_WORKER") != nullptr;
    return is_worker ? crossdevice::chaos::run_worker(arguments)
                     : crossdevice::chaos::run_both(arguments, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
