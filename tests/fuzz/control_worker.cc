// SPDX-License-Identifier: Apache-2.0
// What a chief says to a worker after it has proved who it is, well said or not, in any order, while the worker waits in rounds, one within another, gives
// them up, posts, aborts and is left out. A call ends with the first answer that was said to its round, or with what has ended everything, or because its
// time is over; who listens is told once, and only of members that exist; what the worker says is well said, and of the round that waits.
// No thread and no socket: the chief speaks while the worker speaks to it. How frames are cut is control_client's to try.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crossdevice/core/error.h"

#include "comm/detail/clock_comparison.h"
#include "comm/detail/control_message.h"
#include "comm/detail/membership.h"
#include "comm/detail/wire.h"
#include "fuzz/frames_heard.h"
#include "fuzz/fuzz_target.h"

namespace crossdevice::detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxRounds = 4;  // one within another
constexpr std::size_t kMaxListeners = 4;
/// For a deadline that passes while the call waits, and for the questions before it.
constexpr std::chrono::microseconds kSoon{100};

/// A call that waits.
struct Round {
  RoundId id;
  std::size_t num_parts = 0;
  Deadline deadline;
  bool is_given_up = false;
  bool is_said_to_be = false;  // to the chief
  // The first that was said to it.
  std::optional<std::vector<std::string>> parts{};
  std::optional<ExchangeFailed> failure{};
  int num_completions = 0;
  int num_failures = 0;
  [[nodiscard]] bool is_answered() const { return parts.has_value() || failure.has_value(); }
};

/// What one listener has heard.
struct Heard {
  std::vector<bool> lost;  // by rank
  std::size_t num_aborts = 0;
  std::shared_ptr<void> listening;
};

class Scene {
 public:
  Scene(fuzz::Input& input, std::size_t how)
      : input_(input),
        num_workers_(1 + static_cast<int>(how % 4)),
        rank_(num_workers_ - 1),
        is_stalling_((how & 4U) != 0),
        membership_(
            {.rank = rank_,
             .num_workers = num_workers_,
             .stall_warning = is_stalling_ ? std::chrono::hours(0) : std::chrono::hours(1),
             .patience = {.chiefs_answer = std::chrono::seconds(0),
                          .question = (how & 8U) != 0 ? kSoon / 2 : std::chrono::seconds(0)}},
            {.say =
                 [this](ControlKind kind, std::string payload) {
                   hear({kind, std::move(payload)});
                 },
             .on_members = [this] { ++num_meetings_; },
             .on_question = [this](std::uint64_t nonce) { FUZZ_EXPECT(nonce == asked_); }}) {}

  void play() {
    while (!input_.is_empty()) act();
    check();
    lose_chief("its connection ended");
    check();
    begin_round();
    FUZZ_EXPECT(rounds_.empty());
  }

 private:
  // ---------------------------------------------------------------------------------------------- the input's

  [[nodiscard]] int any_rank() { return static_cast<int>(input_.below(6)) - 1; }
  [[nodiscard]] RoundId any_round() {
    const std::size_t which = input_.below(8);
    if (which < rounds_.size()) return rounds_[which]->id;
    return rounds_.empty() || which < 6 ? RoundId{which, input_.below(4)} : rounds_.back()->id;
  }
  [[nodiscard]] std::vector<RankInfo> any_culprits() {
    std::vector<RankInfo> culprits(input_.below(3));
    for (RankInfo& each : culprits) each.rank = any_rank();
    return culprits;
  }
  [[nodiscard]] StatusCode any_code() {
    return static_cast<StatusCode>(
        input_.below(static_cast<std::size_t>(StatusCode::INTERNAL) + 1));
  }

