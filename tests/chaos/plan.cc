// SPDX-License-Identifier: Apache-2.0
#include "chaos/plan.h"

#include <algorithm>
#include <initializer_list>
#include <random>
#include <span>

#include <fmt/format.h>

namespace crossdevice::chaos {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{8} << 20;  // of all values of a call
constexpr std::size_t kMaxBytesOverRelay = std::size_t{2}
                                           << 20;  // where one process is the network

constexpr std::array<Fault, 11> kProcessFaults = {
    Fault::KILL,        Fault::STOP,     Fault::SKIP,      Fault::OTHER_COUNT,
    Fault::OTHER_DTYPE, Fault::OTHER_OP, Fault::TWICE,     Fault::THROW,
    Fault::DESCRIPTORS, Fault::MEMORY,   Fault::CLOCK_JUMP};
constexpr std::array<Fault, 10> kNamespaceFaults = {
    Fault::LINK_CUT,       Fault::LINK_OUTAGE, Fault::LINK_PARTED, Fault::LINK_PAUSE,
    Fault::LINK_LOSS,      Fault::LINK_LOSS,   Fault::LINK_DELAY,  Fault::LINK_REORDER,
    Fault::LINK_DUPLICATE, Fault::LINK_RATE};
constexpr std::uint64_t kClockPercent = 5;  // of those that need namespaces
constexpr std::uint64_t kToTheEndUs = 3'600'000'000;
/// A call with this deadline has time for whatever a link does to its packets, unless it loses them.
constexpr double kLongCallSeconds = 20;

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

Phase draw_phase(Dice& dice, Fault fault, int num_workers) {
  switch (fault) {
    case Fault::KILL:
    case Fault::STOP:
      // Two are lost then.
      if (num_workers >= (fault == Fault::KILL ? 3 : 5) && dice.happens(20)) return Phase::REBUILD;
      return dice.one_of({Phase::JOIN, Phase::MAKE, Phase::CALL, Phase::CALL, Phase::CALL,
                          Phase::BETWEEN, Phase::LEAVE});
    case Fault::DESCRIPTORS:
    case Fault::MEMORY:
    case Fault::CLOCK_JUMP:
      return dice.one_of({Phase::JOIN, Phase::MAKE, Phase::CALL, Phase::BETWEEN, Phase::LEAVE});
    case Fault::LINK_CUT:
    case Fault::LINK_OUTAGE:
    case Fault::LINK_PARTED:
    case Fault::LINK_PAUSE:
    case Fault::LINK_LOSS:
    case Fault::LINK_DELAY:
    case Fault::LINK_REORDER:
    case Fault::LINK_DUPLICATE:
    case Fault::LINK_RATE:
      if (num_workers >= (fault == Fault::LINK_CUT ? 5 : 3) && dice.happens(20)) {
        return Phase::REBUILD;
      }
      return dice.one_of({Phase::JOIN, Phase::MAKE, Phase::MAKE, Phase::CALL, Phase::CALL,
                          Phase::CALL, Phase::BETWEEN, Phase::LEAVE});
    case Fault::CLOCK:
      return Phase::JOIN;
    case Fault::NONE:
    case Fault::SKIP:
    case Fault::OTHER_COUNT:
    case Fault::OTHER_DTYPE:
    case Fault::OTHER_OP:
    case Fault::TWICE:
    case Fault::THROW:
      break;
  }
  return Phase::CALL;
}

std::uint64_t draw_amount(Dice& dice, const Plan& plan) {
  switch (plan.fault) {
    case Fault::DESCRIPTORS:
      return dice.below(12);
    case Fault::MEMORY:
      return dice.magnitude(std::uint64_t{64} << 20);
    case Fault::CLOCK:
      return dice.from_to(1, 1'000'000);  // s
    case Fault::CLOCK_JUMP:
      return dice.from_to(1, 100'000'000);  // s, odd ones back
    case Fault::LINK_CUT:
    case Fault::LINK_OUTAGE:
      return dice.one_of<std::uint64_t>({0, 0, kIsDeaf, kIsMute});
    case Fault::LINK_PARTED: {
      const auto all = static_cast<std::uint64_t>(plan.num_workers);
      return (static_cast<std::uint64_t>(plan.victim) + dice.from_to(1, all - 1)) % all;
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
    case Fault::TWICE:
    case Fault::THROW:
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
    return dice.from_to(200'000, dice.happens(30) ? 15'000'000 : 6'000'000);
  }
  const auto heartbeat_us = static_cast<std::uint64_t>(plan.times.heartbeat * 1e6);
  return dice.from_to(heartbeat_us * 5 / 4, heartbeat_us * 3);
}

/// About as long as what the fault is to fall into may take.
std::uint64_t max_delay_us(const Plan& plan) {
  if (plan.phase == Phase::JOIN) return 60'000;
  return is_of_link(plan.fault) && plan.phase != Phase::MAKE ? 2'000 : 20'000;
}

bool is_mismatch(Fault fault) {
  return fault == Fault::SKIP || fault == Fault::OTHER_COUNT || fault == Fault::OTHER_DTYPE ||
         fault == Fault::OTHER_OP || fault == Fault::TWICE;
}

/// Calls that can be told apart: two that are equal may be exchanged for each other, and a gather takes any number of elements.
void make_distinguishable(Plan& plan) {
  Call& call = plan.calls[plan.call];
  call.form = call.form == Form::BATCH || call.form == Form::OPS_GATHER ? Form::REDUCE : call.form;
  if (call.form > Form::ASYNCHRONOUS) call.form = Form::REDUCE_IN_PLACE;
  call.num_values = is_batch(call.form) ? call.num_values : 1;
  call.dtype = DType::FLOAT32;
  if (call.op == ReduceOp::MEAN) call.op = ReduceOp::SUM;
  if (call.count == 0) call.count = 1;
  if (plan.call + 1 == plan.calls.size()) return;
  Call& next = plan.calls[plan.call + 1];
  next = call;
  next.count = call.count + 1;
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
    case Fault::TWICE:
      return "twice";
    case Fault::THROW:
      return "throw";
    case Fault::DESCRIPTORS:
      return "descriptors";
    case Fault::MEMORY:
      return "memory";
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
  if (!abilities.faults.empty()) {
    plan.fault = dice.one_of(std::span<const Fault>(abilities.faults));
  } else if (abilities.has_namespaces && dice.happens(25)) {
    plan.fault = dice.happens(kClockPercent)
                     ? Fault::CLOCK
                     : dice.one_of(std::span<const Fault>(kNamespaceFaults));
  } else if (dice.happens(40)) {
    plan.fault = dice.happens(60) ? Fault::KILL : Fault::STOP;
  } else {
    plan.fault = dice.one_of(std::span<const Fault>(kProcessFaults));
  }

  plan.num_workers = static_cast<int>(dice.from_to(
      2, static_cast<std::uint64_t>(dice.happens(70) ? std::min(4, abilities.max_workers)
                                                     : abilities.max_workers)));
  // Who is only silent must not be half of them: of two halves neither may go on without the other.
  const bool is_silent = plan.fault == Fault::STOP || plan.fault == Fault::LINK_CUT;
  if (is_silent) plan.num_workers = std::max(plan.num_workers, 3);
  plan.engine = dice.one_of({Engine::OPS, Engine::OPS, Engine::COMMUNICATOR, Engine::STRATEGY});
  plan.num_devices = plan.engine == Engine::COMMUNICATOR ? 1 : dice.from_to(1, 2);
  plan.place = dice.one_of({Place::ONE_MACHINE, Place::ONE_MACHINE, Place::ONE_EACH,
                            Place::ONE_EACH, Place::TWO_MACHINES});
  if (is_of_link(plan.fault) || (abilities.has_namespaces && dice.happens(10))) {
    plan.place = Place::NAMESPACES;
  }
  if (dice.happens(70)) {
    plan.algorithm = dice.one_of({AllReduceAlgorithm::EXCHANGE, AllReduceAlgorithm::DOUBLING,
                                  AllReduceAlgorithm::SHUFFLE, AllReduceAlgorithm::HALVING_DOUBLING,
                                  AllReduceAlgorithm::RING});
  }
  plan.over_ucx = abilities.has_ucx && plan.place == Place::ONE_EACH && dice.happens(25);
  const double slowness = abilities.slowness;
  plan.times.call = static_cast<double>(dice.from_to(15, 40)) / 10 * slowness;
  plan.times.join *= slowness;
  plan.times.heartbeat *= slowness;
  plan.times.rebuild *= slowness;
  plan.times.patience *= slowness;

  plan.calls = draw_calls(dice, plan, dice.from_to(3, 8));
  plan.more_calls = draw_calls(dice, plan, 4);
  plan.victim = static_cast<int>(dice.below(static_cast<std::uint64_t>(plan.num_workers)));
  plan.phase = draw_phase(dice, plan.fault, plan.num_workers);
  plan.call = dice.below(plan.calls.size());
  plan.delay_us = dice.magnitude(max_delay_us(plan));
  plan.amount = draw_amount(dice, plan);
  if (plan.phase == Phase::REBUILD) {
    const auto other = 1 + dice.below(static_cast<std::uint64_t>(plan.num_workers) - 1);
    plan.first_lost = static_cast<int>((static_cast<std::uint64_t>(plan.victim) + other) %
                                       static_cast<std::uint64_t>(plan.num_workers));
  }
  plan.lasting_us = draw_lasting_us(dice, plan);
  if (is_of_link(plan.fault) && !silences_link(plan.fault) && dice.happens(75)) {
    plan.times.call = kLongCallSeconds * slowness;
  }
  if (is_mismatch(plan.fault)) make_distinguishable(plan);
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
  if (plan.fault == Fault::NONE || is_of_clock(plan.fault)) return false;
  const bool is_harmless = plan.fault == Fault::LINK_PAUSE || plan.fault == Fault::LINK_DELAY ||
                           plan.fault == Fault::LINK_REORDER || plan.fault == Fault::LINK_DUPLICATE;
  return !is_harmless || plan.phase == Phase::REBUILD || plan.times.call < kLongCallSeconds;
}

std::vector<int> lost_workers(const Plan& plan) {
  std::vector<int> lost;
  if (loses_worker(plan.fault)) lost.push_back(plan.victim);
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
  if (plan.fault == Fault::LINK_PARTED) amount = fmt::format(" (from {})", plan.amount);
  const std::string lasting =
      plan.lasting_us == 0
          ? ""
          : fmt::format(" for {:.1f} s", static_cast<double>(plan.lasting_us) / 1e6);
  return fmt::format(
      "{}{} of rank {} of {} in {} after {} us{}; {} x {} on {}, {}{}, deadline {} s; {}",
      to_string(plan.fault), amount, plan.victim, plan.num_workers, when, plan.delay_us, lasting,
      to_string(plan.engine), plan.num_devices, to_string(plan.place),
      plan.algorithm.has_value() ? to_string(*plan.algorithm) : "measured",
      plan.over_ucx ? ", ucx" : "", plan.times.call,
      plan.phase == Phase::CALL ? to_string(plan.calls[plan.call]) : std::string("-"));
}

}  // namespace crossdevice::chaos
