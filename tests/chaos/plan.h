// SPDX-License-Identifier: Apache-2.0
/// What one run of the fault campaign does: which workers make which calls, and what happens to one of them when. Drawn from a seed: equal seeds and
/// numbers give equal plans on every machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/collective/all_reduce_choice.h"
#include "crossdevice/core/dtype.h"
#include "crossdevice/core/reduce_op.h"

namespace crossdevice::chaos {

enum class Fault : std::uint8_t {
  NONE,
  KILL,         ///< SIGKILL
  STOP,         ///< SIGSTOP, and SIGCONT when the others have gone on without it
  SKIP,         ///< leaves one call out
  OTHER_COUNT,  ///< makes a call with another number of elements
  OTHER_DTYPE,
  OTHER_OP,
  OTHER_ROOT,
  TWICE,          ///< makes a call twice
  THROW,          ///< gives up: in the place of a call, or while it is under way
  DESCRIPTORS,    ///< may open only a few more file descriptors
  MEMORY,         ///< may map only a little more memory
  SHARED_MEMORY,  ///< may make only small files, which shared memory is
  CLOCK,          ///< its monotonic clock is far ahead of the others'
  CLOCK_JUMP,     ///< its real-time clock jumps, there or back
  LINK_CUT,       ///< its link carries nothing until the others have gone on without it
  LINK_OUTAGE,  ///< its link carries nothing for longer than a heartbeat may be missed, and then again
  LINK_PARTED,  ///< for some time nothing passes between it and another worker, whereas both reach the others
  LINK_PAUSE,  ///< its link carries nothing for less time than a heartbeat may be missed
  LINK_LOSS,   ///< its link loses packets, for some time, as all that follow
  LINK_DELAY,
  LINK_REORDER,
  LINK_DUPLICATE,
  LINK_RATE,  ///< its link carries few bytes in a second
};
inline constexpr std::size_t kNumFaults = 24;
/// Amounts of a worker that gives up in a call.
inline constexpr std::uint64_t kInPlaceOfIt = 0;
inline constexpr std::uint64_t kUnderWay =
    1;  ///< one of its threads, or of a strategy's replicas the first one
inline constexpr std::uint64_t kInHook =
    2;  ///< of ops: a hook of the program's own throws, after a part of what it is to reduce
/// What they say.
inline constexpr std::string_view kGivesUpBecause = "on purpose";
/// Amounts of a link that is down one way only.
inline constexpr std::uint64_t kIsDeaf = 1;  ///< its worker hears nothing
inline constexpr std::uint64_t kIsMute = 2;  ///< nobody hears its worker
[[nodiscard]] std::string_view to_string(Fault fault);
[[nodiscard]] bool is_of_clock(Fault fault);
/// Whether a worker makes another call than the others.
[[nodiscard]] bool is_mismatch(Fault fault);
/// Whether that is one call, to which all come, and not one more or one fewer.
[[nodiscard]] bool differs_in_one_call(Fault fault);
/// Whether something is exhausted.
[[nodiscard]] bool is_of_limits(Fault fault);
/// Whether it happens to a link, for which the workers must be in network namespaces.
[[nodiscard]] bool is_of_link(Fault fault);
/// Whether its link is down, for good or for longer than a heartbeat may be missed.
[[nodiscard]] bool silences_link(Fault fault);
/// Whether the others go on without the faulty worker.
[[nodiscard]] bool loses_worker(Fault fault);

/// When: during the meeting; while what communicates is made, the measuring of links included; in a call; between calls; while the others make their
/// cluster anew after another worker was killed; when all leave.
enum class Phase : std::uint8_t { JOIN, MAKE, CALL, BETWEEN, REBUILD, LEAVE };
[[nodiscard]] std::string_view to_string(Phase phase);

/// What the workers call.
enum class Engine : std::uint8_t { OPS, COMMUNICATOR, STRATEGY };
[[nodiscard]] std::string_view to_string(Engine engine);

/// Where the workers are: on one machine, sharing memory; in two equal groups; each by itself, over TCP on loopback; or each in a network
/// namespace of its own.
enum class Place : std::uint8_t { ONE_MACHINE, TWO_MACHINES, ONE_EACH, NAMESPACES };
[[nodiscard]] std::string_view to_string(Place place);

enum class Form : std::uint8_t {
  // all engines; all_reduce of a communicator
  REDUCE,
  REDUCE_IN_PLACE,
  // ops and strategies
  BATCH,
  BATCH_IN_PLACE,
  // ops
  ASYNCHRONOUS,
  OPS_GATHER,
  // communicators
  REDUCE_SCATTER,
  ALL_GATHER,
  BROADCAST,
  ROOTED_REDUCE,
  ROOTED_GATHER,
  BARRIER,
};
[[nodiscard]] std::string_view to_string(Form form);

struct Call {
  Form form = Form::REDUCE;
  ReduceOp op = ReduceOp::SUM;
  DType dtype = DType::FLOAT32;
  std::size_t count = 0;  ///< elements of each value
  std::size_t num_values = 1;
  std::size_t bytes_per_pack = 0;
  bool deterministic = false;
  bool is_foreign = false;  ///< in memory that is not the pool's
  int root = 0;             ///< modulo the number of workers
  friend bool operator==(const Call&, const Call&) = default;
};
[[nodiscard]] std::string to_string(const Call& call);

/// In seconds.
struct Times {
  double join = 10;
  double call = 1;
  double heartbeat = 2;
  double death = 1;  ///< until it is known on the machine of whoever dies
  double rebuild = 30;
  double patience = 3;
  friend bool operator==(const Times&, const Times&) = default;
};

struct Plan {
  std::uint64_t seed = 0;
  std::uint64_t number = 0;

