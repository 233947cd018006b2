// SPDX-License-Identifier: Apache-2.0
#include "support/emulated_stream.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

namespace crossdevice::testing {
namespace {
constexpr std::chrono::seconds kLimitOfStop{5};
}

EmulatedStream& EmulatedStreams::create(EmulatedMachine::Lock& /*lock*/, int device) {
  streams_.push_back(std::make_unique<EmulatedStream>());
  streams_.back()->device = device;
  streams_.back()->number = streams_.size() - 1;
  return *streams_.back();
}

EmulatedStream* EmulatedStreams::find(EmulatedMachine::Lock& /*lock*/, const void* handle) {
  for (const auto& stream : streams_) {
    if (stream.get() == handle) return stream.get();
  }
  return nullptr;
}

std::vector<EmulatedStream*> EmulatedStreams::all_of(EmulatedMachine::Lock& /*lock*/) const {
  std::vector<EmulatedStream*> all;
  all.reserve(streams_.size());
  for (const auto& stream : streams_) all.push_back(stream.get());
  return all;
}

void EmulatedStreams::push(EmulatedMachine::Lock& lock, EmulatedStream& stream,
                           std::function<void()> operation) {
  // Also when nothing runs any more: what an operation holds must not be let go under the lock.
  stream.queue.push_back(std::move(operation));
  ++stream.num_enqueued;
  if (machine_.is_stopping(lock)) return;
  if (!stream.thread.joinable()) {
    stream.thread = std::thread([this, &stream] { serve(stream); });
  }
  stream.wake.notify_one();
}

std::shared_ptr<Moment> EmulatedStreams::push_moment(EmulatedMachine::Lock& lock,
                                                     EmulatedStream& stream) {
  auto moment = std::make_shared<Moment>();
  push_moment(lock, stream, moment);
  return moment;
}

void EmulatedStreams::push_moment(EmulatedMachine::Lock& lock, EmulatedStream& stream,
                                  std::shared_ptr<Moment> moment) {
  moment->clock = order_of(lock, stream);
  push(lock, stream, [this, moment = std::move(moment)] {
    const auto held = machine_.lock();
    moment->has_come = true;
    moment->came = std::chrono::steady_clock::now();
    machine_.notify();
  });
}

void EmulatedStreams::push_wait(EmulatedMachine::Lock& lock, EmulatedStream& stream,
                                std::shared_ptr<Moment> moment) {
  stream.clock.merge(moment->clock);
  push(lock, stream, [this, moment = std::move(moment)] {
    auto held = machine_.lock();
    (void)machine_.await(held, [&] { return moment->has_come; });
  });
}

void EmulatedStreams::push_gate(EmulatedMachine::Lock& lock, EmulatedStream& stream) {
  auto gate = std::make_shared<Gate>();
  stream.gates.push_back(gate);
  // Counted from now on, not from when the gate is reached.
  const std::uint64_t releases = machine_.num_releases(lock);
  push(lock, stream, [this, releases, gate = std::move(gate)] {
    auto held = machine_.lock();
    (void)machine_.await(held,
                         [&] { return gate->is_open || machine_.num_releases(held) != releases; });
  });
}

void EmulatedStreams::open_gates(EmulatedMachine::Lock& /*lock*/, EmulatedStream& stream) {
  for (const auto& gate : stream.gates) gate->is_open = true;
  stream.gates.clear();
  machine_.notify();
}

EmulatedClock& EmulatedStreams::order_of(EmulatedMachine::Lock& /*lock*/, EmulatedStream& stream) {
  stream.clock.merge(host_);
  std::erase_if(stream.joints, [&](const auto& joint) {
    stream.clock.merge(joint->clock);
    return joint->num_missing == 0;
  });
  return stream.clock;
}

void EmulatedStreams::stop() {
  auto lock = machine_.lock();
  machine_.stop(lock);
  for (const auto& stream : streams_) stream->wake.notify_all();
  const auto have_ended = [&] {
    return std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) {
      return !stream->thread.joinable() || stream->has_ended;
    });
  };
  // await_for() would not wait, since the machine stops.
  const auto limit = std::chrono::steady_clock::now() + kLimitOfStop;
  while (!have_ended() && std::chrono::steady_clock::now() < limit) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  for (const auto& stream : streams_) {
    if (!stream->thread.joinable()) continue;
    if (stream->has_ended) {
      lock.unlock();
      stream->thread.join();
      lock.lock();
    } else {
      (void)std::fprintf(stderr, "emulated GPUs: an operation does not end; its thread is left\n");
      stream->thread.detach();
    }
  }
}

void EmulatedStreams::serve(EmulatedStream& stream) {
  auto lock = machine_.lock();
  for (;;) {
    stream.wake.wait(lock, [&] {
      return machine_.is_stopping(lock) || stream.is_destroyed || !stream.queue.empty();
    });
    if (machine_.is_stopping(lock) || stream.queue.empty()) break;
    std::function<void()> operation = std::move(stream.queue.front());
    stream.queue.pop_front();
    lock.unlock();
    operation();
    operation = nullptr;
    lock.lock();
    ++stream.num_completed;
    machine_.notify();
  }
  stream.has_ended = true;
}

}  // namespace crossdevice::testing
