// SPDX-License-Identifier: Apache-2.0
// A worker that calls for the next epoch, and whoever answers where the lowest rank should be: a candidate that has proved that it holds the secret, or not,
// and says whatever the fuzzer makes it say. The call ends; nobody is joined without a proof; promises do not go back, and name no vote that was not
// proposed; what the worker goes on with was chosen, and each epoch is heard of once, in order.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>

#include "crossdevice/core/error.h"

#include "comm/detail/host_port.h"
#include "comm/detail/meeting_place.h"
#include "comm/detail/wire.h"
#include "fuzz/frames_heard.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/raw_socket.h"

namespace crossdevice::detail {
namespace {

constexpr std::uint64_t kJob = 7;
constexpr int kRank = 1;
constexpr int kCandidate = 0;
constexpr const char* kSecret = "the secret";
/// How long the call lasts where nobody ends it.
constexpr std::chrono::milliseconds kPatience{50};
/// Between two looks whether it has ended.
constexpr int kLookMilliseconds = 2;
/// For an answer that comes, if it comes, at once.
constexpr int kAnswerMilliseconds = 20;

bool has_input(int fd, int milliseconds) {
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&waiting, 1, milliseconds) > 0;
}

class Candidate {
 public:
  explicit Candidate(fuzz::Input& input) : input_(input) {}

  [[nodiscard]] std::string address() const {
    return join_host_port("127.0.0.1", listener_.port());
  }
  /// Until the call is over; when the input is used up that is refused which is not.
  void play(const std::atomic<bool>& is_over) {
    while (!is_over) {
      if (!socket_.is_open() || socket_.has_ended()) {
        await_guest();
        continue;
      }
      hear();
      if (!has_answered_) continue;  // until it has asked
      if (!input_.is_empty()) {
        act();
      } else if (!std::exchange(has_refused_, true)) {
        say(ControlKind::REFUSED, Refused{.code = StatusCode::ABORTED, .text = "enough"}.encode());
      }
    }
  }
  /// What a call may end with.
  void check(const Meeting& meeting) const {
    const bool was_chosen = std::ranges::any_of(
        chosen_, [&](const Chosen& each) { return each.epoch == meeting.epoch && each.port != 0; });
    FUZZ_EXPECT(was_chosen || has_said_other_epoch_);
    FUZZ_EXPECT(has_proved_);
  }

 private:
  void await_guest() {
    if (!has_input(listener_.fd(), kLookMilliseconds)) return;
    socket_ = listener_.accept();
    heard_ = {};
    has_answered_ = has_refused_ = false;
    challenge_[0] = input_.number<std::uint8_t>();
    say(ControlKind::CHALLENGE, Challenge{.nonce = challenge_}.encode());
  }
  void hear() {
    // Who still has something to say does not wait for the other's word, unless the input says so.
    int patience = has_answered_ && !input_.is_empty() ? 0 : kLookMilliseconds;
    if (std::exchange(waits_, false)) patience = kAnswerMilliseconds;
    if (has_input(socket_.fd(), patience)) heard_.add(socket_.hear());
    while (const std::optional<Frame> frame = heard_.next()) {
      if (frame->kind == ControlKind::SEEK) {
        answer(Seek::decode(frame->payload));
      } else if (frame->kind == ControlKind::PROMISE) {
        const Promise promise = PromiseMessage::decode(frame->payload).promise;
        hear_ballot(promise.ballot);
        FUZZ_EXPECT(!promise.vote.has_value() ||
                    std::ranges::find(proposed_, *promise.vote) != proposed_.end());
      } else if (frame->kind == ControlKind::ACCEPT) {
        hear_ballot(BallotMessage::decode(frame->payload).ballot);
      } else {
        FUZZ_EXPECT(frame->kind == ControlKind::HEARTBEAT);
      }
    }
  }
  /// Where another epoch begins, promises do too.
  void hear_ballot(const Ballot& ballot) {
    FUZZ_EXPECT(has_proved_);
    FUZZ_EXPECT(has_said_other_epoch_ || !chosen_.empty() || ballot >= promised_);
    promised_ = ballot;
  }
  void answer(const Seek& seek) {
    FUZZ_EXPECT(seek.rank == kRank && seek.mac == seek.expected_mac(kSecret, challenge_));
    has_answered_ = true;
    const std::size_t oddity = input_.below(8);
    if (oddity == 1) {
      Refused refused{.code = any_code(), .text = input_.text()};
      refused.mac = refused.expected_mac(kSecret, seek.nonce);
      return say(ControlKind::REFUSED, refused.encode());
    }
    Found found;
    found.rank = oddity == 2 ? 2 : kCandidate;
    found.takes_in = oddity != 3;
    found.epoch = {1, {0, 1, 2}};
    if (oddity == 4) {
      found.epoch = any_epoch();
      has_said_other_epoch_ = true;
    }
    found.mac = found.expected_mac(oddity == 5 ? "guess" : kSecret, seek.nonce);
    has_proved_ = has_proved_ || oddity != 5;
    say(ControlKind::FOUND, found.encode());
  }

