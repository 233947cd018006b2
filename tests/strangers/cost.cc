// SPDX-License-Identifier: Apache-2.0
/// strangers [--turns N] [--seconds S] [--kib K] [--rate R] [--together] [--tls | --recorded]: what strangers cost a job of two workers on this machine. In turns
/// the job goes on while a generator of connections is aimed at its doors, while the same generator is aimed at an idle listener of another program, at one
/// that greets, and while there is none. The idle one takes each connection in and ends it, which is the least that a program can do; the other one is the least
/// that waits for who may come. Prints the medians, and their ratios.
///
/// With --tls the job encrypts, and to those that the generator makes come three that begin TLS and stop: a client of any other program, one with another secret,
/// and one that says again what a member was heard to say. With --recorded the job encrypts too, and all are of that last kind: its hello is good, so that a
/// door answers it with the half of a handshake that costs most. Neither of the other listeners knows TLS: that handshake is part of what is compared.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "strangers/caller.h"
#include "strangers/flood.h"
#include "strangers/job.h"
#include "strangers/process_view.h"
#include "strangers/tls_words.h"
#include "support/loopback_listener.h"

namespace crossdevice::strangers {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kHelp =
    "usage: strangers [--turns N] [--seconds S] [--kib K] [--rate R] [--together] [--tls | "
    "--recorded]\n"
    "How long an all-reduce of a job of two takes while connections come, R a second or (0) as\n"
    "many as can be made: to nobody, to an idle listener of another program, which ends each at\n"
    "once, to one that greets and ends it after the first words, and to the job's doors.\n"
    "  --together   the two share memory, else they talk over TCP\n"
    "  --tls        the job encrypts, and some begin TLS and stop: with another secret, with no\n"
    "               key, and with a hello that was recorded of a member\n"
    "  --recorded   the job encrypts, and all say a recorded hello, which a door answers";

/// What strangers say in turn.
enum class Words { PLAIN, TLS, RECORDED };

struct Arguments {
  int turns = 7;
  double seconds = 2;
  std::size_t kib = 256;
  std::vector<std::size_t> rates = {200, 2000, 0};  // connections per second; 0: all it can make
  bool is_together = false;
  Words words = Words::PLAIN;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--together" || name == "--tls" || name == "--recorded") {
      if (name == "--together") arguments.is_together = true;
      if (name == "--tls") arguments.words = Words::TLS;
      if (name == "--recorded") arguments.words = Words::RECORDED;
      continue;
    }
    if (name == "--turns") {
      arguments.turns = std::stoi(value);
    } else if (name == "--seconds") {
      arguments.seconds = std::stod(value);
    } else if (name == "--kib") {
      arguments.kib = std::stoul(value);
    } else if (name == "--rate") {
      arguments.rates = {std::stoul(value)};
    } else {
      throw std::invalid_argument(kHelp);
    }
    ++i;
  }
  return arguments;
}

/// A process of its own, until this object or this process dies.
class Child {
 public:
  explicit Child(const std::function<void()>& work) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    work();
    ::_exit(0);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t pid_;
};

/// Another program's.
class IdleListener {
 public:
  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }

 private:
  testing::LoopbackListener listener_{4096};
  Child child_{[this] {
    for (;;) {
      const int accepted = ::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
      if (accepted >= 0) ::close(accepted);
    }
  }};
};

/// Another program's, in the place of a service that speaks first: says about as much as a door of the job does, hears the first words of whoever comes, and ends it.
class GreetingListener {
 public:
  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }

 private:
  void serve() const {
    const int all = ::epoll_create1(EPOLL_CLOEXEC);
    const auto watch = [all](int fd) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
      (void)::epoll_ctl(all, EPOLL_CTL_ADD, fd, &event);
    };
    watch(listener_.descriptor());
    const std::string greeting(45, 'x');
    for (;;) {
      epoll_event event{};
      if (::epoll_wait(all, &event, 1, -1) != 1) continue;
      if (event.data.fd == listener_.descriptor()) {
        const int accepted =
            ::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (accepted < 0) continue;
        (void)::send(accepted, greeting.data(), greeting.size(), MSG_NOSIGNAL);
        watch(accepted);
      } else {
        char words[64];
        (void)::recv(event.data.fd, words, sizeof words, 0);
        ::close(event.data.fd);
      }
    }
  }
  testing::LoopbackListener listener_{4096};
  Child child_{[this] { serve(); }};
};

