// SPDX-License-Identifier: Apache-2.0
// A worker that can be found after a failure, and one that asks it whatever the fuzzer makes it ask, before and after it has proved that it holds the
// secret, while the worker waits for the next epoch or does not. What it says is well said, nobody is answered who has not proved it, and its call ends.
// Whoever follows the epochs hears of each once, in order.
#include "comm/detail/meeting_place.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>

#include "crossdevice/core/error.h"

#include "comm/detail/host_port.h"
#include "comm/detail/wire.h"
#include "fuzz/frames_heard.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/raw_socket.h"

namespace crossdevice::detail {
namespace {

constexpr std::uint64_t kJob = 7;
constexpr int kRank = 1;
constexpr int kAsking = 2;
constexpr const char* kSecret = "the secret";
constexpr const char* kCall = "rebuild(ONLY)";
/// For an answer that comes, if it comes, at once.
constexpr int kPatienceMilliseconds = 500;

class Scene {
 public:
  /// `how`: bits.
  Scene(fuzz::Input& input, std::size_t how)
      : input_(input),
        how_(how),
        secret_((how & 1U) == 0 ? kSecret : ""),
        place_(MeetingPlace::open({.chief_host = "127.0.0.1",
                                   .chief_port = 0,
                                   .secret = secret_,
                                   .heartbeat_timeout = std::chrono::seconds(1)})) {
    std::vector<MemberInfo> everyone(3);
    for (int rank = 0; rank < 3; ++rank) everyone[static_cast<std::size_t>(rank)].rank = rank;
    // Nobody listens at port 1; what is no address is what somebody said of itself.
    everyone[0].addresses = {"127.0.0.1:1"};
    everyone[1].addresses = place_->addresses();
    everyone[2].addresses = {input_.coin() ? "no address" : "127.0.0.1:1"};
    place_->begin(kJob, kRank, everyone);
    FUZZ_EXPECT(place_->job() == kJob);
    if ((how & 2U) != 0) follow();
    port_ = parse_host_port(place_->addresses()[0]).port;
  }

  void play() {
    std::thread caller;
    if (input_.below(4) == 0) caller = std::thread([this] { meet(); });
    if ((how_ & 4U) != 0) meet();  // perhaps while somebody else does
    while (!input_.is_empty() && num_acts_++ < 12) act();
    if (caller.joinable()) caller.join();
    if ((how_ & 8U) != 0) find_gone();
    if ((how_ & 16U) != 0) following_.reset();
    if ((how_ & 32U) != 0) meet();  // in whatever epoch it has come to
    place_.reset();
  }

 private:
  void follow() {
    const auto on_epoch = [this](const Epoch& epoch, bool is_member) {
      FUZZ_EXPECT(epoch.number > heard_of_);
      FUZZ_EXPECT(is_member == epoch.has(kRank));
      heard_of_ = epoch.number;
    };
    const auto on_call = [this](const Epoch& epoch, int /*rank*/, const std::string& call) {
      FUZZ_EXPECT(epoch.number == heard_of_ && !call.empty());
    };
    following_ = place_->listen(on_epoch, on_call);
    FUZZ_EXPECT(place_->epoch().number == heard_of_);
  }

  /// Nobody lives where the others should be, or that is no place.
  void find_gone() {
    const std::vector<int> asked = {0, 2};
    const auto latest = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    for (const int rank : place_->find_gone(asked, latest)) FUZZ_EXPECT(rank == 0 || rank == 2);
  }

  void meet() {
    MeetingRequest request;
    request.call = kCall;
    request.min_workers = (how_ & 64U) != 0 ? 1 : 0;
    request.patience = std::chrono::milliseconds(1);
    request.deadline = Deadline::after(std::chrono::milliseconds(60));
    try {
      const Meeting meeting = place_->meet(request);
      FUZZ_EXPECT(meeting.epoch.has(kRank));
    } catch (const OpError&) {
    }
  }

  void act() {
    if (!socket_.is_open() || socket_.has_ended()) connect();
    switch (input_.below(7)) {
      case 0:
      case 1:
        return seek();
      case 2: {
        const std::string bytes = input_.text();
        has_spoken_ = has_spoken_ || !bytes.empty();
        return socket_.say(bytes);
      }
      case 3:
        return say(static_cast<ControlKind>(input_.number<std::uint8_t>()), input_.text());
      case 4: {
        PromiseMessage message;
        message.promise.ballot = any_ballot();
        if (input_.coin()) message.promise.vote = Vote{any_ballot(), any_members()};
        return say(ControlKind::PROMISE, message.encode());
      }
      case 5:
        return say(ControlKind::ACCEPT, BallotMessage{any_ballot()}.encode());
      case 6:
        return socket_.close();
    }
  }

