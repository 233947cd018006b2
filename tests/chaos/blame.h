// SPDX-License-Identifier: Apache-2.0
/// Whose fault the workers' errors say it was, and what they tell of it.
#pragma once

#include <string>
#include <vector>

#include "chaos/plan.h"
#include "chaos/report.h"

namespace crossdevice::chaos {

/// Errors that are not what the fault may cause, or that are missing, one line each. Of the faulty workers as of the others:
///
/// Kinds    are the library's own. INTERNAL, of which we want to be told, is of calls that differ and of nothing else; RESOURCE_EXHAUSTED is
///          of who lacks something. What a program throws itself is its own: who gives up, and who has no memory for its own tensors.
/// Blame    falls on the faulty ones alone. Who has failed because of them is named only where its own words are passed on ("rank 0 aborted: ..."). The first
///          error of each worker names a faulty one, and the very first one does in any case.
/// Links    errors name somebody, to programs: of others than those whose link is bad these, or, where a deadline has passed, one that waits for them (LetPass); and of a parted
///          link one error names a worker at an end of it.
/// Calls    that differ fail on every worker, none of which completes the call: INTERNAL, with what all have called; the victim is named, alone where most others
///          agree. Of one call more or fewer at the very end, to which nobody comes, those who wait are told who does not come.
/// Giving up  in the place of a call, or before its part of one: no other worker completes it, where all need all.
[[nodiscard]] std::vector<std::string> wrong_blame(const Plan& plan,
                                                   const std::vector<WorkerReport>& reports);

/// How often something was let pass that may be as it should, or not.
struct LetPass {
  int deadlines = 0;  ///< errors over a bad link, of workers not at it, whose deadline has passed
  int chains = 0;     ///< of them: that blame no end of it, but one that waits for an end
  int measurements =
      0;  ///< of them: in which the links were measured, after connecting had taken the time
  int differences = 0;         ///< errors of calls that differ, of more than two workers
  int differences_of_two = 0;  ///< of them: that have the versions of two alone
};
[[nodiscard]] LetPass let_pass(const Plan& plan, const std::vector<WorkerReport>& reports);

/// Who gives up while it meets the others anew may be heard by one that is still in the call that a death has ended.
[[nodiscard]] bool is_word_of_who_gives_up(const Plan& plan, const Event& failure);

}  // namespace crossdevice::chaos