  int num_workers = 2;
  std::size_t num_devices = 1;  ///< of each worker
  Place place = Place::ONE_MACHINE;
  Engine engine = Engine::OPS;
  int workers_per_host = 1;                       ///< Place::NAMESPACES
  std::optional<AllReduceAlgorithm> algorithm{};  ///< nothing: links are measured
  bool over_ucx = false;
  bool is_encrypted = false;  ///< with TLS
  Times times{};
  std::vector<Call> calls{};       ///< of the first cluster
  std::vector<Call> more_calls{};  ///< of every later one

  Fault fault = Fault::NONE;
  int victim = 0;
  Phase phase = Phase::CALL;
  std::size_t call = 0;        ///< Phase::CALL, BETWEEN and REBUILD: which
  std::uint64_t delay_us = 0;  ///< after the phase has begun
  /// Instead of it, of who is killed, stopped or gives up under way: before so many messages are sent, or behind them where they are received; 0: by the clock.
  /// What is not reached in its phase comes after it.
  std::uint64_t message = 0;
  bool is_received = false;
  std::uint64_t amount =
      0;  ///< bytes, descriptors, seconds, per cent, us, kbit/s, kIsDeaf, kUnderWay, another dtype or worker, as the fault has it
  /// Of a link: how long; 0: until the others have gone on without the worker.
  std::uint64_t lasting_us = 0;
  std::optional<int> first_lost{};  ///< Phase::REBUILD: who is killed in `call`
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// What the machine and the build allow, and what is asked for.
struct Abilities {
  /// Of networks and of clocks.
  bool has_namespaces = false;
  bool has_ucx = false;
  int max_workers = 8;
  /// All times are multiplied with it.
  double slowness = 1;
  /// Nothing else is drawn, where something is named.
  std::vector<Fault> faults{};
};

[[nodiscard]] Plan draw_plan(std::uint64_t seed, std::uint64_t number, const Abilities& abilities);
/// Some of the calls that a plan with this engine and number of workers may have.
[[nodiscard]] std::vector<Call> draw_calls(std::uint64_t seed, std::uint64_t number, Engine engine,
                                           int num_workers, std::size_t count);
/// One line for people: "kill of rank 2 of 4 in call 3 after 120 us; communicator, one each, ring".
[[nodiscard]] std::string to_string(const Plan& plan);
/// Whether an error is what the fault may cause. Otherwise everything must go well: late, doubled or overtaken packets and other clocks harm nobody who has time.
[[nodiscard]] bool may_fail(const Plan& plan);
/// The host of a worker, and the number of hosts; of Place::NAMESPACES.
[[nodiscard]] int host_of(const Plan& plan, int rank);
[[nodiscard]] int num_hosts(const Plan& plan);
/// Whether what happens happens to this worker: the victim; of a link all that are on its host.
[[nodiscard]] bool is_hit(const Plan& plan, int rank);
[[nodiscard]] bool is_killed(const Plan& plan, int rank);
/// Whether something happens to it, or it is killed before that.
[[nodiscard]] bool is_faulty(const Plan& plan, int rank);
/// Whether those that are not lost may make a cluster without the lost ones: more than half of all, or the others are dead.
[[nodiscard]] bool can_go_on(const Plan& plan);
/// The workers that are not in the last cluster, ascending.
[[nodiscard]] std::vector<int> lost_workers(const Plan& plan);

}  // namespace crossdevice::chaos