  void act() {
    const std::size_t what = input_.number<std::uint8_t>();
    switch (what < 240 ? what % 20 : 20 + what % 2) {
      case 0:
        return say(
            static_cast<ControlKind>(1 + input_.below(static_cast<std::size_t>(kLastControlKind))),
            input_.text());
      case 1:
        return say_members();
      case 2:
      case 3:
        return say_parts();
      case 4:
        return say(ControlKind::EXCHANGE_FAILED,
                   ExchangeFailed{any_round(), any_code(), input_.text(), any_culprits()}.encode());
      case 5:
        return say(ControlKind::MISSING, Missing{any_round(), any_culprits()}.encode());
      case 6:
        return say(ControlKind::MEMBER_LOST, MemberLost{any_rank(), input_.text()}.encode());
      case 7:
        return say(ControlKind::ABORT, Abort{any_rank(), input_.text()}.encode());
      case 8:
        return say(ControlKind::POST,
                   Post{input_.below(2), any_rank(), {rank_}, input_.text()}.encode());
      case 9:
        return say(ControlKind::ASK, Ask{input_.below(3)}.encode());
      case 10:
        return say(ControlKind::GOODBYE, "");
      case 11:
        return say(ControlKind::REFUSED,
                   Refused{any_code(), input_.text(), any_culprits()}.encode());
      case 12:
      case 13:
        return begin_round();
      case 14:
        return give_up();
      case 15:
        return membership_.post(input_.below(2), {any_rank()}, input_.text());
      case 16:
        return listen();
      case 17:
        return stop();
      case 18:
        return lose_chief(input_.text());
      case 19:
        return end_meeting();
      case 20:
        return ask_clock();
      case 21: {
        ClockReading reading{.asked_ns = asked_ns_, .answered_ns = input_.number<std::int64_t>()};
        if (input_.below(8) == 1) reading.asked_ns = input_.number<std::int64_t>();
        reading.clock = input_.text();
        return say(ControlKind::CLOCK, reading.encode());
      }
    }
  }

  // ---------------------------------------------------------------------------------------------- the chief

  void say_members() {
    Members all;
    const std::size_t oddity = input_.below(8);
    for (int rank = 0; rank < num_workers_ + (oddity == 1 ? 1 : 0); ++rank) {
      all.members.push_back({.rank = rank, .host = "h", .host_id = "i", .pid = rank});
    }
    if (oddity == 2) all.members[input_.below(all.members.size())].rank = any_rank();
    say(ControlKind::MEMBERS, all.encode());
  }
  void say_parts() {
    Exchanged message{any_round(), {}};
    const std::size_t oddity = input_.below(8);
    const Round* const round = find(message.id);
    const std::size_t num_parts = round == nullptr ? 1 : round->num_parts;
    message.parts.resize(oddity == 1 ? input_.below(6) : num_parts);
    for (std::string& each : message.parts) each = input_.text();
    say(ControlKind::EXCHANGED, message.encode());
  }

  /// Well or, if the input says so, cut, longer, or with another byte.
  void say(ControlKind kind, std::string payload) {
    const std::size_t oddity = input_.below(16);
    if (oddity == 1) payload.resize(input_.below(payload.size() + 1));
    if (oddity == 2) payload += input_.text();
    if (oddity == 3 && !payload.empty()) {
      payload[input_.number<std::uint16_t>() % payload.size()] = input_.number<char>();
    }
    if (is_chief_gone_) return;
    const Frame frame{kind, std::move(payload)};
    try {
      expect(frame);
    } catch (const WireError&) {
      must_refuse_ = true;
    }
    try {
      if (frame.kind == ControlKind::CLOCK) {
        hear_clock(ClockReading::decode(frame.payload));  // as the link, which alone hears it
      } else {
        membership_.hear(frame);
      }
      FUZZ_EXPECT(!must_refuse_);
    } catch (const WireError& broken) {
      FUZZ_EXPECT(!must_take_);
      // As the connection does, which hears nothing of it any more.
      lose_chief(broken.what());
    }
    asked_.reset();
    post_.reset();
    must_refuse_ = must_take_ = false;
  }

