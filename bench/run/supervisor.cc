// SPDX-License-Identifier: Apache-2.0
#include "run/supervisor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/system_error.h"

namespace crossdevice::run {
namespace {

using std::chrono::milliseconds;

constexpr std::array<int, 5> kForwarded{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
constexpr int kSignalBase = 128;  // what shells add to a signal's number
constexpr std::chrono::seconds kSweepTimeout{
    10};  // a process in the kernel's hands may not die at once
constexpr milliseconds kMinGrace{100};
constexpr std::chrono::seconds kRemoteGrace{2};  // for what a remote shell still has to bring
constexpr std::chrono::seconds kFirstWord{10};   // of a worker that is still there after the others
constexpr std::chrono::seconds kNextWord{60};
constexpr int kReminders = 4;      // in the time after which a host believes itself alone
constexpr int kUnreachable = 255;  // what remote shells end with where the fault is their own
constexpr std::size_t kReadBytes = std::size_t{64} * 1024;
constexpr rlim_t kMaxOpenFiles = 4096;   // three pipes for each worker, and some
constexpr std::size_t kFirstStream = 4;  // among what poll() watches

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kForwarded) sigaddset(&set, number);
  sigaddset(&set, SIGCHLD);
  return set;
}

std::string describe(const std::string& name, bool is_remote, int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    const char* const signal_name = ::sigabbrev_np(number);
    return fmt::format("{} was ended by signal {}{}{}", name, number,
                       signal_name == nullptr ? "" : " (SIG",
                       signal_name == nullptr ? "" : std::string(signal_name) + ")");
  }
  if (is_remote && WEXITSTATUS(status) == kUnreachable) {
    return fmt::format(
        "the remote shell to {} ended with status {}: it cannot be reached, or is lost, or a "
        "worker there ended so",
        name, kUnreachable);
  }
  return fmt::format("{} ended with status {}", name, WEXITSTATUS(status));
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Whether the worker fell by itself or was killed by a stranger: a cause of other workers' ends, hardly a consequence.
/// Of a worker on another host the exit code tells.
bool is_crash(int status, bool is_remote) {
  if (!WIFSIGNALED(status) && !is_remote) return false;
  const int number = exit_code_of(status) - kSignalBase;
  return number == SIGKILL || number == SIGSEGV || number == SIGBUS || number == SIGFPE ||
         number == SIGILL;
}

bool is_due(const std::optional<Supervisor::Clock::time_point>& time) {
  return time.has_value() && Supervisor::Clock::now() >= *time;
}

/// Our children, also those that we have inherited from a worker.
std::vector<pid_t> children() {
  std::ifstream file(fmt::format("/proc/self/task/{}/children", ::getpid()));
  std::vector<pid_t> all;
  // NOLINTNEXTLINE(performance-inefficient-vector-operation): their number is not known before
  for (pid_t pid = 0; file >> pid;) all.push_back(pid);
  return all;
}

/// Room for two pipes per worker; returns what there was before.
rlimit raise_open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  rlimit raised = limit;
  raised.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMaxOpenFiles));
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return limit;
}

}  // namespace

Supervisor::Supervisor(const Arguments& arguments, const Janitor& janitor)
    : grace_(std::chrono::duration_cast<Clock::duration>(arguments.grace)),
      silence_(std::chrono::duration_cast<Clock::duration>(arguments.silence)),
      when_one_fails_(arguments.when_one_fails),
      rank_prefix_(arguments.rank_prefix),
      janitor_(janitor),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO) {
  struct sigaction before {};
  struct sigaction plain {};
  plain.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &plain, &before);
  inherited_ignored_sigpipe_ = before.sa_handler == SIG_IGN;
  // Where SIGCHLD is ignored the kernel reaps children itself, and nobody learns how they ended.
  plain.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &plain, nullptr);
  const sigset_t handled = handled_signals();
  ::pthread_sigmask(SIG_BLOCK, &handled, &inherited_mask_);
  // One that was ignored when we began (nohup) is not blocked but discarded, and so stays ignored.
  signals_ = Descriptor(::signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals_.is_open()) throw system_failure("receive signals");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/// Where starting has failed half-way, the workers that run already go down with it.
Supervisor::~Supervisor() {
  if (!is_swept_) {
    signal_all(SIGKILL);
    sweep();
  }
}

