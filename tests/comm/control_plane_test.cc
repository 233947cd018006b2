// SPDX-License-Identifier: Apache-2.0
// Workers are threads with a control plane each, over loopback; tests/comm/cluster_test.cc has real processes.
#include "comm/detail/control_plane.h"

#include <array>
#include <atomic>
#include <functional>
#include <latch>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <asio/connect.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "crossdevice/comm/reserved_port.h"
#include "crossdevice/core/error.h"
#include "crossdevice/core/log.h"
#include "crossdevice/core/version.h"

#include "support/control_plane_options.h"

namespace crossdevice::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Plane = std::shared_ptr<ControlPlane>;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

/// Runs `work` for each rank on a thread of its own, the planes joined; what one throws is returned as text.
std::vector<std::string> run_workers(
    int num_workers, const std::function<void(int, Plane&)>& work,
    const std::function<void(ControlPlaneOptions&)>& change = [](ControlPlaneOptions&) {}) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  std::vector<std::string> errors(static_cast<std::size_t>(num_workers));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_workers; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ControlPlaneOptions options = options_of(rank, num_workers, port);
        change(options);
        Plane plane = ControlPlane::join(options, soon());
        work(rank, plane);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<std::string> no_errors(int num_workers) {
  return std::vector<std::string>(static_cast<std::size_t>(num_workers));
}

std::vector<std::string> gather(Plane& plane, std::uint64_t sequence, const std::string& bytes,
                                const Deadline& deadline = soon()) {
  return plane->exchange({1, sequence}, {}, "gather", bytes, deadline);
}

TEST(ControlPlaneTest, WorkersMeetAndExchange) {
  for (const int num_workers : {1, 2, 3, 8, 32}) {
    EXPECT_EQ(
        run_workers(num_workers,
                    [&](int rank, Plane& plane) {
                      ASSERT_EQ(plane->members().size(), static_cast<std::size_t>(num_workers));
                      EXPECT_EQ(plane->members()[static_cast<std::size_t>(rank)].host,
                                "host" + std::to_string(rank));
                      for (std::uint64_t round = 1; round <= 20; ++round) {
                        const std::vector<std::string> parts = gather(
                            plane, round, std::to_string(rank * 1000 + static_cast<int>(round)));
                        for (int r = 0; r < num_workers; ++r) {
                          EXPECT_EQ(parts[static_cast<std::size_t>(r)],
                                    std::to_string(r * 1000 + static_cast<int>(round)));
                        }
                      }
                    }),
        no_errors(num_workers));
  }
}

TEST(ControlPlaneTest, LargePartsTravelWhole) {
  EXPECT_EQ(
      run_workers(3,
                  [](int rank, Plane& plane) {
                    const std::string mine(std::size_t{1} << 20, static_cast<char>('a' + rank));
                    const std::vector<std::string> parts = gather(plane, 1, mine);
                    for (int r = 0; r < 3; ++r) {
                      EXPECT_EQ(parts[static_cast<std::size_t>(r)],
                                std::string(std::size_t{1} << 20, static_cast<char>('a' + r)));
                    }
                    EXPECT_THROW((void)gather(plane, 2, mine + "x"), ValueError);
                  }),
      no_errors(3));
}

TEST(ControlPlaneTest, WhoComesFirstDoesNotMatter) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  std::thread worker([&] {
    Plane plane = ControlPlane::join(options_of(1, 2, port), soon());
    EXPECT_THAT(gather(plane, 1, "b"), ElementsAre("a", "b"));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it finds nobody and tries again
  Plane chief = ControlPlane::join(options_of(0, 2, port), soon());
  EXPECT_THAT(gather(chief, 1, "a"), ElementsAre("a", "b"));
  chief.reset();
  worker.join();
}

TEST(ControlPlaneTest, AllOfTheChiefsAddressesAreTried) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  std::thread chief([&] {
    Plane plane = ControlPlane::join(options_of(0, 2, port), soon());
    EXPECT_THAT(gather(plane, 1, "a"), ElementsAre("a", "b"));
  });
  const ReservedPort nobodys;
  ControlPlaneOptions options = options_of(1, 2, nobodys.number());  // where nobody listens
  options.more_chief_addresses = {"[::1]:" + std::to_string(port),
                                  "127.0.0.1:" + std::to_string(port)};
  Plane plane = ControlPlane::join(options, soon());
  EXPECT_THAT(gather(plane, 1, "b"), ElementsAre("a", "b"));
  plane.reset();
  chief.join();
}

