// SPDX-License-Identifier: Apache-2.0
// What is said where a worker and its chief do not find each other.
#include "comm/detail/chief_link.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"

#include "comm/detail/control_plane.h"
#include "comm/detail/host_port.h"
#include "comm/detail/listening_socket.h"
#include "comm/detail/local_addresses.h"
#include "support/control_plane_options.h"
#include "support/frame_speaker.h"
#include "support/log_keeper.h"

namespace crossdevice::detail {
namespace {

using testing::FrameSpeaker;
using ::testing::HasSubstr;
using testing::SpeakersAddress;

/// An address whose host drops whatever comes, as the kernel does where nobody takes in those that wait.
class SilentHost {
 public:
  SilentHost() {
    acceptor_.open(asio::ip::tcp::v4());
    acceptor_.bind({asio::ip::address_v4::loopback(), 0});
    acceptor_.listen(0);
    for (int i = 0; i < 4; ++i) {
      waiting_.emplace_back(io_, asio::ip::tcp::v4());
      waiting_.back().async_connect(acceptor_.local_endpoint(), [](std::error_code) {});
    }
  }
  [[nodiscard]] std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

 private:
  asio::io_context io_;
  asio::ip::tcp::acceptor acceptor_{io_};
  std::vector<asio::ip::tcp::socket> waiting_;
};

TEST(ChiefLinkTest, AChiefThatDoesNotAnswerIsSaidToBeSilent) {
  const SilentHost silent;
  // In the longer time an attempt ends, which is given up after 3 s.
  for (const int milliseconds : {2000, 5000}) {
    for (const char* host : {"127.0.0.1", "a-host-that-is-down"}) {
      ControlPlaneOptions options = options_of(1, 2, 1);
      options.chief_address = std::string(host) + ":" + std::to_string(silent.port());
      options.resolve = [](const std::string&, std::uint16_t port) {
        return FoundEndpoints{.endpoints = {{asio::ip::address_v4::loopback(), port}}, .error = ""};
      };
      try {
        (void)ControlPlane::join(options, Deadline::after(std::chrono::milliseconds(milliseconds)));
        ADD_FAILURE() << "there is no chief";
      } catch (const DeadlineExceededError& error) {
        EXPECT_THAT(error.what(),
                    HasSubstr("did not answer in time: no answer to the connection attempts: the "
                              "host is down, or a firewall drops them"));
      }
    }
  }
}

TEST(ChiefLinkTest, AChiefThatSaysNothingIsSaidToTakeConnections) {
  asio::io_context io;
  const asio::ip::tcp::acceptor silent(io, {asio::ip::address_v4::loopback(), 0});
  try {
    (void)ControlPlane::join(options_of(1, 2, silent.local_endpoint().port()),
                             Deadline::after(std::chrono::seconds(3)));
    ADD_FAILURE() << "there is no chief";
  } catch (const DeadlineExceededError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did not answer in time: it takes connections, but does "
                                        "not say who it is"));
  }
}

TEST(ChiefLinkTest, AChiefSaysThatItsAddressIsNotOfThisMachine) {
  for (const char* host : {"203.0.113.7", "127.0.0.1", "a-name"}) {
    ControlPlaneOptions options = options_of(0, 2, 1);
    const std::shared_ptr<ListeningSocket> listener =
        ListeningSocket::open("127.0.0.1", 0, "the chief");
    options.listener = listener;
    options.chief_address = std::string(host) + ":" + std::to_string(listener->port());
    try {
      (void)ControlPlane::join(options, Deadline::after(std::chrono::milliseconds(50)));
      ADD_FAILURE() << "nobody else is there";
    } catch (const DeadlineExceededError& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find("(this machine has no address 203.0.113.7") != std::string::npos,
                *host == '2')
          << text;
    }
  }
}

TEST(ChiefLinkTest, AWorkerOfAnotherMachineWithoutASecretTellsTheChiefThatItGoes) {
  const std::vector<std::string> own = select_addresses(interface_addresses(), "");
  if (own.empty()) GTEST_SKIP() << "this machine has no address but loopback's";
  const testing::LogKeeper log;
  const std::shared_ptr<ListeningSocket> listener = ListeningSocket::open(own[0], 0, "the chief");
  ControlPlaneOptions options = options_of(0, 2, 1);
  options.chief_address = join_host_port(own[0], listener->port());
  options.listener = listener;
  std::jthread chief([options] {
    const Deadline limit = Deadline::after(std::chrono::seconds(8));
    EXPECT_THROW((void)ControlPlane::join(options, limit), DeadlineExceededError);
  });
  options.rank = 1;
  options.listener.reset();
  options.secret.clear();
  EXPECT_THROW((void)ControlPlane::join(options, Deadline::after(std::chrono::seconds(60))),
               FailedPreconditionError);
  chief.join();
  EXPECT_THAT(log.texts(), HasSubstr("a worker that did not come over loopback has no secret"));
}