void Supervisor::start(WorkerSetting setting, int rank) {
  const std::string prefix = fmt::format("[{}] ", rank);
  const bool is_plain = rank_prefix_ == RankPrefix::ERROR_OUTPUT;
  add(std::move(setting), fmt::format("rank {}", rank), LinePrefixer(is_plain ? "" : prefix),
      LinePrefixer(prefix), "");
}

void Supervisor::start_remote(WorkerSetting setting, const std::string& host, std::string job) {
  // Room for the longest line with its rank in front.
  constexpr std::size_t kMaxBytes = LinePrefixer::kMaxLineBytes + 64;
  setting.has_input = true;
  add(std::move(setting), "host " + host, LinePrefixer("", kMaxBytes), LinePrefixer("", kMaxBytes),
      std::move(job));
  if (silence_ > Clock::duration::zero()) remind_at_ = Clock::now() + silence_ / kReminders;
}

void Supervisor::listen(int input) {
  input_ = input;
  if (silence_ > Clock::duration::zero()) miss_at_ = Clock::now() + silence_;
}

void Supervisor::add(WorkerSetting setting, std::string name, const LinePrefixer& out,
                     const LinePrefixer& err, std::string input) {
  setting.signal_mask = inherited_mask_;
  setting.ignores_sigpipe = inherited_ignored_sigpipe_;
  static const rlimit before = raise_open_files();
  setting.max_open_files = before;
  WorkerProcess process = start_worker(setting, janitor_);
  Worker worker;
  worker.pid = process.pid;
  worker.name = std::move(name);
  worker.control = RemoteControl(std::move(process.in), std::move(input));
  worker.streams.reserve(2);
  worker.streams.push_back({std::move(process.out), out, &out_});
  worker.streams.push_back({std::move(process.err), err, &err_});
  workers_.push_back(std::move(worker));
  ++num_running_;
}

int Supervisor::run() {
  for (;;) {
    reap();
    if (num_running_ == 0 && !is_swept_) sweep();
    if (is_swept_ && is_output_done()) break;
    wait_for_events();
    if (is_due(kill_at_)) grace_is_over();
    if (is_due(speak_at_)) speak_of_the_rest();
    if (is_due(remind_at_)) remind_hosts();
    if (is_due(miss_at_)) miss_the_input();
  }
  if (exit_code_.has_value() || has_one_ended_well_) return exit_code_.value_or(0);
  return first_failure_.value_or(0);
}

bool Supervisor::is_output_done() const {
  const bool is_read = std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
    return std::none_of(worker.streams.begin(), worker.streams.end(),
                        [](const Stream& stream) { return stream.pipe.is_open(); });
  });
  return is_read && out_.is_empty() && err_.is_empty();
}

int Supervisor::timeout_milliseconds() const {
  constexpr Clock::time_point never = Clock::time_point::max();
  Clock::time_point next = never;
  for (const auto& time : {kill_at_, speak_at_, remind_at_, miss_at_}) {
    next = std::min(next, time.value_or(never));
  }
  if (next == never) return -1;
  const auto left = std::chrono::ceil<milliseconds>(next - Clock::now());
  return static_cast<int>(std::clamp<milliseconds::rep>(left.count(), 0, INT_MAX));
}

void Supervisor::wait_for_events() {
  // After the sweep nobody writes into the pipes any more: whether they have ended or are merely empty, what they hold is the rest.
  if (is_swept_) {
    for (Worker& worker : workers_) {
      for (Stream& stream : worker.streams) {
        while (stream.pipe.is_open() && !stream.sink->is_full()) read_some(stream);
      }
    }
  }
  std::vector<pollfd> polled;
  std::vector<Stream*> streams;
  polled.reserve(kFirstStream + 3 * workers_.size());
  streams.reserve(2 * workers_.size());
  polled.push_back({signals_.get(), POLLIN, 0});
  for (const OutputSink* sink : {&out_, &err_}) {
    polled.push_back({sink->is_empty() ? -1 : sink->fd(), POLLOUT, 0});
  }
  polled.push_back({is_swept_ ? -1 : input_, POLLIN, 0});
  for (Worker& worker : workers_) {
    for (Stream& stream : worker.streams) {
      if (is_swept_ || !stream.pipe.is_open() || stream.sink->is_full()) continue;
      polled.push_back({stream.pipe.get(), POLLIN, 0});
      streams.push_back(&stream);
    }
  }
  for (const Worker& worker : workers_) {  // write_some() below asks all that have something
    if (worker.control.has_unsent()) polled.push_back({worker.control.fd(), POLLOUT, 0});
  }
  if (is_swept_ && out_.is_empty() && err_.is_empty()) return;
  if (::poll(polled.data(), polled.size(), timeout_milliseconds()) < 0) {
    if (errno == EINTR) return;
    throw system_failure("wait for the workers");
  }
  if (polled[0].revents != 0) read_signals();
  if (polled[1].revents != 0) write_some(out_);
  if (polled[2].revents != 0) write_some(err_);
  if (polled[3].revents != 0) read_input();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (polled[kFirstStream + i].revents != 0) read_some(*streams[i]);
  }
  for (Worker& worker : workers_) worker.control.write_some();
}

