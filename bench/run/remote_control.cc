// SPDX-License-Identifier: Apache-2.0
#include "run/remote_control.h"

#include <cerrno>
#include <utility>

#include <unistd.h>

namespace crossdevice::run {

RemoteControl::RemoteControl(Descriptor pipe, std::string first)
    : pipe_(std::move(pipe)), bytes_(std::move(first)) {}

void RemoteControl::signal(int number) {
  if (is_open()) bytes_.push_back(static_cast<char>(number));
}

void RemoteControl::write_some() {
  while (has_unsent()) {
    const ssize_t count = ::write(pipe_.get(), bytes_.data() + sent_, bytes_.size() - sent_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    sent_ = count < 0 ? bytes_.size() : sent_ + static_cast<std::size_t>(count);
  }
  bytes_.clear();
  sent_ = 0;
}

}  // namespace crossdevice::run
