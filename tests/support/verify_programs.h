// SPDX-License-Identifier: Apache-2.0
/// Looks at the programs that a schedule is compiled to, all together: do they end, and does nobody write what another touches?
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "crossdevice/collective/schedule_program.h"

namespace crossdevice::testing {

/// Sees the tasks of all participants as one graph. A message is one task of two participants, as if a send ended when its receiver has taken it: what ends
/// so ends with buffers, too.
class ProgramGraph {
 public:
  /// One of each participant.
  explicit ProgramGraph(std::vector<ScheduleProgram> programs) : programs_(std::move(programs)) {}

  /// "" if
  ///   - the k-th message that one sends to another is the k-th that the other expects, and has the same elements
  ///   - no task waits for itself, through dependencies, messages and the order of messages between two
  ///   - of two tasks of a participant that touch one element of its row, one of which writes it, one waits for the other
  /// and otherwise what is wrong.
  [[nodiscard]] std::string verify() {
    std::string wrong = match_messages();
    if (wrong.empty()) wrong = find_cycle();
    for (std::size_t p = 0; wrong.empty() && p < programs_.size(); ++p) wrong = find_race(p);
    return wrong;
  }

 private:
  using Channel = std::pair<std::size_t, std::size_t>;  // from, to
  using Edges = std::vector<std::pair<std::size_t, std::size_t>>;

  [[nodiscard]] static std::string name_of(std::size_t participant, std::size_t task) {
    return "task " + std::to_string(task) + " of participant " + std::to_string(participant);
  }

