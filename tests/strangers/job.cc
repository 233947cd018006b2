// SPDX-License-Identifier: Apache-2.0
#include "strangers/job.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/comm/reserved_port.h"
#include "crossdevice/comm/tcp_transport.h"
#include "crossdevice/core/environment.h"
#include "crossdevice/crossdevice.h"

#include "comm/detail/flight_recorder.h"

namespace crossdevice::strangers {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxWorkers = 16;
constexpr std::chrono::seconds kLongest{100};
constexpr const char* kDirectoryVariable = "STRANGERS_DIRECTORY";
constexpr const char* kLateVariable = "STRANGERS_LATE";
constexpr const char* kRebuildVariable = "STRANGERS_REBUILD";
constexpr const char* kElementsVariable = "STRANGERS_ELEMENTS";
constexpr const char* kJoinVariable = "STRANGERS_JOIN_SECONDS";

void require(bool is_so, const std::string& what) {
  if (!is_so) throw std::system_error(errno, std::generic_category(), what);
}

std::string variable(const char* name, const std::string& otherwise = "") {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets any
  return text == nullptr ? otherwise : text;
}

Progress* map_progress(const std::string& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  require(fd >= 0, file);
  require(::ftruncate(fd, sizeof(Progress) * kMaxWorkers) == 0, file);
  void* const mapped =
      ::mmap(nullptr, sizeof(Progress) * kMaxWorkers, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  require(mapped != MAP_FAILED, file);
  return static_cast<Progress*>(mapped);  // zeros are what they begin with
}

/// What the GPUs' watchdog does where one of their operations fails, of which these jobs have none.
void write_flight_record(const std::string& error) {
  const std::uint64_t number = detail::record_enqueued({.operation = {"reduce", 1, 1, 4}});
  detail::record_failed(number, error);
  detail::dump_flight_record();
}

// ---------------------------------------------------------------------------------------------- a worker

class Worker {
 public:
  Worker()
      : directory_(variable(kDirectoryVariable)),
        values_(std::stoul(variable(kElementsVariable)) + 1),
        launched_rank_(std::stoi(variable(kRankVariable))),
        progress_(map_progress(directory_ + "/progress")[launched_rank_]) {}

  int run() {
    std::shared_ptr<Cluster> cluster = Cluster::join(
        {.timeout_seconds = std::stod(variable(kJoinVariable)), .heartbeat_timeout_seconds = 20});
    progress_.cluster.store(cluster->id());
    if (!variable(kLateVariable).empty()) wait_for_the_last(cluster);
    for (;;) {
      try {
        return reduce(cluster);
      } catch (const OpError& error) {
        std::fprintf(stderr, "rank %d: %s\n", launched_rank_, error.what());
        write_flight_record(error.what());
        if (variable(kRebuildVariable).empty()) return 3;
      }
      cluster = cluster->rebuild(Survivors::ONLY, {.timeout_seconds = 90}).cluster;
    }
  }

 private:
  [[nodiscard]] bool is_told(const char* word) const {
    return ::access((directory_ + "/" + word).c_str(), F_OK) == 0;
  }

  void wait_for_the_last(const std::shared_ptr<Cluster>& cluster) const {
    const std::unique_ptr<Transport> transport = make_tcp_transport(cluster);
    const int last = cluster->num_workers() - 1;
    while (cluster->rank() == last && !is_told("go")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::vector<int> others;
    for (int each = 0; each <= last; ++each) {
      if (each != cluster->rank()) others.push_back(each);
    }
    transport->connect(others, Deadline::after(kLongest));
    cluster->barrier();
  }

  int reduce(const std::shared_ptr<Cluster>& cluster) {
    const int size = cluster->num_workers();
    CollectiveAllReduce ops({"CPU:0"}, size, {.timeout_seconds = 90}, cluster);
    Tensor tensor = Tensor::empty(DType::FLOAT32, {values_}, "CPU:0");
    PerReplica value{tensor};
    const std::span<float> elements = tensor.span<float>();
    progress_.epoch.store(cluster->epoch());
    const int ranks = size * (size + 1) / 2;
    for (std::uint64_t round = 0;; ++round) {
      const auto added = static_cast<float>(round % 1000);
      for (std::size_t i = 0; i + 1 < values_; ++i) {
        elements[i] = static_cast<float>((cluster->rank() + 1) * static_cast<int>(i % 97)) + added;
      }
      const bool ends = cluster->rank() == 0 && round % 8 == 0 && is_told("stop");
      elements[values_ - 1] = ends ? 1.0F : 0.0F;
      ops.reduce_into(ReduceOp::SUM, value, value);
      for (std::size_t i = 0; i + 1 < values_; ++i) {
        const float expected =
            static_cast<float>(ranks * static_cast<int>(i % 97)) + added * static_cast<float>(size);
        if (elements[i] != expected) return 2;
      }
      progress_.rounds.fetch_add(1);
      if (elements[values_ - 1] != 0.0F) return 0;
    }
  }

  std::string directory_;
  std::size_t values_;  // the last one says whether to stop
  int launched_rank_;
  Progress& progress_;
};

}  // namespace

std::optional<int> run_as_worker() {
  if (variable(kDirectoryVariable).empty()) return std::nullopt;
  try {
    return Worker().run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    write_flight_record(error.what());
    return 3;
  }
}

std::size_t count_of(std::string_view part, std::string_view text) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

// ---------------------------------------------------------------------------------------------- the job

Job::Job(JobOptions options) : options_(std::move(options)) {
  std::string pattern = std::filesystem::temp_directory_path().string() + "/strangers_XXXXXX";
  require(::mkdtemp(pattern.data()) != nullptr, pattern);
  directory_ = pattern;
  progress_ = map_progress(path("progress"));
  if (!options_.secret.empty()) write_secret("secret", ::geteuid());
  for (const auto& [rank, user] : options_.user_of) {
    write_secret(fmt::format("secret.{}", rank), user);
    require(::chmod(directory_.c_str(), S_IRWXU | S_IXGRP | S_IXOTH) == 0, directory_);
    require(::chmod(path("progress").c_str(), S_IRUSR | S_IWUSR | S_IROTH | S_IWOTH) == 0,
            "progress");
  }
  if (options_.network_namespaces.empty()) {
    const auto port = std::make_shared<detail::ReservedPort>();
    chief_port_ = port->number();
    reservation_ = port;
  } else {
    chief_port_ = 4711;  // nobody else is there
  }
  pids_.reserve(static_cast<std::size_t>(options_.num_workers));
  for (int rank = 0; rank < options_.num_workers; ++rank) pids_.push_back(start(rank));
  results_.resize(pids_.size());
}

Job::~Job() {
  for (int rank = 0; rank < options_.num_workers; ++rank) {
    if (pid(rank) != 0) kill(rank);
  }
  ::munmap(progress_, sizeof(Progress) * kMaxWorkers);
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void Job::write_secret(const std::string& name, unsigned user) const {
  const int fd = ::open(path(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  require(::write(fd, options_.secret.data(), options_.secret.size()) ==
                  static_cast<ssize_t>(options_.secret.size()) &&
              ::fchown(fd, user, user) == 0,
          "the secret");
  ::close(fd);
}

pid_t Job::start(int rank) {
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) variables.emplace_back(*each);
  const auto add = [&](const char* name, const std::string& value) {
    variables.push_back(std::string(name) + "=" + value);
  };
  std::string chief = fmt::format("{}:{}", options_.chief_host, chief_port_);
  if (options_.chief_address_of.contains(rank)) chief = options_.chief_address_of.at(rank);
  add(kDirectoryVariable, directory_);
  add(kRankVariable, std::to_string(rank));
  add(kNumWorkersVariable, std::to_string(options_.num_workers));
  add(kChiefAddressVariable, chief);
  add(kElementsVariable, std::to_string(options_.num_elements));
  add(kJoinVariable, std::to_string(options_.join_seconds));
  if (options_.is_last_late) add(kLateVariable, "1");
  if (options_.rebuilds) add(kRebuildVariable, "1");
  const auto user = options_.user_of.find(rank);
  const bool is_of_another_user = user != options_.user_of.end();
  const std::string secret = is_of_another_user ? fmt::format("secret.{}", rank) : "secret";
  if (!options_.secret.empty()) add(kSecretFileVariable, path(secret));
  if (options_.apart) add(kHostIdVariable, "machine " + std::to_string(rank));
  variables.insert(variables.end(), options_.variables.begin(), options_.variables.end());
  std::vector<char*> environment;
  environment.reserve(variables.size() + 1);
  for (std::string& each : variables) environment.push_back(each.data());
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe";
  std::string output = path(fmt::format("printed.{}", rank));
  char* const arguments[] = {program.data(), nullptr};
  const pid_t child = ::fork();
  require(child >= 0, "fork");
  if (child != 0) return child;
  // Nothing here that another thread of the parent could hold a lock of.
  const int fd =
      ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR);
  ::dup2(fd, STDOUT_FILENO);
  ::dup2(fd, STDERR_FILENO);
  if (!options_.network_namespaces.empty() &&
      ::setns(options_.network_namespaces[static_cast<std::size_t>(rank)], CLONE_NEWNET) != 0) {
    ::_exit(98);
  }
  if (options_.max_descriptors > 0) {
    rlimit limit{};
    (void)::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = options_.max_descriptors;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (is_of_another_user && (::setresgid(user->second, user->second, user->second) != 0 ||
                             ::setresuid(user->second, user->second, user->second) != 0)) {
    ::_exit(97);
  }
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody works for a test that is gone
  ::execve(program.c_str(), arguments, environment.data());
  ::_exit(99);
}

std::uint64_t Job::rounds(int rank) const { return progress_[rank].rounds.load(); }
std::uint64_t Job::epoch(int rank) const { return progress_[rank].epoch.load(); }
std::uint64_t Job::cluster_id(int rank) const { return progress_[rank].cluster.load(); }

bool Job::await(const std::function<bool()>& condition) {
  const Clock::time_point limit = Clock::now() + kLongest;
  while (!condition()) {
    if (Clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool Job::await_rounds(std::uint64_t more) {
  for (int rank = 0; rank < options_.num_workers; ++rank) {
    if (pid(rank) == 0) continue;
    const std::uint64_t before = rounds(rank);
    bool has_ended = false;
    const bool has_come = await([&] {
      siginfo_t info{};
      has_ended =
          ::waitid(P_PID, static_cast<id_t>(pid(rank)), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
          info.si_pid != 0;
      return has_ended || rounds(rank) >= before + more;
    });
    if (!has_come || has_ended) return false;
  }
  return true;
}

void Job::tell(const std::string& word) const { std::ofstream(path(word)) << word; }

void Job::kill(int rank) {
  pid_t& pid = pids_[static_cast<std::size_t>(rank)];
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid = 0;
}

std::string Job::printed(int rank) const {
  std::ostringstream text;
  text << std::ifstream(path(fmt::format("printed.{}", rank))).rdbuf();
  return text.str();
}

std::string Job::printed() const {
  std::string text;
  for (int rank = 0; rank < options_.num_workers; ++rank) text += printed(rank);
  return text;
}

std::vector<int> Job::finish() {
  tell("stop");
  return wait();
}

std::vector<int> Job::wait() {
  for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
    if (pids_[rank] == 0) continue;
    int status = 0;
    while (::waitpid(pids_[rank], &status, 0) < 0 && errno == EINTR) {
    }
    results_[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    pids_[rank] = 0;
  }
  return results_;
}

}  // namespace crossdevice::strangers