void Supervisor::read_some(Stream& stream) {
  std::array<char, kReadBytes>
      bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read()
  const ssize_t count = ::read(stream.pipe.get(), bytes.data(), bytes.size());
  if (count < 0 && errno == EINTR) return;
  if (count < 0 && errno == EAGAIN && !is_swept_) return;
  if (count > 0) {
    stream.prefixer.feed({bytes.data(), static_cast<std::size_t>(count)}, stream.sink->pending());
  } else {
    stream.prefixer.finish(stream.sink->pending());
    stream.pipe.reset();
  }
  if (stream.sink->is_broken()) stream.sink->drop();
}

void Supervisor::write_some(OutputSink& sink) {
  sink.write_some();
  if (sink.is_broken() && !is_stopping_) {
    if (!exit_code_.has_value()) exit_code_ = kSignalBase + SIGPIPE;
    stop_the_rest();
  }
}

void Supervisor::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo != SIGCHLD) forward(static_cast<int>(info.ssi_signo));
  }
}

void Supervisor::read_input() {
  std::array<unsigned char, 64> numbers{};
  const ssize_t count = ::read(input_, numbers.data(), numbers.size());
  if (count < 0 && errno == EINTR) return;
  for (ssize_t i = 0; i < count; ++i) {
    const int number = numbers[static_cast<std::size_t>(i)];
    if (number != 0) forward(number);
  }
  if (count <= 0) {
    lose_the_input();
  } else if (miss_at_.has_value()) {
    miss_at_ = Clock::now() + silence_;
  }
}

/// Who comes late to this was stopped, with those who bring the input perhaps, and waits anew. What has come while nobody looked, after the last worker's end,
/// counts.
void Supervisor::miss_the_input() {
  if (Clock::now() > *miss_at_ + silence_ / kReminders) {
    miss_at_ = Clock::now() + silence_;
    return;
  }
  pollfd polled{input_, POLLIN, 0};
  if (::poll(&polled, 1, 0) > 0) {
    read_input();
    return;
  }
  pollfd output{err_.fd(), POLLOUT, 0};
  if (err_.is_empty() && ::poll(&output, 1, 0) > 0) {  // somebody may be there after all
    err_.pending() += fmt::format(
        "crossdevice-run: nothing was heard for {} s from the crossdevice-run that has "
        "started this host's workers; stopping them\n",
        std::chrono::duration<double>(silence_).count());
    err_.write_some();
  }
  lose_the_input();
}

/// Nobody reads our output either.
void Supervisor::lose_the_input() {
  input_ = -1;
  miss_at_.reset();
  is_interrupted_ = true;
  if (!exit_code_.has_value()) exit_code_ = kSignalBase + SIGHUP;
  out_.give_up();
  err_.give_up();
  stop_the_rest();
}

void Supervisor::remind_hosts() {
  remind_at_ = Clock::now() + silence_ / kReminders;
  for (Worker& worker : workers_) {
    if (worker.is_running && !worker.control.has_unsent()) worker.control.signal(0);
    worker.control.write_some();
  }
}

void Supervisor::forward(int number) {
  has_killed_ |= number == SIGKILL;
  signal_all(number);
  if (number != SIGINT && number != SIGTERM) return;
  is_interrupted_ = true;
  if (num_running_ ==
      0) {  // only the output is left, and somebody is tired of waiting for its reader
    if (!exit_code_.has_value()) exit_code_ = kSignalBase + number;
    out_.give_up();
    err_.give_up();
  }
  if (is_stopping_) return;
  is_stopping_ = true;
  kill_at_ = Clock::now() + grace_;
}

