// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/reception.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <asio/connect.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/rand.h>
#include <poll.h>

#include "comm/detail/control_message.h"
#include "comm/detail/wire.h"
#include "support/log_keeper.h"

namespace crossdevice::detail {
namespace {

using asio::ip::tcp;
using ::testing::HasSubstr;

// NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread yet
const bool kSaysAll = ::setenv("CROSSDEVICE_LOG_LEVEL", "info", 1) == 0;  // read once, later

/// While it lives the system has no random bytes.
class NoRandomBytes {
 public:
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  NoRandomBytes() : before_(RAND_get_rand_method()) { RAND_set_rand_method(&kFailing); }
  ~NoRandomBytes() { RAND_set_rand_method(before_); }
#pragma GCC diagnostic pop
  NoRandomBytes(const NoRandomBytes&) = delete;
  NoRandomBytes& operator=(const NoRandomBytes&) = delete;

 private:
  static int fail(unsigned char* /*bytes*/, int /*count*/) { return 0; }
  static constexpr RAND_METHOD kFailing = {nullptr, &fail, nullptr, nullptr, &fail, nullptr};
  const RAND_METHOD* before_;
};

/// How many bytes a stranger gets to read before the end of its connection; those of a whole head are enough.
std::size_t bytes_for_a_stranger(asio::io_context& io, const tcp::endpoint& where) {
  tcp::socket socket(io);
  std::array<char, kFrameHeadBytes> head{};
  std::size_t count = 0;
  bool is_over = false;
  socket.async_connect(where, [&](std::error_code failed) {
    ASSERT_FALSE(failed) << failed.message();
    asio::async_read(socket, asio::buffer(head), [&](std::error_code, std::size_t read) {
      count = read;
      is_over = true;
    });
  });
  while (!is_over && io.run_one() > 0) {
  }
  return count;
}

TEST(ReceptionTest, WhoeverComesWhileThereAreNoRandomBytesIsTurnedAwayAndMayComeAgain) {
  const testing::LogKeeper log;
  asio::io_context io;
  Reception reception(io, [](const auto&, const Nonce&, const Frame&) {});
  tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  const tcp::endpoint where = acceptor.local_endpoint();
  reception.open(std::move(acceptor), "the test");
  {
    const NoRandomBytes none;
    EXPECT_EQ(bytes_for_a_stranger(io, where), 0U);
  }
  EXPECT_NE(log.texts().find("turned away: the system has no random bytes"), std::string::npos);
  EXPECT_EQ(bytes_for_a_stranger(io, where), kFrameHeadBytes);
  reception.close();
}

TEST(ReceptionTest, WhoComesAfterOthersIsTakenInWhenItComesAndNotWhenSomeTimeIsOver) {
  asio::io_context io;
  Reception reception(io, [](const auto&, const Nonce&, const Frame&) {});
  tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  const tcp::endpoint where = acceptor.local_endpoint();
  pollfd door{.fd = acceptor.native_handle(), .events = POLLIN, .revents = 0};
  reception.open(std::move(acceptor), "the test");
  std::vector<tcp::socket> strangers;
  for (std::size_t i = 0; i < 3; ++i) {
    strangers.emplace_back(io, tcp::v4()).connect(where);
    ASSERT_EQ(::poll(&door, 1, 5000), 1);  // it is there to be accepted
    // No timer ends meanwhile unless this process is stopped, which then hides what is looked for here.
    while (io.poll() > 0) {
    }
    EXPECT_NE(strangers.back().available(), 0U) << "of stranger " << i;
  }
  reception.close();
}

std::size_t num_open_files() {
  return static_cast<std::size_t>(std::distance(
      std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

TEST(ReceptionTest, WhoIsRefusedAndDoesNotReadWhyTakesAPlaceLikeOthers) {
  const testing::LogKeeper log;
  asio::io_context io;
  std::size_t num_refused = 0;
  Reception reception(io, [&](const Reception::Connection& stranger, const Nonce&, const Frame&) {
    ++num_refused;
    reception.refuse(stranger, "test", "the test refuses everybody");
    const std::string more_than_fits(std::size_t{1} << 18, 'x');
    stranger->send(encode_frame(ControlKind::REFUSED, more_than_fits));
    stranger->close_after_sending();
  });
  tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  acceptor.set_option(tcp::socket::send_buffer_size(4096));  // and so has who is accepted
  const tcp::endpoint where = acceptor.local_endpoint();
  reception.open(std::move(acceptor), "the test");

  // One after the other, until more have been refused than there are places, however few get so far before they are sent away.
  struct Stranger {
    tcp::socket socket;
    bool has_spoken = false;
  };
  std::list<Stranger> strangers;
  const std::size_t before = num_open_files();
  std::size_t most = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (num_refused < 2 * Reception::kPlaces && std::chrono::steady_clock::now() < end) {
    if (strangers.size() == 3 * Reception::kPlaces) strangers.pop_front();
    tcp::socket& last = strangers.emplace_back(Stranger{tcp::socket(io, tcp::v4())}).socket;
    last.set_option(tcp::socket::receive_buffer_size(4096));
    last.connect(where);
    (void)io.run_for(std::chrono::milliseconds(1));
    for (Stranger& each : strangers) {
      std::error_code ended;
      if (each.has_spoken || each.socket.available(ended) == 0) continue;
      each.has_spoken = true;  // to the challenge
      asio::write(each.socket, asio::buffer(encode_frame(ControlKind::HELLO, "")), ended);
    }
    most = std::max(most, num_open_files() - strangers.size());
  }
  EXPECT_GE(num_refused, 2 * Reception::kPlaces);
  EXPECT_GT(most, before);
  EXPECT_LE(most, before + Reception::kPlaces);
  reception.close();
}

/// A reception that lets nobody in, and whoever comes to it.
class DoorTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kSaysAll);
    if (*GetParam() != '\0') key_ = TlsKey::make(GetParam());
    tcp::acceptor acceptor(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    where_ = acceptor.local_endpoint();
    door_ = {.fd = acceptor.native_handle(), .events = POLLIN, .revents = 0};
    reception_.open(std::move(acceptor), "the test", kMaxStrangerFrameBytes, key_);
  }
  /// Whether it holds within a minute.
  bool await(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition() && std::chrono::steady_clock::now() < end) {
      io_.restart();
      (void)io_.run_one_for(std::chrono::milliseconds(10));
    }
    return condition();
  }
  /// Connects as one of the job does, and has heard the challenge.
  std::shared_ptr<ControlConnection> visit() {
    tcp::socket socket(io_, tcp::v4());
    socket.connect(where_);
    auto visitor =
        std::make_shared<ControlConnection>(std::move(socket), key_, TlsChannel::Role::DIALLER);
    const auto has_heard = std::make_shared<bool>(false);
    visitor->start(
        [has_heard](const Frame& frame) { *has_heard = frame.kind == ControlKind::CHALLENGE; },
        [](const std::string&) {});
    EXPECT_TRUE(await([&] { return *has_heard; }));
    return visitor;
  }
  /// As somebody does who knows nothing of the job, but waits until it is spoken to. What it hears is read: else its end would be a reset, before which its words
  /// may be lost.
  tcp::socket begin(std::string_view words) {
    tcp::socket socket(io_, tcp::v4());
    socket.connect(where_);
    EXPECT_TRUE(await([&] { return socket.available() != 0; }));
    std::string heard(socket.available(), '\0');
    asio::read(socket, asio::buffer(heard));
    asio::write(socket, asio::buffer(words));
    return socket;
  }
  [[nodiscard]] std::size_t times_said(std::string_view part) const {
    const std::string all = log_.texts();
    std::size_t times = 0;
    for (std::size_t at = all.find(part); at != std::string::npos; at = all.find(part, at + 1)) {
      ++times;
    }
    return times;
  }

  const testing::LogKeeper log_;
  asio::io_context io_;
  std::shared_ptr<const TlsKey> key_;
  Reception reception_{
      io_, [](const auto&, const Nonce&, const Frame&) { throw WireError("nobody may come in"); }};
  tcp::endpoint where_;
  pollfd door_{};  // the socket that listens
};

INSTANTIATE_TEST_SUITE_P(Plain, DoorTest, ::testing::Values(""));
INSTANTIATE_TEST_SUITE_P(Encrypted, DoorTest, ::testing::Values("what nobody else knows"));

TEST_P(DoorTest, WhoGoesWithoutAWordIsNamedOnceAndIsNoWarning) {
  for (int i = 0; i < 3; ++i) {
    visit()->close();
    EXPECT_TRUE(await([&] { return !reception_.has_strangers(); }));
  }
  EXPECT_EQ(times_said("the test had a visit from 127.0.0.1 (port "), 1U) << log_.texts();
  EXPECT_THAT(log_.texts(), HasSubstr("it came and went without a word"));
  EXPECT_EQ(log_.warnings(), "");
}

TEST_P(DoorTest, WhoHasSaidNothingWhenItClosesIsNoWarning) {
  const std::shared_ptr<ControlConnection> visitor = visit();
  reception_.close();
  EXPECT_EQ(times_said("the test had a visit from 127.0.0.1 (port "), 1U) << log_.texts();
  EXPECT_THAT(log_.texts(), HasSubstr("it had not said who it is when the door was closed"));
  EXPECT_EQ(log_.warnings(), "");
  visitor->close();
}

/// However much of it comes at once.
TEST_P(DoorTest, WhoSaysNonsenseAndGoesIsRefused) {
  const std::string nonsense = encode_frame(ControlKind::GOODBYE, "") + std::string(600, 'x');
  for (const std::size_t size : {1U, 4U, 5U, 6U, 600U}) {
    begin(nonsense.substr(0, size)).close();
    EXPECT_TRUE(await([&] { return !reception_.has_strangers(); }));
    EXPECT_EQ(times_said("the test refused a connection from 127.0.0.1 (port "), 1U) << size;
  }
  EXPECT_EQ(times_said("had a visit"), 0U);
}

/// What is no TLS: who begins that is told by a plain door that it is not spoken there (tls_wire_test.cc).
TEST_P(DoorTest, WhoSpeaksBeforeItIsSpokenToIsSentAwayUnheard) {
  if (key_) GTEST_SKIP() << "with TLS whoever comes speaks first";
  for (const std::string& words :
       {std::string("\0", 1), std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\x16\x03"),
        encode_frame(ControlKind::HELLO, "hello")}) {
    tcp::socket socket(io_, tcp::v4());
    socket.connect(where_);
    asio::write(socket, asio::buffer(words));
    std::error_code ended;
    std::array<char, 16> heard{};
    socket.non_blocking(true);
    EXPECT_TRUE(await([&] {
      EXPECT_EQ(socket.read_some(asio::buffer(heard), ended), 0U) << words;
      return ended != asio::error::would_block;
    }));
    EXPECT_FALSE(reception_.has_strangers());
  }
  EXPECT_EQ(times_said("the test refused a connection from 127.0.0.1 (port "), 1U) << log_.texts();
  EXPECT_THAT(log_.texts(), HasSubstr("it spoke before it was spoken to"));
}

/// Else each would be greeted when it connects, as WhoComesAfterOthersIsTakenInWhenItComes... sees, before it has spoken.
TEST_P(DoorTest, AfterNonsenseWhoComesIsTakenInALittleLater) {
  if (key_) GTEST_SKIP() << "with TLS nobody is sent away unheard";
  begin("nonsense").close();
  EXPECT_TRUE(await([&] { return !reception_.has_strangers(); }));
  std::size_t num_unheard = 0;
  for (int i = 0; i < 10; ++i) {  // one may come just when the door looks
    tcp::socket socket(io_, tcp::v4());
    socket.connect(where_);
    ASSERT_EQ(::poll(&door_, 1, 5000), 1);  // it is there to be accepted
    while (io_.poll() > 0) {
    }
    asio::write(socket, asio::buffer("nonsense", 8));
    socket.non_blocking(true);
    std::size_t num_heard = 0;
    std::error_code ended;
    EXPECT_TRUE(await([&] {
      std::array<char, 64> heard{};
      num_heard += socket.read_some(asio::buffer(heard), ended);
      return ended && ended != asio::error::would_block;
    }));
    if (num_heard == 0) ++num_unheard;
  }
  EXPECT_GT(num_unheard, 0U);
  visit()->close();  // and one of the job comes in
}

/// Handlers of Asio's run where a socket that nobody waits at is looked at: io_context::poll() counts them.
TEST_P(DoorTest, AfterNonsenseWhoComesWakesNobody) {
  begin("nonsense").close();
  EXPECT_TRUE(await([&] { return !reception_.has_strangers(); }));
  visit()->close();  // the door was still waiting when this one came
  EXPECT_TRUE(await([&] { return !reception_.has_strangers(); }));
  asio::io_context elsewhere;
  bool has_slept = false;
  for (int i = 0; i < 10 && !has_slept; ++i) {  // its timer may end just then
    while (io_.poll() > 0) {
    }
    tcp::socket socket(elsewhere, tcp::v4());
    socket.connect(where_);
    ASSERT_EQ(::poll(&door_, 1, 5000), 1);
    has_slept = io_.poll() == 0;
    EXPECT_TRUE(await([&] { return socket.available() != 0 || key_; }));
  }
  EXPECT_TRUE(has_slept);
}

TEST_P(DoorTest, ADoorThatWaitsForNobodyClosesLikeOthers) {
  const std::size_t before = num_open_files();  // with the one that listens
  begin("nonsense").close();
  EXPECT_TRUE(await([&] { return !reception_.has_strangers(); }));
  visit()->close();
  EXPECT_TRUE(await([&] { return !reception_.has_strangers(); }));
  reception_.close();
  EXPECT_TRUE(await([&] { return num_open_files() < before; }));
  tcp::socket late(io_, tcp::v4());
  std::error_code refused;
  late.connect(where_, refused);
  EXPECT_EQ(refused, asio::error::connection_refused);
}

TEST_P(DoorTest, WhoHasGoneBeforeItIsLookedAtHasBeenHere) {
  tcp::socket socket(io_, tcp::v4());
  socket.connect(where_);
  socket.close();
  EXPECT_TRUE(await([&] { return times_said("the test had a visit from 127.0.0.1 (port ") == 1; }))
      << log_.texts();
  EXPECT_FALSE(reception_.has_strangers());
  EXPECT_EQ(log_.warnings(), "");
}

TEST_P(DoorTest, WhoHasBegunAndWaitsIsRefusedWhenItCloses) {
  const std::vector<std::string> words = {
      key_ ? std::string("\x16\x03\x01", 3) : std::string("\x10\0", 2),
      key_ ? std::string("\x16") : encode_frame(ControlKind::HELLO, "hello").substr(0, 7)};
  std::vector<tcp::socket> strangers;
  strangers.reserve(words.size());
  for (const std::string& each : words) strangers.push_back(begin(each));
  // So that they have had the time for more; and not so long that they are late.
  const auto end = std::chrono::steady_clock::now() + StrangerPlaces::kLongestStay;
  EXPECT_TRUE(await([&] { return std::chrono::steady_clock::now() > end; }));
  if (log_.warnings().find("within 5 s") != std::string::npos) {
    GTEST_SKIP() << "this process was held up for so long that their time was over";
  }
  reception_.close();
  EXPECT_EQ(times_said("the test refused a connection from 127.0.0.1 (port "), 1U) << log_.texts();
  EXPECT_THAT(log_.warnings(),
              HasSubstr("it had only begun to say who it is when the door was closed"));
  EXPECT_EQ(times_said("had a visit"), 0U);
}

}  // namespace
}  // namespace crossdevice::detail