TEST(ControlPlaneTest, AWorkerOfAnotherEpochIsRefusedAndTheOthersMeet) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  const auto options_in = [&](int rank, std::uint64_t epoch) {
    ControlPlaneOptions options = options_of(rank, 2, port);
    options.job = 7;
    options.epoch = epoch;
    return options;
  };
  std::thread chief([&] {
    Plane plane = ControlPlane::join(options_in(0, 3), soon());
    EXPECT_THAT(gather(plane, 1, "a"), ElementsAre("a", "b"));
  });
  try {
    (void)ControlPlane::join(options_in(1, 2), soon());
    ADD_FAILURE() << "met in different epochs";
  } catch (const FailedPreconditionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("comes from epoch 2 of this job, this is epoch 3"));
  }
  Plane plane = ControlPlane::join(options_in(1, 3), soon());
  EXPECT_THAT(gather(plane, 1, "b"), ElementsAre("a", "b"));
  plane.reset();
  chief.join();
}

TEST(ControlPlaneTest, WhoDoesNotComeIsNamedOnEveryRank) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(3000));
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      try {
        (void)ControlPlane::join(options_of(rank, 4, port), deadline);
        ADD_FAILURE() << "met without ranks 1 and 3";
      } catch (const DeadlineExceededError& error) {
        EXPECT_THAT(error.what(), HasSubstr("2 of 4 workers did not come in time"));
        ASSERT_EQ(error.culprits().size(), 2U);
        EXPECT_EQ(error.culprits()[0].rank, 1);
        EXPECT_EQ(error.culprits()[1].rank, 3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ControlPlaneTest, WhoHasEndedIsNotWaitedFor) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      try {
        ControlPlaneOptions options = options_of(rank, 4, port);
        options.find_gone = [rank](auto) {
          return rank == 0 ? std::vector<int>{1} : std::vector<int>();
        };
        (void)ControlPlane::join(options, Deadline::never());
        ADD_FAILURE() << "met without ranks 1 and 3";
      } catch (const UnavailableError& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 1 ended before all of 4 workers had come"));
        ASSERT_EQ(error.culprits().size(), 1U);
        EXPECT_EQ(error.culprits()[0].rank, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Of a worker that would wait for ever.
void expect_no_chief(const ControlPlaneOptions& options) {
  try {
    (void)ControlPlane::join(options, Deadline::never());
    ADD_FAILURE() << "met without a chief";
  } catch (const UnavailableError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has ended or given up: Connection refused"));
    ASSERT_EQ(error.culprits().size(), 1U);
    EXPECT_EQ(error.culprits()[0].rank, 0);
  }
}

TEST(ControlPlaneTest, AChiefThatHasEndedIsNotWaitedFor) {
  const ReservedPort reserved;
  ControlPlaneOptions options = options_of(1, 2, reserved.number());
  int looks = 0;
  options.find_gone = [&](auto) { return ++looks < 3 ? std::vector<int>() : std::vector<int>{0}; };
  expect_no_chief(options);
  EXPECT_EQ(looks, 3);
}

/// Its process lives, as far as anybody can tell.
TEST(ControlPlaneTest, AChiefThatListensNoMoreIsNotWaitedFor) {
  const ReservedPort reserved;
  ControlPlaneOptions options = options_of(1, 2, reserved.number());
  options.is_chief_listening = true;
  options.find_gone = [](auto) { return std::vector<int>(); };
  expect_no_chief(options);
}

TEST(ControlPlaneTest, WorkersThatDoNotFitAreNamedOnEveryRank) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 2}) {
    threads.emplace_back([&, rank] {
      try {
        ControlPlaneOptions options = options_of(rank, 3, port);
        if (rank == 1) options.num_workers = 4;
        (void)ControlPlane::join(options, soon());
        ADD_FAILURE() << "met a worker of another job";
      } catch (const FailedPreconditionError& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 1 (host host1, pid "));
        EXPECT_THAT(error.what(), HasSubstr("was told that there are 4 workers, the chief that "
                                            "there are 3"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ControlPlaneTest, WhoDoesNotComeIsNamedWithItsAddress) {
  const ReservedPort reserved;
  ControlPlaneOptions options = options_of(0, 2, reserved.number());
  options.addresses_by_rank = {"a:2222", "b:2222"};
  try {
    (void)ControlPlane::join(options, Deadline::after(std::chrono::milliseconds(100)));
    ADD_FAILURE() << "met without rank 1";
  } catch (const DeadlineExceededError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 (at b:2222)"));
  }
}

TEST(ControlPlaneTest, AnAbsentChiefIsNamed) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  try {
    (void)ControlPlane::join(options_of(1, 2, port),
                             Deadline::after(std::chrono::milliseconds(200)));
    ADD_FAILURE() << "met without a chief";
  } catch (const DeadlineExceededError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the chief (rank 0) at 127.0.0.1:" + std::to_string(port)));
    ASSERT_EQ(error.culprits().size(), 1U);
    EXPECT_EQ(error.culprits()[0].rank, 0);
  }
}

TEST(ControlPlaneTest, AnAddressInUseIsAnError) {
  asio::io_context io;
  asio::ip::tcp::acceptor taken(io, asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  EXPECT_THROW((void)ControlPlane::join(options_of(0, 2, taken.local_endpoint().port()), soon()),
               UnavailableError);
}

TEST(ControlPlaneTest, AWorkerWithAnotherSecretIsRefusedAndTheOthersMeet) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  std::thread impostor([&] {
    for (const char* const secret : {"guess", ""}) {
      ControlPlaneOptions options = options_of(1, 2, port);
      options.secret = secret;
      // At once, and by its name; the deadline is far.
      try {
        (void)ControlPlane::join(options, soon());
        ADD_FAILURE() << "met with another secret";
      } catch (const FailedPreconditionError& error) {
        EXPECT_THAT(
            error.what(),
            HasSubstr(*secret != '\0' ? "the chief refuses this worker: this worker and the "
                                        "chief hold different secrets"
                                      : "the chief refuses this worker: this worker has no "
                                        "secret, the chief has one"));
      }
    }
  });
  std::thread chief([&] {
    Plane plane = ControlPlane::join(options_of(0, 2, port), soon());
    EXPECT_THAT(gather(plane, 1, "a"), ElementsAre("a", "b"));
  });
  impostor.join();
  Plane plane = ControlPlane::join(options_of(1, 2, port), soon());
  EXPECT_THAT(gather(plane, 1, "b"), ElementsAre("a", "b"));
  plane.reset();
  chief.join();
}

TEST(ControlPlaneTest, AChiefWhoseWorkersHoldAnotherSecretSaysSoAtItsDeadline) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  std::thread impostor([&] {
    ControlPlaneOptions options = options_of(1, 2, port);
    options.secret = "guess";
    EXPECT_THROW((void)ControlPlane::join(options, soon()), FailedPreconditionError);
  });
  try {
    // Longer than the worker takes to believe its refusal.
    (void)ControlPlane::join(options_of(0, 2, port), Deadline::after(std::chrono::seconds(6)));
    ADD_FAILURE() << "met with another secret";
  } catch (const DeadlineExceededError& error) {
    EXPECT_THAT(error.what(), HasSubstr("1 of 2 workers did not come in time"));
    EXPECT_THAT(error.what(), HasSubstr("; one came, and was told: this worker and the chief hold "
                                        "different secrets"));
  }
  impostor.join();
}

TEST(ControlPlaneTest, ASecondProcessWithARankIsRefusedByName) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  std::thread chief([&] {
    Plane plane = ControlPlane::join(options_of(0, 2, port), soon());
    (void)gather(plane, 1, "");
  });
  ControlPlaneOptions options = options_of(1, 2, port);
  options.addresses = {"127.0.0.1:1"};
  Plane first = ControlPlane::join(options, soon());
  options.addresses = {"127.0.0.1:2"};  // of the same process, which is a member already
  try {
    (void)ControlPlane::join(options, soon());
    ADD_FAILURE() << "two workers hold rank 1";
  } catch (const FailedPreconditionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("claims rank 1, which host host1"));
  }
  (void)gather(first, 1, "");
  first.reset();
  chief.join();
}

TEST(ControlPlaneTest, ARoundThatIsTooLateNamesWhoIsMissingOnAllThatWait) {
  std::atomic<int> num_timed_out{0};
  std::latch other_waits(1);
  EXPECT_EQ(run_workers(3,
                        [&](int rank, Plane& plane) {
                          if (rank == 1) {
                            while (num_timed_out.load() < 2) std::this_thread::yield();
                            EXPECT_THROW((void)gather(plane, 1, ""), DeadlineExceededError);
                            return;
                          }
                          // Rank 0's time is over first, when rank 2 has come, too.
                          if (rank == 0) {
                            other_waits.wait();
                          } else {
                            other_waits.count_down();
                          }
                          try {
                            (void)gather(
                                plane, 1, "",
                                Deadline::after(std::chrono::seconds(rank == 0 ? 3 : 1000)));
                            ADD_FAILURE() << "completed without rank 1";
                          } catch (const DeadlineExceededError& error) {
                            EXPECT_THAT(error.what(), HasSubstr("gather timed out after "));
                            ASSERT_EQ(error.culprits().size(), 1U);
                            EXPECT_EQ(error.culprits()[0].rank, 1);
                            EXPECT_EQ(error.culprits()[0].host, "host1");
                          }
                          num_timed_out.fetch_add(1);
                        }),
            no_errors(3));
}

TEST(ControlPlaneTest, AWorkerThatLeavesIsNamed) {
  for (const int leaver : {0, 1}) {
    EXPECT_EQ(run_workers(3,
                          [&](int rank, Plane& plane) {
                            (void)gather(plane, 1, "");
                            if (rank == leaver) return;
                            try {
                              (void)gather(plane, 2, "");
                              ADD_FAILURE() << "completed without rank " << leaver;
                            } catch (const UnavailableError& error) {
                              ASSERT_EQ(error.culprits().size(), 1U);
                              EXPECT_EQ(error.culprits()[0].rank, leaver);
                              EXPECT_THAT(error.what(), HasSubstr("it has left"));
                            }
                          }),
              no_errors(3));
  }
}

TEST(ControlPlaneTest, AnAbortReachesEveryoneInAndOutsideRounds) {
  std::atomic<int> num_heard{0};
  EXPECT_EQ(run_workers(3,
                        [&](int rank, Plane& plane) {
                          const std::shared_ptr<void> listening = plane->listen(
                              {.on_lost = nullptr,
                               .on_abort = [&](const RankInfo& origin, const std::string& text) {
                                 EXPECT_EQ(origin.rank, 2);
                                 EXPECT_EQ(text, "loss is NaN");
                                 num_heard.fetch_add(1);
                               }});
                          (void)gather(plane, 1, "");
                          if (rank == 2) plane->stop_all("loss is NaN");
                          try {
                            (void)gather(plane, 2, "");
                            ADD_FAILURE() << "completed although rank 2 aborted";
                          } catch (const AbortedError& error) {
                            EXPECT_THAT(error.what(), HasSubstr("loss is NaN"));
                            EXPECT_EQ(error.culprits()[0].rank, 2);
                          }
                          while (num_heard.load() < 3) std::this_thread::yield();
                        }),
            no_errors(3));
}

TEST(ControlPlaneTest, GroupsAreIndependentUntilTheyFail) {
  EXPECT_EQ(run_workers(4,
                        [](int rank, Plane& plane) {
                          const std::vector<int> group =
                              rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{3, 1};
                          const RoundId id{static_cast<std::uint64_t>(10 + rank % 2), 1};
                          const std::vector<std::string> parts =
                              plane->exchange(id, group, "x", std::to_string(rank), soon());
                          EXPECT_EQ(parts, (rank % 2 == 0 ? std::vector<std::string>{"0", "2"}
                                                          : std::vector<std::string>{"3", "1"}));
                          (void)gather(plane, 1, "");
                        }),
            no_errors(4));
}

TEST(ControlPlaneTest, AStallIsSpokenOf) {
  std::mutex mutex;
  std::string messages;
  set_log_sink([&](LogSeverity, std::string_view text) {
    const std::lock_guard lock(mutex);
    messages += std::string(text) + "\n";
  });
  EXPECT_EQ(run_workers(
                2,
                [&](int rank, Plane& plane) {
                  if (rank == 1) {
                    const Deadline limit = soon();
                    bool was_spoken_of = false;
                    while (!was_spoken_of && !limit.has_passed()) {
                      std::this_thread::yield();
                      const std::lock_guard lock(mutex);
                      was_spoken_of = messages.find(
                                          "rank 0 still waits in gather for rank 1 (host "
                                          "host1") != std::string::npos;
                    }
                    EXPECT_TRUE(was_spoken_of);
                  }
                  (void)gather(plane, 1, "");
                },
                [](ControlPlaneOptions& options) {
                  options.stall_warning = std::chrono::milliseconds(50);
                }),
            no_errors(2));
  set_log_sink(nullptr);
}

TEST(ControlPlaneTest, AMeetingThatStallsIsSpokenOf) {
  std::mutex mutex;
  std::string messages;
  set_log_sink([&](LogSeverity, std::string_view text) {
    const std::lock_guard lock(mutex);
    messages += std::string(text) + "\n";
  });
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  const std::string chief = "127.0.0.1:" + std::to_string(port);
  const auto join = [&](int rank, std::chrono::milliseconds time) {
    ControlPlaneOptions options = options_of(rank, 3, port);
    options.stall_warning = std::chrono::milliseconds(50);
    options.heartbeat_timeout = std::chrono::milliseconds(800);
    EXPECT_THROW((void)ControlPlane::join(options, Deadline::after(time)), DeadlineExceededError);
  };
  join(1, std::chrono::milliseconds(1000));  // nobody is there
  EXPECT_THAT(messages, HasSubstr("rank 1 still waits for the chief (rank 0) at " + chief + ": "));
  {
    const std::jthread other([&] { join(1, std::chrono::milliseconds(4000)); });
    join(0, std::chrono::milliseconds(4000));
  }
  EXPECT_THAT(messages,
              HasSubstr("rank 0 at " + chief + " still waits for 1 of 3 workers: rank 2"));
  EXPECT_THAT(messages,
              HasSubstr("rank 1 still waits for other workers to come to the chief at " + chief));
  set_log_sink(nullptr);
}

/// Speaks to a chief without being a worker.
class Stranger {
 public:
  explicit Stranger(std::uint16_t port) : socket_(io_) {
    const asio::ip::tcp::endpoint chief(asio::ip::address_v4::loopback(), port);
    std::error_code error;
    for (int i = 0; i < 1000; ++i) {  // until it listens
      socket_.close(error);
      socket_.connect(chief, error);
      if (!error) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << error.message();
  }
  void say(std::string_view bytes) {
    std::error_code ignored;
    asio::write(socket_, asio::buffer(bytes), ignored);
  }
  /// Whether the chief has ended the connection; reads what it said before.
  bool is_dismissed() {
    std::error_code error;
    std::array<char, 4096> bytes{};
    while (!error) socket_.read_some(asio::buffer(bytes), error);
    return true;
  }

 private:
  asio::io_context io_;
  asio::ip::tcp::socket socket_;
};

TEST(ControlPlaneTest, StrangersNeitherBlockNorBreakTheMeeting) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  std::thread chief([&] {
    Plane plane = ControlPlane::join(options_of(0, 2, port), soon());
    EXPECT_THAT(gather(plane, 1, "a"), ElementsAre("a", "b"));
  });
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(std::make_unique<Stranger>(port));
  silent[0]->say("GET / HTTP/1.1\r\n\r\n");
  silent[1]->say(std::string(100000, '\xff'));
  silent[2]->say(encode_frame(ControlKind::HELLO, "nonsense"));
  silent[3]->say(encode_frame(ControlKind::EXCHANGE, Exchange{{1, 1}, {}, "x", "y"}.encode()));
  silent[4]->say(std::string("\x10\0\0\0", 4));  // the rest never comes
  silent[5]->say(encode_frame(ControlKind::GOODBYE, ""));
  for (const int dismissed : {0, 1, 2, 3, 5}) {
    EXPECT_TRUE(silent[static_cast<std::size_t>(dismissed)]->is_dismissed());
  }
  Plane plane = ControlPlane::join(options_of(1, 2, port), soon());
  EXPECT_THAT(gather(plane, 1, "b"), ElementsAre("a", "b"));
  plane.reset();
  chief.join();
}

/// Accepts one worker's connection and answers it with bytes of its own.
void pretend_to_be_chief(std::uint16_t port, const std::string& bytes, bool& was_asked) {
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io,
                                   asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), port));
  asio::ip::tcp::socket socket = acceptor.accept();
  std::error_code ignored;
  asio::write(socket, asio::buffer(bytes), ignored);
  std::array<char, 256> answer{};
  was_asked = socket.read_some(asio::buffer(answer), ignored) > 0;
}

