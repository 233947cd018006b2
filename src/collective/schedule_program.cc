// SPDX-License-Identifier: Apache-2.0
/// Why a program gives what the schedule says. Among tasks that touch an element of the row, a writer waits for the writer before it and for everybody
/// who read that one's result, and a reader for the writer before it; so each element sees its tasks in the schedule's order, whatever runs
/// at the same time elsewhere.
#include "crossdevice/collective/schedule_program.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

#include "collective/detail/schedule_cuts.h"

namespace crossdevice {
namespace {

constexpr std::size_t kMaxTasks = std::size_t{1} << 31;

/// How many contributions each participant's parts hold, and what that says of each reducing step.
class Contributions {
 public:
  explicit Contributions(const Schedule& schedule)
      : num_participants_(schedule.num_participants),
        cuts_(schedule),
        counts_(cuts_.num_parts() * num_participants_, 1) {}

  /// All of the step's elements are complete then, or none; anything else is noted.
  bool add_step(const ScheduleStep& step) {
    const std::size_t last = cuts_.last_part(step.range);
    std::size_t num_complete = 0;
    const std::size_t first = cuts_.first_part(step.range);
    for (std::size_t part = first; part < last; ++part) {
      std::size_t* const row = &counts_[part * num_participants_];
      std::size_t sum = 0;
      for (const std::size_t source : step.sources) sum += row[source];
      row[step.target] = sum;
      if (sum == num_participants_) ++num_complete;
    }
    const bool is_complete = num_complete == last - first;
    is_mixed_ |= num_complete > 0 && !is_complete;
    return is_complete;
  }
  [[nodiscard]] bool is_mixed() const { return is_mixed_; }

 private:
  std::size_t num_participants_;
  detail::ScheduleCuts cuts_;
  std::vector<std::size_t> counts_;  // of each part and participant
  bool is_mixed_ = false;
};

/// Who wrote and read which elements of the row last.
class RowHistory {
 public:
  explicit RowHistory(std::size_t num_elements) {
    stretches_.emplace(0, Stretch{});
    stretches_.emplace(num_elements, Stretch{});  // the end, about which nothing is asked
  }

  struct Read {
    bool any_input = false;    // some elements have never been written
    bool any_written = false;  // some have
  };
  Read read(const Interval& range, std::uint32_t task, std::set<std::uint32_t>& dependencies) {
    Read result;
    const auto last = cut(range.end());
    for (auto it = cut(range.begin); it != last; ++it) {
      Stretch& stretch = it->second;
      (stretch.is_written ? result.any_written : result.any_input) = true;
      if (stretch.is_written) dependencies.insert(stretch.writer);
      stretch.readers.push_back(task);
    }
    return result;
  }
  void write(const Interval& range, std::uint32_t task, std::set<std::uint32_t>& dependencies) {
    const auto last = cut(range.end());
    const auto first = cut(range.begin);
    for (auto it = first; it != last; ++it) {
      if (it->second.is_written) dependencies.insert(it->second.writer);
      dependencies.insert(it->second.readers.begin(), it->second.readers.end());
    }
    dependencies.erase(task);
    first->second = {.is_written = true, .writer = task, .readers = {}};
    stretches_.erase(std::next(first), last);
  }
  [[nodiscard]] std::vector<Interval> unwritten() const {
    std::vector<Interval> result;
    for (auto it = stretches_.begin(); std::next(it) != stretches_.end(); ++it) {
      const Interval range{.begin = it->first, .count = std::next(it)->first - it->first};
      if (it->second.is_written) continue;
      if (!result.empty() && result.back().end() == range.begin) {
        result.back().count += range.count;
      } else {
        result.push_back(range);
      }
    }
    return result;
  }

 private:
  struct Stretch {
    bool is_written = false;
    std::uint32_t writer = 0;
    std::vector<std::uint32_t> readers;  // since
  };
  using Stretches = std::map<std::size_t, Stretch>;  // by where they begin

  /// Makes a stretch begin at `element`.
  Stretches::iterator cut(std::size_t element) {
    const auto next = stretches_.lower_bound(element);
    if (next != stretches_.end() && next->first == element) return next;
    return stretches_.emplace_hint(next, element, std::prev(next)->second);
  }

  Stretches stretches_;
};

class Compiler {
 public:
  Compiler(const Schedule& schedule, std::size_t participant, std::size_t piece_elements)
      : schedule_(schedule), piece_(piece_elements), history_(schedule.num_elements) {
    program_.num_participants = schedule.num_participants;
    program_.num_elements = schedule.num_elements;
    program_.participant = participant;
  }

  ScheduleProgram compile() {
    Contributions contributions(schedule_);
    for (const ScheduleStep& step : schedule_.steps) {
      const bool is_complete = contributions.add_step(step);
      const bool is_target = step.target == program_.participant;
      const bool is_source =
          std::ranges::find(step.sources, program_.participant) != step.sources.end();
      if (!is_target && !is_source) continue;
      for (std::size_t begin = step.range.begin; begin < step.range.end(); begin += piece_) {
        const Interval piece{.begin = begin, .count = std::min(piece_, step.range.end() - begin)};
        if (!is_target) {
          add_send(step, piece);
        } else if (step.kind == ScheduleStep::Kind::COPY) {
          add_copy(step, piece);
        } else {
          add_combination(step, piece, is_complete);
        }
      }
    }
    program_.divides_at_end = contributions.is_mixed();
    program_.unwritten = history_.unwritten();
    program_.peers.assign(peers_.begin(), peers_.end());
    link();
    return std::move(program_);
  }

