// SPDX-License-Identifier: Apache-2.0
// What workers say to a chief after they have proved who they are, in any order: who sends nonsense is taken for lost, as the service does. What the
// chief says is well said, and said to somebody who is there; each part of a round gets at most one answer; who is asked what it does has not given its
// part; and when all other members have gone, nobody waits for an answer any more.
#include "comm/detail/chief.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/detail/wire.h"
#include "fuzz/frames_heard.h"
#include "fuzz/fuzz_target.h"

namespace crossdevice::detail {
namespace {

constexpr std::uint64_t kJob = 7;

class Scene {
 public:
  explicit Scene(fuzz::Input& input)
      : input_(input),
        num_workers_(1 + static_cast<int>(input.below(4))),
        chief_({.num_workers = num_workers_,
                .library_version = "1.2.3",
                .job = kJob,
                .epoch = 1,
                .addresses_by_rank = {"a:1", "", "c:1"}},
               {.rank = 0}, [this](int rank, const SharedFrame& frame) { hear(rank, *frame); }) {}

  void play() {
    while (!input_.is_empty()) {
      act();
      count();
    }
    if (!chief_.is_complete()) {
      (void)chief_.describe_absent();
      return;
    }
    const int last = static_cast<int>(input_.below(static_cast<std::size_t>(num_workers_)));
    for (int rank = 0; rank < num_workers_; ++rank) {
      if (rank != last) chief_.lost(rank, "its connection ended");
    }
    if (!chief_.is_present(last)) return;
    for (const auto& [part, num_open] : num_open_) {
      FUZZ_EXPECT(part.first != last || num_open == 0);
    }
  }

 private:
  void count() {
    std::size_t num_present = 0;
    for (int rank = 0; rank < num_workers_; ++rank)
      num_present += chief_.is_present(rank) ? 1U : 0U;
    FUZZ_EXPECT(chief_.num_present() == num_present);
    const bool is_in_doubt = chief_.is_anybody_in_doubt();
    FUZZ_EXPECT(!is_in_doubt || (chief_.is_cancelled() && !chief_.is_complete()));
  }

  [[nodiscard]] int any_rank() {
    return static_cast<int>(input_.below(static_cast<std::size_t>(num_workers_)));
  }
  [[nodiscard]] RoundId any_round() { return {input_.below(3), input_.below(3)}; }

  /// Of all that a frame can have.
  [[nodiscard]] ControlKind any_kind() {
    constexpr auto kLast = static_cast<std::size_t>(kLastControlKind);
    return static_cast<ControlKind>(1 + input_.below(kLast));
  }

  void act() {
    switch (input_.below(12)) {
      case 0:
        return admit();
      case 1:
        (void)say(any_rank(), {any_kind(), input_.text()});
        return;
      case 2:
        return exchange();
      case 3:
        (void)say(any_rank(), {ControlKind::GIVE_UP, GiveUp{any_round(), "late"}.encode()});
        return;
      case 4:
        (void)say(any_rank(), {ControlKind::ABORT, Abort{any_rank(), input_.text()}.encode()});
        return;
      case 5:
        (void)say(any_rank(), {ControlKind::GOODBYE, ""});
        return;
      case 6:
        if (input_.below(8) == 7) return chief_.end_for_want();
        return chief_.lost(any_rank(), "no heartbeat");
      case 7:
        (void)say(any_rank(), {ControlKind::WHO_IS_MISSING, WhoIsMissing{any_round()}.encode()});
        return;
      case 8:
        if (!chief_.is_complete()) {
          const Refused refused = chief_.cancel_meeting(StatusCode::DEADLINE_EXCEEDED, "late");
          std::size_t num_missing = 0;  // who came and went among them
          for (int rank = 0; rank < num_workers_; ++rank) {
            if (!chief_.is_present(rank)) ++num_missing;
          }
          FUZZ_EXPECT(refused.culprits.size() == num_missing);
          (void)chief_.is_spoiled();
        }
        return;
      case 9:
        return ask();
      case 10:
        (void)say(any_rank(), {ControlKind::HEARTBEAT, Heartbeat{input_.text()}.encode()});
        return;
      case 11: {
        const int from = any_rank();
        const Post post{input_.below(3), from, {any_rank(), any_rank()}, input_.text()};
        (void)say(from, {ControlKind::POST, post.encode()});
        return;
      }
    }
  }

