// SPDX-License-Identifier: Apache-2.0
/// What goes wrong between the two workers of the soak, and what each of them must hear of it.
#pragma once

#include <cstdint>
#include <string_view>

#include "chaos/call_memory.h"
#include "chaos/engines.h"
#include "chaos/plan.h"

namespace crossdevice::chaos {

enum class Mishap : std::uint8_t {
  GIVES_UP,     ///< in the place of a call
  OTHER_COUNT,  ///< makes a call with another number of elements
  OTHER_DTYPE,
  STAYS_AWAY,  ///< leaves a call out, until the other's deadline has passed
  COMES_LATE,  ///< comes to it after that
  REFUSED,     ///< both call with what no call takes; all goes on as if nothing had been called
};
inline constexpr std::uint64_t kNumMishaps = 6;
[[nodiscard]] std::string_view to_string(Mishap mishap);
/// Equal seeds and numbers give equal ones on both workers.
[[nodiscard]] Mishap draw_mishap(std::uint64_t seed, std::uint64_t number, Engine engine);
/// Whether what has called is broken then; else it goes on.
[[nodiscard]] bool needs_rebuild(Mishap mishap);

/// Both workers' call: `culprit` does what is wrong. When it begins, what was called before must have ended on both.
///
/// Errors   std::runtime_error: a worker has heard something else than it must, or nothing.
void suffer(Mishap mishap, Engine engine, CallMaker& maker, const Caller& caller, int culprit);

}  // namespace crossdevice::chaos
