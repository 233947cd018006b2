// SPDX-License-Identifier: Apache-2.0
/// Workers that are processes, for what threads cannot do: they are killed, stopped, go too early, fork. A transport's own test program runs them by name.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "comm/transport_fixture.h"
#include "support/worker_processes.h"

namespace crossdevice::testing {

using MakeTransport = std::unique_ptr<Transport> (*)(std::shared_ptr<Cluster> cluster,
                                                     const Deadline& deadline);
inline MakeTransport make_worker_transport = nullptr;

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

inline std::unique_ptr<Transport> connected(Cluster& cluster) {
  // The test's handle outlives the transport.
  auto transport = make_worker_transport(shared(cluster), meeting_deadline());
  connect_to_all(*transport);
  transport->begin(operation());
  return transport;
}

/// pattern(), made once.
inline const Bytes& known_pattern(std::size_t size, int rank) {
  static std::map<std::pair<std::size_t, int>, Bytes> known;
  Bytes& bytes = known[{size, rank}];
  if (bytes.size() != size) bytes = pattern(size, static_cast<std::uint64_t>(rank));
  return bytes;
}

/// Sends to the next and receives from the one before.
inline void rotate(Transport& transport, std::size_t size, const Deadline& deadline) {
  const int num_ranks = transport.num_ranks();
  const int before = (transport.rank() + num_ranks - 1) % num_ranks;
  const Bytes& out = known_pattern(size, transport.rank());
  Bytes in(size);
  std::vector<Transfer> transfers(2);
  transport.send((transport.rank() + 1) % num_ranks, out, transfers[0]);
  transport.receive(before, in, transfers[1]);
  for (Transfer& each : transfers) transport.wait(each, deadline);
  if (in != pattern(size, static_cast<std::uint64_t>(before)))
    throw std::runtime_error("wrong bytes");
}

/// 0 when `work` ends with that error, which blames exactly `culprit`; says what came otherwise.
inline int expect_error(StatusCode code, const std::string& text, int culprit,
                        const std::function<void()>& work) {
  try {
    work();
    std::cerr << "no error\n";
  } catch (const OpError& error) {
    if (error.code() == code && error.culprits().size() == 1 &&
        error.culprits()[0].rank == culprit &&
        std::string(error.what()).find(text) != std::string::npos) {
      return 0;
    }
    std::cerr << "unexpected: " << error.what() << '\n';
  }
  return 1;
}

inline int exchange(Cluster& cluster) {
  if (cluster.num_workers() == 1) {
    return make_worker_transport(shared(cluster), meeting_deadline())->num_ranks() - 1;
  }
  const auto transport = connected(cluster);
  for (int round = 0; round < 10; ++round) {
    meet(*transport);
    rotate(*transport, kMiB + 1, soon());
  }
  return 0;
}

/// What a worker that has heard of a failure returns, after all others have: else they might hear first that this one has gone.
inline int after_the_others(int result) {
  await_the_others();
  return result;
}

/// The worker of that rank ends without a word in the middle.
inline int lose(Cluster& cluster, int victim) {
  const auto transport = connected(cluster);
  return after_the_others(expect_error(StatusCode::UNAVAILABLE, "is gone", victim, [&] {
    for (int round = 0;; ++round) {
      if (round == 10 && cluster.rank() == victim) ::kill(::getpid(), SIGKILL);
      rotate(*transport, kMiB, soon());
    }
  }));
}

/// It is stopped, so its connections stay.
inline int silence(Cluster& cluster) {
  const auto transport = connected(cluster);
  meet(*transport);
  if (cluster.rank() == 1) ::kill(::getpid(), SIGSTOP);
  return after_the_others(expect_error(
      StatusCode::DEADLINE_EXCEEDED, "waiting for rank 1 (", 1,
      [&] { rotate(*transport, 24 * kMiB, Deadline::after(std::chrono::seconds(3))); }));
}

inline int abort_all(Cluster& cluster) {
  const auto transport = connected(cluster);
  return after_the_others(expect_error(StatusCode::ABORTED, "enough", 0, [&] {
    meet(*transport);
    if (cluster.rank() == 0) cluster.abort_collective_ops("enough");
    for (;;) rotate(*transport, kMiB, soon());
  }));
}

/// Ends in good order, but too early for the others.
inline int leave(Cluster& cluster) {
  const auto transport = connected(cluster);
  if (cluster.rank() == 2) {
    meet(*transport);
    return 0;
  }
  return after_the_others(expect_error(StatusCode::UNAVAILABLE, "is gone: it has left", 2, [&] {
    meet(*transport);  // one of them may hear of it here
    for (;;) rotate(*transport, kMiB, soon());
  }));
}

/// One never connects.
inline int miss(Cluster& cluster) {
  const auto transport = make_worker_transport(shared(cluster), meeting_deadline());
  if (cluster.rank() == 1) {
    cluster.barrier();
    return 0;
  }
  const int result = expect_error(
      StatusCode::DEADLINE_EXCEEDED, "connecting timed out: waiting for rank 1 (", 1, [&] {
        const std::vector<int> peers = {0, 1, 2};
        std::vector<int> others;
        for (const int each : peers) {
          if (each != cluster.rank()) others.push_back(each);
        }
        // The others have found each other by then; who gives up second hears it from the first.
        transport->connect(others, Deadline::after(std::chrono::seconds(3)));
      });
  cluster.barrier();
  return result;
}

/// Rank 1 goes before the others have connected to it: in good order, or not.
inline int go_before_connecting(Cluster& cluster, bool in_order) {
  const auto transport = make_worker_transport(shared(cluster), meeting_deadline());
  if (cluster.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // they wait by then, most likely
    if (!in_order) ::kill(::getpid(), SIGKILL);
    return 0;
  }
  return after_the_others(expect_error(StatusCode::UNAVAILABLE,
                                       in_order ? "is gone: it has left" : "is gone: ", 1,
                                       [&] { connect_to_all(*transport); }));
}

/// Rank 1 connects, says what it has to say, and goes, while rank 2 waits for rank 0, which comes later.
inline int go_while_others_connect(Cluster& cluster) {
  std::atomic<bool> has_left{false};
  const auto listening = cluster.listen(
      {.on_lost = [&](const RankInfo&, const std::string&) { has_left = true; }, .on_abort = {}});
  const auto transport = make_worker_transport(shared(cluster), meeting_deadline());
  const std::vector<int> to_last = {2};
  if (cluster.rank() == 0) {
    while (!has_left) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // rank 2 has heard it, too
    transport->connect(to_last, soon());
    transport->begin(operation());
    send(*transport, 2, pattern(1000, 0));
    return 0;
  }
  if (cluster.rank() == 1) {
    transport->connect(to_last, soon());
    transport->begin(operation());
    send(*transport, 2, pattern(1000, 1));
    return 0;
  }
  const std::vector<int> both = {0, 1};
  transport->connect(both, soon());
  transport->begin(operation());
  return receive(*transport, 0, 1000) == pattern(1000, 0) &&
                 receive(*transport, 1, 1000) == pattern(1000, 1)
             ? 0
             : 1;
}

inline int fork_off(Cluster& cluster) {
  auto transport = connected(cluster);
  meet(*transport);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      (void)transport->poll();
    } catch (const FailedPreconditionError&) {
      transport.reset();  // without a word to the others
      std::_Exit(0);
    }
    std::_Exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  meet(*transport);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 7;
}

inline int use_subgroup(Cluster& cluster) {
  const std::shared_ptr<Cluster> half = cluster.subgroup({2, 0});
  return exchange(*half);
}

/// What workers can be told to do, each with transports that `make` makes.
inline Works transport_works(MakeTransport make) {
  make_worker_transport = make;
  return {
      {"exchange", exchange},
      {"exchange between hosts", exchange},
      {"lose the chief", [](Cluster& cluster) { return lose(cluster, 0); }},
      {"lose a worker", [](Cluster& cluster) { return lose(cluster, 1); }},
      {"silence", silence},
      {"abort", abort_all},
      {"leave", leave},
      {"miss", miss},
      {"leave before connecting",
       [](Cluster& cluster) { return go_before_connecting(cluster, true); }},
      {"die before connecting",
       [](Cluster& cluster) { return go_before_connecting(cluster, false); }},
      {"leave while others connect", go_while_others_connect},
      {"fork", fork_off},
      {"subgroup",
       [](Cluster& cluster) { return cluster.rank() == 1 ? 0 : use_subgroup(cluster); }},
  };
}

}  // namespace crossdevice::testing