 private:
  std::uint32_t add(ProgramTask task, const std::set<std::uint32_t>& dependencies) {
    const auto index = static_cast<std::uint32_t>(program_.tasks.size());
    if (program_.tasks.size() >= kMaxTasks) throw ValueError("a schedule of too many pieces");
    task.num_dependencies = static_cast<std::uint32_t>(dependencies.size());
    for (const std::uint32_t before : dependencies) edges_.emplace_back(before, index);
    program_.max_piece_elements = std::max(program_.max_piece_elements, task.range.count);
    program_.tasks.push_back(task);
    return index;
  }
  [[nodiscard]] std::uint32_t next_index() const {
    return static_cast<std::uint32_t>(program_.tasks.size());
  }
  bool note(const RowHistory::Read& read) {
    program_.starts_with_copy |= read.any_input && read.any_written;
    return !read.any_written;
  }

  void add_send(const ScheduleStep& step, const Interval& piece) {
    std::set<std::uint32_t> dependencies;
    const bool reads_input = note(history_.read(piece, next_index(), dependencies));
    peers_.insert(step.target);
    add({.kind = ProgramTask::Kind::SEND,
         .reads_input = reads_input,
         .peer = step.target,
         .range = piece},
        dependencies);
  }
  void add_copy(const ScheduleStep& step, const Interval& piece) {
    std::set<std::uint32_t> dependencies;
    history_.write(piece, next_index(), dependencies);
    peers_.insert(step.sources[0]);
    add({.kind = ProgramTask::Kind::RECEIVE, .peer = step.sources[0], .range = piece},
        dependencies);
  }
  void add_combination(const ScheduleStep& step, const Interval& piece, bool is_complete) {
    std::set<std::uint32_t> dependencies;
    const auto first_operand = static_cast<std::uint32_t>(program_.operands.size());
    std::size_t num_buffers = 0;
    bool has_own = false;
    for (const std::size_t source : step.sources) {
      if (source == program_.participant) {
        has_own = true;
        program_.operands.push_back(ScheduleProgram::kOwn);
        continue;
      }
      peers_.insert(source);
      const std::uint32_t receive = add(
          {.kind = ProgramTask::Kind::RECEIVE, .is_operand = true, .peer = source, .range = piece},
          {});
      program_.operands.push_back(receive);
      dependencies.insert(receive);
      ++num_buffers;
    }
    program_.max_buffers = std::max(program_.max_buffers, num_buffers);
    const bool reads_input = has_own && note(history_.read(piece, next_index(), dependencies));
    history_.write(piece, next_index(), dependencies);
    add({.kind = ProgramTask::Kind::COMBINE,
         .reads_input = reads_input,
         .is_complete = is_complete,
         .range = piece,
         .first_operand = first_operand,
         .num_operands = static_cast<std::uint32_t>(step.sources.size())},
        dependencies);
  }
  /// Every task's successors, side by side.
  void link() {
    std::ranges::sort(edges_);
    program_.successors.reserve(edges_.size());
    for (const auto& [before, after] : edges_) {
      ProgramTask& task = program_.tasks[before];
      if (task.num_successors++ == 0) {
        task.first_successor = static_cast<std::uint32_t>(program_.successors.size());
      }
      program_.successors.push_back(after);
    }
    if (!program_.starts_with_copy) return;
    for (ProgramTask& task : program_.tasks) task.reads_input = false;
  }

  const Schedule& schedule_;
  std::size_t piece_;
  RowHistory history_;
  ScheduleProgram program_;
  std::set<std::size_t> peers_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;  // before, after
};

}  // namespace

ScheduleProgram compile_schedule(const Schedule& schedule, std::size_t participant,
                                 std::size_t piece_elements) {
  if (participant >= schedule.num_participants) {
    throw ValueError(
        fmt::format("participant {} is outside [0, {})", participant, schedule.num_participants));
  }
  if (piece_elements == 0) throw ValueError("pieces of a schedule need elements");
  return Compiler(schedule, participant, piece_elements).compile();
}

std::string ScheduleProgram::to_string() const {
  std::vector<std::string> after(tasks.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    for (std::uint32_t s = 0; s < tasks[i].num_successors; ++s) {
      std::string& text = after[successors[tasks[i].first_successor + s]];
      text += (text.empty() ? ", after " : " ") + std::to_string(i);
    }
  }
  std::string result;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const ProgramTask& task = tasks[i];
    const std::string range = fmt::format("[{}, {})", task.range.begin, task.range.end());
    const char* const input = task.reads_input ? " of the input" : "";
    switch (task.kind) {
      case ProgramTask::Kind::SEND:
        result += fmt::format("{}: send {}{} to {}{}\n", i, range, input, task.peer, after[i]);
        break;
      case ProgramTask::Kind::RECEIVE:
        result += fmt::format("{}: receive {} from {}{}{}\n", i, range, task.peer,
                              task.is_operand ? " to combine" : "", after[i]);
        break;
      case ProgramTask::Kind::COMBINE: {
        result += fmt::format("{}: combine {} =", i, range);
        for (std::uint32_t o = 0; o < task.num_operands; ++o) {
          const std::uint32_t operand = operands[task.first_operand + o];
          result += operand == kOwn ? fmt::format(" own{}", input) : fmt::format(" {}", operand);
        }
        result += fmt::format("{}{}\n", task.is_complete ? ", complete" : "", after[i]);
        break;
      }
    }
  }
  return result;
}

}  // namespace crossdevice
