// SPDX-License-Identifier: Apache-2.0
// Streams and events: the handles on queues.
#include "crossdevice/device/stream.h"

#include <string>
#include <utility>

#include "crossdevice/core/error.h"
#include "crossdevice/device/shutdown.h"

#include "device/detail/stream_state.h"

namespace crossdevice {
namespace {

std::shared_ptr<detail::StreamState> make_state(const Device& device, std::string_view name) {
  device.require_present();  // this library has host devices only, so a present one is a host
  return std::make_shared<detail::StreamState>(std::string(name));
}

void end(const std::shared_ptr<detail::StreamState>& state) noexcept {
  if (state == nullptr) return;
  if (detail::is_forked_child()) {
    state->abandon();
    return;
  }
  state->release();
}

}  // namespace

bool Event::has_completed() const { return stream_ == nullptr || stream_->has_reached(position_); }

void Event::wait(const Deadline& deadline) const {
  if (stream_ != nullptr) stream_->wait_until(position_, deadline, "an event");
}

Stream::Stream(const Device& device, std::string_view name) : state_(make_state(device, name)) {}
Stream::~Stream() { end(state_); }
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&& other) noexcept {
  if (this != &other) {
    end(state_);
    state_ = std::move(other.state_);
  }
  return *this;
}

void Stream::launch(std::function<void()> task) {
  if (task == nullptr) throw ValueError("Stream::launch: expected a task, got an empty function");
  state_->enqueue(std::move(task));
}

Event Stream::record() {
  Event event;
  event.stream_ = state_;
  event.position_ = state_->position();
  return event;
}

void Stream::wait(const Event& event) {
  if (event.stream_ == state_ || event.has_completed()) return;  // order alone sees to it
  state_->enqueue([event] { event.wait(Deadline::never()); });
}

void Stream::synchronize(const Deadline& deadline) {
  state_->wait_until(state_->position(), deadline, "what was enqueued");
  state_->rethrow_error();
}

void Stream::stop() { state_->stop(); }
bool Stream::is_current() const { return state_->is_current(); }

}  // namespace crossdevice