/// Where a chief is sought and somebody else is found.
class Impostor {
 public:
  /// `speak`: to whoever connects, with its number.
  explicit Impostor(std::function<void(const FrameSpeaker&, int)> speak)
      : thread_([this, speak = std::move(speak)] {
          for (int number = 0;; ++number) {
            const std::unique_ptr<FrameSpeaker> speaker = address_.accept();
            if (!speaker) return;
            speak(*speaker, number);
            while (speaker->hear().has_value()) {  // so that the worker is the first to go
            }
          }
        }) {}
  ~Impostor() { address_.stop(); }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;
  [[nodiscard]] std::uint16_t port() const { return address_.port(); }

 private:
  const SpeakersAddress address_;
  std::jthread thread_;
};

/// As whoever has read the source of this would.
void refuse(const FrameSpeaker& speaker, StatusCode code, const std::string& text) {
  speaker.say(ControlKind::CHALLENGE, Challenge{.nonce = make_nonce()}.encode());
  (void)speaker.hear();
  speaker.say(ControlKind::REFUSED, Refused{.code = code, .text = text}.encode());
}

std::string deadline_error(const ControlPlaneOptions& options, std::chrono::milliseconds time) {
  try {
    (void)ControlPlane::join(options, Deadline::after(time));
  } catch (const DeadlineExceededError& error) {
    return error.what();
  }
  return "it has met";
}

TEST(ChiefLinkTest, WhoRefusesWithoutAProofIsQuotedAtTheDeadline) {
  const Impostor impostor([](const FrameSpeaker& speaker, int number) {
    if (number % 2 == 0) return refuse(speaker, StatusCode::INTERNAL, "it\nis over");
    // Before anything was asked.
    speaker.say(ControlKind::REFUSED,
                Refused{.code = StatusCode::INTERNAL, .text = "it\nis over"}.encode());
  });
  EXPECT_THAT(deadline_error(options_of(1, 2, impostor.port()), std::chrono::seconds(5)),
              HasSubstr("did not answer in time: it refuses without a proof that it holds the "
                        "secret of this job, and says: it?is over"));
}

TEST(ChiefLinkTest, AStrangerThatRefusesAndGoesEndsNoMeeting) {
  std::uint16_t port = 0;
  std::thread worker;
  {
    std::latch have_come(4);
    const Impostor impostor([&](const FrameSpeaker& speaker, int number) {
      refuse(speaker, StatusCode::INTERNAL, number % 2 == 0 ? "it is over" : kDifferentSecrets);
      if (number < 4) have_come.count_down();
    });
    port = impostor.port();
    worker = std::thread([port] {
      EXPECT_EQ(ControlPlane::join(options_of(1, 2, port), Deadline::after(std::chrono::minutes(1)))
                    ->members()
                    .size(),
                2U);
    });
    have_come.wait();
  }
  const auto chief =
      ControlPlane::join(options_of(0, 2, port), Deadline::after(std::chrono::minutes(1)));
  worker.join();
}

TEST(ChiefLinkTest, WhoseMembersHaveMetBelievesNobodyThatTheyDoNotFit) {
  const Impostor impostor([](const FrameSpeaker& speaker, int number) {
    if (number % 2 == 0) {
      return refuse(speaker, StatusCode::FAILED_PRECONDITION, kDifferentSecrets);
    }
    speaker.say(ControlKind::CHALLENGE, Challenge{.protocol = 99}.encode());
  });
  ControlPlaneOptions options = options_of(1, 2, impostor.port());
  options.job = 7;
  options.epoch = 2;
  EXPECT_THAT(deadline_error(options, std::chrono::milliseconds(3500)),
              HasSubstr("did not answer in time: "));
}

TEST(ChiefLinkTest, AWelcomeToAnEarlierConnectionIsWorthNothing) {
  Welcome welcome{.cluster_id = 7};
  std::optional<bool> is_believed;
  {
    const Impostor impostor([&](const FrameSpeaker& speaker, int number) {
      if (number == 0) {  // what it hears of the chief and keeps from the worker
        speaker.say(ControlKind::CHALLENGE, Challenge{.nonce = make_nonce()}.encode());
        const Nonce nonce = Hello::decode(speaker.hear(ControlKind::HELLO).value()).nonce;
        welcome.mac = welcome.expected_mac("secret", nonce);
        speaker.say(ControlKind::GOODBYE, "");
      } else if (!is_believed.has_value()) {
        speaker.say(ControlKind::WELCOME, welcome.encode());
        is_believed = speaker.hear().has_value();  // a heartbeat
      }
    });
    ControlPlaneOptions options = options_of(1, 2, impostor.port());
    options.heartbeat_timeout = std::chrono::milliseconds(800);
    EXPECT_THAT(deadline_error(options, std::chrono::seconds(5)),
                HasSubstr("did not answer in time"));
  }
  EXPECT_EQ(is_believed, false);
}

}  // namespace
}  // namespace crossdevice::detail
