// SPDX-License-Identifier: Apache-2.0
// The chief's door, over real connections but on one thread: workers here are connections that say what a test makes them say, one step after the other.
#include "comm/detail/chief_service.h"

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/write.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/version.h"

#include "comm/detail/host_port.h"
#include "comm/detail/listening_socket.h"
#include "comm/detail/local_addresses.h"
#include "support/log_keeper.h"
#include "support/without_descriptors.h"

namespace crossdevice::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kNumWorkers = 3;
constexpr const char* kSecret = "the secret";

class Client {
 public:
  explicit Client(std::uint16_t port, const std::string& host = "127.0.0.1") : socket_(io_) {
    socket_.connect({asio::ip::make_address(host), port});
    socket_.non_blocking(true);
  }
  void say(ControlKind kind, const std::string& payload) {
    std::error_code ignored;
    asio::write(socket_, asio::buffer(encode_frame(kind, payload)), ignored);
  }
  void close() { socket_.close(); }
  /// What has come.
  void listen() {
    std::array<char, 4096> piece{};
    std::error_code error;
    while (socket_.is_open() && !error) {
      heard_.append(piece.data(), socket_.read_some(asio::buffer(piece), error));
    }
    has_ended_ = has_ended_ || (error && error != asio::error::would_block);
  }
  /// The next frame that is whole, but for heartbeats.
  std::optional<Frame> next() {
    while (heard_.size() >= kFrameHeadBytes) {
      const std::size_t size = decode_frame_head(heard_.substr(0, kFrameHeadBytes), kMaxFrameBytes);
      if (heard_.size() < kFrameHeadBytes + size) break;
      Frame frame = decode_frame_body(heard_.substr(kFrameHeadBytes, size));
      heard_.erase(0, kFrameHeadBytes + size);
      if (frame.kind != ControlKind::HEARTBEAT) return frame;
    }
    return std::nullopt;
  }
  [[nodiscard]] bool has_ended() const { return has_ended_; }

 private:
  asio::io_context io_;
  asio::ip::tcp::socket socket_;
  std::string heard_;
  bool has_ended_ = false;
};

class ChiefServiceTest : public ::testing::Test {
 protected:
  /// Who does not answer loses its rank after half of `heartbeat_timeout`, or a second.
  void open(std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(60)) {
    const std::shared_ptr<ListeningSocket> listener = ListeningSocket::open(host_, 0, "the chief");
    port_ = listener->port();
    options_.num_workers = kNumWorkers;
    options_.chief_address = join_host_port(host_, port_);
    options_.listener = listener;
    options_.secret = secret_;
    options_.heartbeat_timeout = heartbeat_timeout;
    service_.emplace(io_, options_, MemberInfo{.rank = 0, .host = "h", .host_id = "i", .pid = 1},
                     [](const Frame&) {});
    service_->open();
  }

