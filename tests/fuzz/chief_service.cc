// SPDX-License-Identifier: Apache-2.0
// Strangers and workers at a chief's door, over real connections: what they send is cut and mutated by the fuzzer, proofs are made where it says so.
// Nobody is welcomed, or told anything but a challenge and a refusal, who has not proved that it holds the secret for this very connection. Between two deeds of
// others as much time passes as the door needs to look at them; otherwise time is what the input says: whoever is to be waited for is so for ever, or not at all.
#include "comm/detail/chief_service.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "crossdevice/core/version.h"

#include "comm/detail/listening_socket.h"
#include "comm/detail/reception.h"
#include "comm/detail/wire.h"
#include "fuzz/clock_ahead.h"
#include "fuzz/frames_heard.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/raw_socket.h"

namespace crossdevice::detail {
namespace {

constexpr int kNumWorkers = 3;
constexpr const char* kSecret = "the secret";
constexpr std::size_t kMaxClients = 4;

struct Client {
  fuzz::RawSocket socket;
  fuzz::FramesHeard heard{};
  std::optional<Nonce> challenge{};
  bool has_proved = false;  // sent a hello with the right proof, as its first frame
  bool has_spoken = false;
  bool is_welcome = false;
  std::uint64_t asked = 0;  // the last nonce of a contest
};

class Scene {
 public:
  explicit Scene(fuzz::Input& input) : input_(input) {
    listener_ = ListeningSocket::open("127.0.0.1", 0, "the chief");
    port_ = listener_->port();
    options_.rank = 0;
    options_.num_workers = kNumWorkers;
    options_.chief_address = "127.0.0.1:1";
    options_.listener = std::move(listener_);
    const std::size_t how = input_.number<std::uint8_t>();
    if ((how & 1U) == 0) options_.secret = kSecret;
    options_.heartbeat_timeout = (how & 2U) == 0 ? std::chrono::hours(1) : std::chrono::hours(0);
    options_.stall_warning = (how & 4U) == 0 ? std::chrono::hours(1) : std::chrono::hours(0);
    if ((how & 8U) != 0) options_.addresses_by_rank = {"", "here:1"};
    are_left_alone_ = (how & 16U) != 0;
    MemberInfo self;
    self.rank = 0;
    service_.emplace(io_, options_, self,
                     [](const Frame& frame) { fuzz::require_well_said(frame); });
    service_->open();
  }

  void play() {
    while (!input_.is_empty()) {
      act();
      settle();
    }
    for (Client& each : clients_) {
      if (!are_left_alone_) each.socket.close();
    }
    settle();
    service_->say_goodbye();
    settle();
    FUZZ_EXPECT(service_->has_sent_all());
    const bool is_in_doubt = service_->is_anybody_in_doubt();
    FUZZ_EXPECT(service_->is_cancelled() || !is_in_doubt);
  }

 private:
  void act() {
    const std::size_t what = input_.below(12);
    if (what == 0 || clients_.empty()) {
      if (clients_.size() == kMaxClients) return;
      clients_.push_back({.socket = fuzz::RawSocket::to(port_)});
      return;
    }
    if (what == 6) return void(service_->beat(input_.coin()));
    if (what == 8) return cancel();
    Client& client = clients_[input_.below(clients_.size())];
    if (what == 7) return client.socket.close();
    if (what == 1) {
      const std::string bytes = input_.text();
      client.has_spoken = client.has_spoken || !bytes.empty();
      return client.socket.say(bytes);
    }
    if (what == 2) {
      const auto kind = static_cast<ControlKind>(input_.number<std::uint8_t>());
      return say(client, kind, input_.text());
    }
    if (what == 5) return exchange(client);
    if (what == 9) return answer(client);
    if (what == 10) return say(client, ControlKind::CLOCK, ClockReading{.asked_ns = 1}.encode());
    hello(client, what == 4, what == 11 ? kControlProtocol + 1 : kControlProtocol);
  }

