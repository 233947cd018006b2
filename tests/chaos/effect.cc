// SPDX-License-Identifier: Apache-2.0
#include "chaos/effect.h"

#include <algorithm>
#include <initializer_list>

namespace crossdevice::chaos {
namespace {

bool has_told(const WorkerReport& report, EventKind kind) {
  return std::any_of(report.events.begin(), report.events.end(),
                     [&](const Event& event) { return event.kind == kind; });
}

/// Whether a trouble that is of this fault has become of a packet.
bool is_of_fault(Fault fault, const LinkCounts& counts) {
  switch (fault) {
    case Fault::LINK_CUT:
    case Fault::LINK_OUTAGE:
    case Fault::LINK_PARTED:
    case Fault::LINK_PAUSE:
    case Fault::LINK_LOSS:
      return counts.lost > 0;
    case Fault::LINK_DELAY:
      return counts.delayed > 0;
    case Fault::LINK_REORDER:
      return counts.late > 0;
    case Fault::LINK_DUPLICATE:
      return counts.doubled > 0;
    case Fault::LINK_RATE:
      return counts.delayed > 0 || counts.lost > 0;
    case Fault::NONE:
    case Fault::KILL:
    case Fault::STOP:
    case Fault::SKIP:
    case Fault::OTHER_COUNT:
    case Fault::OTHER_DTYPE:
    case Fault::OTHER_OP:
    case Fault::OTHER_ROOT:
    case Fault::TWICE:
    case Fault::THROW:
    case Fault::DESCRIPTORS:
    case Fault::MEMORY:
    case Fault::SHARED_MEMORY:
    case Fault::CLOCK:
    case Fault::CLOCK_JUMP:
      break;
  }
  return false;
}

Effect effect_on_link(const Plan& plan, const RunResult& result) {
  const LinkCounts counts = result.in_trouble.value_or(LinkCounts{});
  // Of a link that is parted the other end's packets are counted there.
  if (is_of_fault(plan.fault, counts)) return Effect::SEEN;
  return counts.offered > 0 ? Effect::NONE : Effect::NOT_COME;
}

/// Whether an error is of who is refused something by the system.
bool tells_of_refusal(const Event& event) {
  if (event.kind != EventKind::FAIL) return false;
  if (event.code == "RESOURCE_EXHAUSTED" || event.code == "bad_alloc") return true;
  const auto tells = [&](const char* text) { return event.text.find(text) != std::string::npos; };
  return tells("Too many open files") || tells("Cannot allocate memory") || tells("File too large");
}

Effect effect_of_limit(const RunResult& result) {
  const bool is_told =
      std::any_of(result.reports.begin(), result.reports.end(), [](const WorkerReport& report) {
        return std::any_of(report.events.begin(), report.events.end(), tells_of_refusal);
      });
  return is_told ? Effect::SEEN : Effect::UNKNOWN;
}

}  // namespace

std::string_view to_string(Effect effect) {
  switch (effect) {
    case Effect::NOT_COME:
      return "did not come";
    case Effect::NONE:
      return "no effect";
    case Effect::UNKNOWN:
      return "effect unknown";
    case Effect::SEEN:
      return "effect seen";
  }
  return "?";
}

Effect effect_of(const Plan& plan, const RunResult& result) {
  if (is_of_link(plan.fault)) return effect_on_link(plan, result);
  const WorkerReport& victim = result.reports[static_cast<std::size_t>(plan.victim)];
  if (is_of_clock(plan.fault) && has_told(victim, EventKind::EFFECT)) return Effect::SEEN;
  if (plan.fault == Fault::CLOCK) return Effect::UNKNOWN;  // from the beginning
  if (plan.fault == Fault::KILL || plan.fault == Fault::STOP) {
    return result.struck_in.has_value() ? Effect::SEEN : Effect::NOT_COME;
  }
  if (!has_told(victim, EventKind::FAULT)) return Effect::NOT_COME;
  if (is_of_limits(plan.fault)) return effect_of_limit(result);
  return is_of_clock(plan.fault) ? Effect::NONE : Effect::SEEN;
}

}  // namespace crossdevice::chaos
