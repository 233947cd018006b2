// SPDX-License-Identifier: Apache-2.0
#include "chaos/plan.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <random>
#include <span>

#include <fmt/format.h>

namespace crossdevice::chaos {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{8} << 20;  // of all values of a call
constexpr std::size_t kMaxBytesOverRelay = std::size_t{2}
                                           << 20;  // where one process is the network

constexpr std::array<Fault, 13> kProcessFaults = {
    Fault::KILL,     Fault::STOP,          Fault::SKIP,      Fault::OTHER_COUNT, Fault::OTHER_DTYPE,
    Fault::OTHER_OP, Fault::OTHER_ROOT,    Fault::TWICE,     Fault::THROW,       Fault::DESCRIPTORS,
    Fault::MEMORY,   Fault::SHARED_MEMORY, Fault::CLOCK_JUMP};
constexpr std::array<Fault, 10> kNamespaceFaults = {
    Fault::LINK_CUT,       Fault::LINK_OUTAGE, Fault::LINK_PARTED, Fault::LINK_PAUSE,
    Fault::LINK_LOSS,      Fault::LINK_LOSS,   Fault::LINK_DELAY,  Fault::LINK_REORDER,
    Fault::LINK_DUPLICATE, Fault::LINK_RATE};
constexpr std::uint64_t kClockPercent = 5;                        // of those that need namespaces
constexpr std::uint64_t kMinFileBytes = std::uint64_t{64} << 10;  // for what a worker prints
constexpr std::uint64_t kToTheEndUs = 3'600'000'000;
constexpr std::uint64_t kLongestTroubleUs = 15'000'000;
/// A call with this deadline has time for whatever a link does to its packets, unless it loses them.
constexpr double kLongCallSeconds = 20;
/// So long before the deadline whoever waits for one that gives up must hear of it.
constexpr double kCallOfOneThatGivesUpSeconds = 10;
/// Who is but a half waits in vain.
constexpr double kRebuildOfAHalfSeconds = 5;

/// Numbers from a seed; not those of <random>'s distributions, which differ between libraries.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t number) {
    std::seed_seq sequence{seed & 0xFFFFFFFFU, seed >> 32U, number & 0xFFFFFFFFU, number >> 32U};
    engine_.seed(sequence);
  }
  /// Below `limit`.
  std::uint64_t below(std::uint64_t limit) { return engine_() % limit; }
  std::uint64_t from_to(std::uint64_t first, std::uint64_t last) {
    return first + below(last - first + 1);
  }
  bool happens(std::uint64_t percent) { return below(100) < percent; }
  template <class T>
  T one_of(std::span<const T> choices) {
    return choices[below(choices.size())];
  }
  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return one_of(std::span<const T>(choices.begin(), choices.size()));
  }
  /// Small ones as often as large ones, up to `largest`.
  std::uint64_t magnitude(std::uint64_t largest) {
    std::uint64_t limit = 1;
    for (std::uint64_t i = below(24); i > 0 && limit < largest; --i) limit *= 2;
    return below(std::min(limit, largest) + 1);
  }

 private:
  std::mt19937_64 engine_;
};

DType draw_dtype(Dice& dice) {
  if (dice.happens(40)) return DType::FLOAT32;
  return dice.one_of(std::span<const DType>(kAllDTypes));
}

ReduceOp draw_op(Dice& dice, DType dtype) {
  for (;;) {
    const auto op = dice.one_of(std::span<const ReduceOp>(kAllReduceOps));
    if (is_supported(op, dtype)) return op;
  }
}

