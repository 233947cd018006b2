// SPDX-License-Identifier: Apache-2.0
#include "chaos/conductor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/collective/all_reduce_choice.h"
#include "crossdevice/core/environment.h"

#include "chaos/link_relay.h"
#include "chaos/link_trouble.h"
#include "chaos/shifted_clock.h"

namespace crossdevice::chaos {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

std::runtime_error failure(const std::string& what) {
  return std::runtime_error(fmt::format("cannot {}: {}", what, std::strerror(errno)));  // NOLINT
}

/// A folder that is removed with what is in it.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "chaos-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw failure("make a folder");
    path_ = name;
    std::filesystem::create_directory(path_ / "tmp");
  }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// The workers' own.
  [[nodiscard]] std::filesystem::path temporary() const { return path_ / "tmp"; }

 private:
  std::filesystem::path path_;
};

/// Where the chief listens: an address of loopback that no other run has at the same time.
std::string chief_address() {
  const auto pid = static_cast<unsigned>(::getpid());
  return fmt::format("127.{}.{}.{}:15700", 16 + (pid >> 16U) % 64, (pid >> 8U) & 0xFFU,
                     pid & 0xFFU);
}

int machine_of(const Plan& plan, int rank) {
  if (plan.place == Place::ONE_MACHINE) return 0;
  if (plan.place == Place::TWO_MACHINES) return rank * 2 / plan.num_workers;
  return host_of(plan, rank);
}

struct Worker {
  pid_t pid = 0;
  int report = -1;
  int go = -1;
  std::string unread;
  bool is_stopped = false;
  bool is_awaiting = false;
  [[nodiscard]] bool has_ended() const { return pid == 0; }
};