  void act() {
    switch (input_.below(8)) {
      case 0:
        return say(ControlKind::PREPARE, BallotMessage{any_ballot()}.encode());
      case 1: {
        Vote vote{any_ballot(), any_members()};
        proposed_.push_back(vote);
        return say(ControlKind::PROPOSE, VoteMessage{std::move(vote)}.encode());
      }
      case 2: {
        Chosen chosen;
        chosen.epoch = any_epoch();
        chosen.port = static_cast<std::uint16_t>(input_.below(3));
        chosen.completed = {1, input_.below(3)};
        chosen_.push_back(chosen);
        return say(ControlKind::CHOSEN, chosen.encode());
      }
      case 3:
        return say(ControlKind::REFUSED,
                   Refused{.code = any_code(), .text = input_.text()}.encode());
      case 4:
        return socket_.say(input_.text());
      case 5:
        return say(static_cast<ControlKind>(input_.number<std::uint8_t>()), input_.text());
      case 6:
        return socket_.close();
      case 7:
        waits_ = true;
        return say(ControlKind::HEARTBEAT, "");
    }
  }

  [[nodiscard]] StatusCode any_code() {
    return static_cast<StatusCode>(
        input_.below(static_cast<std::size_t>(StatusCode::INTERNAL) + 1));
  }
  [[nodiscard]] std::uint64_t any_count() {
    const std::size_t how = input_.below(8);
    if (how == 1) return input_.number<std::uint64_t>();
    if (how == 2) return ~std::uint64_t{0} - input_.below(3);
    return how == 3 ? (std::uint64_t{1} << 62U) - input_.below(3) : input_.below(4);
  }
  [[nodiscard]] Ballot any_ballot() { return {any_count(), static_cast<int>(input_.below(4)) - 1}; }
  [[nodiscard]] Epoch any_epoch() { return {1 + any_count(), any_members()}; }
  /// Ascending, or it would be refused at once.
  [[nodiscard]] std::vector<int> any_members() {
    std::vector<int> members;
    const std::size_t who = input_.below(16);
    for (int rank = 0; rank < 3; ++rank) {
      if ((who >> static_cast<unsigned>(rank) & 1U) != 0) members.push_back(rank);
    }
    if (who >= 8) members.push_back(1'000'000);
    return members;
  }
  void say(ControlKind kind, const std::string& payload) {
    socket_.say(encode_frame(kind, payload));
  }

  fuzz::Input& input_;
  fuzz::RawListener listener_;
  fuzz::RawSocket socket_;
  fuzz::FramesHeard heard_;
  Nonce challenge_{};
  std::vector<Vote> proposed_;
  std::vector<Chosen> chosen_;
  Ballot promised_{};
  bool has_answered_ = false;  // this guest
  bool has_refused_ = false;
  bool waits_ = false;
  bool has_proved_ = false;  // to any
  bool has_said_other_epoch_ = false;
};

void check_call(fuzz::Input& input) {
  Candidate candidate(input);
  const auto place = MeetingPlace::open({.chief_host = "127.0.0.1",
                                         .chief_port = 0,
                                         .secret = kSecret,
                                         .heartbeat_timeout = std::chrono::seconds(1)});
  std::vector<MemberInfo> everyone(3);
  for (int rank = 0; rank < 3; ++rank) everyone[static_cast<std::size_t>(rank)].rank = rank;
  everyone[0].addresses = {candidate.address()};
  everyone[1].addresses = place->addresses();
  everyone[2].addresses = {"127.0.0.1:1"};  // where nobody listens
  place->begin(kJob, kRank, everyone);
  std::uint64_t heard_of = 0;
  std::shared_ptr<void> following = place->listen(
      [&heard_of](const Epoch& epoch, bool is_member) {
        FUZZ_EXPECT(epoch.number > heard_of);
        FUZZ_EXPECT(is_member == epoch.has(kRank));
        heard_of = epoch.number;
      },
      {});
  MeetingRequest request;
  request.call = "rebuild(ONLY)";
  const std::size_t how = input.below(8);
  request.min_workers = how == 1 ? 1 : 0;
  const bool asks_first = how == 2;  // whether anybody is there
  request.deadline = Deadline::after(kPatience);
  request.patience = std::chrono::milliseconds(1);
  std::atomic<bool> is_over{false};
  std::optional<Meeting> meeting;
  std::thread caller([&] {
    if (asks_first) {
      const std::vector<int> gone = place->find_gone({kCandidate}, request.deadline.moment());
      FUZZ_EXPECT(gone.empty());
    }
    try {
      meeting = place->meet(request);
    } catch (const OpError&) {
    }
    is_over = true;
  });
  candidate.play(is_over);
  caller.join();
  if (meeting.has_value()) {
    FUZZ_EXPECT(meeting->epoch.has(kRank) && meeting->epoch.number > 1);
    FUZZ_EXPECT(place->epoch().number >= meeting->epoch.number);
    if (!meeting->listener) candidate.check(*meeting);
  }
  following.reset();
}

}  // namespace
}  // namespace crossdevice::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::silence_log();
  crossdevice::fuzz::Input input(data, size);
  crossdevice::detail::check_call(input);
  return 0;
}
