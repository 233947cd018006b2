// SPDX-License-Identifier: Apache-2.0
/// The streams of emulated GPUs: ordered queues, each served by a thread of its own from its first operation on.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "support/emulated_machine.h"
#include "support/emulated_memory.h"

namespace crossdevice::testing {

struct EmulatedCapture;

/// What keeps a stream from going on until it is opened.
struct Gate {
  bool is_open = false;
};

/// Everything is guarded by the machine's lock.
struct EmulatedStream {
  int device = -1;
  bool is_default = false;
  bool is_destroyed = false;
  std::deque<std::function<void()>> queue;
  std::uint64_t num_enqueued = 0;
  std::uint64_t num_completed = 0;
  std::vector<std::shared_ptr<Gate>> gates;
  std::size_t number = 0;
  std::uint64_t tick = 0;                           ///< operations so far
  EmulatedClock clock;                              ///< what comes before the next one
  std::vector<std::shared_ptr<JointClock>> joints;  ///< kernels that it has met others in
  std::shared_ptr<EmulatedCapture> capture;         ///< null: it does not capture
  std::condition_variable wake;
  std::thread thread;
  bool has_ended = false;

  [[nodiscard]] bool is_idle() const { return num_completed == num_enqueued; }
};

/// Threads  functions that take a Lock need it held; operations run without it.
class EmulatedStreams {
 public:
  explicit EmulatedStreams(EmulatedMachine& machine) : machine_(machine) {}
  /// Ends the threads; what is queued is dropped.
  ~EmulatedStreams() { stop(); }
  EmulatedStreams(const EmulatedStreams&) = delete;
  EmulatedStreams& operator=(const EmulatedStreams&) = delete;

  EmulatedStream& create(EmulatedMachine::Lock& lock, int device);
  /// Null: no stream of ours.
  [[nodiscard]] EmulatedStream* find(EmulatedMachine::Lock& lock, const void* handle);
  [[nodiscard]] std::vector<EmulatedStream*> all_of(EmulatedMachine::Lock& lock) const;

  /// Runs `operation` after everything that the stream has.
  void push(EmulatedMachine::Lock& lock, EmulatedStream& stream, std::function<void()> operation);
  /// The moment when everything that the stream has now is done.
  std::shared_ptr<Moment> push_moment(EmulatedMachine::Lock& lock, EmulatedStream& stream);
  void push_moment(EmulatedMachine::Lock& lock, EmulatedStream& stream,
                   std::shared_ptr<Moment> moment);
  void push_wait(EmulatedMachine::Lock& lock, EmulatedStream& stream,
                 std::shared_ptr<Moment> moment);
  /// Nothing that comes later runs until the gate is opened, or everything is released.
  void push_gate(EmulatedMachine::Lock& lock, EmulatedStream& stream);
  void open_gates(EmulatedMachine::Lock& lock, EmulatedStream& stream);

  /// What comes before the stream's next operation: also what the host has seen done.
  EmulatedClock& order_of(EmulatedMachine::Lock& lock, EmulatedStream& stream);
  /// The host has seen what comes before: of what it asks for from now on, any thread's, that is done.
  void learn(EmulatedMachine::Lock& /*lock*/, const EmulatedClock& clock) { host_.merge(clock); }

  /// Waits a bounded time for the operations that run; threads that do not come back are left behind.
  void stop();

 private:
  void serve(EmulatedStream& stream);

  EmulatedMachine& machine_;
  // Never forgotten while the emulation lives, so that a handle is never used twice and a stale one is known as such.
  std::deque<std::unique_ptr<EmulatedStream>> streams_;
  EmulatedClock host_;
};

}  // namespace crossdevice::testing
