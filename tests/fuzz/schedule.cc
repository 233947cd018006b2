// SPDX-License-Identifier: Apache-2.0
// Schedules that no maker would make: refused where they name what there is not; else their plans and programs give what the steps, one after the other,
// give, in whatever order the programs' tasks run.
#include "crossdevice/collective/schedule.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "crossdevice/collective/reduction_plan.h"
#include "crossdevice/collective/schedule_program.h"
#include "crossdevice/collective/schedule_traffic.h"
#include "crossdevice/core/error.h"

#include "fuzz/fuzz_target.h"
#include "support/program_machine.h"
#include "support/verify_plan.h"
#include "support/verify_programs.h"
#include "support/verify_schedule.h"

namespace crossdevice {
namespace {

constexpr std::size_t kMaxSteps = 24;
/// Texts double with each step that adds a row to itself; longer ones say nothing new.
constexpr std::size_t kMaxText = 200;

using Rows = std::vector<std::vector<std::string>>;

Schedule schedule_of(fuzz::Input& input) {
  Schedule schedule;
  schedule.num_participants = input.below(6);
  schedule.num_elements = input.below(12);
  const std::size_t n = std::max<std::size_t>(schedule.num_participants, 1);
  while (!input.is_empty() && schedule.steps.size() < kMaxSteps) {
    ScheduleStep step;
    step.kind = input.coin() ? ScheduleStep::Kind::COPY : ScheduleStep::Kind::REDUCE;
    const bool is_wild = input.below(16) == 1;
    step.range.begin = input.below(schedule.num_elements + 1);
    step.range.count = input.below(schedule.num_elements - step.range.begin + 1);
    if (is_wild) step.range.begin = input.number<std::uint64_t>();
    step.target = input.below(is_wild ? n + 2 : n);
    step.sources.resize(step.kind == ScheduleStep::Kind::COPY && !is_wild ? 1 : input.below(5));
    for (std::size_t& source : step.sources) source = input.below(is_wild ? n + 2 : n);
    schedule.steps.push_back(std::move(step));
  }
  return schedule;
}

/// Whether every step names participants and elements that there are, and nobody twice.
bool is_sound(const Schedule& schedule) {
  const std::size_t n = schedule.num_participants;
  return n > 0 && std::ranges::all_of(schedule.steps, [&](const ScheduleStep& step) {
           const std::set<std::size_t> sources(step.sources.begin(), step.sources.end());
           const bool is_copy = step.kind == ScheduleStep::Kind::COPY;
           return step.range.count > 0 && step.range.begin <= schedule.num_elements &&
                  step.range.count <= schedule.num_elements - step.range.begin && step.target < n &&
                  !sources.empty() && *sources.rbegin() < n &&
                  sources.size() == step.sources.size() &&
                  (!is_copy || (sources.size() == 1 && *sources.begin() != step.target));
         });
}

Rows inputs_of(const Schedule& schedule) {
  Rows rows(schedule.num_participants);
  for (std::size_t p = 0; p < rows.size(); ++p) {
    rows[p].assign(schedule.num_elements, std::string(1, static_cast<char>('a' + p)));
  }
  return rows;
}

/// One step after the other. False: a text gets too long.
bool execute(const Schedule& schedule, Rows& rows) {
  for (const ScheduleStep& step : schedule.steps) {
    for (std::size_t e = step.range.begin; e < step.range.end(); ++e) {
      std::string result;
      for (const std::size_t source : step.sources) result += rows[source][e];
      if (result.size() > kMaxText) return false;
      rows[step.target][e] = result;
    }
  }
  return true;
}

bool is_everybody_once(const std::string& text, std::size_t n) {
  const std::set<char> letters(text.begin(), text.end());
  return text.size() == n && letters.size() == n;
}

void check_plan(const Schedule& schedule, DType dtype) {
  ReductionPlan plan;
  try {
    plan = plan_reduction(schedule, dtype);
  } catch (const ValueError&) {
    return;
  }
  FUZZ_EXPECT(testing::verify_plan(plan, schedule).empty());
}

/// The plan that needs no schedule.
void check_direct_plan(const Schedule& schedule) {
  const std::size_t n = schedule.num_participants;
  const ReductionPlan plan = plan_direct_reduction(n, schedule.num_elements);
  FUZZ_EXPECT(plan.num_participants == n && plan.num_elements == schedule.num_elements);
  FUZZ_EXPECT(plan.parts.empty() == (schedule.num_elements == 0));
  FUZZ_EXPECT(plan.parts.size() == plan.recipes.size());
  if (plan.parts.empty()) return;
  FUZZ_EXPECT((plan.parts[0].range == Interval{.begin = 0, .count = schedule.num_elements}));
  FUZZ_EXPECT(plan.recipes[0].passes.size() == 1);
  const std::vector<std::uint32_t>& operands = plan.recipes[0].passes[0].operands;
  FUZZ_EXPECT(operands.size() == n && std::ranges::is_sorted(operands));
  FUZZ_EXPECT(n == 0 || (operands.front() == 0 && operands.back() == n - 1));
}

void require_refused(const Schedule& schedule) {
  try {
    (void)compile_schedule(schedule, 0, 3);
    FUZZ_FAIL("refused by compile_schedule()");
  } catch (const ValueError&) {
  }
  try {
    (void)plan_reduction(schedule, DType::FLOAT32);
    FUZZ_FAIL("refused by plan_reduction()");
  } catch (const ValueError&) {
  }
}

}  // namespace
}  // namespace crossdevice

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdevice;
  fuzz::Input input(data, size);
  const std::size_t piece = 1 + input.below(6);
  const unsigned seed = input.number<std::uint8_t>();
  const Schedule schedule = schedule_of(input);
  check_direct_plan(schedule);
  if (!is_sound(schedule)) {
    require_refused(schedule);
    return 0;
  }
  Rows rows = inputs_of(schedule);
  if (!execute(schedule, rows)) return 0;
  if (testing::verify_all_reduce(schedule).empty()) {
    for (const std::vector<std::string>& row : rows) {
      for (const std::string& text : row) {
        FUZZ_EXPECT(is_everybody_once(text, schedule.num_participants));
      }
    }
  }
  check_plan(schedule, DType::FLOAT32);
  check_plan(schedule, DType::FLOAT16);
  FUZZ_EXPECT(testing::verify_programs(schedule, piece).empty());
  for (const ScheduleProgram& program : testing::compile_all(schedule, piece)) {
    const std::string text = program.to_string();
    FUZZ_EXPECT(std::ranges::count(text, '\n') == std::ssize(program.tasks));
  }
  testing::ProgramMachine machine(schedule, piece, seed);
  FUZZ_EXPECT(machine.run().empty());
  for (std::size_t p = 0; p < rows.size(); ++p) FUZZ_EXPECT(machine.row(p) == rows[p]);
  FUZZ_EXPECT(schedule_traffic(schedule).size() == schedule.num_participants);
  FUZZ_EXPECT(num_rounds(schedule) <= schedule.steps.size());
  return 0;
}
