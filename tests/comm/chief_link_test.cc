// SPDX-License-Identifier: Apache-2.0
// What is said where a worker and its chief do not find each other.
#include "comm/detail/chief_link.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
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
#include "support/log_keeper.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_THAT(log.texts(), HasSubstr("a worker of another machine has no secret"));
}

}  // namespace
}  // namespace crossdevice::detail
