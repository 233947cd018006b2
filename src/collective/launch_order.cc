// SPDX-License-Identifier: Apache-2.0
/// Why all workers launch in one order. Rounds end in the chief's order, which every worker hears on one connection; the thread that hears them puts each call at the
/// end of this worker's queue when its round has ended, and calls leave the queue from the front. So the calls that have an order are launched in the
/// chief's, on every worker. Nobody at the front waits for a worker: all have come to its call.
///
/// From which call on. Whoever makes an object finds those beside it that share a GPU, and asks all their workers to hold: each makes no further call of that object,
/// and tells the lowest rank how many it has made. That one tells all the largest number, N, and they go on: calls beyond N are ordered, on every worker. Who
/// is behind makes its calls up to N without an order, as the others have; so on a worker the calls of another object wait until those have been launched.
/// Nothing of the new object is launched before all its workers hold the objects beside it, since its making is a round.
///
/// Why holding ends. It is the control planes' threads that answer, which wait for nobody. An object that ends says how many calls it has made, unasked; its lowest
/// rank says that to all. One that is over, because a member has died, the job has been given up or its communicators are broken, makes no more calls: nobody
/// waits for it, nor holds it.
///
/// Why the queue moves. Who is at its front launches, and leaves it; NCCL's launch has a deadline of its own, or its peers, which are at the same launch, or on their
/// way to it past the same front. Who waits in a round is not in the queue.
///
/// Locks. `mutex` of Beside guards everything; the control plane's threads take it inside their own locks, so nobody enters the control plane with it but to post.
#include "collective/detail/launch_order.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/gpu_device.h"
#include "crossdevice/device/shutdown.h"

namespace crossdevice::detail {
namespace {

/// What members of one object post to each other: its first byte, and behind it, but for HOLD, a number of calls as text.
enum class Word : char {
  HOLD = 'h',     // to all: make no further call
  MADE = 'm',     // to the lowest rank: that many calls were made
  ORDERED = 'o',  // to all: calls beyond that many are ordered
};

std::string say(Word word, std::uint64_t count = 0) {
  return fmt::format("{}{}", static_cast<char>(word), count);
}

/// Ascending.
std::vector<int> ordinals_of(const Devices& devices) {
  std::vector<int> ordinals;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    try {
      ordinals.push_back(GpuDevice::of(devices[i]).ordinal());
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
      // No GPU; whoever makes communicators of it says so, on all workers.
    }
  }
  std::sort(ordinals.begin(), ordinals.end());
  return ordinals;
}

}  // namespace

struct LaunchOrder::State {
  State(const std::shared_ptr<Cluster>& cluster, const Devices& local);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::shared_ptr<Cluster> meeting;  // of its own: nobody else's rounds come between
  std::vector<int> gpus;
  std::shared_ptr<void> listening;

  // Guarded by Beside.
  bool is_made = false;    // all members listen
  bool is_wanted = false;  // an order, here
  bool is_held = false;
  bool has_told = false;                       // how many calls it has made
  std::optional<std::uint64_t> ordered_after;  // calls beyond are ordered
  std::uint64_t num_calls = 0;
  int num_unordered = 0;                           // that are being launched
  std::vector<std::optional<std::uint64_t>> made;  // by rank; the lowest rank's
  bool is_over = false;                            // a member, the job, or the communicators

  [[nodiscard]] bool is_beside(const State& other) const;
  /// Calls without an order are to be launched, or may be.
  [[nodiscard]] bool is_unsettled() const {
    const bool may_come = is_held || (ordered_after.has_value() && num_calls < *ordered_after);
    return num_unordered > 0 || (may_come && !is_over);
  }
  void want_order();
  void tell_made();
  void say_last_word() noexcept;
  void hear(int from, std::string_view bytes);
  void hear_made(int from, std::uint64_t count);
  void end();
};

/// The objects of this process, and their calls that have an order. Never destroyed.
struct LaunchOrder::Beside {
  std::mutex mutex;  // guards the rest, and what is said of each object
  std::condition_variable changed;
  std::vector<State*> states;
  std::vector<const Turn*> queue;  // in each chief's order

  static Beside& get() {
    static Beside& one = *new Beside;
    return one;
  }
  [[nodiscard]] bool is_next(const Turn& turn) const;
  [[nodiscard]] bool is_behind_making(const Turn& turn) const {
    return has_before(turn, [](const Turn& each) { return each.is_making_; });
  }
  template <class IsMeant>
  [[nodiscard]] bool has_before(const Turn& turn, IsMeant is_meant) const;
  /// Whether it came about in time.
  template <class IsDone>
  bool wait(std::unique_lock<std::mutex>& lock, const Deadline& deadline, IsDone is_done) {
    if (!deadline.is_never()) return changed.wait_until(lock, deadline.moment(), is_done);
    changed.wait(lock, is_done);
    return true;
  }
};

