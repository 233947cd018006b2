// SPDX-License-Identifier: Apache-2.0
// The side that connects: a worker that seeks its chief, and one that seeks another worker. What answers is whoever listens there and says what the
// fuzzer makes it say. Nobody is believed who has not proved that it holds the secret, and whoever asks is told at most once. What a chief says that has
// proved it is cut anywhere, and heard until the first nonsense; a chief is lost once, and only where all had come.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "comm/detail/chief_link.h"
#include "comm/detail/host_port.h"
#include "comm/detail/membership.h"
#include "comm/detail/seeker.h"
#include "comm/detail/tls_channel.h"
#include "comm/detail/wire.h"
#include "fuzz/frames_heard.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/no_descriptors.h"
#include "fuzz/raw_socket.h"

namespace crossdevice::detail {
namespace {

constexpr const char* kSecret = "the secret";
constexpr int kAskedRank = 2;

Members all_members() {
  Members all;
  for (int rank = 0; rank < 2; ++rank) all.members.emplace_back().rank = rank;
  return all;
}

/// Whoever listens. Proofs are right or wrong as the input says.
class Host {
 public:
  explicit Host(fuzz::Input& input) : input_(input) {}

  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }
  [[nodiscard]] bool has_proved() const { return has_proved_; }
  [[nodiscard]] bool has_guest() const { return socket_.is_open(); }

  /// Takes the next one in; forgets who was there.
  void accept() {
    fuzz::RawSocket next = listener_.accept();
    if (!next.is_open()) return;
    socket_ = std::move(next);
    heard_ = {};
    nonce_.reset();
  }
  void hear() {
    heard_.add(socket_.hear());
    while (const std::optional<Frame> frame = heard_.next()) {
      if (frame->kind == ControlKind::HELLO) {
        const Hello hello = Hello::decode(frame->payload);
        FUZZ_EXPECT(hello.mac == hello.expected_mac(kSecret, challenge_));
        nonce_ = hello.nonce;
      } else if (frame->kind == ControlKind::SEEK) {
        const Seek seek = Seek::decode(frame->payload);
        FUZZ_EXPECT(seek.mac == seek.expected_mac(kSecret, challenge_));
        nonce_ = seek.nonce;
      }
    }
  }
  void act() {
    switch (input_.below(8)) {
      case 0:
        challenge_ = {};
        for (unsigned char& byte : challenge_) byte = input_.number<std::uint8_t>();
        return challenge(kControlProtocol);
      case 1:
        return socket_.say(input_.text());
      case 2:
        return say(static_cast<ControlKind>(input_.number<std::uint8_t>()), input_.text());
      case 3:
        return welcome();
      case 4:
        return found();
      case 5:
        return refused();
      case 6:
        return socket_.close();
      case 7:
        switch (input_.below(4)) {
          case 1:
            return challenge(input_.number<std::uint8_t>());
          case 2:
            return say(ControlKind::MEMBERS, all_members().encode());
          case 3:
            return say(ControlKind::ASK, Ask{input_.below(3)}.encode());
          default:
            return say(ControlKind::EXCHANGED, Exchanged{{1, 2}, {input_.text()}}.encode());
        }
    }
  }

 private:
  void say(ControlKind kind, const std::string& payload) {
    socket_.say(encode_frame(kind, payload));
  }
  void challenge(std::uint32_t protocol) {
    say(ControlKind::CHALLENGE, Challenge{.protocol = protocol, .nonce = challenge_}.encode());
  }
  template <class Message>
  void prove(Message& message) {
    const bool is_right = input_.below(4) != 0 && nonce_.has_value();
    message.mac = message.expected_mac(is_right ? kSecret : "guess", nonce_.value_or(Nonce{}));
    has_proved_ = has_proved_ || is_right;
  }
  void welcome() {
    Welcome message{.cluster_id = input_.number<std::uint64_t>()};
    prove(message);
    say(ControlKind::WELCOME, message.encode());
  }
  void refused() {
    Refused message{.code = StatusCode::INTERNAL, .text = input_.text()};
    prove(message);
    say(ControlKind::REFUSED, message.encode());
  }
  void found() {
    Found message;
    message.rank = input_.coin() ? kAskedRank : static_cast<int>(input_.below(4));
    message.takes_in = input_.coin();
    message.epoch = {input_.number<std::uint64_t>(), {0, 2, 1'000'000}};
    prove(message);
    say(ControlKind::FOUND, message.encode());
  }

