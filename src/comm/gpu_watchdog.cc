// SPDX-License-Identifier: Apache-2.0
// Threads: watch() puts an operation into `incoming_` and goes. The watchdog's thread takes what has come in, and from then on an operation is its own:
// it asks CUDA and NCCL, calls `failed` and drops operations without holding its lock, so that who launches never waits for any of that. It takes no lock
// of launches. Nodes are never freed; one that is done goes back for the next operation.
#include "crossdevice/comm/gpu_watchdog.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/exception_text.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/service_thread.h"
#include "crossdevice/device/gpu_platform.h"
#include "crossdevice/device/shutdown.h"

#include "comm/detail/flight_recorder.h"

namespace crossdevice::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kShortestTick{0.001};
constexpr Seconds kLongestTick{0.1};
constexpr double kTicksPerTime = 8;
/// How long after its deadline an operation waits for who knows which worker is missing: twice what a round takes that nobody answers (Membership::Patience).
constexpr Seconds kVerdictTime{1};

thread_local bool is_watchdog = false;

struct Node {
  WatchedOperation operation;
  std::uint64_t flight = 0;  // 0: not recorded
  std::int64_t enqueued_ns = 0;
  std::optional<Clock::time_point> started{};
  std::optional<Clock::time_point> asked{};  // who is missing
  Node* next = nullptr;
};

/// In the order they were given.
class NodeList {
 public:
  [[nodiscard]] bool is_empty() const { return head_ == nullptr; }
  [[nodiscard]] Node* head() const { return head_; }
  void push_back(Node& node) {
    node.next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = &node;
    tail_ = &node;
  }
  Node& pop_front() {
    Node& node = *head_;
    head_ = node.next;
    return node;
  }
  void append(NodeList more) {
    if (more.is_empty()) return;
    (head_ == nullptr ? head_ : tail_->next) = more.head_;
    tail_ = more.tail_;
  }
  [[nodiscard]] NodeList take() { return std::exchange(*this, NodeList()); }

 private:
  Node* head_ = nullptr;
  Node* tail_ = nullptr;
};

struct Queue {
  NcclClique* clique = nullptr;
  CudaStream stream = nullptr;
  NodeList nodes;
};

std::string name_of(const WatchedOperation& operation) {
  const std::string name = to_string(operation.record);
  return operation.detail.empty() ? name : name + " " + operation.detail;
}

const Devices& devices_of(const WatchedOperation& operation) {
  static const Devices nothing;
  if (!operation.devices.empty()) return operation.devices;
  return operation.clique != nullptr ? operation.clique->devices() : nothing;
}

/// Nothing: no deadline.
std::optional<Seconds> timeout_of(const WatchedOperation& operation) {
  if (!operation.timeout_seconds.has_value() || !(*operation.timeout_seconds > 0)) {
    return std::nullopt;
  }
  return Seconds(*operation.timeout_seconds);
}

/// `started`: when its clock has. Nothing: no deadline.
std::optional<Seconds> time_left(const WatchedOperation& operation,
                                 std::optional<Clock::time_point> started = std::nullopt) {
  if (!operation.deadline.is_never()) return operation.deadline.moment() - Clock::now();
  const std::optional<Seconds> timeout = timeout_of(operation);
  if (!timeout.has_value() || !started.has_value()) return timeout;
  return *timeout - (Clock::now() - *started);
}

Seconds tick_for(Seconds remaining) {
  return std::clamp(remaining / kTicksPerTime, kShortestTick, kLongestTick);
}

bool have_ends_come(const WatchedOperation& operation) {
  if (operation.launches_over != nullptr) {
    return operation.launches_over->load(std::memory_order_acquire) >= operation.launch;
  }
  return std::all_of(operation.ends.begin(), operation.ends.end(),
                     [](const GpuEvent& end) { return end.has_completed(); });
}

std::string deadline_text(const WatchedOperation& operation) {
  return fmt::format("{} timed out after {:.3g} s", name_of(operation), *operation.timeout_seconds);
}

/// Null: all has come meanwhile.
std::exception_ptr deadline_error(const WatchedOperation& operation) {
  const Devices& devices = devices_of(operation);
  std::string names;
  OpErrorDetails details{
      .operation = operation.record, .culprits = {}, .inputs_intact = operation.inputs_intact};
  for (std::size_t i = 0; i < operation.ends.size(); ++i) {
    if (operation.ends[i].has_completed()) continue;
    names += names.empty() ? "" : ", ";
    names += i < devices.size() ? devices[i].short_name() : fmt::format("part {}", i);
    details.culprits.push_back({.replica = static_cast<int>(i)});
  }
  if (operation.launches_over != nullptr) names = "NCCL to launch it";
  if (names.empty()) return nullptr;
  return std::make_exception_ptr(DeadlineExceededError(
      fmt::format("{}: waiting for {}", deadline_text(operation), names), std::move(details)));
}