/// The doors of the job that answer: each stranger there is the job's work, not the kernel's alone.
std::vector<std::uint16_t> answering_doors(const Job& job, std::size_t num_workers) {
  std::vector<std::uint16_t> ports;
  for (std::size_t rank = 0; rank < num_workers; ++rank) {
    for (const std::uint16_t port : doors_of(job.pid(static_cast<int>(rank)))) {
      const Caller caller({.port = port});
      pollfd polled{caller.descriptor(), POLLIN, 0};
      if (::poll(&polled, 1, 500) == 1) ports.push_back(port);
    }
  }
  return ports;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double spread(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *most / *least;
}

/// Of each turn.
struct Turns {
  std::vector<double> time_of_call;  // in microseconds
  std::vector<double> per_second;    // connections that the generator has made
};

/// In turn, each kind as often as the others; none: what the generator has.
std::vector<std::string> words_of(Words kind, const std::string& secret) {
  if (kind == Words::PLAIN) return {};
  if (kind == Words::RECORDED) return {tls_hello_of(secret)};
  constexpr std::size_t kRounds = 8;
  constexpr std::size_t kPlainKinds = 4;
  std::vector<std::string> words;
  for (std::size_t i = 0; i < kRounds * kPlainKinds; ++i) {
    words.push_back(words_of_stranger(i));
    if (i % kPlainKinds != kPlainKinds - 1) continue;
    words.push_back(tls_hello_without_key());
    words.push_back(tls_hello_of("another"));
    words.push_back(tls_hello_of(secret));
  }
  return words;
}

/// Lets the job go on for so long while the generator runs.
void take_turn(const Job& job, FloodOptions strangers, double seconds, Turns& turns) {
  // Shared with the generator.
  static auto* const num_begun = static_cast<std::atomic<std::uint64_t>*>(
      ::mmap(nullptr, sizeof(std::atomic<std::uint64_t>), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (num_begun == MAP_FAILED) throw std::runtime_error("no shared memory");
  std::optional<Child> generator;
  strangers.num_begun = num_begun;
  if (!strangers.ports.empty()) {
    generator.emplace([&] { (void)flood(strangers, [] { return false; }); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it is under way
  const std::uint64_t calls_before = job.rounds(0);
  const std::uint64_t begun_before = num_begun->load();
  const Clock::time_point begin = Clock::now();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
  const std::uint64_t num_calls = std::max<std::uint64_t>(job.rounds(0) - calls_before, 1);
  turns.time_of_call.push_back(time.count() / static_cast<double>(num_calls));
  turns.per_second.push_back(static_cast<double>(num_begun->load() - begun_before) * 1e6 /
                             time.count());
}

int measure(const Arguments& arguments) {
  JobOptions options{.num_workers = 2, .apart = !arguments.is_together};
  options.num_elements = arguments.kib * 256;
  const bool is_encrypted = arguments.words != Words::PLAIN;
  if (is_encrypted) options.variables = {"CROSSDEVICE_TLS=1"};
  const std::vector<std::string> words = words_of(arguments.words, options.secret);
  Job job(options);
  if (!job.await_rounds(10)) throw std::runtime_error("the job does not run: " + job.printed());
  const std::vector<std::uint16_t> doors = answering_doors(job, 2);
  const IdleListener listener;
  const GreetingListener greeter;
  fmt::print("2 workers, {}{}, all-reduce of {} KiB; {} doors; {} turns of {} s each\n",
             arguments.is_together ? "shared memory" : "TCP over loopback",
             is_encrypted ? " with TLS" : "", arguments.kib, doors.size(), arguments.turns,
             arguments.seconds);
  fmt::print("{:>14} {:>16} {:>16} {:>16} {:>16} {:>13} {:>12}   {}\n", "connections/s",
             "none (us)", "listener (us)", "greeter (us)", "job (us)", "job/listener",
             "job/greeter", "connections/s came to each");
  for (const std::size_t per_second : arguments.rates) {
    Turns none;
    Turns other;
    Turns greeting;
    Turns own;
    for (int turn = 0; turn < arguments.turns; ++turn) {
      std::vector<std::pair<Turns*, std::vector<std::uint16_t>>> order = {
          {&none, {}}, {&other, {listener.port()}}, {&greeting, {greeter.port()}}, {&own, doors}};
      std::rotate(order.begin(), order.begin() + turn % 4, order.end());
      for (const auto& [turns, ports] : order) {
        take_turn(job, {.ports = ports, .per_second = per_second, .words = words},
                  arguments.seconds, *turns);
      }
    }
    fmt::print("{:>14}", per_second == 0 ? "all it can" : std::to_string(per_second));
    for (const Turns* const each : {&none, &other, &greeting, &own}) {
      fmt::print(" {:>9.1f} x{:<5.2f}", median(each->time_of_call), spread(each->time_of_call));
    }
    const double time = median(own.time_of_call);
    fmt::print(" {:>13.3f} {:>12.3f}   {:.0f}, {:.0f}, {:.0f}\n", time / median(other.time_of_call),
               time / median(greeting.time_of_call), median(other.per_second),
               median(greeting.per_second), median(own.per_second));
    (void)std::fflush(stdout);
  }
  const std::vector<int> results = job.finish();
  fmt::print("(x: the slowest turn over the fastest) the job's values: {}\n",
             results == std::vector<int>{0, 0} ? "exact" : "WRONG");
  return results == std::vector<int>{0, 0} ? 0 : 1;
}

}  // namespace
}  // namespace crossdevice::strangers

int main(int argc, char** argv) {
  try {
    if (const std::optional<int> status = crossdevice::strangers::run_as_worker()) return *status;
    return crossdevice::strangers::measure(crossdevice::strangers::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "strangers: %s\n", error.what());
    return 2;
  }
}