  fuzz::Input& input_;
  fuzz::RawListener listener_;
  fuzz::RawSocket socket_;
  fuzz::FramesHeard heard_;
  Nonce challenge_{};
  std::optional<Nonce> nonce_;  // of who has come
  bool has_proved_ = false;
};

/// Lets both sides speak until the input is used up; after each turn of the host's it is `on_turn`'s.
template <class OnTurn>
void play(fuzz::Input& input, asio::io_context& io, Host& host, OnTurn on_turn) {
  while (!input.is_empty()) {
    while (io.poll() > 0) {
    }
    io.restart();
    host.accept();
    host.hear();
    if (!host.has_guest()) return;
    host.act();
    on_turn();
  }
  while (io.poll() > 0) {
  }
  io.restart();
}

/// Where somebody could be, who is not to be disturbed.
bool is_address(const std::string& text) {
  try {
    std::error_code error;
    (void)asio::ip::make_address(parse_host_port(text).host, error);
    return !error;
  } catch (const ValueError&) {
    return false;
  }
}

/// `how`: bits, who listens where it seeks, and whether it waits for them.
void check_seeker(fuzz::Input& input, std::size_t how) {
  static const fuzz::DeafListener deaf;
  asio::io_context io{1};
  Host host(input);
  Seek question;
  question.job = 7;
  question.rank = 1;
  question.epoch = {3, {0, 1, 2}};
  const bool asks_to_be_taken_in = (how & 3U) != 3U;
  if (asks_to_be_taken_in) question.call = "rebuild(ONLY)";
  // What a member says of its addresses comes from that member.
  std::vector<std::string> addresses;
  for (std::size_t num_odd = input.below(3); num_odd > 0; --num_odd) {
    addresses.push_back(input.text());
    if (is_address(addresses.back())) addresses.pop_back();
  }
  std::optional<std::chrono::steady_clock::duration> patience;
  if ((how & 1U) != 0) patience = std::chrono::hours(1);
  if ((how & 2U) != 0) patience = std::chrono::seconds(0);
  if ((how & 4U) != 0) addresses.push_back(join_host_port("127.0.0.1", deaf.port()));
  if ((how & 8U) != 0) addresses.emplace_back("127.0.0.1:1");
  if ((how & 16U) == 0) addresses.push_back(join_host_port("127.0.0.1", host.port()));
  // Where this process cannot ask, it cannot know either.
  const bool may_be_there = (how & 20U) != 16U || (how & 40U) == 40U;
  int num_results = 0;
  const auto seeker = std::make_shared<Seeker>(
      io, SeekerProof{.secret = kSecret}, question, kAskedRank, addresses, patience,
      [&](const SeekResult& result) {
        ++num_results;
        FUZZ_EXPECT(!result.is_gone || !may_be_there);
        FUZZ_EXPECT(!result.found.has_value() || host.has_proved());
        FUZZ_EXPECT(!result.refused.has_value() || host.has_proved());
        FUZZ_EXPECT(!result.found.has_value() || result.found->rank == kAskedRank);
        FUZZ_EXPECT(!result.connection || (result.found.has_value() && result.found->takes_in));
        FUZZ_EXPECT(!result.connection || asks_to_be_taken_in);
        if (result.connection) result.connection->close();
      });
  if ((how & 32U) != 0) {
    const fuzz::NoDescriptors none;
    seeker->start();
  } else {
    seeker->start();
  }
  play(input, io, host, [] {});
  FUZZ_EXPECT(seeker->rank() == kAskedRank);
  seeker->cancel();
  FUZZ_EXPECT(num_results <= 1);
  while (io.poll() > 0) {
  }
}

/// `how`: bits, what time it is for whoever waits, and what else the worker knows.
void check_chief_link(fuzz::Input& input, std::size_t how) {
  static const std::shared_ptr<const TlsKey> tls = TlsKey::make(kSecret);
  asio::io_context io{1};
  Host host(input);
  ControlPlaneOptions options;
  options.rank = 1;
  options.num_workers = 2;
  options.secret = kSecret;
  options.chief_address = join_host_port("127.0.0.1", host.port());
  options.heartbeat_timeout = (how & 1U) == 0 ? std::chrono::hours(1) : std::chrono::hours(0);
  options.stall_warning = (how & 2U) == 0 ? std::chrono::hours(1) : std::chrono::hours(0);
  if ((how & 4U) != 0) options.more_chief_addresses = {options.chief_address};
  if ((how & 24U) == 24U) options.tls = tls;
  const bool beats = (how & 32U) != 0;
  MemberInfo self;
  self.rank = 1;
  std::optional<ChiefLink> link;
  bool is_welcome = false;
  bool has_all = false;
  bool is_lost = false;
  Membership membership(
      {.rank = 1, .num_workers = 2, .stall_warning = std::chrono::hours(1)},
      {.say = [](ControlKind, const std::string&) { FUZZ_FAIL("a worker that waits"); },
       .on_members =
           [&] {
             has_all = true;
             link->keep();
           },
       .on_question =
           [&](std::uint64_t nonce) {
             link->send(ControlKind::HEARTBEAT,
                        Heartbeat{.operation = "", .answers = nonce}.encode());
           }});
  ChiefLink::Events events;
  events.on_welcome = [&](std::uint64_t) {
    FUZZ_EXPECT(host.has_proved());
    is_welcome = true;
  };
  events.on_frame = [&](const Frame& frame) {
    FUZZ_EXPECT(is_welcome && !is_lost);
    membership.hear(frame);
  };
  // Without a proof it is at most the worker's own word, that they do not fit.
  events.on_refused = [&](const Refused& refused) {
    FUZZ_EXPECT(host.has_proved() || refused.code == StatusCode::FAILED_PRECONDITION);
  };
  events.on_absence = [&](const std::string&, ChiefLink::Fault) { FUZZ_EXPECT(!has_all); };
  events.on_lost = [&](const std::string& why) {
    FUZZ_EXPECT(has_all && !is_lost);
    is_lost = true;
    membership.lose_chief(why);
  };
  link.emplace(io, options, self, std::move(events));
  if ((how & 24U) == 8U) {
    const fuzz::NoDescriptors none;
    link->connect();
    (void)io.run_one_for(std::chrono::milliseconds(10));
  } else {
    link->connect();
  }
  // Addresses in numbers are looked up by nobody, but the answer comes later.
  for (int i = 0; i < 1000 && !host.has_guest(); ++i) {
    (void)io.run_one_for(std::chrono::milliseconds(10));
    host.accept();
  }
  play(input, io, host, [&] {
    if (beats) (void)link->beat(input.coin());
  });
  link->leave();
  while (io.poll() > 0) {
  }
}

}  // namespace
}  // namespace crossdevice::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::silence_log();
  crossdevice::fuzz::Input input(data, size);
  const std::size_t choice = input.number<std::uint8_t>();
  if (choice % 4 != 0) {
    crossdevice::detail::check_seeker(input, choice / 4);
  } else {
    crossdevice::detail::check_chief_link(input, choice / 4);
  }
  return 0;
}