/// A remote shell that has been told once to kill the workers, and is still there, is killed itself.
void Supervisor::signal_all(int number) {
  for (Worker& worker : workers_) {
    if (!worker.is_running) continue;
    if (!worker.control.is_open() || (worker.is_told_to_kill && number == SIGKILL)) {
      ::kill(-worker.pid, number);
    } else {
      worker.control.signal(number);
      worker.control.write_some();
      worker.is_told_to_kill |= number == SIGKILL;
    }
  }
}

void Supervisor::begin_grace() {
  is_stopping_ = true;
  kill_at_ = Clock::now() + grace_;
}

void Supervisor::grace_is_over() {
  kill_at_.reset();
  if (num_running_ > 0) {
    has_killed_ = true;
    signal_all(SIGKILL);
    const bool has_remote = std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
      return worker.is_running && worker.control.is_open();
    });
    if (has_remote) {
      kill_at_ = Clock::now() + kRemoteGrace;
    } else if (is_interrupted_) {
      kill_at_ = Clock::now() + std::max<Clock::duration>(grace_, kMinGrace);
    }
  } else if (
      is_interrupted_) {  // only the output is left, and whoever wants us gone need not wait for its reader
    out_.give_up();
    err_.give_up();
  }
}

void Supervisor::stop_the_rest() {
  if (is_stopping_) return;
  begin_grace();
  signal_all(SIGTERM);
  signal_all(SIGCONT);  // one that is stopped could not end
}

/// Where the others go on, a job may end when one of them has ended well; a worker that hangs then keeps it from that. Who is the last after failures alone
/// has work to do.
void Supervisor::await_the_rest() {
  speak_at_.reset();
  if (when_one_fails_ != WhenOneFails::KEEP_GOING || is_stopping_ || num_running_ == 0) return;
  if (has_one_ended_well_) speak_at_ = Clock::now() + kFirstWord;
}

void Supervisor::speak_of_the_rest() {
  speak_at_.reset();
  if (is_stopping_ || num_running_ == 0) return;
  speak_at_ = Clock::now() + kNextWord;
  std::string all;
  for (const Worker& worker : workers_) {
    if (!worker.is_running) continue;
    all += (all.empty() ? "" : ", ") + worker.name;
    if (!worker.control.is_open()) all += fmt::format(" (pid {})", worker.pid);
  }
  err_.pending() += fmt::format("crossdevice-run: waiting for {}\n", all);
}

void Supervisor::reap() {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return;
    const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& worker) {
      return worker.is_running && worker.pid == pid;
    });
    if (found == workers_.end()) continue;
    ended(*found, status);
    await_the_rest();
  }
}

void Supervisor::ended(Worker& worker, int status) {
  const bool is_remote = worker.control.is_open();
  worker.control = {};
  worker.is_running = false;
  --num_running_;
  janitor_.forget_group(worker.pid);
  has_one_ended_well_ |= exit_code_of(status) == 0;
  if (exit_code_of(status) == 0) return;
  // A process that dies closes its connections some time before it can be reaped. Others may notice, fail and be reaped in between.
  const bool is_cause = is_crash(status, is_remote) && !has_killed_;
  if (exit_code_.has_value() && !(is_cause && may_be_consequence_)) return;
  if (when_one_fails_ == WhenOneFails::KEEP_GOING && !is_stopping_) {
    first_failure_ = first_failure_.value_or(exit_code_of(status));
    err_.pending() +=
        fmt::format("crossdevice-run: {}{}\n", describe(worker.name, is_remote, status),
                    num_running_ > 0 ? "; the others go on" : "");
    return;
  }
  exit_code_ = exit_code_of(status);
  may_be_consequence_ = !is_cause;
  if (!is_interrupted_) {
    err_.pending() +=
        fmt::format("crossdevice-run: {}{}\n", describe(worker.name, is_remote, status),
                    num_running_ > 0 ? "; stopping the others" : "");
  }
  stop_the_rest();
}

/// What workers have left behind is ours now: kill it, and what that leaves, until there is nothing.
void Supervisor::sweep() {
  is_swept_ = true;
  const Clock::time_point deadline = Clock::now() + kSweepTimeout;
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  const timespec turn{0, 50'000'000};
  while (Clock::now() < deadline) {
    std::vector<pid_t> left = children();
    std::erase(left, janitor_.pid());
    if (left.empty()) break;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    ::sigtimedwait(&child_ended, nullptr, &turn);
    reap();
  }
  num_running_ = 0;
}

}  // namespace crossdevice::run