std::size_t draw_count(Dice& dice) {
  switch (dice.below(10)) {
    case 0:
      return dice.below(3);
    case 1:
    case 2:
    case 3:
      return dice.from_to(3, 1100);
    case 4:
    case 5:
    case 6:
      return dice.from_to(2000, 9000);
    case 7:
    case 8:
      return dice.from_to(30'000, 140'000);
    default:
      return dice.from_to(200'000, 1'100'000);
  }
}

Form draw_form(Dice& dice, Engine engine) {
  switch (engine) {
    case Engine::OPS:
      return dice.one_of({Form::REDUCE, Form::REDUCE_IN_PLACE, Form::BATCH, Form::BATCH_IN_PLACE,
                          Form::ASYNCHRONOUS, Form::OPS_GATHER});
    case Engine::STRATEGY:
      return dice.one_of({Form::REDUCE, Form::REDUCE_IN_PLACE, Form::BATCH, Form::BATCH_IN_PLACE});
    case Engine::COMMUNICATOR:
      break;
  }
  return dice.one_of({Form::REDUCE, Form::REDUCE_IN_PLACE, Form::REDUCE_SCATTER, Form::ALL_GATHER,
                      Form::BROADCAST, Form::ROOTED_REDUCE, Form::ROOTED_GATHER, Form::BARRIER});
}

bool is_in_place(Form form) {
  return form == Form::REDUCE_IN_PLACE || form == Form::BATCH_IN_PLACE ||
         form == Form::ASYNCHRONOUS;
}

bool is_batch(Form form) { return form == Form::BATCH || form == Form::BATCH_IN_PLACE; }

Call draw_call(Dice& dice, const Plan& plan) {
  Call call;
  call.form = draw_form(dice, plan.engine);
  call.dtype = draw_dtype(dice);
  call.op = draw_op(dice, call.dtype);
  if (call.op == ReduceOp::MEAN && is_integer(call.dtype) && is_in_place(call.form)) {
    call.op = ReduceOp::MAX;  // a mean of integers has another type, which there is no place for
  }
  call.num_values = is_batch(call.form) ? dice.from_to(1, 9) : 1;
  const std::size_t max_bytes = plan.place == Place::NAMESPACES ? kMaxBytesOverRelay : kMaxBytes;
  const std::size_t limit = max_bytes / size_in_bytes(call.dtype) / call.num_values;
  call.count = std::min(draw_count(dice), limit / static_cast<std::size_t>(plan.num_workers));
  call.bytes_per_pack = dice.one_of<std::size_t>({0, 0, 4096, 65536, 1 << 20});
  call.deterministic = dice.happens(25);
  call.is_foreign = dice.happens(30);
  call.root = static_cast<int>(dice.below(8));
  return call;
}

std::vector<Call> draw_calls(Dice& dice, const Plan& plan, std::size_t count) {
  std::vector<Call> calls;
  calls.reserve(count);
  for (std::size_t i = 0; i < count; ++i) calls.push_back(draw_call(dice, plan));
  return calls;
}

/// With fewer it cannot be carried out. Who is only silent, or gives up in a rebuild, must not be half of them, together with who is lost before it: of two
/// halves neither may go on without the other, of which there are two workers enough.
int min_workers(Fault fault, Phase phase) {
  const bool may_be_out = fault == Fault::STOP || fault == Fault::LINK_CUT || is_of_limits(fault);
  if (phase == Phase::REBUILD) return may_be_out ? 5 : 3;
  return 2;
}

/// Those that come more often come several times; but the rebuild, which not all numbers of workers can have.
std::vector<Phase> phases_of(Fault fault) {
  switch (fault) {
    case Fault::KILL:
    case Fault::STOP:
      return {Phase::JOIN, Phase::MAKE,    Phase::CALL, Phase::CALL,
              Phase::CALL, Phase::BETWEEN, Phase::LEAVE};
    case Fault::DESCRIPTORS:
    case Fault::MEMORY:
    case Fault::SHARED_MEMORY:
    case Fault::CLOCK_JUMP:
      return {Phase::JOIN, Phase::MAKE, Phase::CALL, Phase::BETWEEN, Phase::LEAVE};
    case Fault::THROW:
      return {Phase::MAKE, Phase::CALL, Phase::CALL, Phase::CALL};
    case Fault::LINK_CUT:
    case Fault::LINK_OUTAGE:
    case Fault::LINK_PARTED:
    case Fault::LINK_PAUSE:
    case Fault::LINK_LOSS:
    case Fault::LINK_DELAY:
    case Fault::LINK_REORDER:
    case Fault::LINK_DUPLICATE:
    case Fault::LINK_RATE:
      return {Phase::JOIN, Phase::MAKE, Phase::MAKE,    Phase::CALL,
              Phase::CALL, Phase::CALL, Phase::BETWEEN, Phase::LEAVE};
    case Fault::CLOCK:
      return {Phase::JOIN};
    case Fault::NONE:
    case Fault::SKIP:
    case Fault::OTHER_COUNT:
    case Fault::OTHER_DTYPE:
    case Fault::OTHER_OP:
    case Fault::OTHER_ROOT:
    case Fault::TWICE:
      break;
  }
  return {Phase::CALL};
}

bool may_be_in_rebuild(Fault fault) {
  return fault != Fault::NONE && fault != Fault::CLOCK && !is_mismatch(fault);
}

Phase draw_phase(Dice& dice, Fault fault, int num_workers) {
  if (may_be_in_rebuild(fault) && num_workers >= min_workers(fault, Phase::REBUILD) &&
      dice.happens(20)) {
    return Phase::REBUILD;
  }
  const std::vector<Phase> phases = phases_of(fault);
  return dice.one_of(std::span<const Phase>(phases));
}

/// What half of a seed's numbers get one after the other, so that nothing is left to chance.
struct Cell {
  Fault fault;
  Phase phase;
  std::optional<AllReduceAlgorithm> algorithm;  // Phase::CALL
  Place place;
};

constexpr std::array<AllReduceAlgorithm, 5> kAlgorithms = {
    AllReduceAlgorithm::EXCHANGE, AllReduceAlgorithm::DOUBLING, AllReduceAlgorithm::SHUFFLE,
    AllReduceAlgorithm::HALVING_DOUBLING, AllReduceAlgorithm::RING};

std::vector<Fault> possible_faults(const Abilities& abilities) {
  std::vector<Fault> faults = abilities.faults;
  if (!faults.empty()) return faults;
  faults.assign(kProcessFaults.begin(), kProcessFaults.end());
  if (!abilities.has_namespaces) return faults;
  std::unique_copy(kNamespaceFaults.begin(), kNamespaceFaults.end(), std::back_inserter(faults));
  faults.push_back(Fault::CLOCK);
  return faults;
}

std::vector<Place> places_of(Fault fault, const Abilities& abilities) {
  if (is_of_link(fault)) return {Place::NAMESPACES};
  std::vector<Place> places = {Place::ONE_MACHINE, Place::TWO_MACHINES, Place::ONE_EACH};
  if (abilities.has_namespaces) places.push_back(Place::NAMESPACES);
  return places;
}

std::vector<Cell> cells_of(const Abilities& abilities) {
  std::vector<Cell> cells;
  for (const Fault fault : possible_faults(abilities)) {
    std::vector<Phase> phases = phases_of(fault);
    if (may_be_in_rebuild(fault)) phases.push_back(Phase::REBUILD);
    phases.erase(std::unique(phases.begin(), phases.end()), phases.end());
    for (const Phase phase : phases) {
      if (min_workers(fault, phase) > abilities.max_workers) continue;
      for (const Place place : places_of(fault, abilities)) {
        cells.push_back({fault, phase, std::nullopt, place});
        // Memory that is shared is not sent, and no algorithm of an all-reduce knows a root.
        if (phase != Phase::CALL || place == Place::ONE_MACHINE || fault == Fault::OTHER_ROOT) {
          continue;
        }
        for (const AllReduceAlgorithm algorithm : kAlgorithms) {
          cells.push_back({fault, phase, algorithm, place});
        }
      }
    }
  }
  return cells;
}

/// Of every other number. Steps of a prime, so that few numbers already are of many kinds.
std::optional<Cell> cell_of(std::uint64_t seed, std::uint64_t number, const Abilities& abilities) {
  constexpr std::uint64_t kStep = 7919;
  if (number % 2 == 0) return std::nullopt;
  const std::vector<Cell> cells = cells_of(abilities);
  if (cells.empty()) return std::nullopt;
  return cells[(seed % 1'000'000 + number / 2) * kStep % cells.size()];
}

std::uint64_t draw_amount(Dice& dice, const Plan& plan) {
  switch (plan.fault) {
    case Fault::DESCRIPTORS:
      return dice.below(12);
    case Fault::MEMORY:
      return dice.magnitude(std::uint64_t{64} << 20);
    case Fault::SHARED_MEMORY:
      return kMinFileBytes + dice.magnitude(std::uint64_t{16} << 20);
    case Fault::THROW:
      if (plan.phase != Phase::CALL) return 0;
      if (plan.engine != Engine::OPS) return dice.one_of({kInPlaceOfIt, kUnderWay});
      return dice.one_of({kInPlaceOfIt, kUnderWay, kInHook});
    case Fault::CLOCK:
      return dice.from_to(1, 1'000'000);  // s
    case Fault::CLOCK_JUMP:
      return dice.from_to(1, 100'000'000);  // s, odd ones back
    case Fault::LINK_CUT:
    case Fault::LINK_OUTAGE:
      return dice.one_of<std::uint64_t>({0, 0, kIsDeaf, kIsMute});
    case Fault::LINK_PARTED: {
      const auto all = static_cast<std::uint64_t>(plan.num_workers);
      for (;;) {
        const std::uint64_t other = dice.below(all);
        if (host_of(plan, static_cast<int>(other)) != host_of(plan, plan.victim)) return other;
      }
    }
    case Fault::LINK_PAUSE:
      // us; what is sent again comes up to twice as long after the first time, which must be less than a heartbeat.
      return dice.from_to(1'000, 500'000);
    case Fault::LINK_LOSS:
      return dice.from_to(1, 20);  // per cent
    case Fault::LINK_DELAY:
      return dice.from_to(1, 200'000);  // us
    case Fault::LINK_REORDER:
    case Fault::LINK_DUPLICATE:
      return dice.from_to(1, 30);  // per cent
    case Fault::LINK_RATE:
      return 1'000 * dice.from_to(1, 1 + dice.magnitude(99));  // kbit/s
    case Fault::NONE:
    case Fault::KILL:
    case Fault::STOP:
    case Fault::SKIP:
    case Fault::OTHER_COUNT:
    case Fault::OTHER_DTYPE:
    case Fault::OTHER_OP:
    case Fault::OTHER_ROOT:
    case Fault::TWICE:
      break;
  }
  return 0;
}

std::uint64_t draw_lasting_us(Dice& dice, const Plan& plan) {
  if (!is_of_link(plan.fault) || plan.fault == Fault::LINK_CUT) return 0;
  if (plan.fault == Fault::LINK_PAUSE) return plan.amount;
  const bool is_bearable = plan.fault == Fault::LINK_DELAY || plan.fault == Fault::LINK_REORDER ||
                           plan.fault == Fault::LINK_DUPLICATE;
  if (is_bearable && dice.happens(40)) return kToTheEndUs;
  if (plan.fault != Fault::LINK_OUTAGE) {
    return dice.from_to(200'000, dice.happens(30) ? kLongestTroubleUs : 6'000'000);
  }
  const auto heartbeat_us = static_cast<std::uint64_t>(plan.times.heartbeat * 1e6);
  return dice.from_to(heartbeat_us * 5 / 4, heartbeat_us * 3);
}

/// About as long as a call takes: what comes later than that comes after it.
std::uint64_t call_us(const Plan& plan) {
  const Call& call = plan.calls[plan.call];
  const auto workers = static_cast<std::uint64_t>(plan.num_workers);
  const std::uint64_t bytes =
      call.form == Form::BARRIER ? 0 : call.count * call.num_values * size_in_bytes(call.dtype);
  const auto with = [&](std::uint64_t start_us, std::uint64_t bytes_per_us) {
    return start_us + bytes * workers / bytes_per_us;
  };
  if (plan.place == Place::ONE_MACHINE) return with(20, 4'000);
  if (plan.place == Place::NAMESPACES) return with(1'000, 50);
  return with(150, 1'000);
}

/// About as long as what the fault is to fall into may take.
std::uint64_t max_delay_us(const Plan& plan) {
  if (plan.phase == Phase::JOIN) return 60'000;
  if (plan.phase == Phase::CALL && !is_of_link(plan.fault)) return call_us(plan);
  return is_of_link(plan.fault) && plan.phase != Phase::MAKE ? 2'000 : 20'000;
}

bool is_all_reduce(Form form) { return form <= Form::ASYNCHRONOUS; }

/// A form in which the fault makes a difference.
Form differing_form(Dice& dice, Fault fault, Form form) {
  if (fault == Fault::OTHER_ROOT) {
    return dice.one_of({Form::BROADCAST, Form::ROOTED_REDUCE, Form::ROOTED_GATHER});
  }
  const bool has_op =
      is_all_reduce(form) || form == Form::REDUCE_SCATTER || form == Form::ROOTED_REDUCE;
  if (fault == Fault::OTHER_OP && !has_op) return Form::REDUCE;
  // A gather takes any number of elements; of other dtypes it tells as of other shapes, with a ValueError on all workers.
  const bool is_of_values = fault == Fault::OTHER_COUNT || fault == Fault::OTHER_DTYPE;
  if (is_of_values && form == Form::OPS_GATHER) return Form::REDUCE;
  const bool is_of_one_call = fault != Fault::SKIP && fault != Fault::TWICE;
  return is_of_one_call && form == Form::BARRIER ? Form::REDUCE_IN_PLACE : form;
}

/// Calls that can be told apart: two that are equal may be exchanged for each other, and a gather takes any number of elements.
void make_distinguishable(Dice& dice, Plan& plan) {
  Call& call = plan.calls[plan.call];
  call.form = differing_form(dice, plan.fault, call.form);
  call.num_values = is_batch(call.form) ? call.num_values : 1;
  if (plan.fault == Fault::OTHER_OP) call.dtype = DType::FLOAT32;  // has all of them
  if (call.op == ReduceOp::MEAN || !is_supported(call.op, call.dtype)) call.op = ReduceOp::SUM;
  if (!is_supported(call.op, call.dtype)) call.dtype = DType::FLOAT32;
  if (call.count == 0) call.count = 1;
  if (plan.fault == Fault::OTHER_DTYPE) {
    DType other = call.dtype;
    while (other == call.dtype || !is_supported(call.op, other)) {
      other = dice.one_of(std::span<const DType>(kAllDTypes));
    }
    plan.amount = static_cast<std::uint64_t>(other);
  }
  if (plan.call + 1 == plan.calls.size()) return;
  Call& next = plan.calls[plan.call + 1];
  next = call;
  next.count = call.count + 1;
  if (call.form == Form::OPS_GATHER || call.form == Form::BARRIER) next.form = Form::REDUCE;
}

/// What is looked at when a late worker has come back: memory that it might still write.
void make_writable_by_others(Call& call) {
  call.form = Form::REDUCE;
  call.num_values = 1;
  call.is_foreign = false;
  call.count = std::max<std::size_t>(call.count, 1);
}

/// Whether messages can be counted by which it strikes: over TCP, in a call or while links are measured.
bool may_strike_at_message(const Plan& plan) {
  const bool strikes =
      plan.fault == Fault::KILL || plan.fault == Fault::STOP ||
      (plan.fault == Fault::THROW && plan.amount == kUnderWay && plan.engine != Engine::STRATEGY);
  return strikes && (plan.phase == Phase::CALL || plan.phase == Phase::MAKE) &&
         plan.place != Place::ONE_MACHINE && !plan.over_ucx && !plan.is_encrypted;
}

/// As many as an algorithm has steps, and a few more for packs and for those that are sent in pieces.
std::uint64_t max_message(const Plan& plan) {
  return 4 * static_cast<std::uint64_t>(plan.num_workers);
}

Fault draw_fault(Dice& dice, const Abilities& abilities) {
  if (!abilities.faults.empty()) return dice.one_of(std::span<const Fault>(abilities.faults));
  if (abilities.has_namespaces && dice.happens(25)) {
    return dice.happens(kClockPercent) ? Fault::CLOCK
                                       : dice.one_of(std::span<const Fault>(kNamespaceFaults));
  }
  if (dice.happens(40)) return dice.happens(60) ? Fault::KILL : Fault::STOP;
  return dice.one_of(std::span<const Fault>(kProcessFaults));
}

/// While it is loaded, UCX 1.13 holds the processor's clock against the real-time clock for a millisecond. One that jumps in it leaves UCX with intervals of nothing, of
/// which it aborts the process ("ka_interval > 0"), or ends no call.
bool may_mislead_ucx(const Plan& plan) {
  return plan.fault == Fault::CLOCK_JUMP &&
         (plan.phase == Phase::JOIN || plan.phase == Phase::MAKE);
}

/// Two of a host where the others stay more than half without them, who go on in one cluster.
int draw_workers_per_host(Dice& dice, const Plan& plan) {
  if (plan.place != Place::NAMESPACES || plan.phase == Phase::REBUILD) return 1;
  const int least = silences_link(plan.fault) ? 5 : 3;
  return plan.num_workers >= least && dice.happens(50) ? 2 : 1;
}

/// Who they are, where, and which of them suffers in which phase.
void draw_workers(Dice& dice, const Abilities& abilities, const std::optional<Cell>& cell,
                  Plan& plan) {
  plan.num_workers = static_cast<int>(dice.from_to(
      2, static_cast<std::uint64_t>(dice.happens(70) ? std::min(4, abilities.max_workers)
                                                     : abilities.max_workers)));
  plan.num_workers =
      std::max(plan.num_workers, min_workers(plan.fault, cell ? cell->phase : Phase::CALL));
  plan.phase = cell ? cell->phase : draw_phase(dice, plan.fault, plan.num_workers);
  plan.engine = dice.one_of({Engine::OPS, Engine::OPS, Engine::COMMUNICATOR, Engine::STRATEGY});
  if (plan.fault == Fault::OTHER_ROOT) plan.engine = Engine::COMMUNICATOR;
  plan.num_devices = plan.engine == Engine::COMMUNICATOR ? 1 : dice.from_to(1, 2);
  plan.place = dice.one_of({Place::ONE_MACHINE, Place::ONE_MACHINE, Place::ONE_EACH,
                            Place::ONE_EACH, Place::TWO_MACHINES});
  if (is_of_link(plan.fault) || (abilities.has_namespaces && dice.happens(10))) {
    plan.place = Place::NAMESPACES;
  }
  if (cell) plan.place = cell->place;
  plan.workers_per_host = draw_workers_per_host(dice, plan);
  if (dice.happens(70))
    plan.algorithm = dice.one_of(std::span<const AllReduceAlgorithm>(kAlgorithms));
  if (cell && cell->phase == Phase::CALL) plan.algorithm = cell->algorithm;
  plan.over_ucx = abilities.has_ucx && plan.place == Place::ONE_EACH && dice.happens(25) &&
                  !may_mislead_ucx(plan);
  const bool has_hosts = plan.place == Place::ONE_EACH || plan.place == Place::NAMESPACES;
  plan.is_encrypted = has_hosts && !plan.over_ucx && dice.happens(25);
  plan.victim = static_cast<int>(dice.below(static_cast<std::uint64_t>(plan.num_workers)));
  const double slowness = abilities.slowness;
  plan.times.call = static_cast<double>(dice.from_to(15, 40)) / 10 * slowness;
  plan.times.join *= slowness;
  plan.times.heartbeat *= slowness;
  plan.times.death *= slowness;
  plan.times.rebuild *= slowness;
  plan.times.patience *= slowness;
}

}  // namespace

std::string_view to_string(Fault fault) {
  switch (fault) {
    case Fault::NONE:
      return "nothing";
    case Fault::KILL:
      return "kill";
    case Fault::STOP:
      return "stop";
    case Fault::SKIP:
      return "skip";
    case Fault::OTHER_COUNT:
      return "other-count";
    case Fault::OTHER_DTYPE:
      return "other-dtype";
    case Fault::OTHER_OP:
      return "other-op";
    case Fault::OTHER_ROOT:
      return "other-root";
    case Fault::TWICE:
      return "twice";
    case Fault::THROW:
      return "throw";
    case Fault::DESCRIPTORS:
      return "descriptors";
    case Fault::MEMORY:
      return "memory";
    case Fault::SHARED_MEMORY:
      return "shared-memory";
    case Fault::CLOCK:
      return "clock";
    case Fault::CLOCK_JUMP:
      return "clock-jump";
    case Fault::LINK_CUT:
      return "link-cut";
    case Fault::LINK_OUTAGE:
      return "link-outage";
    case Fault::LINK_PARTED:
      return "link-parted";
    case Fault::LINK_PAUSE:
      return "link-pause";
    case Fault::LINK_LOSS:
      return "link-loss";
    case Fault::LINK_DELAY:
      return "link-delay";
    case Fault::LINK_REORDER:
      return "link-reorder";
    case Fault::LINK_DUPLICATE:
      return "link-duplicate";
    case Fault::LINK_RATE:
      return "link-rate";
  }
  return "?";
}

bool is_of_clock(Fault fault) { return fault == Fault::CLOCK || fault == Fault::CLOCK_JUMP; }

bool is_mismatch(Fault fault) { return fault >= Fault::SKIP && fault <= Fault::TWICE; }

bool differs_in_one_call(Fault fault) {
  return is_mismatch(fault) && fault != Fault::SKIP && fault != Fault::TWICE;
}

bool is_of_limits(Fault fault) {
  return fault == Fault::DESCRIPTORS || fault == Fault::MEMORY || fault == Fault::SHARED_MEMORY;
}

bool is_of_link(Fault fault) { return fault >= Fault::LINK_CUT; }

bool silences_link(Fault fault) { return fault == Fault::LINK_CUT || fault == Fault::LINK_OUTAGE; }

bool loses_worker(Fault fault) {
  return fault == Fault::KILL || fault == Fault::STOP || fault == Fault::LINK_CUT;
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::JOIN:
      return "join";
    case Phase::MAKE:
      return "make";
    case Phase::CALL:
      return "call";
    case Phase::BETWEEN:
      return "between";
    case Phase::REBUILD:
      return "rebuild";
    case Phase::LEAVE:
      return "leave";
  }
  return "?";
}

std::string_view to_string(Engine engine) {
  switch (engine) {
    case Engine::OPS:
      return "ops";
    case Engine::COMMUNICATOR:
      return "communicator";
    case Engine::STRATEGY:
      return "strategy";
  }
  return "?";
}

std::string_view to_string(Place place) {
  switch (place) {
    case Place::ONE_MACHINE:
      return "one machine";
    case Place::TWO_MACHINES:
      return "two machines";
    case Place::ONE_EACH:
      return "one each";
    case Place::NAMESPACES:
      return "namespaces";
  }
  return "?";
}

std::string_view to_string(Form form) {
  switch (form) {
    case Form::REDUCE:
      return "reduce";
    case Form::REDUCE_IN_PLACE:
      return "reduce in place";
    case Form::BATCH:
      return "batch";
    case Form::BATCH_IN_PLACE:
      return "batch in place";
    case Form::ASYNCHRONOUS:
      return "asynchronous reduce";
    case Form::OPS_GATHER:
      return "gather of ops";
    case Form::REDUCE_SCATTER:
      return "reduce_scatter";
    case Form::ALL_GATHER:
      return "all_gather";
    case Form::BROADCAST:
      return "broadcast";
    case Form::ROOTED_REDUCE:
      return "reduce to root";
    case Form::ROOTED_GATHER:
      return "gather to root";
    case Form::BARRIER:
      return "barrier";
  }
  return "?";
}

std::string to_string(const Call& call) {
  return fmt::format(
      "{} {} of {} x {} {}{}{}{}", to_string(call.form), to_string(call.op), call.num_values,
      call.count, to_string(call.dtype),
      call.bytes_per_pack == 0 ? "" : fmt::format(" in packs of {}", call.bytes_per_pack),
      call.deterministic ? " deterministic" : "", call.is_foreign ? " foreign" : "");
}

Plan draw_plan(std::uint64_t seed, std::uint64_t number, const Abilities& abilities) {
  Dice dice(seed, number);
  Plan plan;
  plan.seed = seed;
  plan.number = number;
  const std::optional<Cell> cell = cell_of(seed, number, abilities);
  plan.fault = cell.has_value() ? cell->fault : draw_fault(dice, abilities);
  draw_workers(dice, abilities, cell, plan);
  plan.calls = draw_calls(dice, plan, dice.from_to(3, 8));
  plan.more_calls = draw_calls(dice, plan, 4);
  make_writable_by_others(plan.more_calls.back());
  plan.call = dice.below(plan.calls.size());
  Call& call = plan.calls[plan.call];
  // Of the forms that an algorithm is for.
  if (cell.has_value() && plan.algorithm.has_value() && !is_all_reduce(call.form)) {
    call.form = Form::REDUCE_IN_PLACE;
    if (call.op == ReduceOp::MEAN && is_integer(call.dtype)) call.op = ReduceOp::MAX;
  }
  plan.delay_us = dice.magnitude(max_delay_us(plan));
  plan.amount = draw_amount(dice, plan);
  if (plan.phase == Phase::REBUILD) {
    const auto other = 1 + dice.below(static_cast<std::uint64_t>(plan.num_workers) - 1);
    plan.first_lost = static_cast<int>((static_cast<std::uint64_t>(plan.victim) + other) %
                                       static_cast<std::uint64_t>(plan.num_workers));
  }
  plan.lasting_us = draw_lasting_us(dice, plan);
  if (is_of_link(plan.fault) && !silences_link(plan.fault) && dice.happens(75)) {
    plan.times.call = kLongCallSeconds * abilities.slowness;
  } else if (plan.lasting_us == kToTheEndUs) {
    plan.lasting_us = kLongestTroubleUs;  // there may be no time for a call as long as it lasts
  }
  if (plan.fault == Fault::THROW) {
    plan.times.call = kCallOfOneThatGivesUpSeconds * abilities.slowness;
  }
  if (!can_go_on(plan)) plan.times.rebuild = kRebuildOfAHalfSeconds * abilities.slowness;
  if (is_mismatch(plan.fault)) make_distinguishable(dice, plan);
  if (may_strike_at_message(plan) && dice.happens(60)) {
    plan.message = dice.from_to(1, max_message(plan));
    plan.is_received = dice.happens(50);
  }
  return plan;
}

std::vector<Call> draw_calls(std::uint64_t seed, std::uint64_t number, Engine engine,
                             int num_workers, std::size_t count) {
  Dice dice(seed, number);
  Plan plan;
  plan.engine = engine;
  plan.num_workers = num_workers;
  return draw_calls(dice, plan, count);
}

bool may_fail(const Plan& plan) {
  if (plan.fault == Fault::NONE) return false;
  if (is_of_clock(plan.fault)) return plan.phase == Phase::REBUILD;  // because of who is killed
  const bool is_harmless = plan.fault == Fault::LINK_PAUSE || plan.fault == Fault::LINK_DELAY ||
                           plan.fault == Fault::LINK_REORDER || plan.fault == Fault::LINK_DUPLICATE;
  return !is_harmless || plan.phase == Phase::REBUILD || plan.times.call < kLongCallSeconds;
}

int host_of(const Plan& plan, int rank) { return rank / plan.workers_per_host; }

int num_hosts(const Plan& plan) { return host_of(plan, plan.num_workers - 1) + 1; }

bool is_hit(const Plan& plan, int rank) {
  if (!is_of_link(plan.fault)) return rank == plan.victim;
  return host_of(plan, rank) == host_of(plan, plan.victim);
}

bool is_killed(const Plan& plan, int rank) {
  return plan.first_lost == rank || (plan.fault == Fault::KILL && plan.victim == rank);
}

bool is_faulty(const Plan& plan, int rank) { return is_hit(plan, rank) || plan.first_lost == rank; }

bool can_go_on(const Plan& plan) {
  if (plan.fault == Fault::KILL) return true;
  const auto num_lost = static_cast<int>(lost_workers(plan).size());
  return 2 * (plan.num_workers - num_lost) > plan.num_workers;
}

std::vector<int> lost_workers(const Plan& plan) {
  std::vector<int> lost;
  for (int rank = 0; rank < plan.num_workers; ++rank) {
    if (loses_worker(plan.fault) && is_hit(plan, rank)) lost.push_back(rank);
  }
  if (plan.first_lost.has_value()) lost.push_back(*plan.first_lost);
  std::sort(lost.begin(), lost.end());
  return lost;
}

std::string to_string(const Plan& plan) {
  std::string when = std::string(to_string(plan.phase));
  if (plan.phase == Phase::CALL || plan.phase == Phase::BETWEEN)
    when += fmt::format(" {}", plan.call);
  if (plan.first_lost.has_value())
    when += fmt::format(" after rank {} was killed", *plan.first_lost);
  std::string amount = plan.amount == 0 ? "" : fmt::format(" {}", plan.amount);
  if (silences_link(plan.fault) && plan.amount == kIsDeaf) amount = " (deaf)";
  if (silences_link(plan.fault) && plan.amount == kIsMute) amount = " (mute)";
  if (plan.fault == Fault::OTHER_DTYPE) {
    amount = fmt::format(" ({})", to_string(static_cast<DType>(plan.amount)));
  }
  if (plan.fault == Fault::THROW && plan.amount == kUnderWay) amount = " (under way)";
  if (plan.fault == Fault::THROW && plan.amount == kInHook) amount = " (in a hook)";
  if (plan.fault == Fault::LINK_PARTED) amount = fmt::format(" (from {})", plan.amount);
  const std::string moment =
      plan.message == 0
          ? fmt::format("after {} us", plan.delay_us)
          : fmt::format("at message {} {}", plan.message, plan.is_received ? "received" : "sent");
  const std::string lasting =
      plan.lasting_us == 0
          ? ""
          : fmt::format(" for {:.1f} s", static_cast<double>(plan.lasting_us) / 1e6);
  return fmt::format(
      "{}{} of rank {} of {} in {} {}{}; {} x {} on {}{}, {}{}{}, deadline {} s; {}",
      to_string(plan.fault), amount, plan.victim, plan.num_workers, when, moment, lasting,
      to_string(plan.engine), plan.num_devices, to_string(plan.place),
      plan.workers_per_host == 1 ? "" : fmt::format(" of {}", plan.workers_per_host),
      plan.algorithm.has_value() ? to_string(*plan.algorithm) : "measured",
      plan.over_ucx ? ", ucx" : "", plan.is_encrypted ? ", tls" : "", plan.times.call,
      plan.phase == Phase::CALL ? to_string(plan.calls[plan.call]) : std::string("-"));
}

}  // namespace crossdevice::chaos