/// `error`, as this operation's.
std::exception_ptr named_error(const WatchedOperation& operation, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const OpError& known) {
    return said_anew(known, fmt::format("{}: {}", name_of(operation), known.what()),
                     operation.record, operation.inputs_intact);
  } catch (...) {
    return error;
  }
}

/// Of one whose time is over: what NCCL has said, if anything. Null: all has come meanwhile.
std::exception_ptr late_error(const WatchedOperation& operation) {
  if (operation.clique != nullptr) {
    if (const std::exception_ptr error =
            operation.clique->find_async_error(NcclNews::COMES_NO_MORE)) {
      return named_error(operation, error);
    }
  }
  return deadline_error(operation);
}

/// What broke the clique, for this operation: the text is the clique's, but what became of its inputs is its own.
std::exception_ptr own_error(const WatchedOperation& operation, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const OpError& known) {
    const bool is_named = !known.operation().kind.empty();
    if (is_named && known.inputs_intact() == operation.inputs_intact) return error;
    return said_anew(known, known.what(), is_named ? known.operation() : operation.record,
                     operation.inputs_intact);
  } catch (...) {
    return error;
  }
}

FlightPlan plan_of(const WatchedOperation& operation, std::int64_t enqueued_ns) {
  return {.operation = operation.record,
          .detail = operation.detail,
          .size_bytes = operation.size_bytes,
          .dtype = operation.dtype,
          .devices = devices_of(operation),
          .timeout_seconds = operation.timeout_seconds,
          .enqueued_ns = enqueued_ns};
}

/// Whether somebody has been asked who may still answer, or has just done so.
bool awaits_verdict(Node& node) {
  const WatchedOperation& operation = node.operation;
  std::shared_ptr<StallWitness> witness = operation.witness;
  if (witness == nullptr && operation.clique != nullptr) witness = operation.clique->witness();
  const bool knows_more =
      witness != nullptr && witness->ask_who_is_missing(operation.record, operation.inputs_intact,
                                                        deadline_text(operation));
  if (operation.clique != nullptr && operation.clique->first_error() != nullptr) return true;
  if (!knows_more) return false;
  const Clock::time_point now = Clock::now();
  if (!node.asked.has_value()) node.asked = now;
  return now - *node.asked < kVerdictTime;
}

class GpuWatchdog {
 public:
  void watch(WatchedOperation operation);
  void look_soon();
  void stop();
  void await_end(const Deadline& deadline);

 private:
  void run();
  void let_go_of_ended();
  void sort_in(NodeList come);
  Seconds look();
  void look_at(Queue& queue, NodeList& done, Seconds& tick);
  /// Whether it is over.
  bool look_at(Node& node, Seconds& tick);
  void fail(Node& node, std::exception_ptr error);
  void fail_broken_cliques(NodeList& done);
  void recycle(NodeList done);

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  NodeList incoming_;
  NodeList free_;
  std::deque<Node> nodes_;
  bool has_thread_ = false;
  bool is_stopping_ = false;
  bool has_ended_ = false;  // its thread looks at nothing any more
  Clock::time_point next_look_ = Clock::time_point::max();
  std::mutex thread_mutex_;  // guards thread_; taken before mutex_
  std::thread thread_;
  // The thread's own.
  std::vector<Queue> queues_;
  bool has_failures_ = false;
};

GpuWatchdog& watchdog() {
  static GpuWatchdog& instance = *new GpuWatchdog;  // never destroyed: shutdown() ends its thread
  return instance;
}

