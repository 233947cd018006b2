// SPDX-License-Identifier: Apache-2.0
/// A bar that fills while something runs: on terminals only, silent elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace crossdevice::train {

/// Writes to standard output. Redraws at most every 50 ms, so it costs nothing worth measuring.
class ProgressBar {
 public:
  /// `label` stands before the bar.
  explicit ProgressBar(std::string label);
  /// Erases the bar.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(std::size_t done, std::size_t all, std::string_view text);

  /// The line that show() draws, `width` characters of bar.
  [[nodiscard]] static std::string line(std::string_view label, std::size_t done, std::size_t all,
                                        std::string_view text, std::size_t width);

 private:
  std::string label_;
  bool on_terminal_;
  std::chrono::steady_clock::time_point next_draw_{};
};

}  // namespace crossdevice::train