TEST(ControlPlaneTest, AnImpostorOfAChiefIsNotBelieved) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  bool has_said_hello = false;
  std::thread impostor([&] {
    Welcome welcome{.cluster_id = 1, .mac = {}};
    pretend_to_be_chief(
        port,
        encode_frame(ControlKind::CHALLENGE, Challenge{.nonce = make_nonce()}.encode()) +
            encode_frame(ControlKind::WELCOME, welcome.encode()) +
            encode_frame(ControlKind::MEMBERS, Members{}.encode()),
        has_said_hello);
  });
  EXPECT_THROW((void)ControlPlane::join(options_of(1, 2, port),
                                        Deadline::after(std::chrono::milliseconds(3000))),
               DeadlineExceededError);
  impostor.join();
  EXPECT_TRUE(has_said_hello);
}

/// The next frame of a connection, which must be there within a minute's patience of whoever sends it.
Frame read_frame(asio::ip::tcp::socket& socket) {
  std::array<char, kFrameHeadBytes> head{};
  asio::read(socket, asio::buffer(head));
  std::string body(decode_frame_head({head.data(), head.size()}, kMaxFrameBytes), '\0');
  asio::read(socket, asio::buffer(body));
  return decode_frame_body(body);
}

void write_frame(asio::ip::tcp::socket& socket, ControlKind kind, const std::string& payload) {
  asio::write(socket, asio::buffer(encode_frame(kind, payload)));
}

