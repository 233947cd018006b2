// SPDX-License-Identifier: Apache-2.0
/// One participant's part of a schedule: what it sends, receives and combines, and what of it waits for what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "crossdevice/collective/schedule.h"
#include "crossdevice/core/export.h"

namespace crossdevice {

/// A step or a piece of one, as its participant sees it.
struct ProgramTask {
  enum class Kind : std::uint8_t {
    SEND,     ///< the elements of `range` to `peer`
    RECEIVE,  ///< from `peer`: for a combination, into a buffer; of a copy, into the row
    COMBINE,  ///< the row's elements = the operands, in order
  };
  Kind kind = Kind::SEND;
  /// SEND, COMBINE with the own elements: nothing has been written to them yet, they are the input's.
  bool reads_input = false;
  /// RECEIVE: into a buffer, kept until the combination has run.
  bool is_operand = false;
  /// COMBINE: now everybody's contribution is in it.
  bool is_complete = false;
  std::size_t peer = 0;
  Interval range;
  std::uint32_t first_operand = 0;  ///< COMBINE: in ScheduleProgram::operands
  std::uint32_t num_operands = 0;
  std::uint32_t num_dependencies = 0;  ///< tasks that have to be done before
  std::uint32_t first_successor =
      0;  ///< in ScheduleProgram::successors: tasks that depend on this one
  std::uint32_t num_successors = 0;
};

/// Tasks in the order of the schedule's steps. Messages to one peer are sent in the order of their tasks, and received likewise: both sides cut steps into
/// the same pieces, so the k-th message that one sends to the other is the k-th that the other expects.
struct ScheduleProgram {
  static constexpr std::uint32_t kOwn = std::numeric_limits<std::uint32_t>::max();

  std::size_t num_participants = 0;
  std::size_t num_elements = 0;
  std::size_t participant = 0;
  std::vector<ProgramTask> tasks;
  std::vector<std::uint32_t> operands;  ///< RECEIVE tasks, or kOwn
  std::vector<std::uint32_t> successors;
  std::vector<Interval> unwritten;  ///< elements that no task writes: the row keeps the input's
  std::vector<std::size_t> peers;   ///< everybody that it sends to or receives from, ascending
  std::size_t max_piece_elements = 0;
  std::size_t max_buffers = 0;  ///< that a combination needs at once
  /// Some task reads elements of which a part is the input's and another part not: the input has to be copied to the row first.
  bool starts_with_copy = false;
  /// Of some step a part is complete and another part not, so a mean has to be divided in the end instead; equal for all participants.
  bool divides_at_end = false;

  /// One line per task, each ended by a newline: "0: send [0, 4) to 1", "2: combine [4, 8) = 1 own, complete, after 1".
  [[nodiscard]] CROSSDEVICE_EXPORT std::string to_string() const;
};

/// Steps are cut into pieces of at most `piece_elements`, so that what has come of a step moves on while the rest still comes.
///
/// Errors   ValueError: no such participant, pieces of no elements, more than 2^31 tasks; a step that names participants or elements that there
///          are not, a source twice, or a copy from several or to itself.
/// Cost     of the order of the schedule's steps times participants, and of the tasks: programs are meant to be kept.
[[nodiscard]] CROSSDEVICE_EXPORT ScheduleProgram compile_schedule(const Schedule& schedule,
                                                                  std::size_t participant,
                                                                  std::size_t piece_elements);

}  // namespace crossdevice