  /// Lets the chief run until that holds.
  template <class Condition>
  [[nodiscard]] bool await(Condition condition) {
    const Deadline limit = Deadline::after(std::chrono::seconds(60));
    while (!condition()) {
      if (limit.has_passed()) return false;
      (void)io_.run_one_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  std::optional<Frame> hear(Client& client) {
    std::optional<Frame> frame;
    (void)await([&] {
      client.listen();
      frame = client.next();
      return frame.has_value() || client.has_ended();
    });
    return frame;
  }
  /// What the next frame says, which must be of that kind.
  std::string hear(Client& client, ControlKind kind) {
    const std::optional<Frame> frame = hear(client);
    EXPECT_TRUE(frame.has_value())
        << "not a word, where kind " << static_cast<int>(kind) << " is due";
    if (!frame.has_value()) return "";
    EXPECT_EQ(frame->kind, kind);
    return frame->kind == kind ? frame->payload : "";
  }
  std::string refusal(Client& client) {
    return Refused::decode(hear(client, ControlKind::REFUSED)).text;
  }
  /// Whether that refusal is one of whoever holds the secret, for the hello of claim().
  bool is_refused_with_proof(Client& client) {
    const Refused refused = Refused::decode(hear(client, ControlKind::REFUSED));
    const bool is_proved = refused.mac == refused.expected_mac(secret_, Nonce{7});
    EXPECT_TRUE(is_proved || refused.mac == Mac{});
    return is_proved;
  }
  bool is_dismissed(Client& client) {
    return await([&] {
      client.listen();
      return client.has_ended();
    });
  }
  /// One that has said who it is.
  std::unique_ptr<Client> claim(int rank, std::int64_t pid, const char* secret = kSecret) {
    auto client = std::make_unique<Client>(port_);
    const Nonce challenge = Challenge::decode(hear(*client, ControlKind::CHALLENGE)).nonce;
    Hello hello;
    hello.library_version = library_version_string();
    hello.num_workers = kNumWorkers;
    hello.member = {.rank = rank, .host = "h", .host_id = "i", .pid = pid};
    hello.nonce = Nonce{7};
    hello.mac = hello.expected_mac(secret, challenge);
    client->say(ControlKind::HELLO, hello.encode());
    return client;
  }
  /// One that is in.
  std::unique_ptr<Client> come(int rank, std::int64_t pid) {
    std::unique_ptr<Client> client = claim(rank, pid);
    (void)hear(*client, ControlKind::WELCOME);
    return client;
  }
  std::uint64_t nonce_of_question(Client& holder) {
    return Ask::decode(hear(holder, ControlKind::ASK)).nonce;
  }
  void expect_met(Client& client, std::int64_t pid_of_rank_1) {
    const Members members = Members::decode(hear(client, ControlKind::MEMBERS));
    EXPECT_EQ(members.members.at(1).pid, pid_of_rank_1);
  }

  asio::io_context io_{1};
  std::string secret_ = kSecret;
  std::string host_ = "127.0.0.1";
  ControlPlaneOptions options_;
  std::uint16_t port_ = 0;
  std::optional<ChiefService> service_;
};

TEST_F(ChiefServiceTest, ARestartedWorkerGetsTheRankOfItsPredecessorThatDoesNotAnswer) {
  open(std::chrono::milliseconds(200));
  const auto dead = come(1, 100);  // its end is not noticed: its machine has lost its power
  const auto restarted = claim(1, 200);
  EXPECT_NE(nonce_of_question(*dead), 0U);
  (void)hear(*restarted, ControlKind::WELCOME);
  EXPECT_TRUE(is_dismissed(*dead));
  const auto last = come(2, 300);
  expect_met(*restarted, 200);
  expect_met(*last, 200);
}

TEST_F(ChiefServiceTest, WhoAnswersTheQuestionKeepsItsRankAndNothingElseDoes) {
  open();
  const auto holder = come(1, 100);
  const auto claimant = claim(1, 200);
  const std::uint64_t nonce = nonce_of_question(*holder);
  holder->say(ControlKind::HEARTBEAT, Heartbeat{"", nonce}.encode());
  EXPECT_THAT(refusal(*claimant),
              HasSubstr("host h, pid 200 claims rank 1, which host h, pid 100 holds already"));
  EXPECT_TRUE(is_dismissed(*claimant));
  // An answer to an earlier question, and a heartbeat that answers nothing, are none.
  const auto another = claim(1, 201);
  EXPECT_NE(nonce_of_question(*holder), nonce);
  holder->say(ControlKind::HEARTBEAT, Heartbeat{"", nonce}.encode());
  holder->say(ControlKind::HEARTBEAT, Heartbeat{}.encode());
  (void)hear(*another, ControlKind::WELCOME);
  const auto last = come(2, 300);
  expect_met(*last, 201);
}

TEST_F(ChiefServiceTest, TheChiefsOwnRankIsNotContested) {
  open();
  for (const std::int64_t pid : {200, 1}) {
    const auto claimant = claim(0, pid);
    EXPECT_THAT(refusal(*claimant), HasSubstr("claims rank 0, which host h, pid 1 holds already"));
  }
}

TEST_F(ChiefServiceTest, WhoseConnectionWasCutComesAgainBeforeItsEndIsNoticed) {
  open();
  const auto before = come(1, 100);
  const auto again = come(1, 100);  // nobody is asked
  EXPECT_TRUE(is_dismissed(*before));
  const auto last = come(2, 300);
  expect_met(*again, 100);
  expect_met(*last, 100);
}

TEST_F(ChiefServiceTest, WhoComesAgainWhenAllHaveComeIsToldThatItWasGivenUp) {
  open();
  const auto before = come(1, 100);
  const auto last = come(2, 300);
  expect_met(*last, 100);
  const auto again = come(1, 100);  // it has not heard that
  expect_met(*again, 100);
  EXPECT_THAT(Abort::decode(hear(*again, ControlKind::ABORT)).text, HasSubstr("gave rank 1 up"));
  EXPECT_TRUE(is_dismissed(*again));
  // The hello may be older than the connection that is there.
  expect_met(*before, 100);
  EXPECT_FALSE(before->has_ended());
  before->close();
  EXPECT_EQ(MemberLost::decode(hear(*last, ControlKind::MEMBER_LOST)).rank, 1);
  // Another process has no such place.
  const auto another = claim(1, 101);
  EXPECT_THAT(refusal(*another), HasSubstr("pid 100 has held before"));
}

TEST_F(ChiefServiceTest, AHolderThatComesAgainKeepsItsRank) {
  open();
  const auto before = come(1, 100);
  const auto claimant = claim(1, 200);
  (void)nonce_of_question(*before);
  const auto again = come(1, 100);  // that it lives is proved
  EXPECT_THAT(refusal(*claimant), HasSubstr("pid 100 holds already"));
  const auto last = come(2, 300);
  expect_met(*again, 100);
  expect_met(*last, 100);
}

TEST_F(ChiefServiceTest, ARankIsContestedByOneAtATime) {
  open();
  const auto holder = come(1, 100);
  const auto first = claim(1, 200);
  const std::uint64_t nonce = nonce_of_question(*holder);
  const auto second = claim(1, 201);
  EXPECT_THAT(refusal(*second),
              HasSubstr("host h, pid 201 claims rank 1, which host h, pid 200 claims already"));
  // The first one loses its connection, and comes again.
  const auto again = claim(1, 200);
  EXPECT_TRUE(is_dismissed(*first));
  holder->say(ControlKind::HEARTBEAT, Heartbeat{"", nonce}.encode());
  EXPECT_THAT(refusal(*again), HasSubstr("pid 100 holds already"));
}

TEST_F(ChiefServiceTest, AClaimantThatSpeaksOrGoesClaimsNothingAnyMore) {
  open();
  const auto holder = come(1, 100);
  const auto talker = claim(1, 200);
  const std::uint64_t nonce = nonce_of_question(*holder);
  talker->say(ControlKind::ABORT, Abort{1, "it is over"}.encode());
  EXPECT_TRUE(is_dismissed(*talker));
  const auto leaver = claim(1, 201);
  const std::uint64_t second = nonce_of_question(*holder);
  EXPECT_NE(second, nonce);
  leaver->close();
  holder->say(ControlKind::HEARTBEAT, Heartbeat{"", second}.encode());
  const auto last = come(2, 300);
  expect_met(*holder, 100);
}

TEST_F(ChiefServiceTest, AHolderThatGoesLeavesItsRankToTheClaimant) {
  open();
  auto holder = come(1, 100);
  const auto claimant = claim(1, 200);
  (void)nonce_of_question(*holder);
  holder->say(ControlKind::GOODBYE, "");
  (void)hear(*claimant, ControlKind::WELCOME);
  const auto last = come(2, 300);
  expect_met(*claimant, 200);
}

TEST_F(ChiefServiceTest, ThatAWorkerCameAndWentIsSaidAtOnceAndAtTheDeadline) {
  const testing::LogKeeper log;
  open();
  auto dead = come(1, 100);
  dead->close();
  EXPECT_TRUE(await([&] {
    return log.texts().find("rank 1 came and went before all of 3 workers had come") !=
           std::string::npos;
  }));
  const std::optional<Refused> refused = service_->cancel_meeting();
  ASSERT_TRUE(refused.has_value());
  EXPECT_THAT(refused->text, HasSubstr("1 of 3 workers did not come in time"));
  EXPECT_THAT(refused->text, HasSubstr("came and went: rank 1 (host h, pid 100): its connection"));
  ASSERT_EQ(refused->culprits.size(), 2U);
  EXPECT_EQ(refused->culprits[0].rank, 1);
  EXPECT_EQ(refused->culprits[1].rank, 2);
}

TEST_F(ChiefServiceTest, AChiefThatCannotTakeInWhoComesIsToBlameItself) {
  if (!testing::can_do_without_descriptors()) GTEST_SKIP() << "a sanitizer needs descriptors";
  open();
  const auto first = come(1, 100);
  Client last(port_);  // waits in the kernel
  std::optional<Refused> refused;
  {
    const testing::WithoutDescriptors limit;
    int turns = 0;
    ASSERT_TRUE(await([&] { return ++turns > 100; }));
    refused = service_->cancel_meeting();
  }
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused->text, HasSubstr("1 of 3 workers did not come in time"));
  EXPECT_THAT(refused->text, HasSubstr("the chief cannot take in who comes: Too many open files"));
  ASSERT_EQ(refused->culprits.size(), 1U);
  EXPECT_EQ(refused->culprits[0].rank, 0);
  EXPECT_EQ(Refused::decode(hear(*first, ControlKind::REFUSED)).code,
            StatusCode::RESOURCE_EXHAUSTED);
}

/// As they do who have chosen an epoch.
TEST_F(ChiefServiceTest, WhereAllComeAtOnceAChiefThatCannotTakeThemInEndsTheMeetingAtABeat) {
  if (!testing::can_do_without_descriptors()) GTEST_SKIP() << "a sanitizer needs descriptors";
  for (const std::uint64_t epoch : {2U, 1U}) {
    options_.epoch = epoch;
    open();
    Client waiting(port_);
    const testing::WithoutDescriptors limit;
    int turns = 0;
    ASSERT_TRUE(await([&] { return ++turns > 100; }));
    const auto next = service_->beat(/*was_asleep=*/false);
    EXPECT_FALSE(service_->is_cancelled());  // there may be some in a moment
    if (epoch == 1) {
      EXPECT_EQ(next, std::chrono::steady_clock::time_point::max());
      continue;
    }
    ASSERT_TRUE(await([&] { return std::chrono::steady_clock::now() >= next; }));
    (void)service_->beat(/*was_asleep=*/false);
    EXPECT_TRUE(service_->is_cancelled());
    EXPECT_TRUE(service_->is_anybody_in_doubt());  // who waits is still to be told
  }
}

TEST_F(ChiefServiceTest, AChiefThatCouldNotTakeInWhoCameAndCanAgainIsNotToBlame) {
  if (!testing::can_do_without_descriptors()) GTEST_SKIP() << "a sanitizer needs descriptors";
  open();
  Client stranger(port_);
  {
    const testing::WithoutDescriptors limit;
    int turns = 0;
    ASSERT_TRUE(await([&] { return ++turns > 100; }));
  }
  (void)hear(stranger, ControlKind::CHALLENGE);
  const std::optional<Refused> refused = service_->cancel_meeting();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(refused->culprits.size(), 2U);
}

TEST_F(ChiefServiceTest, AClaimantHearsThatAllHaveCome) {
  open();
  const auto holder = come(1, 100);
  const auto claimant = claim(1, 200);
  (void)nonce_of_question(*holder);
  const auto last = come(2, 300);
  EXPECT_THAT(refusal(*claimant), HasSubstr("which host h, pid 100 holds already"));
  expect_met(*holder, 100);
  EXPECT_TRUE(is_dismissed(*claimant));
}

TEST_F(ChiefServiceTest, AClaimantHearsThatTheMeetingIsOver) {
  open();
  const auto holder = come(1, 100);
  const auto claimant = claim(1, 200);
  (void)nonce_of_question(*holder);
  ASSERT_TRUE(service_->cancel_meeting().has_value());
  EXPECT_THAT(refusal(*claimant), HasSubstr("1 of 3 workers did not come in time"));
  EXPECT_TRUE(await([&] { return !service_->is_anybody_in_doubt(); }));
  EXPECT_TRUE(is_dismissed(*claimant));
}

TEST_F(ChiefServiceTest, WhoSpeaksAnotherProtocolIsToldSoWhateverItsWordsLookLike) {
  open();
  Client old(port_);
  (void)hear(old, ControlKind::CHALLENGE);
  old.say(ControlKind::HELLO, std::string("\3\0\0\0and words of another layout", 31));
  EXPECT_THAT(refusal(old), HasSubstr("this worker speaks protocol 3, the chief at 127.0.0.1:"));
  EXPECT_TRUE(is_dismissed(old));
}

TEST_F(ChiefServiceTest, AWorkerOfAnotherMachineWithoutASecretIsSpokenOfAtOnce) {
  const std::vector<std::string> own = select_addresses(interface_addresses(), "");
  if (own.empty()) GTEST_SKIP() << "this machine has no address but loopback's";
  const testing::LogKeeper log;
  host_ = own[0];
  open();
  Client forgetful(port_, host_);  // it says no more
  (void)hear(forgetful, ControlKind::CHALLENGE);
  forgetful.say(ControlKind::GOODBYE, "");
  EXPECT_THAT(refusal(forgetful),
              HasSubstr("a worker that did not come over loopback has no secret"));
  EXPECT_TRUE(is_dismissed(forgetful));
  EXPECT_THAT(log.texts(), HasSubstr("refused a connection from " + host_));
  EXPECT_THAT(log.texts(), HasSubstr("a worker that did not come over loopback has no secret: set "
                                     "CROSSDEVICE_SECRET_FILE on all workers"));
}

TEST_F(ChiefServiceTest, WhoGoesAtOnceOnThisMachineSaysNothingAboutASecret) {
  const testing::LogKeeper log;
  for (const char* const secret : {kSecret, ""}) {
    secret_ = secret;
    open();
    Client stranger(port_);
    (void)hear(stranger, ControlKind::CHALLENGE);
    stranger.say(ControlKind::GOODBYE, "");
    EXPECT_FALSE(hear(stranger).has_value()) << "it is told nothing";
    EXPECT_TRUE(is_dismissed(stranger));
  }
  EXPECT_THAT(log.texts(), HasSubstr("it did not say who it is: expected a hello"));
  EXPECT_THAT(log.texts(), Not(HasSubstr("CROSSDEVICE_SECRET_FILE")));
}

TEST_F(ChiefServiceTest, WhetherOneOfTheTwoHasNoSecretIsSaid) {
  const testing::LogKeeper log;
  secret_ = "";
  open();
  const auto guarded = claim(1, 100, kSecret);
  EXPECT_THAT(refusal(*guarded), HasSubstr("this worker has a secret, the chief has none"));
  EXPECT_THAT(log.texts(), HasSubstr("this worker has a secret, the chief has none"));
}

TEST_F(ChiefServiceTest, ARefusalIsProvedToWhoeverHasProvedThatItHoldsTheSecretAndToNobodyElse) {
  open();
  EXPECT_TRUE(is_refused_with_proof(*claim(0, 200)));
  EXPECT_FALSE(is_refused_with_proof(*claim(0, 200, "guess")));
  EXPECT_FALSE(is_refused_with_proof(*claim(0, 200, "")));
  const auto holder = come(1, 100);
  const auto claimant = claim(1, 200);
  const std::uint64_t nonce = nonce_of_question(*holder);
  EXPECT_TRUE(is_refused_with_proof(*claim(1, 201)));  // as that is claimed already
  holder->say(ControlKind::HEARTBEAT, Heartbeat{"", nonce}.encode());
  EXPECT_TRUE(is_refused_with_proof(*claimant));
  ASSERT_TRUE(service_->cancel_meeting().has_value());
  EXPECT_TRUE(is_refused_with_proof(*claim(2, 300)));
  EXPECT_FALSE(is_refused_with_proof(*claim(2, 300, "guess")));
}

}  // namespace
}  // namespace crossdevice::detail