TEST(ControlPlaneTest, AWorkerThatWaitsForOthersAnswersItsChief) {
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io,
                                   asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  std::thread worker([port = acceptor.local_endpoint().port()] {
    try {
      (void)ControlPlane::join(options_of(1, 3, port), soon());
      ADD_FAILURE() << "met with nobody";
    } catch (const FailedPreconditionError& error) {
      EXPECT_THAT(error.what(), HasSubstr("enough"));
    }
  });
  asio::ip::tcp::socket socket = acceptor.accept();
  write_frame(socket, ControlKind::CHALLENGE, Challenge{}.encode());
  const Hello hello = Hello::decode(read_frame(socket).payload);
  Welcome welcome{.cluster_id = 1, .mac = {}};
  welcome.mac = welcome.expected_mac("secret", hello.nonce);
  write_frame(socket, ControlKind::WELCOME, welcome.encode());
  for (const std::uint64_t nonce : {77U, 4711U}) {
    write_frame(socket, ControlKind::ASK, Ask{nonce}.encode());
    Frame frame = read_frame(socket);
    while (frame.kind != ControlKind::HEARTBEAT || Heartbeat::decode(frame.payload).answers == 0) {
      frame = read_frame(socket);
    }
    EXPECT_EQ(Heartbeat::decode(frame.payload).answers, nonce);
  }
  write_frame(socket, ControlKind::REFUSED, Refused{.text = "enough"}.encode());
  worker.join();
}