class Run {
 public:
  Run(const Plan& plan, const std::function<std::vector<std::string>(int)>& worker_arguments,
      double limit_seconds)
      : plan_(plan),
        worker_arguments_(worker_arguments),
        limit_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(limit_seconds))) {
    workers_.resize(static_cast<std::size_t>(plan.num_workers));
    result_.reports.resize(workers_.size());
  }
  ~Run() {
    for (Worker& worker : workers_) {
      if (!worker.has_ended()) (void)::kill(worker.pid, SIGKILL);
      if (worker.report >= 0) ::close(worker.report);
      if (worker.go >= 0) ::close(worker.go);
    }
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  RunResult conduct() {
    const Clock::time_point begun = Clock::now();
    isolate_shared_memory();
    prepare();
    for (int rank = 0; rank < plan_.num_workers; ++rank) start(rank);
    while (!all_ended()) {
      listen();
      reap();
      steer();
      if (Clock::now() > limit_) give_up();
    }
    listen();  // what they said last
    look_around();
    result_.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    return std::move(result_);
  }

 private:
  /// A /dev/shm of this run's own, where that may be made: what is in it at the end is of its workers.
  void isolate_shared_memory() {
    if (::unshare(CLONE_NEWNS) != 0) return;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
    has_own_shared_memory_ = ::mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "") == 0;
  }

  void prepare() {
    (void)::prctl(PR_SET_CHILD_SUBREAPER,
                  1);  // what workers leave behind becomes a child of this process
    if (plan_.place == Place::NAMESPACES) {
      relay_.emplace(num_hosts(plan_), plan_.seed ^ (plan_.number << 32U));
      trouble_.emplace(plan_, *relay_);
      address_ = fmt::format("{}:15700", LinkRelay::address(0));
    }
    if (has_secret()) {
      const std::filesystem::path secret = secret_file();
      std::ofstream(secret) << "a secret of this run " << ::getpid() << '\n';
      std::filesystem::permissions(
          secret, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    }
    if (!plan_.algorithm.has_value()) return;
    std::ofstream(folder_.path() / "tuning.json")
        << fmt::format(R"({{"all_reduce": [{{"algorithm": "{}"}}]}})", to_string(*plan_.algorithm));
  }

  /// What comes from another host must prove itself, and keys are made of it.
  [[nodiscard]] bool has_secret() const { return relay_.has_value() || plan_.is_encrypted; }
  [[nodiscard]] std::filesystem::path secret_file() const { return folder_.path() / "secret"; }

  void set(const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): this process has one thread
  }

  void start(int rank) {
    std::array<int, 2> report{};
    std::array<int, 2> go{};
    if (::pipe2(report.data(), O_CLOEXEC) != 0 || ::pipe2(go.data(), O_CLOEXEC) != 0) {
      throw failure("make a pipe");
    }
    std::vector<std::string> arguments = worker_arguments_(rank);
    const std::string log = (folder_.path() / fmt::format("rank-{}", rank)).string();
    const pid_t pid = ::fork();
    if (pid < 0) throw failure("start a worker");
    if (pid == 0) become_worker(rank, report[1], go[0], arguments, log);
    ::close(report[1]);
    ::close(go[0]);
    Worker& worker = workers_[static_cast<std::size_t>(rank)];
    worker.pid = pid;
    worker.report = report[0];
    worker.go = go[1];
    (void)::fcntl(worker.report, F_SETFL, O_NONBLOCK);
  }

  [[noreturn]] void become_worker(int rank, int report, int go, std::vector<std::string>& arguments,
                                  const std::string& log) {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    move_elsewhere(rank);  // before descriptors are moved, of which one may be the way there
    // Out of the way of each other first.
    const int far_report = ::fcntl(report, F_DUPFD, 10);
    const int far_go = ::fcntl(go, F_DUPFD, 10);
    (void)::dup2(far_report, kReportDescriptor);
    (void)::dup2(far_go, kGoDescriptor);
    ::close(far_report);
    ::close(far_go);
    const int error = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)::dup2(error, 1);
    (void)::dup2(error, 2);
    (void)::close_range(kGoDescriptor + 1, ~0U, 0);
    set(kRankVariable, std::to_string(rank));
    set(kNumWorkersVariable, std::to_string(plan_.num_workers));
    set(kChiefAddressVariable, address_);
    set(kHostIdVariable, fmt::format("machine {} of {}", machine_of(plan_, rank), ::getppid()));
    set("TMPDIR", folder_.temporary().string());
    set("CROSSDEVICE_NUM_THREADS", "2");
    if (plan_.algorithm.has_value()) {
      set("CROSSDEVICE_TUNING_FILE", (folder_.path() / "tuning.json").string());
    }
    if (has_secret()) set(kSecretFileVariable, secret_file().string());
    if (plan_.is_encrypted) set("CROSSDEVICE_TLS", "1");
    if (plan_.over_ucx) {
      set("CROSSDEVICE_TRANSPORT", "ucx");
      set("UCX_TLS",
          "tcp,self");  // as between machines: of its ways within one none reports failures
    }
    std::string program = "/proc/self/exe";
    std::vector<char*> pointers{program.data()};
    pointers.reserve(arguments.size() + 2);
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    ::execv(program.c_str(), pointers.data());
    ::_exit(127);
  }

  /// To the worker's host, and to its clock.
  void move_elsewhere(int rank) {
    try {
      if (plan_.fault == Fault::CLOCK && plan_.victim == rank) shift_monotonic_clock(plan_.amount);
    } catch (const std::exception& error) {
      (void)!::write(2, error.what(), std::strlen(error.what()));
      ::_exit(126);
    }
    if (!relay_.has_value()) return;
    if (::setns(relay_->descriptor(host_of(plan_, rank)), CLONE_NEWNET) != 0) ::_exit(126);
    set(kSocketInterfaceVariable, LinkRelay::kInterface);
  }

  [[nodiscard]] int rank_of(const Worker& worker) const {
    return static_cast<int>(&worker - workers_.data());
  }
  [[nodiscard]] bool all_ended() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const Worker& worker) { return worker.has_ended(); });
  }

  void listen() {
    std::vector<pollfd> waited;
    waited.reserve(workers_.size());
    for (const Worker& worker : workers_) waited.push_back({worker.report, POLLIN, 0});
    std::chrono::nanoseconds tick = std::chrono::milliseconds(10);
    if (trouble_.has_value() && trouble_->next().has_value()) {
      tick = std::clamp<std::chrono::nanoseconds>(*trouble_->next() - Clock::now(), {}, tick);
    }
    const timespec time{.tv_sec = 0, .tv_nsec = tick.count()};
    (void)::ppoll(waited.data(), waited.size(), &time, nullptr);
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) read(rank);
  }

  void read(std::size_t rank) {
    Worker& worker = workers_[rank];
    std::array<char, 4096> buffer{};
    while (worker.report >= 0) {
      const ssize_t count = ::read(worker.report, buffer.data(), buffer.size());
      if (count < 0) break;
      if (count == 0) {
        ::close(worker.report);
        worker.report = -1;
        result_.reports[rank].closed_us = now_us();
        break;
      }
      worker.unread.append(buffer.data(), static_cast<std::size_t>(count));
    }
    for (;;) {
      const std::size_t end = worker.unread.find('\n');
      if (end == std::string::npos) return;
      if (std::optional<Event> event = parse_line(worker.unread.substr(0, end))) {
        if (event->kind == EventKind::AWAIT) worker.is_awaiting = true;
        if (event->kind == EventKind::FAULT && is_of_link(plan_.fault) && trouble_.has_value()) {
          trouble_->begin(Clock::now());
          (void)!::write(worker.go, "g", 1);  // it goes on
        }
        result_.reports[rank].events.push_back(*std::move(event));
      } else {
        result_.leftovers.push_back("a line that cannot be read: " + worker.unread.substr(0, end));
      }
      worker.unread.erase(0, end + 1);
    }
  }

  void reap() {
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      if (worker.has_ended()) continue;
      int status = 0;
      if (::waitpid(worker.pid, &status, WNOHANG | WUNTRACED) <= 0) continue;
      if (WIFSTOPPED(status)) {
        worker.is_stopped = true;
        read(rank);  // what it said before
        note_where(rank);
        continue;
      }
      worker.pid = 0;
      if (WIFSIGNALED(status)) {
        read(rank);
        note_where(rank);
      }
      if (!is_over_) {
        result_.reports[rank].status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      }
    }
  }

  /// In which step the victim was when its signal came.
  void note_where(std::size_t rank) {
    const std::vector<Event>& events = result_.reports[rank].events;
    if (static_cast<int>(rank) != plan_.victim || result_.struck_in.has_value()) return;
    const bool is_within = !events.empty() && events.back().kind == EventKind::BEGIN;
    result_.struck_in = is_within ? events.back().step : "";
  }

  /// The late one goes on when the others have gone on without it, and they when it has ended.
  void steer() {
    Worker& victim = workers_[static_cast<std::size_t>(plan_.victim)];
    const bool are_ready = std::all_of(workers_.begin(), workers_.end(), [&](const Worker& each) {
      return is_hit(plan_, rank_of(each)) || each.has_ended() || each.is_awaiting;
    });
    if (trouble_.has_value()) trouble_->look(Clock::now(), are_ready);
    if (!loses_worker(plan_.fault) || plan_.fault == Fault::KILL) return;
    if (are_ready && victim.is_stopped) {
      victim.is_stopped = false;
      result_.reports[static_cast<std::size_t>(plan_.victim)].continued_us = now_us();
      (void)::kill(victim.pid, SIGCONT);
    }
    const bool are_late_back =
        std::all_of(workers_.begin(), workers_.end(), [&](const Worker& each) {
          return !is_hit(plan_, rank_of(each)) || each.has_ended() || each.is_awaiting;
        });
    if (!are_late_back) return;
    for (Worker& each : workers_) {
      if (each.go >= 0) ::close(each.go);
      each.go = -1;
    }
  }

  /// What still runs hangs.
  void give_up() {
    is_over_ = true;
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      const Worker& worker = workers_[rank];
      if (worker.has_ended()) continue;
      result_.log +=
          fmt::format("rank {}, process {}, hangs:\n", rank, worker.pid) + whereabouts(worker.pid);
      (void)::kill(worker.pid, SIGKILL);
    }
    limit_ = Clock::time_point::max();
  }

  static std::string whereabouts(pid_t pid) {
    std::string text;
    std::error_code error;
    const std::filesystem::path tasks = fmt::format("/proc/{}/task", pid);
    for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
      std::string name;
      std::string call;
      std::string state;
      std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
      std::getline(std::ifstream(task.path() / "wchan") >> std::ws, state);
      std::getline(std::ifstream(task.path() / "syscall") >> std::ws, call);
      text += fmt::format("  thread {} in {}, system call {}\n", name, state, call);
    }
    return text;
  }

  void look_around() {
    look_into_namespaces();
    look_at_link();
    trouble_.reset();
    relay_.reset();
    for (const auto& entry : std::filesystem::directory_iterator(folder_.temporary())) {
      result_.leftovers.push_back("file " + entry.path().filename().string());
    }
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
      const std::string name = entry.path().filename().string();
      if (has_own_shared_memory_ || name.find("crossdevice") != std::string::npos) {
        result_.leftovers.push_back("shared memory " + name);
      }
    }
    const pid_t other = ::waitpid(-1, nullptr, WNOHANG);
    if (other >= 0) result_.leftovers.push_back("a process that a worker started");
    for (int rank = 0; rank < plan_.num_workers; ++rank) {
      std::ifstream file(folder_.path() / fmt::format("rank-{}", rank));
      for (std::string line; std::getline(file, line);) {
        result_.log += fmt::format("[{}] {}\n", rank, line);
      }
    }
  }

  void look_at_link() {
    if (!relay_.has_value()) return;
    const LinkCounts counts = relay_->counts(host_of(plan_, plan_.victim));
    result_.log += fmt::format(
        "link of rank {}: {} packets, {} lost, {} late, {} doubled, {} delayed\n", plan_.victim,
        counts.offered, counts.lost, counts.late, counts.doubled, counts.delayed);
    if (is_of_link(plan_.fault)) result_.in_trouble = trouble_->counts();
  }

  /// No process is to be left in them.
  void look_into_namespaces() {
    if (!relay_.has_value()) return;
    std::vector<ino_t> ours;
    for (int host = 0; host < num_hosts(plan_); ++host) {
      struct stat there {};
      if (::fstat(relay_->descriptor(host), &there) == 0) ours.push_back(there.st_ino);
    }
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
      struct stat theirs {};
      if (::stat((entry.path() / "ns/net").c_str(), &theirs) != 0) continue;
      if (std::find(ours.begin(), ours.end(), theirs.st_ino) == ours.end()) continue;
      result_.leftovers.push_back("a process in a network namespace, " +
                                  entry.path().filename().string());
    }
  }

  const Plan& plan_;
  const std::function<std::vector<std::string>(int)>& worker_arguments_;
  Clock::time_point limit_;
  Folder folder_;
  std::string address_ = chief_address();
  std::optional<LinkRelay> relay_;  // the workers' hosts
  std::optional<LinkTrouble> trouble_;
  std::vector<Worker> workers_;
  RunResult result_;
  bool has_own_shared_memory_ = false;
  bool is_over_ = false;
};

}  // namespace

RunResult conduct(const Plan& plan,
                  const std::function<std::vector<std::string>(int rank)>& worker_arguments,
                  double limit_seconds) {
  return Run(plan, worker_arguments, limit_seconds).conduct();
}

}  // namespace crossdevice::chaos
