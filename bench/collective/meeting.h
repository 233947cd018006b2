// SPDX-License-Identifier: Apache-2.0
/// How the workers of a team reach each other around their measurements: each library that is measured has a way of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace crossdevice::bench {

/// Ranks    every function is collective: all workers call it, in the same order.
/// Errors   as the library that carries it.
/// Threads  one at a time.
class Meeting {
 public:
  Meeting() = default;
  virtual ~Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Returns on all workers at about the same time, after kReductionsPerLineUp small reductions:
  /// within the time of one of them.
  virtual void line_up() = 0;
  /// What each worker gave, by rank; of any lengths.
  [[nodiscard]] virtual std::vector<std::string> all_gather_bytes(std::string_view mine) = 0;
};

}  // namespace crossdevice::bench
