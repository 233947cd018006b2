// SPDX-License-Identifier: Apache-2.0
/// Micro-bench of the TCP transport (CROSSDEVICE_TRANSPORT=ucx: of the one over UCX), each case against plain sockets with the same pattern over the same loopback, alternating within one run.
///
/// Time is the median of the transport's rounds, per exchange or message; the counters say what it is compared with:
///   raw_us         median of blocking sockets, as anybody would write it
///   raw_spin_us    median of sockets that are asked again and again without waiting (exchanges only)
///   ratio          transport / blocking sockets (lower is better)
///   ratio_spin     transport / spinning sockets
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/comm/environment_cluster_resolver.h"
#include "crossdevice/comm/message_transport.h"
#include "crossdevice/core/environment.h"

namespace crossdevice {
namespace {

using Bytes = std::vector<std::byte>;

/// Two connected sockets over loopback.
struct RawPair {
  RawPair() {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    ::bind(listener, generic, size);
    ::getsockname(listener, generic, &size);
    port = ntohs(address.sin_port);
    ::listen(listener, 1);
    sockets[0] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ::connect(sockets[0], generic, size);
    sockets[1] = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    ::close(listener);
    const int on = 1;
    for (const int each : sockets) ::setsockopt(each, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~RawPair() {
    for (const int each : sockets) ::close(each);
  }
  RawPair(const RawPair&) = delete;
  RawPair& operator=(const RawPair&) = delete;
  int sockets[2];
  int port = 0;
};

void send_all(int socket, const std::byte* data, std::size_t size) {
  while (size != 0) {
    const ssize_t count = ::send(socket, data, size, MSG_NOSIGNAL);
    if (count <= 0) continue;
    data += count;
    size -= static_cast<std::size_t>(count);
  }
}

void receive_all(int socket, std::byte* data, std::size_t size, int flags) {
  while (size != 0) {
    const ssize_t count = ::recv(socket, data, size, flags);
    if (count <= 0) continue;
    data += count;
    size -= static_cast<std::size_t>(count);
  }
}

/// Two members as threads: this one, and one that does the same on the other side.
class Bench {
 public:
  Bench() : transports_(2) {
    const std::string address = "127.0.0.1:" + std::to_string(RawPair().port);
    const auto join = [&](int rank) {
      const EnvironmentClusterResolver resolver(
          [&](const std::string& name) -> std::optional<std::string> {
            if (name == kRankVariable) return std::to_string(rank);
            if (name == kNumWorkersVariable) return "2";
            if (name == kChiefAddressVariable) return address;
            return std::nullopt;
          });
      auto& transport = transports_[static_cast<std::size_t>(rank)];
      transport = make_message_transport(Cluster::join(resolver));
      const std::vector<int> peers = {1 - rank};
      transport->connect(peers, Deadline::never());
      transport->begin({.kind = "bench"});
    };
    std::thread other([&] { join(1); });
    join(0);
    other.join();
    other_ = std::thread([this] {
      for (;;) {
        start_.arrive_and_wait();
        if (!work_) return;
        work_(1);
        start_.arrive_and_wait();
      }
    });
  }
  ~Bench() {
    work_ = nullptr;
    start_.arrive_and_wait();
    other_.join();
    transports_.pop_back();
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  [[nodiscard]] Transport& transport(int rank) {
    return *transports_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int socket(int rank) const { return raw_.sockets[rank]; }

  /// Seconds that `work(rank)` takes on both sides, on this one.
  double time(const std::function<void(int rank)>& work) {
    work_ = work;
    start_.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    work(0);
    const auto end = std::chrono::steady_clock::now();
    start_.arrive_and_wait();  // the other one is done with it
    return std::chrono::duration<double>(end - begin).count();
  }

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
  RawPair raw_;
  std::barrier<> start_{2};
  std::function<void(int)> work_;
  std::thread other_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Rounds of all, in turns; time and counters per one of `num_per_round`.
void alternate(benchmark::State& state, Bench& bench, int num_per_round,
               const std::vector<std::function<void(int)>>& works) {
  std::vector<std::vector<double>> seconds(works.size());
  for (const auto& work : works) (void)bench.time(work);  // warm
  for (auto _ : state) {
    for (std::size_t i = 0; i < works.size(); ++i) {
      seconds[i].push_back(bench.time(works[i]) / num_per_round);
      if (i == 0) state.SetIterationTime(seconds[0].back());
    }
  }
  const double mine = median(seconds[0]);
  state.counters["median_us"] = 1e6 * mine;
  state.counters["raw_us"] = 1e6 * median(seconds[1]);
  state.counters["ratio"] = mine / median(seconds[1]);
  if (works.size() > 2) {
    state.counters["raw_spin_us"] = 1e6 * median(seconds[2]);
    state.counters["ratio_spin"] = mine / median(seconds[2]);
  }
}

/// Both send, then both receive.
void Exchange(benchmark::State& state) {
  Bench bench;
  const auto size = static_cast<std::size_t>(state.range(0));
  constexpr int kExchanges = 500;
  std::vector<Bytes> out(2, Bytes(size));
  std::vector<Bytes> in(2, Bytes(size));
  const auto raw = [&](int flags) {
    return [&, flags](int rank) {
      const auto index = static_cast<std::size_t>(rank);
      for (int i = 0; i < kExchanges; ++i) {
        send_all(bench.socket(rank), out[index].data(), size);
        receive_all(bench.socket(rank), in[index].data(), size, flags);
      }
    };
  };
  const auto exchange = [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    Transfer transfers[2];
    for (int i = 0; i < kExchanges; ++i) {
      bench.transport(rank).send(1 - rank, out[index], transfers[0]);
      bench.transport(rank).receive(1 - rank, in[index], transfers[1]);
      for (Transfer& each : transfers) bench.transport(rank).wait(each, Deadline::never());
    }
  };
  alternate(state, bench, kExchanges, {exchange, raw(0), raw(MSG_DONTWAIT)});
}
BENCHMARK(Exchange)->Arg(8)->Arg(1024)->Arg(16 << 10)->UseManualTime()->Iterations(41)->Unit(
    benchmark::kMicrosecond);

/// One sends, the other receives and says so.
void OneWay(benchmark::State& state) {
  Bench bench;
  const auto size = static_cast<std::size_t>(state.range(0));
  std::vector<Bytes> memory(2, Bytes(size));
  Bytes ack(1);
  const auto raw = [&](int rank) {
    std::byte* const data = memory[static_cast<std::size_t>(rank)].data();
    if (rank == 0) {
      send_all(bench.socket(0), data, size);
      receive_all(bench.socket(0), ack.data(), 1, 0);
    } else {
      receive_all(bench.socket(1), data, size, 0);
      send_all(bench.socket(1), data, 1);
    }
  };
  const auto move = [&](int rank) {
    Transport& transport = bench.transport(rank);
    Bytes& mine = memory[static_cast<std::size_t>(rank)];
    Transfer transfers[2];
    if (rank == 0) {
      transport.send(1, mine, transfers[0]);
      transport.receive(1, ack, transfers[1]);
      transport.wait(transfers[0], Deadline::never());
      transport.wait(transfers[1], Deadline::never());
    } else {
      transport.receive(0, mine, transfers[0]);
      transport.wait(transfers[0], Deadline::never());
      transport.send(0, std::span<const std::byte>(mine).first(1), transfers[1]);
      transport.wait(transfers[1], Deadline::never());
    }
  };
  alternate(state, bench, 1, {move, raw});
}
BENCHMARK(OneWay)->Arg(1 << 20)->Arg(64 << 20)->UseManualTime()->Iterations(41)->Unit(
    benchmark::kMicrosecond);

/// Both directions at once; plain sockets with a thread for each direction.
void BothWays(benchmark::State& state) {
  Bench bench;
  const auto size = static_cast<std::size_t>(state.range(0));
  std::vector<Bytes> out(2, Bytes(size));
  std::vector<Bytes> in(2, Bytes(size));
  const auto raw = [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    std::thread sender([&] { send_all(bench.socket(rank), out[index].data(), size); });
    receive_all(bench.socket(rank), in[index].data(), size, 0);
    sender.join();
  };
  const auto move = [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    Transfer transfers[2];
    bench.transport(rank).send(1 - rank, out[index], transfers[0]);
    bench.transport(rank).receive(1 - rank, in[index], transfers[1]);
    for (Transfer& each : transfers) bench.transport(rank).wait(each, Deadline::never());
  };
  alternate(state, bench, 1, {move, raw});
}
BENCHMARK(BothWays)->Arg(64 << 20)->UseManualTime()->Iterations(21)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace crossdevice
