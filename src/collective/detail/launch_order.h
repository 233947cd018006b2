// SPDX-License-Identifier: Apache-2.0
/// One order of launches for several objects over the GPUs of several workers.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/deadline.h"
#include "crossdevice/device/device.h"

namespace crossdevice::detail {

/// NCCL may hold a GPU for one object's call until all workers have come to it. So where two objects share a GPU, and threads of their own call them, each worker
/// would have to launch in the same order, which the threads do not know. Here they come to know it: a call is launched when all its workers have come to it, in
/// the order in which the chief has found that they have. It is the order in which hosts launch; what streams then hold back is the program's own.
///
/// That costs a call a round trip to the chief, for which its thread waits. So calls are ordered only from the moment on when a second object shares a GPU, on
/// any worker, with this one, and stay so, whatever becomes of that one; never with CROSSDEVICE_LAUNCH_ORDER=program on all workers, always with
/// CROSSDEVICE_STRICT=1, which compares them before they are launched anyhow. Objects of different join()s have no common order.
///
/// Threads  calls of one object are serialised by the caller.
/// Cost     without order two locks, of the process, held for moments. Else that round trip, and memory for its messages.
class LaunchOrder {
  struct State;
  struct Beside;

 public:
  /// A call's place in the order, from begin() on, until what it launches has been launched.
  class Turn {
   public:
    Turn() = default;
    ~Turn() { end(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// `deadline` of the call, without the time in which await() has waited for communicators that were made.
    [[nodiscard]] Deadline prolonged(const Deadline& deadline) const {
      return deadline.later(waited_for_making_);
    }
    /// Whether enter() and await() are to follow, or gather().
    [[nodiscard]] bool is_ordered() const { return is_ordered_; }
    void end();
    /// Ends it; the call has not been made, and the next one has its number.
    void give_back();

   private:
    friend class LaunchOrder;
    State* state_ = nullptr;  // null: it has not begun, or is over
    bool is_ordered_ = false;
    bool is_making_ = false;
    Deadline::Clock::duration waited_for_making_{0};
  };

  /// Before communicators of `local`, this worker's GPUs, are made. A device that is not there shares nothing.
  ///
  /// Ranks    collective.
  /// Errors   as Cluster::all_gather_bytes().
  LaunchOrder(const std::shared_ptr<Cluster>& cluster, const Devices& local,
              const Deadline& deadline);
  /// No turn is under way.
  ~LaunchOrder();
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;

  /// This worker makes its next call, which counts: all workers make the same. Waits while the workers agree from which call on there is an order.
  ///
  /// Errors   DeadlineExceededError: they have not; the call has not been counted.
  void begin(Turn& turn, const Deadline& deadline);
  /// The same for making what is called later, which may take long: who comes behind it does not have that time counted.
  void begin_making(Turn& turn, const Deadline& deadline);
  /// Of an ordered turn: all workers' bytes, once all have come to this call. Its place is known then.
  ///
  /// Errors   as Cluster::all_gather_bytes().
  [[nodiscard]] std::vector<std::string> enter(Turn& turn, std::string_view bytes,
                                               const Deadline& deadline);
  /// Behind it: until it is this call's turn. Where this object or the job is over it returns at once: the launch will not come about.
  ///
  /// Errors   DeadlineExceededError: calls before this one have not been launched here.
  void await(Turn& turn, const Deadline& deadline);
  /// In place of both, for a call that launches nothing: it has no place among those that do.
  [[nodiscard]] std::vector<std::string> gather(std::string_view bytes, const Deadline& deadline);
  /// Its communicators are broken: nobody waits for calls of this one any more.
  void give_up() noexcept;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace crossdevice::detail