  void connect() {
    socket_ = fuzz::RawSocket::to(port_);
    heard_ = {};
    has_spoken_ = has_proved_ = false;
    ballot_ = {};
    challenge_ = {};
    if (const auto frame = hear(); frame.has_value() && frame->kind == ControlKind::CHALLENGE) {
      challenge_ = Challenge::decode(frame->payload).nonce;
    }
  }

  void seek() {
    Seek message;
    message.job = input_.below(8) == 1 ? 8 : kJob;
    message.rank = input_.below(4) == 1 ? input_.number<std::int32_t>() : kAsking;
    message.epoch = {1, {0, 1, 2}};
    if (input_.below(4) == 1) {
      message.epoch.number = input_.below(4);
      message.epoch.members = any_members();
    }
    message.call = input_.below(8) == 1 ? input_.text() : kCall;
    message.completed = {1, input_.below(4)};
    message.lost = {static_cast<int>(input_.below(4)) - 1};
    message.nonce[0] = input_.number<std::uint8_t>();
    const std::size_t forgery = input_.below(16);
    if (input_.below(8) == 1) message.rouses = input_.text();
    if (input_.below(16) == 1) message.protocol = input_.number<std::uint8_t>();
    message.mac =
        message.expected_mac(forgery == 1 ? "guess" : secret_, forgery == 2 ? Nonce{} : challenge_);
    if (forgery == 3) message.mac[input_.below(kMacBytes)] ^= 1;
    const bool is_right = forgery == 0 || forgery > 3;
    has_proved_ = has_proved_ || (is_right && !has_spoken_);
    say(ControlKind::SEEK, message.encode());
    const std::optional<Frame> frame = hear();
    if (!frame.has_value() || frame->kind != ControlKind::FOUND) return;
    const Found found = Found::decode(frame->payload);
    FUZZ_EXPECT(found.mac == found.expected_mac(secret_, message.nonce));
    FUZZ_EXPECT(found.rank == kRank);
    if (!found.takes_in) return;
    if (const std::optional<Frame> prepare = hear();
        prepare.has_value() && prepare->kind == ControlKind::PREPARE) {
      ballot_ = BallotMessage::decode(prepare->payload).ballot;
    }
  }

  [[nodiscard]] Ballot any_ballot() {
    const std::size_t how = input_.below(4);
    if (how < 2) return ballot_;
    return {how == 2 ? ballot_.round + input_.below(3) : input_.number<std::uint64_t>(),
            static_cast<int>(input_.below(5)) - 1};
  }
  /// Ascending, or it would be refused at once.
  [[nodiscard]] std::vector<int> any_members() {
    std::vector<int> members;
    int rank = -1;
    for (std::size_t count = input_.below(5); count > 0; --count) {
      rank += 1 + static_cast<int>(input_.below(3));
      members.push_back(rank);
    }
    if (input_.below(4) == 1) members.push_back(1'000'000 + static_cast<int>(input_.below(4)));
    return members;
  }

  void say(ControlKind kind, const std::string& payload) {
    has_spoken_ = true;
    socket_.say(encode_frame(kind, payload));
  }
  /// The next frame that is no heartbeat; nothing: it has ended, or says nothing.
  [[nodiscard]] std::optional<Frame> hear() {
    for (;;) {
      while (std::optional<Frame> frame = heard_.next()) {
        if (frame->kind == ControlKind::HEARTBEAT) continue;
        const bool is_for_strangers =
            frame->kind == ControlKind::CHALLENGE || frame->kind == ControlKind::REFUSED;
        FUZZ_EXPECT(is_for_strangers || has_proved_);
        return frame;
      }
      if (!socket_.is_open() || socket_.has_ended()) return std::nullopt;
      pollfd waiting{.fd = socket_.fd(), .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, kPatienceMilliseconds) <= 0) return std::nullopt;
      heard_.add(socket_.hear());
    }
  }

  fuzz::Input& input_;
  const std::size_t how_;
  const std::string secret_;
  std::uint64_t heard_of_ = 0;  // the last epoch; the place's thread's, once it follows
  std::shared_ptr<MeetingPlace> place_;
  std::shared_ptr<void> following_;
  std::uint16_t port_ = 0;
  fuzz::RawSocket socket_;
  fuzz::FramesHeard heard_;
  Nonce challenge_{};
  Ballot ballot_{};
  bool has_spoken_ = false;
  bool has_proved_ = false;
  int num_acts_ = 0;
};

}  // namespace
}  // namespace crossdevice::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::silence_log();
  crossdevice::fuzz::Input input(data, size);
  const std::size_t how = input.number<std::uint8_t>();
  crossdevice::detail::Scene(input, how).play();
  return 0;
}
