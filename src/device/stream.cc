// SPDX-License-Identifier: Apache-2.0
// Streams and events: the handles on queues.
#include "crossdevice/device/stream.h"

#include <string>
#include <utility>

#include "crossdevice/core/error.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/shutdown.h"

#include "device/detail/gpu_stream_state.h"
#include "device/detail/stream_state.h"

namespace crossdevice {
namespace {

void end(const std::shared_ptr<detail::StreamState>& host,
         const std::shared_ptr<detail::GpuStreamState>& gpu) noexcept {
  if (gpu != nullptr) gpu->release();
  if (host == nullptr) return;
  if (detail::is_forked_child()) {
    host->abandon();
    return;
  }
  host->release();
}

}  // namespace

bool Event::has_completed() const {
  return (host_ == nullptr || host_->has_reached(position_)) && gpu_.has_completed();
}

void Event::wait(const Deadline& deadline) const {
  if (host_ != nullptr) host_->wait_until(position_, deadline, "an event");
  gpu_.wait(deadline);
}

Stream::Stream(const Device& device, std::string_view name) {
  device.require_present();
  if (device.is_host()) {
    host_ = std::make_shared<detail::StreamState>(std::string(name));
  } else {
    gpu_ =
        std::make_shared<detail::GpuStreamState>(detail::GpuDevice::of(device), std::string(name));
  }
}

Stream::~Stream() { end(host_, gpu_); }
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&& other) noexcept {
  if (this != &other) {
    end(host_, gpu_);
    host_ = std::move(other.host_);
    gpu_ = std::move(other.gpu_);
  }
  return *this;
}

void Stream::launch(std::function<void()> task) {
  if (task == nullptr) throw ValueError("Stream::launch: expected a task, got an empty function");
  gpu_ != nullptr ? gpu_->enqueue(std::move(task)) : host_->enqueue(std::move(task));
}

Event Stream::record() {
  Event event;
  if (gpu_ != nullptr) {
    event.gpu_ = gpu_->record();
  } else {
    event.host_ = host_;
    event.position_ = host_->position();
  }
  return event;
}

void Stream::wait(const Event& event) {
  const bool is_of_gpu = event.host_ == nullptr;
  if (gpu_ != nullptr && is_of_gpu) return gpu_->wait_for(event.gpu_);
  if (event.host_ == host_ || event.has_completed()) return;  // order alone sees to it
  if (gpu_ != nullptr) {
    throw UnimplementedError(
        "a stream on a GPU cannot wait for an event of a host's stream, because CUDA has one "
        "thread for such waits: wait for the event on the host, or let a host's stream launch the "
        "work");
  }
  host_->enqueue([event] { event.wait(Deadline::never()); });
}

void Stream::synchronize(const Deadline& deadline) {
  if (gpu_ != nullptr) return gpu_->synchronize(deadline);
  host_->wait_until(host_->position(), deadline, "what was enqueued");
  host_->errors().rethrow();
}

void Stream::stop() { gpu_ != nullptr ? gpu_->stop() : host_->stop(); }
bool Stream::is_current() const {
  return gpu_ != nullptr ? gpu_->is_current() : host_->is_current();
}

StreamView Stream::view() const {
  if (gpu_ == nullptr) throw ValueError("Stream::view: the stream is a host's, not a GPU's");
  return from_cuda(gpu_->cuda());
}

}  // namespace crossdevice