  void say(Client& client, ControlKind kind, const std::string& payload) {
    client.has_spoken = true;
    client.socket.say(encode_frame(kind, payload));
  }
  /// To the chief's question whether it is there still, rightly or not.
  void answer(Client& client) {
    const std::uint64_t nonce = client.asked + input_.below(2);
    say(client, ControlKind::HEARTBEAT, Heartbeat{.operation = "test", .answers = nonce}.encode());
  }
  void cancel() {
    std::vector<int> gone;
    if (input_.coin()) gone.push_back(static_cast<int>(input_.below(kNumWorkers)));
    const std::optional<Refused> refused = service_->cancel_meeting(gone);
    FUZZ_EXPECT(!refused.has_value() || !refused->text.empty());
    FUZZ_EXPECT(!refused.has_value() || service_->is_cancelled());
  }

  void hello(Client& client, bool is_forged, std::uint32_t protocol) {
    Hello hello;
    hello.protocol = protocol;
    hello.library_version = library_version_string();
    hello.num_workers = kNumWorkers;
    hello.member.rank = static_cast<int>(input_.below(5)) - 1;
    hello.member.host = input_.text();
    if (input_.below(8) == 1) hello.num_workers = 7;
    if (input_.below(8) == 1) hello.member.addresses = {input_.text()};
    const bool has_challenge = client.challenge.has_value();
    hello.mac = hello.expected_mac(options_.secret, client.challenge.value_or(Nonce{}));
    if (is_forged) {
      // Another's challenge, another secret, or a bit that is not right.
      const std::size_t forgery = input_.below(3);
      if (forgery == 0) hello.mac = hello.expected_mac(options_.secret, Nonce{});
      if (forgery == 1) hello.mac = hello.expected_mac("guess", client.challenge.value_or(Nonce{}));
      if (forgery == 2) hello.mac[input_.below(kMacBytes)] ^= 1;
    }
    if (!client.has_spoken && has_challenge && !is_forged) client.has_proved = true;
    say(client, ControlKind::HELLO, hello.encode());
  }

  void exchange(Client& client) {
    Exchange message;
    message.id = {input_.below(2), input_.below(2)};
    message.kind = "barrier";
    message.bytes = input_.text();
    say(client, ControlKind::EXCHANGE, message.encode());
  }

  /// Until nothing happens any more, and whoever has come was looked at: a little later after nonsense.
  void settle() {
    fuzz::ClockAhead::pass(io_, Reception::kBunch);
    fuzz::ClockAhead::pass(io_, Reception::kBunch);  // a look that comes late is put off once
    for (Client& each : clients_) {
      each.heard.add(each.socket.hear());
      while (const std::optional<Frame> frame = each.heard.next()) {
        if (frame->kind == ControlKind::CHALLENGE) {
          FUZZ_EXPECT(!each.challenge.has_value());
          each.challenge = Challenge::decode(frame->payload).nonce;
        } else if (frame->kind == ControlKind::WELCOME) {
          FUZZ_EXPECT(each.has_proved && !each.is_welcome);
          each.is_welcome = true;
        } else if (frame->kind != ControlKind::REFUSED) {
          // Who seems to speak TLS is told by this that nobody here does.
          const bool is_answer_to_tls = frame->kind == ControlKind::GOODBYE && each.has_spoken;
          FUZZ_EXPECT(each.is_welcome || is_answer_to_tls);
          if (frame->kind == ControlKind::ASK) each.asked = Ask::decode(frame->payload).nonce;
        }
      }
    }
  }

  const fuzz::ClockAhead clock_;  // what has passed is forgotten with the scene
  fuzz::Input& input_;
  asio::io_context io_{1};
  std::shared_ptr<ListeningSocket> listener_;
  std::uint16_t port_ = 0;
  ControlPlaneOptions options_;
  std::optional<ChiefService> service_;
  std::vector<Client> clients_;
  bool are_left_alone_ = false;  // by the chief, which leaves first
};

}  // namespace
}  // namespace crossdevice::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::silence_log();
  crossdevice::fuzz::Input input(data, size);
  crossdevice::detail::Scene(input).play();
  return 0;
}