  /// Notes what must come of a frame.
  void expect(const Frame& frame) {
    if (frame.kind == ControlKind::EXCHANGED) {
      Exchanged message = Exchanged::decode(frame.payload);
      Round* const round = find(message.id);
      if (round == nullptr || round->is_answered()) {
        must_take_ = true;
      } else if (message.parts.size() != round->num_parts) {
        must_refuse_ = true;
      } else {
        must_take_ = true;
        round->parts = std::move(message.parts);
      }
    } else if (frame.kind == ControlKind::EXCHANGE_FAILED) {
      ExchangeFailed message = ExchangeFailed::decode(frame.payload);
      must_refuse_ = !do_exist(message.culprits);
      must_take_ = !must_refuse_;
      Round* const round = find(message.id);
      if (must_take_ && round != nullptr && !round->is_answered()) {
        round->failure = std::move(message);
      }
    } else if (frame.kind == ControlKind::ASK) {
      asked_ = Ask::decode(frame.payload).nonce;
      must_take_ = true;
    } else if (frame.kind == ControlKind::POST) {
      post_ = Post::decode(frame.payload);
    } else if (frame.kind == ControlKind::REFUSED) {
      Refused refused = Refused::decode(frame.payload);
      must_refuse_ = !do_exist(refused.culprits);
      if (!must_refuse_) note_end(refused.code);
    } else if (frame.kind == ControlKind::ABORT) {
      const int origin = Abort::decode(frame.payload).origin;
      must_refuse_ = !does_exist(origin);
      if (!must_refuse_) note_end(StatusCode::ABORTED);
    }
  }

  void ask_clock() {
    now_ns_ += input_.number<std::uint16_t>();
    const std::optional<ClockReading> question = clocks_.begin(now_ns_);
    FUZZ_EXPECT(question.has_value() == (num_clock_answers_ == 0));
    if (!question.has_value()) return;
    num_clock_answers_ = ClockComparison::kQuestions;
    asked_ns_ = question->asked_ns;
    FUZZ_EXPECT(asked_ns_ == now_ns_);
  }
  /// Nobody can be further off than half of what the answer took.
  void hear_clock(const ClockReading& reading) {
    now_ns_ += input_.number<std::uint16_t>();
    const ClockComparison::Step step = clocks_.hear(reading, now_ns_);
    FUZZ_EXPECT(num_clock_answers_ > 0 && reading.asked_ns == asked_ns_);
    --num_clock_answers_;
    FUZZ_EXPECT(step.result.has_value() == (num_clock_answers_ == 0));
    FUZZ_EXPECT(step.question.has_value() != step.result.has_value());
    if (step.result.has_value()) {
      FUZZ_EXPECT(step.result->within_ns >= 0 && step.result->within_ns <= 0x8000);
      FUZZ_EXPECT(step.result->at_ns <= now_ns_);
    } else {
      asked_ns_ = step.question->asked_ns;
    }
  }

  void lose_chief(const std::string& why) {
    if (is_chief_gone_) return;
    is_chief_gone_ = true;
    note_end(StatusCode::UNAVAILABLE);
    membership_.lose_chief(why);
    for (const auto& each : listeners_) FUZZ_EXPECT(each->lost[0]);
  }

  /// What the worker says.
  void hear(const Frame& frame) {
    // A worker asks with the round, a chief otherwise.
    if (frame.kind != ControlKind::ASK) fuzz::require_well_said(frame);
    switch (frame.kind) {
      case ControlKind::EXCHANGE:
        FUZZ_EXPECT(Exchange::decode(frame.payload).id == rounds_.back()->id);
        break;
      case ControlKind::ASK:
      case ControlKind::WHO_IS_MISSING:
        FUZZ_EXPECT(WhoIsMissing::decode(frame.payload).id == rounds_.back()->id);
        break;
      case ControlKind::GIVE_UP: {
        Round& round = *rounds_.back();
        FUZZ_EXPECT(GiveUp::decode(frame.payload).id == round.id);
        FUZZ_EXPECT(round.deadline.has_passed() || round.is_given_up);
        FUZZ_EXPECT(!std::exchange(round.is_said_to_be, true));
        break;
      }
      case ControlKind::POST:
        FUZZ_EXPECT(Post::decode(frame.payload).from == rank_);
        return;
      case ControlKind::ABORT:
        FUZZ_EXPECT(Abort::decode(frame.payload).origin == rank_);
        return;
      default:
        FUZZ_FAIL("what a worker says");
    }
    while (!input_.is_empty() && input_.below(4) != 0) act();
    let_end();
  }
  /// Nobody else speaks: who waits for nothing that comes by itself must be answered now.
  void let_end() {
    const Round& round = *rounds_.back();
    const bool waits = !round.is_answered() && !end_.has_value() && round.deadline.is_never() &&
                       !round.is_given_up;
    const bool will_say_more = is_stalling_ && !input_.is_empty();
    if (!waits || will_say_more) return;
    lose_chief("its connection ended");
    FUZZ_EXPECT(end_.has_value());
  }

