// SPDX-License-Identifier: Apache-2.0
/// A rank's programs, with everybody connected that they talk to.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <utility>

#include "crossdevice/collective/schedule_program.h"
#include "crossdevice/core/deadline.h"

#include "collective/detail/program_cache.h"
#include "collective/detail/transport_group.h"

namespace crossdevice::detail {

/// Collective: every member asks for the same programs in the same order, so that it connects to those who connect to it.
class ConnectedPrograms {
 public:
  /// `group` lives longer.
  explicit ConnectedPrograms(TransportGroup& group)
      : group_(group), programs_(group.num_ranks(), group.rank()) {}

  /// During an operation of the group.
  ///
  /// Errors   as TransportGroup::agree() and Transport::connect(), where not all members are connected from the start.
  [[nodiscard]] std::shared_ptr<const ScheduleProgram> find(const ProgramKey& key,
                                                            const Deadline& deadline);

 private:
  TransportGroup& group_;
  ProgramCache programs_;
  std::set<std::pair<ProgramKey::Kind, std::size_t>> connected_;  // kinds and roots
};

}  // namespace crossdevice::detail