TEST(ControlPlaneTest, AChiefOfAnotherProtocolIsNamedAtOnce) {
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  const std::uint16_t port = acceptor.local_endpoint().port();
  bool has_said_hello = false;
  std::thread chief([&] {  // and so it answers whenever it is asked
    const std::string challenge = Challenge{.protocol = 99, .nonce = make_nonce()}.encode();
    for (std::error_code is_over; !is_over;) {
      asio::ip::tcp::socket socket(io);
      acceptor.accept(socket, is_over);
      std::error_code ignored;
      asio::write(
          socket,
          asio::buffer(encode_frame(ControlKind::CHALLENGE, challenge + "of another layout")),
          ignored);
      std::array<char, 256> answer{};
      has_said_hello = has_said_hello || socket.read_some(asio::buffer(answer), ignored) > 0;
    }
  });
  try {
    (void)ControlPlane::join(options_of(1, 2, port), soon());
    ADD_FAILURE() << "met a chief of another protocol";
  } catch (const FailedPreconditionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the chief at 127.0.0.1:" + std::to_string(port) +
                                        " speaks protocol 99, this worker speaks "));
  }
  ::shutdown(acceptor.native_handle(), SHUT_RDWR);
  chief.join();
  EXPECT_FALSE(has_said_hello);
}