  /// Gives every task its node, and both ends of a message one.
  std::string match_messages() {
    std::map<Channel, std::vector<std::size_t>> sent;
    std::map<Channel, std::size_t> num_taken;
    nodes_.resize(programs_.size());
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      const std::vector<ProgramTask>& tasks = programs_[p].tasks;
      nodes_[p].resize(tasks.size());
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        if (tasks[i].kind == ProgramTask::Kind::RECEIVE) continue;
        nodes_[p][i] = num_nodes_++;
        if (tasks[i].kind == ProgramTask::Kind::SEND) sent[{p, tasks[i].peer}].push_back(i);
      }
    }
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      const std::vector<ProgramTask>& tasks = programs_[p].tasks;
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        if (tasks[i].kind != ProgramTask::Kind::RECEIVE) continue;
        const Channel channel{tasks[i].peer, p};
        const std::size_t number = num_taken[channel]++;
        if (number >= sent[channel].size()) return name_of(p, i) + " waits for what nobody sends";
        const std::size_t other = sent[channel][number];
        if (programs_[channel.first].tasks[other].range != tasks[i].range) {
          return name_of(p, i) + " receives other elements than " + name_of(channel.first, other) +
                 " sends";
        }
        nodes_[p][i] = nodes_[channel.first][other];
      }
    }
    for (const auto& [channel, tasks] : sent) {
      if (num_taken[channel] != tasks.size()) {
        return name_of(channel.first, tasks[num_taken[channel]]) + " sends what nobody expects";
      }
    }
    return "";
  }

  [[nodiscard]] std::string find_cycle() const {
    Edges edges;
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      const ScheduleProgram& program = programs_[p];
      std::map<std::pair<ProgramTask::Kind, std::size_t>, std::size_t> last;  // of each peer
      for (std::size_t i = 0; i < program.tasks.size(); ++i) {
        const ProgramTask& task = program.tasks[i];
        for (std::uint32_t s = 0; s < task.num_successors; ++s) {
          edges.emplace_back(nodes_[p][i], nodes_[p][program.successors[task.first_successor + s]]);
        }
        if (task.kind == ProgramTask::Kind::COMBINE) continue;
        const auto [entry, is_first] = last.try_emplace({task.kind, task.peer}, i);
        if (!is_first) edges.emplace_back(nodes_[p][entry->second], nodes_[p][i]);
        entry->second = i;
      }
    }
    std::ranges::sort(edges);
    std::vector<std::size_t> num_before(num_nodes_);
    for (const auto& [before, after] : edges) ++num_before[after];
    std::vector<std::size_t> ready;
    for (std::size_t node = 0; node < num_nodes_; ++node) {
      if (num_before[node] == 0) ready.push_back(node);
    }
    std::size_t num_done = 0;
    while (!ready.empty()) {
      const std::size_t node = ready.back();
      ready.pop_back();
      ++num_done;
      auto edge = std::ranges::lower_bound(edges, std::pair{node, std::size_t{0}});
      for (; edge != edges.end() && edge->first == node; ++edge) {
        if (--num_before[edge->second] == 0) ready.push_back(edge->second);
      }
    }
    if (num_done == num_nodes_) return "";
    return std::to_string(num_nodes_ - num_done) + " tasks wait for each other";
  }

  /// Who has touched a stretch of the row last.
  struct Stretch {
    static constexpr std::size_t kNobody = SIZE_MAX;
    std::size_t writer = kNobody;
    std::vector<std::size_t> readers{};  // since
  };

  [[nodiscard]] std::string find_race(std::size_t p) const {
    const ScheduleProgram& program = programs_[p];
    std::vector<std::vector<std::size_t>> before(program.tasks.size());
    for (std::size_t i = 0; i < program.tasks.size(); ++i) {
      const ProgramTask& task = program.tasks[i];
      for (std::uint32_t s = 0; s < task.num_successors; ++s) {
        before[program.successors[task.first_successor + s]].push_back(i);
      }
    }
    std::map<std::size_t, Stretch> stretches{{0, {}}};  // by where they begin
    const auto cut = [&stretches](std::size_t element) {
      const auto next = stretches.lower_bound(element);
      if (next != stretches.end() && next->first == element) return next;
      return stretches.emplace_hint(next, element, std::prev(next)->second);
    };
    for (std::size_t i = 0; i < program.tasks.size(); ++i) {
      const ProgramTask& task = program.tasks[i];
      const bool writes = task.kind == ProgramTask::Kind::COMBINE ||
                          (task.kind == ProgramTask::Kind::RECEIVE && !task.is_operand);
      if (!writes && task.kind == ProgramTask::Kind::RECEIVE) continue;  // into a buffer
      const auto last = cut(task.range.end());
      for (auto it = cut(task.range.begin); it != last; ++it) {
        Stretch& stretch = it->second;
        if (stretch.writer != Stretch::kNobody && !waits_for(before, i, stretch.writer)) {
          return name_of(p, i) + " touches what task " + std::to_string(stretch.writer) +
                 " may be writing";
        }
        for (const std::size_t reader : stretch.readers) {
          if (writes && !waits_for(before, i, reader)) {
            return name_of(p, i) + " writes what task " + std::to_string(reader) +
                   " may be reading";
          }
        }
        if (writes) {
          stretch = {.writer = i};
        } else {
          stretch.readers.push_back(i);
        }
      }
    }
    return "";
  }
  [[nodiscard]] static bool waits_for(const std::vector<std::vector<std::size_t>>& before,
                                      std::size_t task, std::size_t earlier) {
    if (std::ranges::find(before[task], earlier) != before[task].end()) return true;
    // Those before are earlier tasks, so this ends.
    return std::ranges::any_of(before[task], [&](std::size_t each) {
      return each > earlier && waits_for(before, each, earlier);
    });
  }

  std::vector<ScheduleProgram> programs_;
  std::vector<std::vector<std::size_t>> nodes_;  // by participant and task
  std::size_t num_nodes_ = 0;
};

[[nodiscard]] inline std::vector<ScheduleProgram> compile_all(const Schedule& schedule,
                                                              std::size_t piece_elements) {
  std::vector<ScheduleProgram> programs;
  programs.reserve(schedule.num_participants);
  for (std::size_t p = 0; p < schedule.num_participants; ++p) {
    programs.push_back(compile_schedule(schedule, p, piece_elements));
  }
  return programs;
}

[[nodiscard]] inline std::string verify_programs(const Schedule& schedule,
                                                 std::size_t piece_elements) {
  return ProgramGraph(compile_all(schedule, piece_elements)).verify();
}

}  // namespace crossdevice::testing