  // ---------------------------------------------------------------------------------------------- the worker

  void begin_round() {
    if (rounds_.size() == kMaxRounds) return;
    Round round;
    round.id = {input_.below(2), ++num_rounds_};
    std::vector<int> members(input_.below(4));
    for (std::size_t i = 0; i < members.size(); ++i) members[i] = static_cast<int>(i);
    round.num_parts = members.empty() ? static_cast<std::size_t>(num_workers_) : members.size();
    const std::size_t patience = input_.below(8);
    if (patience == 1) round.deadline = Deadline::after(kSoon);
    if (patience == 2) round.deadline = Deadline::after(std::chrono::seconds(0));
    const bool is_over = end_.has_value();
    rounds_.push_back(&round);
    std::optional<std::vector<std::string>> parts;
    std::optional<StatusCode> code;
    try {
      const RoundListener on_end{.on_failure = [&](auto&&...) { ++round.num_failures; },
                                 .on_completion =
                                     [&] {
                                       ++round.num_completions;
                                       membership_.post(1, {0}, "completed");
                                     }};
      parts =
          membership_.exchange(round.id, members, "gather", input_.text(), round.deadline, on_end);
    } catch (const OpError& error) {
      code = error.code();
      FUZZ_EXPECT(error.inputs_intact());
      FUZZ_EXPECT(do_exist({error.culprits().begin(), error.culprits().end()}));
    }
    FUZZ_EXPECT(rounds_.back() == &round);
    rounds_.pop_back();
    FUZZ_EXPECT(!is_over || !round.is_answered());
    FUZZ_EXPECT(round.num_completions == (round.parts.has_value() ? 1 : 0));
    FUZZ_EXPECT(round.num_failures == (round.failure.has_value() ? 1 : 0));
    if (round.is_answered()) {
      FUZZ_EXPECT(parts == round.parts);
      if (round.failure.has_value()) FUZZ_EXPECT(code == round.failure->code);
    } else if (end_.has_value()) {
      FUZZ_EXPECT(code == end_);
    } else {
      FUZZ_EXPECT(code == StatusCode::DEADLINE_EXCEEDED && round.is_said_to_be);
    }
  }

  void give_up() {
    const RoundId id = any_round();
    if (Round* const round = find(id)) round->is_given_up = true;
    membership_.give_up(id, input_.text());
  }

  /// Here, not at the chief's word.
  void stop() {
    const std::size_t how = input_.below(4);
    if (how == 0) return membership_.stop_all(input_.text());
    note_end(StatusCode::ABORTED);
    if (how == 1) {
      ++num_leavings_;  // which counts for more
      end_ = StatusCode::ABORTED;
      return membership_.leave_out(input_.text());
    }
    membership_.stop_here(static_cast<int>(input_.below(static_cast<std::size_t>(num_workers_))),
                          input_.text());
  }

  void end_meeting() {
    const bool is_over = membership_.await_meeting(Clock::now());
    FUZZ_EXPECT(is_over == (num_meetings_ > 0 || end_.has_value()));
    if (!is_over) end_ = StatusCode::DEADLINE_EXCEEDED;
    membership_.end_meeting({.code = StatusCode::DEADLINE_EXCEEDED, .text = "late"});
    FUZZ_EXPECT(membership_.meeting_failure().has_value() == (num_meetings_ == 0));
  }