TEST(ControlPlaneTest, WhoIsSilentDoesNotHoldUpTheEndOfACancelledMeeting) {
  const ReservedPort reserved;
  const std::uint16_t port = reserved.number();
  std::atomic<bool> has_ended{false};
  std::thread chief([&] {
    EXPECT_THROW((void)ControlPlane::join(options_of(0, 3, port),
                                          Deadline::after(std::chrono::milliseconds(3000))),
                 DeadlineExceededError);
    has_ended.store(true);
  });
  asio::io_context io;
  asio::ip::tcp::socket socket(io);
  const asio::ip::tcp::endpoint address(asio::ip::address_v4::loopback(), port);
  std::error_code error = asio::error::not_connected;
  while (error && !has_ended.load()) {  // until it listens
    socket.close(error);
    socket.connect(address, error);
    if (error) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // A worker that is stopped as soon as it has come.
  const Challenge challenge = Challenge::decode(read_frame(socket).payload);
  Hello hello;
  hello.library_version = library_version_string();
  hello.num_workers = 3;
  hello.member = {.rank = 1, .host = "host1", .host_id = "machine", .pid = 7};
  hello.mac = hello.expected_mac("secret", challenge.nonce);
  write_frame(socket, ControlKind::HELLO, hello.encode());
  EXPECT_EQ(read_frame(socket).kind, ControlKind::WELCOME);
  // It has been told in the end. Turns are counted, not time: where the machine is busy they take as long as the chief's do.
  while (read_frame(socket).kind != ControlKind::REFUSED) {
  }
  for (int turn = 0; turn < 400 && !has_ended.load(); ++turn) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(has_ended.load());
  chief.join();
}

TEST(ControlPlaneTest, AChiefThatIsLostIsLostOnce) {
  std::atomic<int> num_told{0};
  const auto work = [&](int rank, Plane& plane) {
    if (rank == 0) return;  // it leaves
    const std::shared_ptr<void> listening =
        plane->listen({.on_lost =
                           [&](const RankInfo& member, const std::string&) {
                             EXPECT_EQ(member.rank, 0);
                             num_told.fetch_add(1);
                           },
                       .on_abort = nullptr});
    while (num_told.load() == 0) std::this_thread::yield();
    // For more than one time after which the chief would be found silent.
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    EXPECT_EQ(num_told.load(), 1);
    int num_remembered = 0;
    const std::shared_ptr<void> later =
        plane->listen({.on_lost = [&](const RankInfo&, const std::string&) { ++num_remembered; },
                       .on_abort = nullptr});
    EXPECT_EQ(num_remembered, 1);
  };
  EXPECT_EQ(run_workers(2, work,
                        [](ControlPlaneOptions& options) {
                          options.heartbeat_timeout = std::chrono::milliseconds(300);
                        }),
            no_errors(2));
}

TEST(ControlPlaneTest, ANameThatNobodyAnswersForEndsNoLaterThanTheDeadline) {
  struct Dns {
    std::latch is_asked{1};
    std::latch answers{1};
    std::latch has_answered{1};
  };
  const auto dns = std::make_shared<Dns>();  // its thread outlives the plane
  ControlPlaneOptions options = options_of(1, 2, 1);
  options.chief_address = "a-host-that-is-sought:7";
  options.resolve = [dns](const std::string& host, std::uint16_t port) {
    EXPECT_EQ(host, "a-host-that-is-sought");
    EXPECT_EQ(port, 7);
    dns->is_asked.count_down();
    dns->answers.wait();
    dns->has_answered.count_down();
    return FoundEndpoints{.endpoints = {}, .error = "too late"};
  };
  try {
    (void)ControlPlane::join(options, Deadline::after(std::chrono::milliseconds(200)));
    ADD_FAILURE() << "there is no chief";
  } catch (const DeadlineExceededError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the chief (rank 0) at a-host-that-is-sought:7 did not "
                                        "answer in time: its name could not be resolved yet"));
  }
  // Only now: had join() waited for the answer, it would wait still.
  dns->is_asked.wait();
  dns->answers.count_down();
  dns->has_answered.wait();
}

TEST(ControlPlaneTest, BadOptionsAreRefused) {
  EXPECT_THROW((void)ControlPlane::join(options_of(2, 2, 1), soon()), ValueError);
  EXPECT_THROW((void)ControlPlane::join(options_of(-1, 2, 1), soon()), ValueError);
  ControlPlaneOptions options = options_of(0, 0, 1);
  EXPECT_THROW((void)ControlPlane::join(options, soon()), ValueError);
  options = options_of(1, 2, 1);
  options.chief_address = "nowhere";
  EXPECT_THROW((void)ControlPlane::join(options, soon()), ValueError);
}

}  // namespace
}  // namespace crossdevice::detail
