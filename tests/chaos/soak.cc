// SPDX-License-Identifier: Apache-2.0
// Two workers that call each other for long: first one small all-reduce again and again, then all kinds of calls, with mishaps (mishap.h) and clusters that are
// made anew among them. Memory, threads and descriptors must be at the end what they were when half was done (growth.h). --help says what can be asked for; the
// exit status is 1 where something grew, was wrong or failed.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/ops/collective_all_reduce.h"

#include "chaos/call_memory.h"
#include "chaos/engines.h"
#include "chaos/growth.h"
#include "chaos/mishap.h"
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
  std::size_t slack_kibibytes = 64;  // of the heap in use, and of the pools
  std::size_t slack_mebibytes = 2;   // pages of the allocator
  std::size_t leak_bytes = 0;
};

/// Looks at this process between calls.
class Watch {
 public:
  Watch(std::string what, std::uint64_t calls)
      : what_(std::move(what)), calls_(calls), growth_(calls) {}

  /// So many calls have been made, and nothing of them is held any more; of pools so much was when nothing that calls was there last.
  void done(std::uint64_t call, std::size_t pool_bytes) {
    if (!growth_.is_due(call)) return;
    const std::size_t segments = num_pool_segments(kMaxDevices);
    growth_.note(call, {.heap_bytes = heap_bytes(),
                        .pool_bytes = pool_bytes,
                        .private_bytes = private_bytes(),
                        .shared_bytes = shared_bytes(),
                        .threads = num_threads(),
                        .descriptors = num_descriptors() - segments,
                        .segments = segments});
  }

  /// Whether nothing grew; says what there was.
  [[nodiscard]] bool is_constant(int rank, const Arguments& arguments) const {
    const std::vector<std::string> grows =
        growth_.what_grows({.heap_bytes = arguments.slack_kibibytes << 10U,
                            .pool_bytes = arguments.slack_kibibytes << 10U,
                            .private_bytes = arguments.slack_mebibytes << 20U,
                            .segments = 1 + arguments.slack_mebibytes / kMebibytesOfASegment});
    const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
    fmt::print("rank {}: {} {} calls in {:.1f} s; {}: {}\n", rank, calls_, what_, seconds,
               growth_.text(),
               grows.empty() ? "constant" : fmt::format("GROWS: {}", fmt::join(grows, ", ")));
    std::fflush(stdout);
    return grows.empty();
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  std::uint64_t calls_;
  Clock::time_point begun_ = Clock::now();
  Growth growth_;
};

/// Of a test of the watch: memory that nobody gives back, and that nobody else uses.
void leak(std::size_t bytes) {
  static std::vector<char*>* const lost = new std::vector<char*>;
  if (bytes > 0) lost->push_back(new char[bytes]);
}

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
    watch.done(call, pool_bytes(kMaxDevices));
  }
  return watch.is_constant(cluster->rank(), arguments);
}

void make_one(CallMaker& maker, const Call& each, const Caller& caller, std::uint64_t call) {
  CallMemory memory(each, caller, call);
  maker.make(memory, kTimeoutSeconds);
  const std::string wrong = memory.wrong_results();
  if (wrong.empty()) return;
  throw std::runtime_error(fmt::format("call {}, {}: {}", call, to_string(each), wrong));
}

/// Calls on one cluster until something happens that breaks it.
class MixedCalls {
 public:
  explicit MixedCalls(const Arguments& arguments)
      : arguments_(arguments),
        per_batch_(std::min<std::uint64_t>(250, std::max<std::uint64_t>(arguments.mixed / 40, 1))),
        watch_("mixed", arguments.mixed) {}

  /// Whether nothing grew.
  bool make_all(std::shared_ptr<Cluster> cluster) {
    const int rank = cluster->rank();
    while (call_ < arguments_.mixed) {
      make_some(cluster);
      idle_pool_bytes_ = pool_bytes(kMaxDevices);
      cluster = cluster->rebuild(Survivors::ALL, {.timeout_seconds = kTimeoutSeconds}).cluster;
      ++num_rebuilds_;
    }
    cluster->barrier(kTimeoutSeconds);
    fmt::print("rank {}: {} rebuilds; {}\n", rank, num_rebuilds_, fmt::join(mishaps_text(), ", "));
    return watch_.is_constant(rank, arguments_);
  }

 private:
  void make_some(const std::shared_ptr<Cluster>& cluster) {
    Plan plan;
    plan.engine = static_cast<Engine>(num_rebuilds_ % 3);
    plan.num_devices = plan.engine == Engine::COMMUNICATOR ? 1 : 1 + num_rebuilds_ % kMaxDevices;
    plan.times.join = kTimeoutSeconds;
    const Caller caller{cluster->rank(), cluster->num_workers(), plan.num_devices};
    const std::unique_ptr<CallMaker> maker = make_call_maker(plan, devices_of(plan), cluster);
    Mishap mishap{};
    do {
      for (const Call& each : draw_calls(arguments_.seed, num_batches_, plan.engine,
                                         cluster->num_workers(), per_batch_)) {
        make_one(*maker, each, caller, ++call_);
        leak(arguments_.leak_bytes);
        watch_.done(call_, idle_pool_bytes_);
      }
      mishap = draw_mishap(arguments_.seed, num_batches_, plan.engine);
      ++mishaps_[static_cast<std::size_t>(mishap)];
      cluster->barrier(kTimeoutSeconds);  // what was called before has ended on both
      suffer(mishap, plan.engine, *maker, caller, static_cast<int>(num_batches_++ % 2));
    } while (!needs_rebuild(mishap));
  }

  [[nodiscard]] std::vector<std::string> mishaps_text() const {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < mishaps_.size(); ++i) {
      texts.push_back(fmt::format("{} times {}", mishaps_[i], to_string(static_cast<Mishap>(i))));
    }
    return texts;
  }

  const Arguments& arguments_;
  std::uint64_t per_batch_;
  Watch watch_;
  std::uint64_t call_ = 0;
  std::uint64_t num_batches_ = 0;
  std::uint64_t num_rebuilds_ = 0;
  std::size_t idle_pool_bytes_ = 0;  // between two clusters
  std::array<std::uint64_t, kNumMishaps> mishaps_{};
};

int run_worker(const Arguments& arguments) {
  const std::shared_ptr<Cluster> cluster = Cluster::join({.timeout_seconds = kTimeoutSeconds});
  bool is_well = arguments.calls == 0 || make_small_calls(cluster, arguments);
  if (arguments.mixed != 0) is_well &= MixedCalls(arguments).make_all(cluster);
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
         "MiB that a worker's memory may grow by in the second half, and for each 16 of them its "
         "pools by a segment more than the one that they may always have")
      ->capture_default_str();
  app.add_option("--slack-kib", arguments.slack_kibibytes,
                 "KiB that what is in use of a worker's heap, or of its pools, may grow by")
      ->capture_default_str();
  app.add_option("--leak-bytes", arguments.leak_bytes)->group("");  // of a test: in each mixed call
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
