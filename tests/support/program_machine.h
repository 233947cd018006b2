// SPDX-License-Identifier: Apache-2.0
/// Runs the programs of a schedule on texts instead of numbers, in an order made by chance.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/collective/schedule_program.h"

namespace crossdevice::testing {

/// Runs all participants' programs on rows of contributions, always one task that may run, chosen at random: whatever the order, the
/// result must be the schedule's.
class ProgramMachine {
 public:
  ProgramMachine(const Schedule& schedule, std::size_t piece, unsigned seed) : random_(seed) {
    for (std::size_t p = 0; p < schedule.num_participants; ++p) {
      Rank& rank = ranks_.emplace_back();
      rank.program = compile_schedule(schedule, p, piece);
      rank.input.assign(schedule.num_elements, std::string(1, static_cast<char>('a' + p)));
      rank.row.assign(schedule.num_elements, "-");
      if (rank.program.starts_with_copy) rank.row = rank.input;
      for (const Interval& range : rank.program.unwritten) {
        for (std::size_t e = range.begin; e < range.end(); ++e) rank.row[e] = rank.input[e];
      }
      for (const ProgramTask& task : rank.program.tasks) {
        rank.dependencies.push_back(task.num_dependencies);
      }
      rank.buffers.resize(rank.program.tasks.size());
      rank.is_done.resize(rank.program.tasks.size());
    }
  }

  /// "" if everything has run in the end, and every message and every note of completeness was right.
  [[nodiscard]] std::string run() {
    while (wrong_.empty()) {
      std::vector<std::pair<std::size_t, std::size_t>> possible;
      for (std::size_t p = 0; p < ranks_.size(); ++p) {
        for (std::size_t i = 0; i < ranks_[p].is_done.size(); ++i) {
          if (can_run(p, i)) possible.emplace_back(p, i);
        }
      }
      if (possible.empty()) break;
      const auto [p, i] = possible[random_() % possible.size()];
      run_task(p, i);
    }
    for (const Rank& rank : ranks_) {
      for (const bool done : rank.is_done) {
        if (!done && wrong_.empty()) wrong_ = "somebody waits for ever";
      }
    }
    return wrong_;
  }
  [[nodiscard]] const std::vector<std::string>& row(std::size_t participant) const {
    return ranks_[participant].row;
  }

 private:
  struct Rank {
    ScheduleProgram program;
    std::vector<std::string> input;
    std::vector<std::string> row;
    std::vector<std::uint32_t> dependencies;
    std::vector<std::vector<std::string>> buffers;
    std::vector<bool> is_done;
  };
  struct Message {
    Interval range;
    std::vector<std::string> elements;
  };

  /// Messages from one participant to another leave and come in the order of their tasks.
  [[nodiscard]] bool is_first_of_its_kind(const Rank& rank, std::size_t index) const {
    const ProgramTask& task = rank.program.tasks[index];
    for (std::size_t before = 0; before < index; ++before) {
      const ProgramTask& other = rank.program.tasks[before];
      if (!rank.is_done[before] && other.kind == task.kind && other.peer == task.peer) return false;
    }
    return true;
  }
  [[nodiscard]] bool can_run(std::size_t p, std::size_t index) const {
    const Rank& rank = ranks_[p];
    const ProgramTask& task = rank.program.tasks[index];
    if (rank.is_done[index] || rank.dependencies[index] > 0) return false;
    if (task.kind == ProgramTask::Kind::COMBINE) return true;
    if (!is_first_of_its_kind(rank, index)) return false;
    if (task.kind == ProgramTask::Kind::SEND) return true;
    const auto messages = messages_.find({task.peer, p});
    return messages != messages_.end() && !messages->second.empty();
  }
  void run_task(std::size_t p, std::size_t index) {
    Rank& rank = ranks_[p];
    const ProgramTask& task = rank.program.tasks[index];
    const std::vector<std::string>& own = task.reads_input ? rank.input : rank.row;
    switch (task.kind) {
      case ProgramTask::Kind::SEND:
        messages_[{p, task.peer}].push_back(
            {task.range, {own.begin() + at(task.range.begin), own.begin() + at(task.range.end())}});
        break;
      case ProgramTask::Kind::RECEIVE: {
        std::vector<Message>& messages = messages_[{task.peer, p}];
        if (messages.front().range != task.range) wrong_ = "a message of other elements";
        if (task.is_operand) {
          rank.buffers[index] = messages.front().elements;
        } else {
          std::copy(messages.front().elements.begin(), messages.front().elements.end(),
                    rank.row.begin() + at(task.range.begin));
        }
        messages.erase(messages.begin());
        break;
      }
      case ProgramTask::Kind::COMBINE:
        for (std::size_t e = 0; e < task.range.count; ++e) {
          std::string result;
          for (std::uint32_t o = 0; o < task.num_operands; ++o) {
            const std::uint32_t operand = rank.program.operands[task.first_operand + o];
            result += operand == ScheduleProgram::kOwn ? own[task.range.begin + e]
                                                       : rank.buffers[operand][e];
          }
          const bool is_complete = result.size() == ranks_.size();
          if (task.is_complete ? !is_complete : is_complete && !rank.program.divides_at_end) {
            wrong_ = "what is complete is not what is said to be";
          }
          rank.row[task.range.begin + e] = result;
        }
        break;
    }
    rank.is_done[index] = true;
    for (std::uint32_t s = 0; s < task.num_successors; ++s) {
      --rank.dependencies[rank.program.successors[task.first_successor + s]];
    }
  }
  static std::ptrdiff_t at(std::size_t element) { return static_cast<std::ptrdiff_t>(element); }

  std::mt19937 random_;
  std::string wrong_;
  std::vector<Rank> ranks_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Message>> messages_;
};

}  // namespace crossdevice::testing