void GpuWatchdog::watch(WatchedOperation operation) {
  const Clock::time_point look_at_latest =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         tick_for(time_left(operation).value_or(kLongestTick * kTicksPerTime)));
  bool must_wake = false;
  bool must_start = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return;
    if (free_.is_empty()) free_.push_back(nodes_.emplace_back());
    Node& node = free_.pop_front();
    node.operation = std::move(operation);
    const bool is_launch = node.operation.launches_over != nullptr;
    node.enqueued_ns = flight_clock_ns();
    node.flight = is_launch ? 0 : record_enqueued(plan_of(node.operation, node.enqueued_ns));
    node.started.reset();
    node.asked.reset();
    incoming_.push_back(node);
    must_start = !has_thread_;
    must_wake = look_at_latest < next_look_;
    if (must_wake) next_look_ = look_at_latest;
  }
  if (must_wake) changed_.notify_all();
  if (!must_start) return;
  {
    const std::lock_guard start(thread_mutex_);
    {
      const std::lock_guard lock(mutex_);
      if (has_thread_ || is_stopping_) return;
      has_thread_ = true;  // before it is: who waits for its end must not miss its beginning
    }
    try {
      thread_ = start_service_thread("xdev-watchdog", [this] { run(); });
    } catch (...) {
      const std::lock_guard lock(mutex_);
      has_thread_ = false;
      throw;
    }
  }
  stop_at_shutdown([] { watchdog().stop(); });
}

void GpuWatchdog::stop() {
  if (is_watchdog) {
    throw FailedPreconditionError("the watchdog's thread cannot wait for itself in shutdown()");
  }
  const std::lock_guard stop(thread_mutex_);
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (!thread_.joinable()) return;
  thread_.join();
  let_go_of_ended();
}

/// In the place of the thread, which is not there any more: operations hold their cliques, which are to end in time.
void GpuWatchdog::let_go_of_ended() {
  NodeList come;
  {
    const std::lock_guard lock(mutex_);
    come = incoming_.take();
  }
  sort_in(come);
  (void)look();
}

void GpuWatchdog::look_soon() {
  {
    const std::lock_guard lock(mutex_);
    if (!has_thread_) return;
    next_look_ = Clock::now();
  }
  changed_.notify_all();
}

void GpuWatchdog::await_end(const Deadline& deadline) {
  {
    std::unique_lock lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
    (void)changed_.wait_until(lock, deadline.moment(),
                              [this] { return !has_thread_ || has_ended_; });
    if (!has_ended_) return;
  }
  const std::lock_guard stop(thread_mutex_);
  if (thread_.joinable()) thread_.join();  // it has only to return
}

void GpuWatchdog::run() {
  is_watchdog = true;
  // Asking for events would spoil a capture on another thread otherwise.
  CudaCaptureMode mode = CudaCaptureMode::THREAD_LOCAL;
  if (gpu_platform().has_gpus()) (void)gpu_platform().cuda->exchange_capture_mode(&mode);
  for (;;) {
    NodeList come;
    {
      std::unique_lock lock(mutex_);
      while (!is_stopping_ && Clock::now() < next_look_) {
        // Moved forward by watch(); nothing is in flight where it is the clock's end.
        if (next_look_ == Clock::time_point::max()) {
          changed_.wait(lock);
        } else {
          (void)changed_.wait_until(lock, next_look_);
        }
      }
      if (is_stopping_) {
        has_ended_ = true;
        changed_.notify_all();
        return;
      }
      come = incoming_.take();
      next_look_ = Clock::time_point::max();
    }
    sort_in(come);
    const Seconds tick = look();
    const std::lock_guard lock(mutex_);
    if (tick != Seconds::max()) {
      next_look_ =
          std::min(next_look_, Clock::now() + std::chrono::duration_cast<Clock::duration>(tick));
    }
  }
}

void GpuWatchdog::sort_in(NodeList come) {
  while (!come.is_empty()) {
    Node& node = come.pop_front();
    NcclClique* const clique = node.operation.clique.get();
    const CudaStream stream = node.operation.stream;
    auto queue = std::find_if(queues_.begin(), queues_.end(), [&](const Queue& each) {
      return each.clique == clique && each.stream == stream;
    });
    if (queue == queues_.end()) {
      queue = queues_.insert(queues_.end(), {.clique = clique, .stream = stream, .nodes = {}});
    }
    queue->nodes.push_back(node);
  }
}

/// Until when, at the latest, to look again; max(): nothing is in flight.
Seconds GpuWatchdog::look() {
  Seconds tick = Seconds::max();
  NodeList done;
  has_failures_ = false;
  for (Queue& queue : queues_) look_at(queue, done, tick);
  fail_broken_cliques(done);
  // Empty ones go before the cliques they name may die.
  std::erase_if(queues_, [](const Queue& queue) { return queue.nodes.is_empty(); });
  recycle(done);
  if (has_failures_) dump_flight_record();
  return queues_.empty() ? Seconds::max() : tick;
}

