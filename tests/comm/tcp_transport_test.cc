// SPDX-License-Identifier: Apache-2.0
// The conformance suite with threads over loopback; and workers that are processes, for what threads cannot do.
#include "crossdevice/comm/tcp_transport.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crossdevice/comm/secret_file.h"
#include "crossdevice/comm/told_chief_loss_error.h"
#include "crossdevice/core/environment.h"

#include "comm/detail/tcp_meeting.h"
#include "comm/detail/tcp_message.h"
#include "comm/detail/wire.h"
#include "comm/transport_conformance.h"
#include "comm/transport_processes.h"
#include "support/log_keeper.h"
#include "support/threaded_clusters.h"
#include "support/worker_processes.h"

namespace crossdevice::testing {
namespace {

Transports make_tcp_transports(int num_ranks) {
  // Kept until the next ones are made: a transport that ends shall not take its worker with it.
  static std::unique_ptr<ThreadedClusters> clusters;
  clusters = std::make_unique<ThreadedClusters>(num_ranks);
  Transports transports(static_cast<std::size_t>(num_ranks));
  clusters->for_each_worker([&](int rank) {
    transports[static_cast<std::size_t>(rank)] = make_tcp_transport(clusters->of(rank));
  });
  return transports;
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportConformance,
                         ::testing::Values(TransportCase{"tcp", make_tcp_transports}),
                         [](const auto& each) { return each.param.name; });

/// The others may hear the chief still.
TEST(TcpTransportTest, ThatTheChiefIsGoneIsTheWordOfWhoTellsIt) {
  for (const int culprit : {0, 1}) {
    Transports transports = make_tcp_transports(3);
    std::vector<std::jthread> threads;
    for (const std::unique_ptr<Transport>& each : transports) {
      threads.emplace_back([&transport = *each, culprit] {
        connect_to_all(transport);
        transport.begin(operation());
        try {
          meet(transport);
          if (transport.rank() == 2) {
            transport.stop(StatusCode::UNAVAILABLE, "it is gone", {{.rank = culprit}});
          }
          transport.look_until(soon());
          ADD_FAILURE() << "rank " << transport.rank() << " goes on";
        } catch (const UnavailableError& error) {
          const auto* const told = dynamic_cast<const detail::ToldChiefLossError*>(&error);
          const bool is_told = transport.rank() != 2 && culprit == 0;
          EXPECT_EQ(told != nullptr, is_told)
              << "rank " << transport.rank() << ": " << error.what();
          if (told != nullptr) {
            EXPECT_EQ(told->teller().rank, 2);
          }
          EXPECT_EQ(error.culprits()[0].rank, culprit);
        }
      });
    }
    threads.clear();
    while (!transports.empty()) transports.pop_back();  // the chief waits for the others to leave
  }
}

// ---------------------------------------------------------------------------------------------- a member that does not keep to it

/// Rank 0, by hand: connected to rank 1, which has the real thing.
class Rogue {
 public:
  Rogue() : clusters_(2) {
    clusters_.for_each_worker([this](int rank) {
      const Cluster& cluster = *clusters_.of(rank);
      if (rank == 1) {
        transport_ = make_tcp_transport(clusters_.of(1));
        const std::vector<int> peers = {0};
        transport_->connect(peers, soon());
        transport_->begin(operation());
        return;
      }
      detail::TcpMeetingOptions options;
      options.rank = 0;
      options.num_ranks = 2;
      options.cluster_id = cluster.id();
      if (environment().tls) {
        options.secret = detail::read_secret(process_environment()(kSecretFileVariable).value());
        options.tls = detail::TlsKey::make(options.secret);
      }
      detail::TcpMeeting meeting(options);
      const std::vector<std::string> all = clusters_.of(0)->all_gather_bytes(
          detail::WireWriter().text("").text(meeting.announcement()).take());
      detail::WireReader theirs(all[1]);
      EXPECT_EQ(theirs.text(), "");
      meeting.learn(1, theirs.text(), true);
      const std::vector<int> peers = {1};
      meeting.meet(peers, soon(), [] { return false; });
      for (auto& [peer, fd, tls] : meeting.take_connected()) {
        socket_ = fd;
        tls_ = std::move(tls);
      }
    });
  }
  ~Rogue() { close(); }
  Rogue(const Rogue&) = delete;
  Rogue& operator=(const Rogue&) = delete;