/// One before it that shares a GPU with it.
template <class IsMeant>
bool LaunchOrder::Beside::has_before(const Turn& turn, IsMeant is_meant) const {
  const auto own = std::find(queue.begin(), queue.end(), &turn);
  return std::any_of(queue.begin(), own, [&](const Turn* each) {
    return is_meant(*each) && turn.state_->is_beside(*each->state_);
  });
}

/// At the front of those that share a GPU with it, and nothing without an order may still come before it.
bool LaunchOrder::Beside::is_next(const Turn& turn) const {
  const auto any = [](const Turn& /*each*/) { return true; };
  return !has_before(turn, any) &&
         std::none_of(states.begin(), states.end(), [&turn](const State* each) {
           return turn.state_->is_beside(*each) && each->is_unsettled();
         });
}

// ---------------------------------------------------------------------------------------------- one object

LaunchOrder::State::State(const std::shared_ptr<Cluster>& cluster, const Devices& local)
    : meeting(cluster->duplicate()), gpus(ordinals_of(local)) {
  made.resize(static_cast<std::size_t>(meeting->num_workers()));
  listening = meeting->listen(
      {.on_lost = [this](const RankInfo& /*member*/, const std::string& /*why*/) { end(); },
       .on_abort = [this](const RankInfo& /*origin*/, const std::string& /*text*/) { end(); },
       .on_post = [this](int from, std::string_view bytes) { hear(from, bytes); }});
}

LaunchOrder::State::~State() {
  if (is_forked_child()) return;  // a thread of the parent's may hold the lock for ever
  listening = nullptr;            // nobody hears anything for it any more
  Beside& beside = Beside::get();
  {
    const std::lock_guard lock(beside.mutex);
    std::erase(beside.states, this);
    if (is_made && !is_over) say_last_word();
  }
  beside.changed.notify_all();
}

bool LaunchOrder::State::is_beside(const State& other) const {
  return this != &other && meeting->has_same_chief(*other.meeting) &&
         std::any_of(gpus.begin(), gpus.end(), [&other](int gpu) {
           return std::binary_search(other.gpus.begin(), other.gpus.end(), gpu);
         });
}

void LaunchOrder::State::want_order() {
  is_wanted = true;
  if (!is_made || is_over || is_held || ordered_after.has_value()) return;
  meeting->post(say(Word::HOLD));
  is_held = true;
}

void LaunchOrder::State::tell_made() {
  if (has_told) return;
  meeting->post(say(Word::MADE, num_calls), 0);
  has_told = true;
}

/// The others may come to want an order when this one does not hear of it any more.
void LaunchOrder::State::say_last_word() noexcept {
  try {
    if (meeting->rank() != 0) return tell_made();
    if (!ordered_after.has_value()) meeting->post(say(Word::ORDERED, num_calls));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
    // No memory: who holds waits until its deadline.
  }
}

/// On the control plane's thread. What is said comes from members of the job, which have proved who they are; a word that none of them says is none.
void LaunchOrder::State::hear(int from, std::string_view bytes) {
  std::uint64_t count = 0;
  if (bytes.empty()) return;
  const auto read = std::from_chars(bytes.data() + 1, bytes.data() + bytes.size(), count);
  if (read.ec != std::errc()) return;
  Beside& beside = Beside::get();
  {
    const std::lock_guard lock(beside.mutex);
    switch (static_cast<Word>(bytes[0])) {
      case Word::HOLD:
        is_held = !ordered_after.has_value();
        tell_made();
        break;
      case Word::MADE:
        hear_made(from, count);
        break;
      case Word::ORDERED:
        if (!ordered_after.has_value()) ordered_after = count;
        is_held = false;
        break;
    }
  }
  beside.changed.notify_all();
}

void LaunchOrder::State::hear_made(int from, std::uint64_t count) {
  if (std::exchange(made[static_cast<std::size_t>(from)], count).has_value()) return;
  std::uint64_t most = 0;
  for (const std::optional<std::uint64_t>& each : made) {
    if (!each.has_value()) return;
    most = std::max(most, *each);
  }
  meeting->post(say(Word::ORDERED, most));
}

