// SPDX-License-Identifier: Apache-2.0
#include "chaos/tally.h"

#include <fmt/format.h>

namespace crossdevice::chaos {
namespace {

std::string table(const char* names, const std::map<std::string, Tally>& tallies) {
  std::string text =
      fmt::format("| {} | runs | faults | effect seen | unknown | none | violations |\n|", names);
  for (const char* each = names; *each != '\0'; ++each) {
    if (*each == '|') text += "---|";
  }
  text += "---|---:|---:|---:|---:|---:|---:|\n";
  for (const auto& [name, tally] : tallies) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", name, tally.runs, tally.faults(),
                        tally.of(Effect::SEEN), tally.of(Effect::UNKNOWN), tally.of(Effect::NONE),
                        tally.violations);
  }
  return text + '\n';
}

}  // namespace

void Tally::add(Effect effect, bool is_violation) {
  ++runs;
  violations += is_violation ? 1 : 0;
  ++effects[static_cast<std::size_t>(effect)];
}

void Tallies::add(const Plan& plan, Effect effect, bool is_violation) {
  const auto algorithm = plan.algorithm ? to_string(*plan.algorithm) : "measured";
  all_.add(effect, is_violation);
  by_phase_[fmt::format("{} | {}", to_string(plan.fault), to_string(plan.phase))].add(effect,
                                                                                      is_violation);
  by_place_[fmt::format("{} | {}", algorithm, to_string(plan.place))].add(effect, is_violation);
  by_transport_[transport_of(plan)].add(effect, is_violation);
}

std::string Tallies::tables() const {
  return table("fault | phase", by_phase_) + table("algorithm | place", by_place_) +
         table("transport", by_transport_);
}

std::string Tallies::summary() const {
  return fmt::format(
      "{} of {} runs ended before their fault came\n"
      "{} faults had an effect that was seen, {} had none, of {} it is unknown\n",
      all_.of(Effect::NOT_COME), all_.runs, all_.of(Effect::SEEN), all_.of(Effect::NONE),
      all_.of(Effect::UNKNOWN));
}

std::string transport_of(const Plan& plan) {
  if (plan.place == Place::ONE_MACHINE) return "shared memory";
  const bool are_pairs = plan.place == Place::NAMESPACES && plan.workers_per_host > 1;
  const bool are_groups = plan.place == Place::TWO_MACHINES && plan.num_workers > 2;
  std::string text = are_pairs || are_groups ? "two levels: shared memory and " : "";
  text += plan.over_ucx ? "UCX" : "TCP";
  return plan.is_encrypted ? text + " in TLS" : text;
}

}  // namespace crossdevice::chaos