  void listen() {
    if (listeners_.size() == kMaxListeners || input_.below(4) == 1) {
      if (!listeners_.empty()) listeners_.erase(listeners_.begin());
      return;
    }
    listeners_.push_back(std::make_unique<Heard>());
    Heard* const heard = listeners_.back().get();
    heard->lost.resize(static_cast<std::size_t>(num_workers_));
    const bool answers = input_.coin();
    const auto answer = [this, answers] {
      if (answers) membership_.post(1, {0}, "heard");
    };
    MembershipListener listener;
    listener.on_lost = [this, heard, answer](const RankInfo& member, const std::string&) {
      FUZZ_EXPECT(does_exist(member.rank));
      const auto index = static_cast<std::size_t>(member.rank);
      FUZZ_EXPECT(!heard->lost[index]);
      heard->lost[index] = true;
      answer();
    };
    listener.on_abort = [this, heard, answer](const RankInfo& origin, const std::string&) {
      FUZZ_EXPECT(does_exist(origin.rank));
      ++heard->num_aborts;
      FUZZ_EXPECT(heard->num_aborts <= 1 + num_leavings_);
      answer();
    };
    listener.on_post = [this, answer](std::uint64_t group, int from, std::string_view bytes) {
      FUZZ_EXPECT(post_.has_value() && does_exist(from));
      FUZZ_EXPECT(post_->group == group && post_->from == from && post_->bytes == bytes);
      answer();
    };
    heard->listening =
        MembershipNews::listen({std::shared_ptr<void>(), &membership_.news()}, std::move(listener));
  }

  // ---------------------------------------------------------------------------------------------- what must hold

  [[nodiscard]] bool does_exist(int rank) const { return rank >= 0 && rank < num_workers_; }
  [[nodiscard]] bool do_exist(const std::vector<RankInfo>& ranks) const {
    for (const RankInfo& each : ranks) {
      if (!does_exist(each.rank)) return false;
    }
    return true;
  }
  /// The first one counts.
  void note_end(StatusCode code) {
    if (!end_.has_value()) end_ = code;
  }
  [[nodiscard]] Round* find(const RoundId& id) {
    for (Round* each : rounds_) {
      if (each->id == id) return each;
    }
    return nullptr;
  }
  void check() {
    FUZZ_EXPECT(rounds_.empty());
    FUZZ_EXPECT(num_meetings_ <= 1);
    const std::vector<MemberInfo>& members = membership_.members();
    FUZZ_EXPECT(members.size() == static_cast<std::size_t>(num_meetings_ * num_workers_));
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      FUZZ_EXPECT(members[rank].rank == static_cast<int>(rank));
    }
    FUZZ_EXPECT(membership_.await_meeting(Clock::now()) ==
                (num_meetings_ == 1 || end_.has_value()));
    const std::optional<Refused> failure = membership_.meeting_failure();
    if (failure.has_value()) FUZZ_EXPECT(num_meetings_ == 0 && failure->code == end_);
  }

  fuzz::Input& input_;
  const int num_workers_;
  const int rank_;
  const bool is_stalling_;      // it asks at once, again and again, whom it waits for
  std::vector<Round*> rounds_;  // under way, the innermost last
  std::uint64_t num_rounds_ = 0;
  std::optional<StatusCode> end_;
  int num_meetings_ = 0;
  std::size_t num_leavings_ = 0;
  bool is_chief_gone_ = false;
  ClockComparison clocks_;
  int num_clock_answers_ = 0;  // that will come
  std::int64_t now_ns_ = 0;
  std::int64_t asked_ns_ = 0;
  // Of the frame that is being heard.
  std::optional<std::uint64_t> asked_;
  std::optional<Post> post_;
  bool must_take_ = false;
  bool must_refuse_ = false;
  Membership membership_;
  std::vector<std::unique_ptr<Heard>> listeners_;
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
