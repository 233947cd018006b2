// SPDX-License-Identifier: Apache-2.0
// A worker that reduces with the others until something happens to one of them: for the tests across namespaces.
//
//   faulty_worker FAULT RANK HEARTBEAT COUNT    FAULT: none, cut (its network), part (the link between it and rank 1), kill; cut-amid, kill-amid: not before a call, but
//                                               from another thread while one is under way, or the next. HEARTBEAT: how many seconds it may be missed. COUNT: floats of the calls at that time.
//                                               Prints what ended the worker, and after how many milliseconds; then it stays until SIGUSR1, for the others are not
//                                               to hear of its end.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/crossdevice.h"

namespace cd = crossdevice;

namespace {

constexpr int kRoundsBefore = 5;

/// Takes down every interface of this namespace but loopback.
void cut_network() {
  const int any = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/net")) {
    const std::string name = entry.path().filename();
    if (name == "lo") continue;
    ifreq request{};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    if (::ioctl(any, SIOCGIFFLAGS, &request) != 0) continue;
    request.ifr_flags = static_cast<short>(request.ifr_flags & ~IFF_UP);
    if (::ioctl(any, SIOCSIFFLAGS, &request) != 0) std::perror("ioctl");
  }
  ::close(any);
}

/// Nothing that this worker says to `other` arrives any more: its packets go to an address that nobody has. What it says to the others arrives.
void part_from(int other) {
  const std::string chief = std::getenv("CROSSDEVICE_CHIEF_ADDRESS");
  arpreq request{};
  auto* const place = reinterpret_cast<sockaddr_in*>(&request.arp_pa);
  place->sin_family = AF_INET;
  // The addresses of crossdevice-run's namespaces follow one another, the chief's first.
  ::inet_pton(AF_INET, chief.substr(0, chief.rfind(':')).c_str(), &place->sin_addr);
  place->sin_addr.s_addr = htonl(ntohl(place->sin_addr.s_addr) + static_cast<std::uint32_t>(other));
  request.arp_ha.sa_family = ARPHRD_ETHER;
  request.arp_ha.sa_data[0] = 2;  // of nobody's choice but ours
  request.arp_flags = ATF_PERM | ATF_COM;
  const int any = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/net")) {
    const std::string name = entry.path().filename();
    if (name == "lo") continue;
    name.copy(request.arp_dev, sizeof request.arp_dev - 1);
    if (::ioctl(any, SIOCSARP, &request) != 0) std::perror("ioctl");
  }
  ::close(any);
}

/// What await_word() takes; for every thread that is begun afterwards.
sigset_t blocked_word() {
  sigset_t word;
  sigemptyset(&word);
  sigaddset(&word, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &word, nullptr);
  return word;
}

void await_word(const sigset_t& word) {
  int number = 0;
  ::sigwait(&word, &number);
}

void suffer(const std::string& fault, int parted_from) {
  if (fault.starts_with("cut")) cut_network();
  if (fault == "part") part_from(parted_from);
  if (fault.starts_with("kill")) ::kill(::getpid(), SIGKILL);
}

/// Now, or a little later than the call that follows begins.
std::future<void> begin_to_suffer(const std::string& fault, int parted_from) {
  if (!fault.ends_with("-amid")) {
    suffer(fault, parted_from);
    return {};
  }
  return std::async(std::launch::async, [fault, parted_from] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    suffer(fault, parted_from);
  });
}

std::string names_of(const cd::OpError& error) {
  std::string names;
  for (const cd::RankInfo& rank : error.culprits()) {
    if (!names.empty()) names += ',';
    names += std::to_string(rank.rank);
  }
  return names;
}

const char* kind_of(const cd::OpError& error) { return cd::to_string(error.code()).data(); }

int run(const std::string& fault, int faulty_rank, double heartbeat_seconds,
        std::size_t last_count) {
  const sigset_t word = blocked_word();
  const std::shared_ptr<cd::Cluster> cluster =
      cd::Cluster::join({.timeout_seconds = 60, .heartbeat_timeout_seconds = heartbeat_seconds});
  cd::CollectiveAllReduce ops({"CPU:0"}, cluster->num_workers(), {}, cluster);
  const bool is_faulty = cluster->rank() == faulty_rank;
  const bool suffers = is_faulty || (fault == "part" && cluster->rank() == 1);
  using Clock = std::chrono::steady_clock;
  Clock::time_point before = Clock::now();
  std::future<void> suffering;
  for (const std::size_t count : {std::size_t{3}, std::size_t{1001}, last_count}) {
    std::vector<float> mine(count);
    const cd::PerReplica value{cd::Tensor::view(std::span(mine), "CPU:0")};
    const int n = cluster->num_workers();
    const bool is_last = count == last_count && fault != "none";
    for (int round = 0; is_last || round < kRoundsBefore; ++round) {
      for (std::size_t i = 0; i < count; ++i) {
        mine[i] = static_cast<float>(cluster->rank() + static_cast<int>(i % 7) + round % 5);
      }
      if (is_last && round == kRoundsBefore && suffers) {
        suffering = begin_to_suffer(fault, is_faulty ? 1 : faulty_rank);
      }
      before = Clock::now();
      try {
        ops.reduce_into(cd::ReduceOp::SUM, value, value);
      } catch (const cd::OpError& error) {
        const auto took =
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - before);
        std::printf("%s names %s after %lld ms: %s\n", kind_of(error), names_of(error).c_str(),
                    static_cast<long long>(took.count()), error.what());
        std::fflush(stdout);
        await_word(word);
        return 0;
      }
      for (std::size_t i = 0; i < count; ++i) {
        const int expected = n * (n - 1) / 2 + n * (static_cast<int>(i % 7) + round % 5);
        if (mine[i] != static_cast<float>(expected)) {
          std::printf("wrong\n");
          return 2;
        }
      }
    }
  }
  std::printf("all right\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 5) {
      return run(argv[1], std::stoi(argv[2]), std::stod(argv[3]), std::stoul(argv[4]));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