void GpuWatchdog::look_at(Queue& queue, NodeList& done, Seconds& tick) {
  NodeList rest;
  bool is_first = true;
  while (!queue.nodes.is_empty()) {
    // Behind the first that is not over nothing can be, where the order is known.
    if (!is_first && queue.stream != nullptr) break;
    Node& node = queue.nodes.pop_front();
    if (look_at(node, tick)) {
      done.push_back(node);
    } else {
      rest.push_back(node);
      is_first = false;
    }
  }
  rest.append(queue.nodes);
  queue.nodes = rest;
}

bool GpuWatchdog::look_at(Node& node, Seconds& tick) {
  const WatchedOperation& operation = node.operation;
  std::exception_ptr error;
  try {
    const bool has_ended = have_ends_come(operation);
    // After the ends: kernels that an abort ended look as if they had done their work.
    if (operation.clique != nullptr && operation.clique->first_error() != nullptr) {
      tick = std::min(tick, kShortestTick);
      return false;  // fail_broken_cliques() is next
    }
    if (has_ended) {
      record_completed(node.flight);
      const bool is_launch = operation.launches_over != nullptr;
      if (!is_launch && operation.listener != nullptr) {
        operation.listener->operation_completed(operation.record.sequence);
      }
      return true;
    }
    if (!node.started.has_value() && operation.start.has_completed()) {
      node.started = Clock::now();
      record_started(node.flight);
    }
    const Seconds remaining =
        time_left(operation, node.started).value_or(kLongestTick * kTicksPerTime);
    if (remaining <= Seconds::zero() && !awaits_verdict(node)) error = late_error(operation);
    if (error == nullptr) {
      tick = std::min(tick, tick_for(remaining));
      return false;
    }
  } catch (...) {
    error = named_error(operation, std::current_exception());
  }
  fail(node, error);
  return true;
}

/// `error`, or what has broken its clique before.
void GpuWatchdog::fail(Node& node, std::exception_ptr error) {
  has_failures_ = true;
  if (node.operation.clique != nullptr) {
    node.operation.clique->break_with(error);
    error = own_error(node.operation, node.operation.clique->first_error());
  }
  if (node.flight == 0) node.flight = record_enqueued(plan_of(node.operation, node.enqueued_ns));
  record_failed(node.flight, exception_text(error));
  try {
    if (node.operation.listener != nullptr) node.operation.listener->operation_failed(error);
    if (node.operation.failed) node.operation.failed(error);
  } catch (const std::exception& thrown) {
    log(LogSeverity::FAILURE,
        fmt::format("what is to be done when an operation fails has failed: {}", thrown.what()));
  }
}

/// What NCCL has to say about those that are whole; and the end of everything on those that are not.
void GpuWatchdog::fail_broken_cliques(NodeList& done) {
  for (Queue& queue : queues_) {
    if (queue.clique == nullptr || queue.nodes.is_empty()) continue;
    if (const std::exception_ptr error = queue.clique->find_async_error()) {
      // Named after the operation that is first in line, which it has hit most likely.
      queue.clique->break_with(named_error(queue.nodes.head()->operation, error));
    }
    const std::exception_ptr error = queue.clique->first_error();
    if (error == nullptr) continue;
    while (!queue.nodes.is_empty()) {
      Node& node = queue.nodes.pop_front();
      fail(node, error);
      done.push_back(node);
    }
  }
}

void GpuWatchdog::recycle(NodeList done) {
  if (done.is_empty()) return;
  for (Node* node = done.head(); node != nullptr; node = node->next) {
    node->operation = WatchedOperation();  // without the lock: a clique may end here
  }
  const std::lock_guard lock(mutex_);
  while (!done.is_empty()) free_.push_back(done.pop_front());
}

}  // namespace

void watch(WatchedOperation operation) {
  require_not_forked();
  watchdog().watch(std::move(operation));
}

void record_failed_launch(const WatchedOperation& operation,
                          const std::exception_ptr& error) noexcept {
  try {
    record_failed(record_enqueued(plan_of(operation, /*enqueued_ns=*/0)), exception_text(error));
    dump_flight_record();
  } catch (const std::exception& thrown) {
    log(LogSeverity::WARNING,
        fmt::format("a launch that failed is not in the flight record: {}", thrown.what()));
  }
}

void look_at_watched() {
  if (!is_forked_child()) watchdog().look_soon();
}

void await_end_of_watchdog(const Deadline& deadline) noexcept {
  if (!is_watchdog) watchdog().await_end(deadline);
}

bool is_watchdog_thread() noexcept { return is_watchdog; }

}  // namespace crossdevice::detail
