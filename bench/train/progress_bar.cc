// SPDX-License-Identifier: Apache-2.0
/// Draws the progress bar with a carriage return and an erase-line sequence.
#include "train/progress_bar.h"

#include <cstdio>
#include <utility>

#include <fmt/core.h>
#include <unistd.h>

namespace crossdevice::train {

namespace {

constexpr std::chrono::milliseconds kRedrawEvery{50};
constexpr std::size_t kWidth = 30;
constexpr std::string_view kEraseLine = "\r\x1b[K";

}  // namespace

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), on_terminal_(isatty(STDOUT_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (!on_terminal_) return;
  std::fwrite(kEraseLine.data(), 1, kEraseLine.size(), stdout);
  std::fflush(stdout);
}

void ProgressBar::show(std::size_t done, std::size_t all, std::string_view text) {
  if (!on_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + kRedrawEvery;
  const std::string drawn = std::string(kEraseLine) + line(label_, done, all, text, kWidth);
  std::fwrite(drawn.data(), 1, drawn.size(), stdout);
  std::fflush(stdout);
}

std::string ProgressBar::line(std::string_view label, std::size_t done, std::size_t all,
                              std::string_view text, std::size_t width) {
  const std::size_t filled = all == 0 ? width : width * done / all;
  const std::size_t percent = all == 0 ? 100 : 100 * done / all;
  return fmt::format("{} [{}{}] {:3} %  {}", label, std::string(filled, '='),
                     std::string(width - filled, ' '), percent, text);
}

}  // namespace crossdevice::train