void LaunchOrder::State::end() {
  Beside& beside = Beside::get();
  {
    const std::lock_guard lock(beside.mutex);
    is_over = true;
  }
  beside.changed.notify_all();
}

// ---------------------------------------------------------------------------------------------- its calls

void LaunchOrder::Turn::end() {
  if (state_ == nullptr || is_forked_child()) return;
  Beside& beside = Beside::get();
  {
    const std::lock_guard lock(beside.mutex);
    if (is_ordered_) {
      std::erase(beside.queue, this);
    } else {
      --state_->num_unordered;
    }
  }
  beside.changed.notify_all();
  state_ = nullptr;
}

void LaunchOrder::Turn::give_back() {
  if (state_ == nullptr) return;
  {
    const std::lock_guard lock(Beside::get().mutex);
    --state_->num_calls;
  }
  end();
}

LaunchOrder::LaunchOrder(const std::shared_ptr<Cluster>& cluster, const Devices& local,
                         const Deadline& deadline)
    : state_(std::make_unique<State>(cluster, local)) {
  Beside& beside = Beside::get();
  const bool is_agreed = environment().launch_order == "agreed";
  bool is_wanted = environment().strict;
  {
    const std::lock_guard lock(beside.mutex);
    for (State* const each : beside.states) {
      if (!is_agreed || !state_->is_beside(*each)) continue;
      each->want_order();
      is_wanted = true;
    }
    beside.states.push_back(state_.get());
    beside.queue.reserve(beside.states.size());  // one call of each: nobody allocates later
  }
  const std::vector<std::string> told =
      state_->meeting->all_gather_bytes(is_wanted ? "1" : "0", deadline);
  const bool is_ordered = std::find(told.begin(), told.end(), "1") != told.end();
  const std::lock_guard lock(beside.mutex);
  state_->is_made = true;
  if (is_ordered) {
    state_->ordered_after = 0;
  } else if (state_->is_wanted) {
    state_->want_order();
  }
}

LaunchOrder::~LaunchOrder() = default;

void LaunchOrder::begin_making(Turn& turn, const Deadline& deadline) {
  turn.is_making_ = true;
  begin(turn, deadline);
}

void LaunchOrder::begin(Turn& turn, const Deadline& deadline) {
  State& state = *state_;
  Beside& beside = Beside::get();
  std::unique_lock lock(beside.mutex);
  if (state.is_held &&
      !beside.wait(lock, deadline, [&state] { return !state.is_held || state.is_over; })) {
    throw DeadlineExceededError(
        "timed out before it was launched: not all workers have said how many calls they have made "
        "of this object, which shares a GPU with a newer one",
        {.operation = {}, .culprits = {}, .inputs_intact = true});
  }
  ++state.num_calls;
  turn.state_ = &state;
  turn.is_ordered_ = state.ordered_after.has_value() && state.num_calls > *state.ordered_after;
  if (!turn.is_ordered_) ++state.num_unordered;
}

std::vector<std::string> LaunchOrder::enter(Turn& turn, std::string_view bytes,
                                            const Deadline& deadline) {
  return state_->meeting->all_gather_bytes(bytes, deadline, {.on_completion = [&turn] {
                                             Beside& beside = Beside::get();
                                             const std::lock_guard lock(beside.mutex);
                                             beside.queue.push_back(&turn);
                                           }});
}

void LaunchOrder::await(Turn& turn, const Deadline& deadline) {
  const State& state = *state_;
  Beside& beside = Beside::get();
  std::unique_lock lock(beside.mutex);
  if (beside.is_behind_making(turn)) {
    const Deadline::Clock::time_point begin = Deadline::Clock::now();
    (void)beside.wait(lock, Deadline::never(),
                      [&] { return state.is_over || !beside.is_behind_making(turn); });
    turn.waited_for_making_ += Deadline::Clock::now() - begin;
  }
  const Deadline own = turn.prolonged(deadline);
  if (beside.wait(lock, own, [&] { return state.is_over || beside.is_next(turn); })) return;
  const RankInfo self = state.meeting->worker(state.meeting->rank());
  throw DeadlineExceededError(
      fmt::format(
          "timed out before it was launched on {}: calls of another object on the same GPUs "
          "come first, and have not been",
          to_string(self)),
      {.operation = {}, .culprits = {self}, .inputs_intact = true});
}

std::vector<std::string> LaunchOrder::gather(std::string_view bytes, const Deadline& deadline) {
  return state_->meeting->all_gather_bytes(bytes, deadline);
}

void LaunchOrder::give_up() noexcept { state_->end(); }

}  // namespace crossdevice::detail
