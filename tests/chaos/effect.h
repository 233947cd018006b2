// SPDX-License-Identifier: Apache-2.0
/// What a run shows of its fault: whether it came, and whether it did anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chaos/conductor.h"
#include "chaos/plan.h"

namespace crossdevice::chaos {

enum class Effect : std::uint8_t {
  NOT_COME,  ///< a worker had ended before its signal, say, or a link had nothing to carry
  NONE,      ///< it came, and nobody can have seen anything of it
  UNKNOWN,   ///< it came, and nothing says whether it did anything
  SEEN,
};
inline constexpr std::size_t kNumEffects = 4;
[[nodiscard]] std::string_view to_string(Effect effect);

/// Processes that are killed or stopped, programs that give up, and calls that differ have one whenever they come.
///
/// Links    by what the relay has counted while they were in trouble: packets lost, late, doubled or held back, as the fault has it.
/// Limits   where an error says that something was refused because of them. What the library does without leaves no trace here.
/// Clocks   where the worker has seen that its clock is another one than the machine's.
[[nodiscard]] Effect effect_of(const Plan& plan, const RunResult& result);

}  // namespace crossdevice::chaos