  void admit() {
    Hello hello;
    hello.member.rank = static_cast<int>(input_.below(6)) - 1;
    const std::size_t oddity = input_.below(8);
    hello.library_version = oddity == 1 ? "1.2.4" : "1.2.3";
    hello.num_workers = oddity == 2 ? num_workers_ + 1 : num_workers_;
    hello.job = oddity == 3   ? kJob + 1
                : oddity == 6 ? 0
                              : kJob;  // where they meet first, none may be any
    hello.epoch = oddity == 4 ? 2 : 1;
    if (oddity == 5) hello.member.host = input_.text();
    if (chief_.refuse(hello).has_value()) return;
    FUZZ_EXPECT(oddity == 0 || oddity > 4);
    FUZZ_EXPECT(!chief_.is_complete() || chief_.comes_late(hello));
    const int rank = hello.member.rank;
    if (chief_.comes_late(hello)) return hear_past(rank);
    if (chief_.is_contested(hello)) {
      FUZZ_EXPECT(chief_.is_present(rank));
      if (input_.coin()) return;  // the holder answers
      chief_.await_anew(rank);
      chief_.lost(rank, "it does not answer");
      FUZZ_EXPECT(!chief_.is_contested(hello));
    }
    // What its predecessor was part of may have ended while nobody had the rank.
    std::erase_if(num_open_, [rank](const auto& each) { return each.first.first == rank; });
    chief_.admit(hello);
    FUZZ_EXPECT(chief_.is_present(rank));
    FUZZ_EXPECT(!chief_.is_contested(hello));
    FUZZ_EXPECT(!chief_.refuse(hello).has_value());
    FUZZ_EXPECT(chief_.comes_late(hello) == chief_.is_complete());
  }

  /// Who is there, and that all is over for this one.
  void hear_past(int rank) {
    std::vector<ControlKind> kinds;
    for (const SharedFrame& each : chief_.past_of(rank)) {
      fuzz::FramesHeard heard;
      heard.add(*each);
      while (const std::optional<Frame> frame = heard.next()) kinds.push_back(frame->kind);
    }
    FUZZ_EXPECT((kinds == std::vector{ControlKind::MEMBERS, ControlKind::ABORT}));
  }

  void exchange() {
    const int rank = any_rank();
    Exchange message;
    message.id = any_round();
    message.members.resize(input_.below(6));
    for (int& each : message.members) each = static_cast<int>(input_.below(6)) - 1;
    message.kind = input_.coin() ? "barrier" : "gather";
    message.bytes = input_.text();
    if (!chief_.is_present(rank)) return;
    const std::pair<int, RoundId> part{rank, message.id};
    ++num_open_[part];
    if (!say(rank, {ControlKind::EXCHANGE, message.encode()})) --num_open_[part];
  }

  void ask() {
    asked_ = any_round();
    (void)say(any_rank(), {ControlKind::ASK, WhoIsMissing{*asked_}.encode()});
    asked_.reset();
  }

  /// Whether it was no nonsense.
  bool say(int rank, const Frame& frame) {
    try {
      chief_.handle(rank, frame);
      return true;
    } catch (const WireError&) {
      chief_.lost(rank, "nonsense");
      FUZZ_EXPECT(!chief_.is_present(rank));
      return false;
    }
  }

  void hear(int rank, const std::string& bytes) {
    FUZZ_EXPECT(rank >= 0 && rank < num_workers_);
    FUZZ_EXPECT(chief_.is_present(rank));
    fuzz::FramesHeard heard;
    heard.add(bytes);
    const std::optional<Frame> frame = heard.next();
    FUZZ_EXPECT(frame.has_value() && !heard.next().has_value());
    if (frame->kind == ControlKind::EXCHANGED) {
      const Exchanged exchanged = Exchanged::decode(frame->payload);
      FUZZ_EXPECT(!exchanged.parts.empty());
      answered(rank, exchanged.id);
    } else if (frame->kind == ControlKind::EXCHANGE_FAILED) {
      answered(rank, ExchangeFailed::decode(frame->payload).id);
    } else if (frame->kind == ControlKind::ABORT) {  // which ends all that its receiver waits in
      for (auto& [part, num_open] : num_open_) {
        if (part.first == rank) num_open = 0;
      }
    } else if (frame->kind == ControlKind::ASK) {
      FUZZ_EXPECT(Ask::decode(frame->payload).nonce == 0);
      const auto part = asked_ ? num_open_.find({rank, *asked_}) : num_open_.end();
      FUZZ_EXPECT(part == num_open_.end() || part->second == 0);
    }
  }
  void answered(int rank, const RoundId& id) {
    int& num_open = num_open_[{rank, id}];
    // A frame that input_ made up by itself may have been a part of a round, too.
    if (num_open > 0) --num_open;
  }

  fuzz::Input& input_;
  int num_workers_;
  std::map<std::pair<int, RoundId>, int> num_open_;  // parts without an answer
  std::optional<RoundId> asked_;                     // while it is being asked about
  Chief chief_;
};

}  // namespace
}  // namespace crossdevice::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::silence_log();
  crossdevice::fuzz::Input input(data, size);
  crossdevice::detail::Scene(input).play();
  return 0;
}