  void say(std::string_view bytes) const { EXPECT_TRUE(pour(bytes)); }
  /// Whether all of it has left.
  [[nodiscard]] bool pour(std::string_view bytes) const {
    if (!tls_) {
      return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(bytes.size());
    }
    std::span<const std::byte> left = std::as_bytes(std::span(bytes));
    while (!left.empty()) {
      left = left.subspan(tls_->write({}, left));
      const std::span<const std::byte> out = tls_->outgoing();
      if (::send(socket_, out.data(), out.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(out.size())) {
        return false;
      }
      tls_->drop_outgoing(out.size());
    }
    return true;
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  [[nodiscard]] Transport& transport() { return *transport_; }
  void end_transport() { transport_.reset(); }
  /// How a receive of 8 bytes ends.
  [[nodiscard]] Outcome receive(Bytes& memory) {
    return TransportConformance::outcome_of(
        [&](Transport& transport) {
          Transfer transfer;
          transport.receive(0, memory, transfer);
          transport.wait(transfer, soon());
        },
        transport());
  }

 private:
  ThreadedClusters clusters_;
  std::unique_ptr<Transport> transport_;
  int socket_ = -1;
  std::unique_ptr<detail::TlsChannel> tls_;
};

detail::TcpHead good_head() {
  detail::TcpHead head;
  head.payload_size = 8;
  head.operation_count = 1;
  head.size = 8;
  head.operation = pack_operation(operation());
  return head;
}

std::string bytes_of(const detail::TcpHead& head, const detail::SaidOperations& said = {}) {
  const detail::TcpHeadBytes bytes = detail::encode_tcp_head(head, said);
  return {reinterpret_cast<const char*>(bytes.bytes.data()), bytes.size};
}

TEST(TcpTransportTest, WhatTheRogueSaysIsUnderstood) {
  Rogue rogue;
  Bytes memory(8, std::byte{0xEE});
  rogue.say(bytes_of(good_head()) + "12345678");
  EXPECT_EQ(rogue.receive(memory).text, "");
  EXPECT_EQ(memory[0], std::byte{'1'});
}

TEST(TcpTransportTest, NonsenseFromAMemberEndsTheTransportBeforeAByteIsWritten) {
  detail::TcpHead number = good_head();
  number.number = 1;
  detail::TcpHead offset = good_head();
  offset.payload_size = 7;
  offset.offset = 1;
  detail::TcpHead stopped = good_head();
  stopped.kind = detail::TcpFrameKind::STOPPED;
  std::string changed = bytes_of(good_head());
  changed[2] = '\x7f';
  const std::vector<std::string> sayings = {
      std::string(10000, 'x'), changed, bytes_of(number) + "12345678", bytes_of(offset) + "1234567",
      bytes_of(stopped) + "12345678"};
  for (const std::string& each : sayings) {
    Rogue rogue;
    Bytes memory(8, std::byte{0xEE});
    rogue.say(each);
    const Outcome outcome = rogue.receive(memory);
    EXPECT_EQ(outcome.code, StatusCode::INTERNAL) << outcome.text;
    EXPECT_THAT(outcome.text, ::testing::HasSubstr("sends what cannot be"));
    EXPECT_EQ(outcome.culprits, std::vector<int>{0});
    EXPECT_TRUE(memory == Bytes(8, std::byte{0xEE}));
  }
}

TEST(TcpTransportTest, AConnectionThatEndsWithoutAWordIsNoticedWhereverItEnds) {
  const std::string head = bytes_of(good_head());
  const std::string message = head + "12345678";
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, head.size(), head.size() + 4}) {
    Rogue rogue;
    Bytes memory(8);
    if (size != 0) rogue.say(message.substr(0, size));
    rogue.close();
    const Outcome outcome = rogue.receive(memory);
    EXPECT_EQ(outcome.code, StatusCode::UNAVAILABLE) << outcome.text;
    EXPECT_THAT(outcome.text, ::testing::HasSubstr("is gone: its connection ended"));
    EXPECT_EQ(outcome.culprits, std::vector<int>{0});
  }
}

TEST(TcpTransportTest, WhatNobodyAsksForIsNotReadWithoutEnd) {
  Rogue rogue;
  std::thread talker([&] {
    const detail::TcpHead head = good_head();
    std::string many = bytes_of(head) + "12345678";
    detail::SaidOperations said;
    said.remember(head.operation);
    const std::string next = bytes_of(head, said) + "12345678";
    for (int i = 0; i < 5000; ++i) many += next;
    // Until nobody reads.
    while (rogue.pour(many)) {
    }
  });
  const Outcome outcome = TransportConformance::outcome_of(
      [&](Transport& transport) {
        Transfer transfer;
        Bytes memory(8);
        transport.receive(0, memory, transfer);
        transport.wait(transfer, soon());
        // What comes next has the wrong number.
        transport.receive(0, memory, transfer);
        transport.wait(transfer, soon());
      },
      rogue.transport());
  EXPECT_EQ(outcome.code, StatusCode::INTERNAL) << outcome.text;
  rogue.end_transport();
  talker.join();
}

TEST(TcpTransportTest, WhoFailsIsHeardWhileAnotherIsWaitedFor) {
  const ThreadedClusters clusters(3);
  std::atomic<int> num_waiting{2};
  /// Says that it waits no more, however it ends.
  struct Waiting {
    std::atomic<int>& number;
    ~Waiting() { --number; }
  };
  clusters.for_each_worker([&](int rank) {
    const std::unique_ptr<Transport> transport = make_tcp_transport(clusters.of(rank));
    if (rank == 2) {
      // Never looks for the others.
      while (num_waiting.load() != 0) std::this_thread::yield();
      return;
    }
    const Waiting waiting{num_waiting};
    if (rank == 1) {
      const std::vector<int> other = {0};
      transport->connect(other, soon());
      transport->stop(StatusCode::ABORTED, "rank 1 cannot go on", {});
    } else {
      // Of the two one comes, and fails.
      const std::vector<int> others = {1, 2};
      const Outcome outcome = TransportConformance::outcome_of(
          [&](Transport& mine) { mine.connect(others, soon()); }, *transport);
      EXPECT_EQ(outcome.code, StatusCode::ABORTED);
      EXPECT_THAT(outcome.text, ::testing::HasSubstr("rank 1 cannot go on"));
    }
  });
}

TEST(TcpTransportTest, AStallIsSpokenOf) {
  const ThreadedClusters clusters(2, {.timeout_seconds = 60, .stall_warning_seconds = 0.02});
  const LogKeeper log;
  clusters.for_each_worker([&](int rank) {
    const std::unique_ptr<Transport> transport = make_tcp_transport(clusters.of(rank));
    connect_to_all(*transport);
    transport->begin(operation());
    if (rank == 1) {
      EXPECT_TRUE(log.await("rank 0 still waits in test", soon()));
      EXPECT_TRUE(log.await(" for rank 1 (", soon()));
      send(*transport, 0, Bytes(8));
    } else {
      EXPECT_EQ(receive(*transport, 1, 8), Bytes(8));
    }
  });
}

// ---------------------------------------------------------------------------------------------- processes

TEST(TcpTransportTest, ProcessesExchange) {
  for (const int num_workers : {1, 2, 3, 5, 8}) {
    EXPECT_EQ(run_workers("exchange", num_workers), all_well(num_workers));
  }
}

/// As a worker's environment, until it dies.
class Variable {
 public:
  Variable(const char* name, const std::string& value)
      : name_(name), before_(process_environment()(name)) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_.has_value()) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string make_secret_file(const std::string& name = "tcp_transport_secret.") {
  const std::string file = ::testing::TempDir() + "/" + name + std::to_string(::getpid());
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  EXPECT_GE(fd, 0);
  const std::string_view secret = "what nobody else knows";
  EXPECT_EQ(::write(fd, secret.data(), secret.size()), static_cast<ssize_t>(secret.size()));
  ::close(fd);
  return file;
}

TEST(TcpTransportTest, ProcessesOnSeveralHostsExchange) {
  // What says that they share a machine differs; they have nothing but each other's addresses.
  EXPECT_EQ(run_workers("exchange between hosts", 3), all_well(3));
  const std::string file = make_secret_file();
  {
    const Variable secret(kSecretFileVariable, file);
    EXPECT_EQ(run_workers("exchange", 2), all_well(2));
    EXPECT_EQ(run_workers("exchange between hosts", 4), all_well(4));
  }
  ::unlink(file.c_str());
}

TEST(TcpTransportTest, AKilledWorkerIsNamedByTheOthers) {
  EXPECT_EQ(run_workers("lose a worker", 4), (std::vector<int>{0, -SIGKILL, 0, 0}));
  EXPECT_EQ(run_workers("lose the chief", 3), (std::vector<int>{-SIGKILL, 0, 0}));
}

TEST(TcpTransportTest, AStoppedWorkerIsNamedAtTheDeadline) {
  EXPECT_EQ(run_workers("silence", 2, 1), (std::vector<int>{0, -SIGKILL}));
}

TEST(TcpTransportTest, AnAbortEndsEverybodysWait) {
  EXPECT_EQ(run_workers("abort", 3), all_well(3));
}

TEST(TcpTransportTest, AWorkerThatEndsTooEarlyIsNamed) {
  EXPECT_EQ(run_workers("leave", 3), all_well(3));
}

TEST(TcpTransportTest, WhoDoesNotConnectIsNamed) { EXPECT_EQ(run_workers("miss", 3), all_well(3)); }

TEST(TcpTransportTest, WhoGoesBeforeItHasConnectedIsNamed) {
  EXPECT_EQ(run_workers("leave before connecting", 3), all_well(3));
  EXPECT_EQ(run_workers("die before connecting", 3), (std::vector<int>{0, -SIGKILL, 0}));
}

TEST(TcpTransportTest, WhoHasConnectedMayGoWhileOthersConnect) {
  EXPECT_EQ(run_workers("leave while others connect", 3), all_well(3));
}

TEST(TcpTransportTest, AChildOfForkThrowsAndItsParentGoesOn) {
  EXPECT_EQ(run_workers("fork", 2), all_well(2));
}

TEST(TcpTransportTest, SubgroupsHaveTransports) {
  EXPECT_EQ(run_workers("subgroup", 3), all_well(3));
}

}  // namespace
}  // namespace crossdevice::testing

/// With CROSSDEVICE_TLS=1 all of this runs over TLS; the workers inherit the secret that it needs.
int main(int argc, char** argv) {
  using crossdevice::testing::Variable;
  std::optional<Variable> secret;
  std::string file;
  if (crossdevice::environment().tls &&
      !crossdevice::process_environment()(crossdevice::kSecretFileVariable).has_value()) {
    file = crossdevice::testing::make_secret_file("tcp_transport_tls_secret.");
    secret.emplace(crossdevice::kSecretFileVariable, file);
  }
  const int result = crossdevice::testing::worker_main(
      argc, argv, crossdevice::testing::transport_works(crossdevice::make_tcp_transport),
      [](const std::string& work) {
        if (work == "exchange between hosts") {
          const std::string rank = std::getenv(crossdevice::kRankVariable);
          ::setenv(crossdevice::kHostIdVariable, ("host " + rank).c_str(), 1);
        }
        return crossdevice::JoinOptions{.timeout_seconds = 60};
      });
  if (!file.empty()) ::unlink(file.c_str());
  return result;
}
