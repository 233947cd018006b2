// SPDX-License-Identifier: Apache-2.0
#include "chaos/worker.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <semaphore>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "crossdevice/comm/cluster.h"
#include "crossdevice/core/error.h"
#include "crossdevice/device/memory_pool.h"
#include "crossdevice/device/shutdown.h"

#include "chaos/call_memory.h"
#include "chaos/engines.h"
#include "chaos/jumping_clock.h"
#include "chaos/own_resources.h"
#include "chaos/report.h"
#include "chaos/shifted_clock.h"
#include "chaos/strike_point.h"

namespace crossdevice::chaos {
namespace {

/// Before it goes on: of a process's signal another thread may be the first to hear.
void strike_this_thread(int signal) { (void)::tgkill(::getpid(), ::gettid(), signal); }

/// What a program throws that is none of the library's.
constexpr const char* kOwnException = "exception";
constexpr int kMaxGenerations = 5;
constexpr int kJumpSignal = SIGUSR1;

std::atomic<std::int64_t> jump_seconds{0};  // what the handler of kJumpSignal jumps by

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Worker {
 public:
  Worker(const Plan& plan, int rank, int report_fd, int go_fd)
      : plan_(plan),
        rank_(rank),
        report_fd_(report_fd),
        go_fd_(go_fd),
        resources_(plan.num_devices) {
    for (int each = 0; each < plan.num_workers; ++each) origins_.push_back(each);
    if (plan.fault == Fault::CLOCK && is_victim()) {
      clock_lead_us_ = static_cast<std::int64_t>(plan.amount) * 1'000'000;
    }
  }

  void run() {
    if (clock_lead_us_ > 0) tell_of_lead(monotonic_lead_seconds());
    if (attempt("join", [&] {
          begin_phase(Phase::JOIN);
          cluster_ = Cluster::join({.timeout_seconds = plan_.times.join,
                                    .heartbeat_timeout_seconds = plan_.times.heartbeat});
        })) {
      lift_limits();
      // A link may be too slow for the calls for a while, and each of them takes its time.
      const double lasting_calls = static_cast<double>(plan_.lasting_us) / 1e6 / plan_.times.call;
      const int last =
          kMaxGenerations +
          (is_of_link(plan_.fault) ? static_cast<int>(std::min(lasting_calls, 100.0)) : 0);
      while (generation_ <= last && !goes_well() && rebuild()) ++generation_;
      if (generation_ > last) wrong("rebuild", "there is no end of it");
    }
    lift_limits();
    leave();
  }

 private:
  [[nodiscard]] bool is_victim() const { return plan_.victim == rank_; }
  [[nodiscard]] bool suffers(Phase phase) const {
    return is_victim() && generation_ == 1 && plan_.phase == phase;
  }

  void tell(Event event) {
    event.time_us = now_us() - clock_lead_us_;
    const std::string line = to_line(event) + '\n';
    // Fails when nobody listens any more; then nobody needs to know.
    (void)!::write(report_fd_, line.data(), line.size());
  }
  void wrong(const std::string& step, const std::string& text) {
    tell({.kind = EventKind::WRONG, .step = step, .text = text});
  }

  /// Of a clock that should be another one by the plan's amount, up or down.
  void tell_of_lead(double seconds) {
    if (2 * std::abs(seconds) < static_cast<double>(plan_.amount)) return;
    tell({.kind = EventKind::EFFECT, .text = fmt::format("its clock is {:.0f} s ahead", seconds)});
  }

  /// Whether `work` ended without an error. What it failed with is told, and `on_error` is called with whether inputs are intact. Limits are lifted after it,
  /// because telling and looking need what they take away.
  bool attempt(const std::string& step, const std::function<void()>& work,
               const std::function<void(bool)>& on_error = nullptr) {
    tell({.kind = EventKind::BEGIN, .step = step});
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    was_limited_ = resources_.is_limited();
    lift_limits();
    if (!error) {
      tell({.kind = EventKind::DONE, .step = step});
      return true;
    }
    Event failure = failure_of(error);
    last_code_ = failure.code;
    failure.step = step;
    tell(failure);
    if (on_error) on_error(failure.inputs_intact);
    return false;
  }

  Event failure_of(const std::exception_ptr& thrown) {
    Event failure{.kind = EventKind::FAIL};
    try {
      std::rethrow_exception(thrown);
    } catch (const OpError& error) {
      failure.code = to_string(error.code());
      failure.inputs_intact = error.inputs_intact();
      for (const RankInfo& culprit : error.culprits()) {
        const auto index = static_cast<std::size_t>(culprit.rank);
        failure.ranks.push_back(index < origins_.size() ? origins_[index] : -1);
      }
      failure.text = error.what();
    } catch (const std::bad_alloc& error) {
      failure.code = "bad_alloc";
      failure.text = error.what();
    } catch (const std::system_error& error) {
      failure.code = "system_error";
      failure.text = error.what();
    } catch (const std::invalid_argument& error) {
      failure.code = "ValueError";
      failure.text = error.what();
    } catch (const std::exception& error) {
      failure.code = kOwnException;
      failure.text = error.what();
    }
    return failure;
  }

  /// What happens to the victim in a phase that begins.
  void begin_phase(Phase phase) {
    if (!suffers(phase)) return;
    // What happens in a call does in the middle of the step, of which what comes before is no part.
    if (phase == Phase::CALL || phase == Phase::BETWEEN) strikes_in_next_call_ = true;
    if (phase != Phase::CALL) signal_itself();
    if (phase != Phase::CALL && phase != Phase::BETWEEN) set_limits();
    if (is_of_link(plan_.fault)) {
      tell({.kind = EventKind::FAULT});
      await_conductor();
    }
  }
  void strike_in_call() {
    if (!std::exchange(strikes_in_next_call_, false)) return;
    set_limits();
    if (suffers(Phase::CALL)) signal_itself();
  }
  void signal_itself() {
    if (plan_.fault == Fault::KILL) signal_later(SIGKILL);
    if (plan_.fault == Fault::STOP) signal_later(SIGSTOP);
    if (plan_.fault == Fault::CLOCK_JUMP) {
      const auto seconds = static_cast<std::int64_t>(plan_.amount);
      jump_seconds = seconds % 2 != 0 ? -seconds : seconds;
      (void)std::signal(kJumpSignal, [](int) { jump_real_time_clock(jump_seconds); });
      tell({.kind = EventKind::FAULT});
      signal_later(kJumpSignal);
    }
  }
  void set_limits() {
    if (is_of_limits(plan_.fault)) tell({.kind = EventKind::FAULT});
    if (plan_.fault == Fault::DESCRIPTORS) resources_.limit_descriptors(plan_.amount);
    if (plan_.fault == Fault::MEMORY) resources_.limit_memory(plan_.amount);
    if (plan_.fault == Fault::SHARED_MEMORY) resources_.limit_files(plan_.amount);
  }
  void lift_limits() { resources_.lift_limits(); }
  /// Where it does so in another phase than a call: by a thread, which ends soon.
  [[nodiscard]] std::jthread give_up_later(Phase phase) {
    if (plan_.fault != Fault::THROW || !suffers(phase)) return {};
    return std::jthread([this, cluster = cluster_, delay_us = plan_.delay_us] {
      std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
      tell({.kind = EventKind::FAULT});
      cluster->abort_collective_ops(std::string(kGivesUpBecause));
    });
  }

  void signal_later(int signal) {
    if (plan_.message != 0 && signal != kJumpSignal) {
      signal_at_message_ = signal;
      return strike_at_message(direction(), plan_.message,
                               [signal] { strike_this_thread(signal); });
    }
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = signal;
    is_armed_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    const std::uint64_t delay_us = std::max<std::uint64_t>(plan_.delay_us, 1);
    itimerspec when{};
    when.it_value.tv_sec = static_cast<time_t>(delay_us / 1'000'000);
    when.it_value.tv_nsec = static_cast<long>(delay_us % 1'000'000 * 1000);
    if (is_armed_ && ::timer_settime(timer_, 0, &when, nullptr) == 0) return;
    (void)::kill(::getpid(), signal);
  }
  [[nodiscard]] Direction direction() const {
    return plan_.is_received ? Direction::RECEIVE : Direction::SEND;
  }
  /// Until the signal has come; what was to come at a message that was not said comes now.
  void await_signal() {
    if (signal_at_message_ != 0 && disarm_strike()) (void)::kill(::getpid(), signal_at_message_);
    while (is_armed_) {
      itimerspec left{};
      if (::timer_gettime(timer_, &left) != 0) return;
      is_armed_ = left.it_value.tv_sec != 0 || left.it_value.tv_nsec != 0;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  /// Whether all of a generation's calls came to their end.
  bool goes_well() {
    const std::string number = std::to_string(generation_);
    const Devices devices = devices_of(plan_);
    const bool is_made = attempt("make " + number, [&] {
      begin_phase(Phase::MAKE);
      const std::jthread other = give_up_later(Phase::MAKE);
      maker_ = make_call_maker(plan_, devices, cluster_);
    });
    if (!is_made) {
      give_up("could not be made");
      return false;
    }
    lift_limits();
    const std::vector<Call>& calls = generation_ == 1 ? plan_.calls : plan_.more_calls;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (!make_call(i, calls[i])) return false;
    }
    await_signal();
    if (generation_ > 1 && plan_.fault != Fault::KILL && loses_worker(plan_.fault)) {
      await_late_one();
      if (!one_call(calls.size(), calls[0], "")) return false;
    }
    return attempt("barrier " + number, [&] { cluster_->barrier(barrier_seconds()); });
  }

  /// Others may be as late as a call's deadline and what is waited for after it.
  [[nodiscard]] double barrier_seconds() const { return plan_.times.call + plan_.times.heartbeat; }

  bool make_call(std::size_t index, Call call) {
    if (generation_ == 1 && plan_.first_lost == rank_ && index == plan_.call) {
      (void)::kill(::getpid(), SIGKILL);
    }
    if (!suffers(Phase::CALL) && !suffers(Phase::BETWEEN)) return one_call(index, call, "");
    if (index != plan_.call) return one_call(index, call, "");
    if (is_mismatch(plan_.fault)) tell({.kind = EventKind::FAULT});
    switch (plan_.fault) {
      case Fault::SKIP:
        return true;
      case Fault::OTHER_COUNT:
        call.count += 1 + plan_.delay_us % 3;
        break;
      case Fault::OTHER_DTYPE:
        call.dtype = static_cast<DType>(plan_.amount);
        break;
      case Fault::OTHER_OP:
        call.op = call.op == ReduceOp::MAX ? ReduceOp::MIN : ReduceOp::MAX;
        break;
      case Fault::OTHER_ROOT:
        ++call.root;
        break;
      case Fault::TWICE:
        return one_call(index, call, "") && one_call(index, call, " again");
      case Fault::THROW:
        gives_up_under_way_ = plan_.amount != kInPlaceOfIt;
        if (gives_up_under_way_) break;
        tell({.kind = EventKind::FAULT});
        (void)attempt(fmt::format("throw {} {}", generation_, index),
                      [&] { maker_->give_up(std::string(kGivesUpBecause)); });
        return false;
      case Fault::NONE:
      case Fault::KILL:
      case Fault::STOP:
      case Fault::DESCRIPTORS:
      case Fault::MEMORY:
      case Fault::SHARED_MEMORY:
      case Fault::CLOCK:
      case Fault::CLOCK_JUMP:
      case Fault::LINK_CUT:
      case Fault::LINK_OUTAGE:
      case Fault::LINK_PARTED:
      case Fault::LINK_PAUSE:
      case Fault::LINK_LOSS:
      case Fault::LINK_DELAY:
      case Fault::LINK_REORDER:
      case Fault::LINK_DUPLICATE:
      case Fault::LINK_RATE:
        break;
    }
    begin_phase(Phase::CALL);
    const bool is_well = one_call(index, call, "");
    if (is_well && suffers(Phase::BETWEEN)) {
      begin_phase(Phase::BETWEEN);
      await_signal();
    }
    return is_well;
  }

  bool one_call(std::size_t index, const Call& call, const std::string& more) {
    const std::string step = fmt::format("call {} {}{}", generation_, index, more);
    const std::uint64_t salt = plan_.seed * 1'000'003 + plan_.number * 1009 + epoch_ * 101 + index;
    const Caller caller{.rank = cluster_->rank(),
                        .num_workers = cluster_->num_workers(),
                        .num_devices = plan_.num_devices};
    std::unique_ptr<CallMemory> memory;
    if (!attempt("memory", [&] { memory = std::make_unique<CallMemory>(call, caller, salt); })) {
      give_up("has no memory");
      return false;
    }
    // Calls that differ are found before anything is written, on whichever worker; but who makes one more or fewer may be in the middle of another one.
    const bool differs =
        differs_in_one_call(plan_.fault) && generation_ == 1 && index == plan_.call;
    const auto look_at_memory = [&](bool are_intact) {
      const std::string written = differs ? memory->wrong_outputs() : "";
      if (!written.empty()) wrong(step, "it differs, but " + written);
      const bool says_nothing = last_code_ == kOwnException;  // of inputs
      if ((!are_intact || says_nothing) && memory->is_in_place()) return;
      if (!are_intact) wrong(step, "inputs are said to be touched out of place");
      const std::string what = memory->wrong_inputs();
      if (!what.empty()) wrong(step, "after the error " + what);
    };
    const auto work = [&] {
      strike_in_call();
      if (std::exchange(gives_up_under_way_, false)) {
        return maker_->make_and_give_up(*memory, plan_.times.call, how_to_give_up());
      }
      maker_->make(*memory, plan_.times.call);
    };
    if (!attempt(step, work, look_at_memory)) {
      keep_failed(step, std::move(memory));
      give_up("does not go on");
      return false;
    }
    const std::string what = memory->wrong_results();
    if (!what.empty()) wrong(step, fmt::format("{}: {}", to_string(call), what));
    kept_ = std::move(memory);
    cluster_->set_completed(static_cast<std::uint64_t>(index) + 1);
    return true;
  }

  [[nodiscard]] GivingUp how_to_give_up() {
    std::function<void()> await_moment;
    if (plan_.message != 0) {
      strike_at_message(direction(), plan_.message, [this] { has_struck_.release(); });
      await_moment = [this] {
        // Long enough for any call, and much shorter than its deadline.
        (void)has_struck_.try_acquire_for(std::chrono::seconds(1));
        (void)disarm_strike();
      };
    }
    return {.after = std::chrono::microseconds(plan_.delay_us),
            .await_moment = std::move(await_moment),
            .in_hook = plan_.amount == kInHook,
            .text = std::string(kGivesUpBecause),
            .on_giving_up = [this] { tell({.kind = EventKind::FAULT}); }};
  }

  /// Nobody may write to it any more. In half of the runs; in the others it is free for what comes next, which a late worker then might write to.
  void keep_failed(const std::string& step, std::unique_ptr<CallMemory> memory) {
    if (plan_.number / 2 % 2 != 0) return;
    failed_step_ = step;
    failed_bytes_ = memory->bytes();
    failed_ = std::move(memory);
  }
  void look_at_failed() {
    if (failed_ == nullptr || failed_->bytes() == failed_bytes_) return;
    wrong(failed_step_, "memory was written after the call had failed");
    failed_.reset();
  }

  /// What a program does that cannot make the calls that others wait for, for a reason of its own.
  void give_up(const std::string& why) {
    if (was_limited_) cluster_->abort_collective_ops(fmt::format("rank {} {}", rank_, why));
  }

  void await_late_one() {
    tell({.kind = EventKind::AWAIT});
    await_conductor();
    const std::string what = kept_ ? kept_->wrong_results() : "";
    if (!what.empty()) wrong("await", "the late worker has changed a result: " + what);
    look_at_failed();
  }

  void await_conductor() const {
    char byte = 0;
    (void)!::read(go_fd_, &byte, 1);
  }

  bool rebuild() {
    const std::vector<int> lost = lost_workers(plan_);
    const int left = plan_.num_workers - static_cast<int>(lost.size());
    RebuildOptions options{.timeout_seconds = plan_.times.rebuild,
                           .patience_seconds = plan_.times.patience};
    if (plan_.fault == Fault::KILL) {  // who is dead cannot be another half
      options.min_workers = std::min(left, cluster_->num_workers());
    }
    maker_.reset();
    Rebuilt rebuilt;
    const auto meet_anew = [&](bool is_first) {
      return attempt(fmt::format("rebuild {}", generation_), [&] {
        if (is_first) begin_phase(Phase::REBUILD);
        const std::jthread other = give_up_later(Phase::REBUILD);
        rebuilt = cluster_->rebuild(lost.empty() ? Survivors::ALL : Survivors::ONLY, options);
      });
    };
    // What this worker lacked before, it has again: a program would try it again, too.
    const bool is_well =
        meet_anew(true) || (is_of_limits(plan_.fault) && is_victim() &&
                            last_code_ == "RESOURCE_EXHAUSTED" && meet_anew(false));
    if (!is_well) return false;
    await_signal();
    std::vector<int> origins;
    for (std::size_t i = 0; i < origins_.size(); ++i) {
      const bool is_out =
          std::any_of(rebuilt.left_out.begin(), rebuilt.left_out.end(),
                      [&](const RankInfo& out) { return out.rank == static_cast<int>(i); });
      if (!is_out) origins.push_back(origins_[i]);
    }
    origins_ = std::move(origins);
    cluster_ = rebuilt.cluster;
    epoch_ = rebuilt.epoch;
    tell({.kind = EventKind::MEMBER,
          .step = fmt::format("rebuild {}", generation_),
          .ranks = origins_,
          .counts = {static_cast<int>(rebuilt.epoch), cluster_->rank(), cluster_->num_workers(),
                     static_cast<int>(rebuilt.last_completed.epoch),
                     static_cast<int>(rebuilt.last_completed.sequence)}});
    return true;
  }

  void leave() {
    (void)attempt("leave", [&] {
      if (suffers(Phase::LEAVE)) begin_phase(Phase::LEAVE);
      maker_.reset();
      kept_.reset();
      look_at_failed();
      failed_.reset();
      cluster_.reset();
      shutdown();
    });
    await_signal();
    if (plan_.fault == Fault::CLOCK_JUMP && is_victim()) {
      tell_of_lead(static_cast<double>(real_time_lead_seconds()));
    }
    lift_limits();
    if (is_armed_) (void)::timer_delete(timer_);
    tell({.kind = EventKind::END,
          .counts = resources_.left_over(),
          .text = resources_.left_over_text()});
  }

  const Plan& plan_;
  int rank_;
  int report_fd_;
  int go_fd_;
  OwnResources resources_;
  std::int64_t clock_lead_us_ = 0;  // of this process's clock over the others'
  int generation_ = 1;
  // Of the cluster: equal on all members, of whom some may have come to fewer.
  std::uint64_t epoch_ = 1;
  std::vector<int> origins_;  // first ranks, by those of the cluster
  std::shared_ptr<Cluster> cluster_;
  std::unique_ptr<CallMaker> maker_;
  std::unique_ptr<CallMemory> kept_;    // of the last call
  std::unique_ptr<CallMemory> failed_;  // of the last one that failed
  std::string failed_step_;
  std::vector<std::byte> failed_bytes_;  // as they were when it had failed
  int signal_at_message_ = 0;            // 0: none
  timer_t timer_{};
  bool is_armed_ = false;
  bool was_limited_ = false;  // in the last step
  std::string last_code_;     // of the last step that failed
  bool strikes_in_next_call_ = false;
  bool gives_up_under_way_ = false;
  std::binary_semaphore has_struck_{0};
};

}  // namespace

int run_worker(const Plan& plan, int rank, int report_fd, int go_fd) {
  Worker(plan, rank, report_fd, go_fd).run();
  return 0;
}

}  // namespace crossdevice::chaos
