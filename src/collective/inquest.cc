// SPDX-License-Identifier: Apache-2.0
/// Who is blamed for a timeout, where all come to the meeting.
///
/// Operations are counted, on every member alike, since all make the same calls in the same order; a call that fails before it begins, on one member
/// alone, is no operation there. A member may leave one that others are still in: who only sends does not wait for who receives. So numbers
/// may differ although the calls do not, and then the others wait for those with the smallest number. That the calls do not differ is
/// compared where two members have been in an operation with one number: the last or the last but one.
///
/// Of members in one operation, those are late who have been in it for less than half of the time that others have. Times are each member's own, so no clocks
/// are compared, and they count from when its deadline began to run: of a batch, that is when its first pack began. Were they counted from when the
/// last pack began, to which all come at the same time, whoever had used up the others' time in an earlier one would be excused, and whoever came some
/// milliseconds later than others to the last one blamed. Who is late in this sense has cost the others more than everything else together. It need not
/// be who was waited for in the last moment, and so the error says by how much it was late. Nobody has waited for longer than until its deadline: who looks at it
/// much later than others was stopped, as the whole process may be, and what it has not taken meanwhile may have been there in time. Where nobody is late, all wait
/// for each other, round and round, and whom the first one to give up did wait for may wait as well. But where one waits for a message that another has sent, it is between these two that
/// something is wrong. Where there is no such message either, or most have one on its way, those are named for whom the first one to give up did wait.
#include "collective/detail/inquest.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "crossdevice/comm/own_lateness_error.h"
#include "crossdevice/comm/told_chief_loss_error.h"
#include "crossdevice/core/outliers.h"

#include "collective/detail/slot_stream.h"

namespace crossdevice::detail {
namespace {

/// What a member says. It travels as it lies in memory, the culprits' ranks, the traffic, the call's details and the text behind it.
struct Head {
  GroupOperation operation;
  GroupOperation previous;   // the one before
  std::uint64_t number = 0;  // of `operation`
  std::int64_t waited_ns = 0;
  std::int64_t overslept_ns = 0;
  std::uint32_t code = 0;
  std::uint32_t num_culprits = 0;
  std::uint32_t num_peers = 0;
  std::uint32_t is_own_lateness = 0;  // 1: of the first one to give up
  std::uint64_t details_bytes = 0;
};
/// Of a peer. No byte of it is padding.
struct Traffic {
  std::uint64_t num_sent = 0;
  std::uint64_t num_received = 0;
  std::uint32_t rank = 0;
  std::uint32_t is_awaited = 0;
};
struct Statement {
  GroupOperation operation;
  GroupOperation previous;
  std::uint64_t number = 0;
  std::chrono::nanoseconds waited{};     // at most until its deadline
  std::chrono::nanoseconds overslept{};  // after which it has only now seen that
  StatusCode code = StatusCode::INTERNAL;
  std::vector<RankInfo> culprits;
  std::vector<Traffic> traffic;
  bool is_own_lateness = false;
  CallDetails details;
  std::string text;
};

/// Of so many peers a member tells the traffic: a statement stays small.
constexpr std::uint32_t kMostPeers = 64;

template <class Item>
void append(std::string& bytes, const Item& item) {
  static_assert(std::is_trivially_copyable_v<Item>);
  bytes.append(reinterpret_cast<const char*>(&item), sizeof item);
}

/// `head` with what `failure` says.
std::string encode(Head head, const OpError& failure, std::span<const PeerTraffic> traffic,
                   const CallDetails& details) {
  head.code = static_cast<std::uint32_t>(failure.code());
  std::string ranks;
  for (const RankInfo& culprit : failure.culprits()) {
    if (culprit.rank < 0) continue;  // no worker of this job, so none that the others could name
    append(ranks, culprit.rank);
    ++head.num_culprits;
  }
  std::string told;
  for (const bool is_awaited : {true, false}) {  // those first that it waits for
    for (const PeerTraffic& each : traffic) {
      if (each.is_awaited != is_awaited || head.num_peers == kMostPeers) continue;
      append(told, Traffic{.num_sent = each.num_sent,
                           .num_received = each.num_received,
                           .rank = static_cast<std::uint32_t>(each.rank),
                           .is_awaited = is_awaited ? 1U : 0U});
      ++head.num_peers;
    }
  }
  if (dynamic_cast<const OwnLatenessError*>(&failure) != nullptr) head.is_own_lateness = 1;
  const std::string how = encode_details(details);
  head.details_bytes = how.size();
  std::string bytes;
  append(bytes, head);
  return bytes.append(ranks).append(told).append(how).append(failure.what());
}

/// Errors   InternalError: it is none.
Statement decode(std::string_view bytes, const Cluster& cluster) {
  SlotReader reader(std::as_bytes(std::span(bytes)));
  const auto head = reader.get<Head>();
  if (head.code > static_cast<std::uint32_t>(StatusCode::INTERNAL)) {
    throw InternalError("there is no such code");
  }
  Statement statement{.operation = head.operation,
                      .previous = head.previous,
                      .number = head.number,
                      .waited = std::chrono::nanoseconds(head.waited_ns),
                      .overslept = std::chrono::nanoseconds(head.overslept_ns),
                      .code = static_cast<StatusCode>(head.code),
                      .culprits = {},
                      .traffic = {},
                      .is_own_lateness = head.is_own_lateness != 0,
                      .details = {},
                      .text = {}};
  for (std::uint32_t i = 0; i < head.num_culprits; ++i) {
    const int rank = reader.get<int>();
    if (rank < 0 || rank >= cluster.num_workers()) throw InternalError("there is no such rank");
    statement.culprits.push_back(cluster.worker(rank));
  }
  for (std::uint32_t i = 0; i < head.num_peers; ++i) {
    statement.traffic.push_back(reader.get<Traffic>());
  }
  const std::string_view rest = bytes.substr(bytes.size() - reader.rest().size());
  if (head.details_bytes > rest.size()) throw InternalError("the details are cut off");
  statement.details = decode_details(rest.substr(0, head.details_bytes));
  statement.text = rest.substr(head.details_bytes);
  return statement;
}

/// How much a failure explains: the last ones follow from the others.
int weight(StatusCode code) {
  switch (code) {
    case StatusCode::INTERNAL:
      return 4;
    case StatusCode::ABORTED:
      return 3;
    case StatusCode::UNAVAILABLE:
      return 2;
    case StatusCode::DEADLINE_EXCEEDED:
      return 1;
    case StatusCode::CANCELLED:
    case StatusCode::FAILED_PRECONDITION:
    case StatusCode::UNIMPLEMENTED:
    case StatusCode::RESOURCE_EXHAUSTED:
      break;
  }
  return 5;  // happened to that worker, not between workers
}

std::vector<int> everybody(const Cluster& cluster) {
  std::vector<int> ranks(static_cast<std::size_t>(cluster.num_workers()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

[[noreturn]] void raise(StatusCode code, const std::string& text, std::vector<RankInfo> culprits,
                        bool inputs_intact) {
  throw_op_error(
      code, text,
      {.operation = {}, .culprits = std::move(culprits), .inputs_intact = inputs_intact});
}

/// Who was waited for, and what else is to be said of it.
struct Missed {
  RankInfo rank;
  std::string how{};
};

/// This worker hears it too if it is one of them.
[[noreturn]] void blame(const std::string& name, const std::vector<Missed>& missed,
                        const Cluster& cluster, bool inputs_intact) {
  std::string names;
  std::vector<RankInfo> ranks;
  ranks.reserve(missed.size());
  for (const Missed& each : missed) {
    if (each.rank.rank == cluster.rank()) {
      raise(StatusCode::DEADLINE_EXCEEDED,
            fmt::format("{}: the others have given up waiting for this worker, {}{}", name,
                        to_string(each.rank), each.how),
            {each.rank}, inputs_intact);
    }
    names += (names.empty() ? "" : ", ") + to_string(each.rank) + each.how;
    ranks.push_back(each.rank);
  }
  raise(StatusCode::DEADLINE_EXCEEDED, fmt::format("{} timed out: waiting for {}", name, names),
        std::move(ranks), inputs_intact);
}

/// A difference that does not come from the others' having waited.
constexpr std::chrono::milliseconds kJitter{20};
/// For so long a busy processor may keep anybody from its deadline.
constexpr std::chrono::milliseconds kNap{250};

/// Of `ranks`, which are in one operation: who came late to it.
std::vector<std::size_t> late_ones(const std::vector<Statement>& statements,
                                   const std::vector<std::size_t>& ranks) {
  std::chrono::nanoseconds longest{};
  for (const std::size_t rank : ranks) longest = std::max(longest, statements[rank].waited);
  std::vector<std::size_t> late;
  for (const std::size_t rank : ranks) {
    if (statements[rank].waited >= std::min(longest / 2, longest - kJitter)) continue;
    late.push_back(rank);
  }
  return late;
}

/// Who was stopped beyond its deadline, and not all with it: for more than half of what anybody has waited.
std::vector<std::size_t> sleepers(const std::vector<Statement>& statements) {
  std::chrono::nanoseconds longest = 2 * kNap;
  std::chrono::nanoseconds least = std::chrono::nanoseconds::max();
  for (const Statement& each : statements) {
    longest = std::max(longest, each.waited);
    least = std::min(least, each.overslept);
  }
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < statements.size(); ++rank) {
    if (statements[rank].overslept - least > longest / 2) ranks.push_back(rank);
  }
  return ranks;
}

/// Those with the smallest number.
std::vector<std::size_t> hindmost(const std::vector<Statement>& statements) {
  std::uint64_t smallest = statements[0].number;
  for (const Statement& each : statements) smallest = std::min(smallest, each.number);
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < statements.size(); ++rank) {
    if (statements[rank].number == smallest) ranks.push_back(rank);
  }
  return ranks;
}

/// Whether an operation with one number is not the same on both, as far as they say.
bool differ(const Statement& a, const Statement& b) {
  if (a.number == b.number) return a.operation != b.operation;
  if (a.number + 1 == b.number) return a.operation != b.previous;
  if (b.number + 1 == a.number) return b.operation != a.previous;
  return false;
}

/// Throws if any do.
void require_equal_operations(const std::vector<Statement>& statements, const Cluster& cluster,
                              bool inputs_intact) {
  const std::vector<std::size_t> ranks =
      outliers(statements.size(),
               [&](std::size_t i, std::size_t j) { return differ(statements[i], statements[j]); });
  if (ranks.empty()) return;
  std::vector<ToldCall> told;
  told.reserve(statements.size());
  // What is known of another one's details says nothing of this one's.
  const bool is_one = std::all_of(statements.begin(), statements.end(), [&](const Statement& each) {
    return each.number == statements[0].number;
  });
  for (std::size_t rank = 0; rank < statements.size(); ++rank) {
    told.push_back({.rank = static_cast<int>(rank),
                    .operation = statements[rank].operation,
                    .details = is_one ? statements[rank].details : CallDetails{}});
  }
  std::vector<RankInfo> culprits;
  culprits.reserve(ranks.size());
  for (const std::size_t rank : ranks) culprits.push_back(cluster.worker(static_cast<int>(rank)));
  raise(StatusCode::INTERNAL, describe_difference(told), std::move(culprits), inputs_intact);
}

/// Of a timeout for which all came to the meeting; `telling` is the first one's statement. Nobody: those that it names.
std::vector<Missed> missed_ones(const std::vector<Statement>& statements, const Statement& telling,
                                const Cluster& cluster) {
  std::vector<std::size_t> ranks = hindmost(statements);
  const bool are_all = ranks.size() == statements.size();
  if (const std::vector<std::size_t> asleep = sleepers(statements); are_all && !asleep.empty()) {
    std::vector<Missed> missed;
    missed.reserve(asleep.size());
    for (const std::size_t rank : asleep) {
      const std::chrono::duration<double> late = statements[rank].overslept;
      missed.push_back(
          {.rank = cluster.worker(static_cast<int>(rank)),
           .how = fmt::format(", which saw only {:.3g} s later that its deadline had passed",
                              late.count())});
    }
    return missed;
  }
  const std::vector<std::size_t> late = late_ones(statements, ranks);
  std::vector<Missed> missed;
  if (late.empty()) {
    if (are_all) return missed;
    const auto is_named = [&](std::size_t rank) {
      return std::any_of(
          telling.culprits.begin(), telling.culprits.end(),
          [&](const RankInfo& culprit) { return culprit.rank == static_cast<int>(rank); });
    };
    if (std::any_of(ranks.begin(), ranks.end(), is_named)) {
      std::erase_if(ranks, [&](std::size_t rank) { return !is_named(rank); });
    }
  } else {
    ranks = late;
  }
  std::chrono::nanoseconds longest{};
  for (const Statement& each : statements) longest = std::max(longest, each.waited);
  missed.reserve(ranks.size());
  for (const std::size_t rank : ranks) {
    Missed one{.rank = cluster.worker(static_cast<int>(rank))};
    if (are_all) {
      const std::chrono::duration<double> lateness = longest - statements[rank].waited;
      one.how = fmt::format(", which came {:.3g} s after the others", lateness.count());
    } else {
      one.rank.last_operation = short_name(statements[rank].operation);
    }
    missed.push_back(std::move(one));
  }
  return missed;
}

/// From whom a message to whom is missing, where the one waits that the other has sent.
std::vector<std::pair<std::size_t, std::size_t>> missing_messages(
    const std::vector<Statement>& statements) {
  std::vector<std::pair<std::size_t, std::size_t>> missing;
  for (std::size_t to = 0; to < statements.size(); ++to) {
    for (const Traffic& here : statements[to].traffic) {
      const std::size_t from = here.rank;
      if (here.is_awaited == 0 || from >= statements.size()) continue;
      for (const Traffic& there : statements[from].traffic) {
        const bool is_sent = there.rank == to && there.num_sent > here.num_received;
        if (is_sent) missing.emplace_back(from, to);
      }
    }
  }
  return missing;
}

/// Of a timeout for which all came, in time, to the operation. Returns where that is no message's fault: none is missing; or one is on most members' way, as where
/// all links are slow; or somebody has not done its own part, and so may not have taken what has come.
void blame_links(const std::string& name, const std::vector<Statement>& statements,
                 const Cluster& cluster, bool inputs_intact) {
  const bool is_own_lateness =
      std::any_of(statements.begin(), statements.end(),
                  [](const Statement& each) { return each.is_own_lateness; });
  const std::vector<std::pair<std::size_t, std::size_t>> missing = missing_messages(statements);
  if (missing.empty() || is_own_lateness || 2 * missing.size() > statements.size()) return;
  std::string text;
  std::vector<RankInfo> culprits;
  const auto blame = [&](std::size_t rank) {
    const RankInfo info = cluster.worker(static_cast<int>(rank));
    const bool is_new = std::none_of(culprits.begin(), culprits.end(),
                                     [&](const RankInfo& each) { return each.rank == info.rank; });
    if (is_new) culprits.push_back(info);
    return to_string(info);
  };
  for (const auto& [from, to] : missing) {
    const std::string sender = blame(from);
    text += fmt::format("{}{} for what {} has sent", text.empty() ? "" : ", ", blame(to), sender);
  }
  raise(StatusCode::DEADLINE_EXCEEDED,
        fmt::format("{} timed out, and it has not come: waiting is {}", name, text),
        std::move(culprits), inputs_intact);
}

/// Of those who have not come in time. Not who was waited for, unless there is nobody else: who is in the operation, as far as is known, for it waits like this
/// worker, and only its processor was not free for it; and who has left it, or a later one, and is in none since, so that it heard of nothing, where this worker
/// waits for no message from it (`awaited`). It may owe one to somebody who is between the two, in a later pack: then it is not the only one to be missed, or
/// the only one and named. Operations of several objects in one process may have equal numbers.
std::vector<Missed> missed_ones(const DeadlineExceededError& absent,
                                std::span<const RankInfo> awaited,
                                const GroupOperation& operation) {
  const std::string under_way = short_name(operation);
  const auto is_awaited = [&](const RankInfo& member) {
    return std::any_of(awaited.begin(), awaited.end(),
                       [&](const RankInfo& each) { return each.rank == member.rank; });
  };
  std::vector<Missed> missed;
  missed.reserve(absent.culprits().size());
  for (const RankInfo& each : absent.culprits()) {
    const bool is_excused = each.last_operation == under_way ||
                            (has_left(each.last_operation, operation) && !is_awaited(each));
    if (!is_excused) missed.push_back({.rank = each});
  }
  if (!missed.empty()) return missed;
  for (const RankInfo& each : absent.culprits()) {
    const bool is_namesake = each.last_operation == under_way;
    missed.push_back({.rank = each, .how = is_namesake ? " of this or another object" : ""});
  }
  return missed;
}

/// A member that hears nothing of the chief says that the chief is gone, and the others fail by its word before they could know. Where it is, they hear
/// nothing of it here either: then `answer`, what has ended the meeting, names the chief. Any other one that names somebody is the chief's own, which has
/// answered a round to which this worker has come after that word. So the word was wrong, and nothing is known to be amiss but with the one that gave it:
/// its link lets it speak and not hear, or it was stopped itself. Where the chief was stopped, and goes on in time to answer, nobody else is blamed than
/// by the chief, which tells all of a member that gives it up that this member has (ChiefLink::beat). The control plane says here what it said before, so that
/// its models stand. Null: the word stands.
const ToldChiefLossError* refuted(const OpError& failure, const OpError& answer) {
  const auto* const told = dynamic_cast<const ToldChiefLossError*>(&failure);
  if (told == nullptr || answer.culprits().empty()) return nullptr;
  const bool is_the_chiefs =
      std::none_of(answer.culprits().begin(), answer.culprits().end(),
                   [&](const RankInfo& each) { return each.rank == told->culprits()[0].rank; });
  return is_the_chiefs ? told : nullptr;
}

[[noreturn]] void conclude(const std::string& name, const std::vector<Statement>& statements,
                           const Cluster& cluster, bool inputs_intact) {
  require_equal_operations(statements, cluster, inputs_intact);
  const Statement* telling = statements.data();
  for (const Statement& each : statements) {
    if (weight(each.code) > weight(telling->code)) telling = &each;
  }
  if (telling->code == StatusCode::DEADLINE_EXCEEDED) {
    const std::vector<Missed> missed = missed_ones(statements, *telling, cluster);
    if (!missed.empty()) blame(name, missed, cluster, inputs_intact);
    blame_links(name, statements, cluster, inputs_intact);
  }
  const RankInfo teller = cluster.worker(static_cast<int>(telling - statements.data()));
  if (telling->culprits.empty() && teller.rank != cluster.rank()) {
    raise(telling->code, fmt::format("{}: {}: {}", name, to_string(teller), telling->text),
          {teller}, inputs_intact);
  }
  const std::string prefix = telling->text.starts_with(name) ? "" : name + ": ";
  raise(telling->code, prefix + telling->text, telling->culprits, inputs_intact);
}

}  // namespace

Inquest::Inquest(const std::shared_ptr<Cluster>& cluster)
    : meeting_(cluster->subgroup(everybody(*cluster))) {}

void Inquest::begin(const GroupOperation& operation, const Deadline& deadline) {
  const bool is_next_part = operation.sequence != 0 && operation.sequence == operation_.sequence &&
                            deadline.moment() == deadline_;
  previous_ = operation_;
  operation_ = operation;
  ++number_;
  if (is_next_part) return;
  deadline_ = deadline.moment();
  begun_at_ = std::chrono::steady_clock::now();
}

Deadline Inquest::end_of_meeting(StatusCode failure) const {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::steady_clock::duration most =
      failure == StatusCode::INTERNAL ? kGraceOfDifference : kGrace;
  if (deadline_ >= now + most) return Deadline::after(most);
  return Deadline::after(std::clamp<std::chrono::steady_clock::duration>(
      deadline_ + kAfterDeadline - now, kLeast, most));
}

void Inquest::hold(const std::string& name, const OpError& failure, bool inputs_intact,
                   std::span<const PeerTraffic> traffic) {
  std::vector<std::string> parts;
  try {
    const auto now = std::chrono::steady_clock::now();
    const auto waited = std::max(std::min(now, deadline_), begun_at_) - begun_at_;
    const auto overslept = std::max(now, deadline_) - deadline_;
    const Head head{.operation = operation_,
                    .previous = previous_,
                    .number = number_,
                    .waited_ns = std::chrono::nanoseconds(waited).count(),
                    .overslept_ns = std::chrono::nanoseconds(overslept).count()};
    parts = meeting_->all_gather_bytes(encode(head, failure, traffic, details_),
                                       end_of_meeting(failure.code()));
  } catch (const DeadlineExceededError& absent) {
    if (const ToldChiefLossError* const told = refuted(failure, absent)) {
      raise(failure.code(),
            fmt::format("{}: {}; but {} answers: it is {} that does not hear it", name,
                        failure.what(), to_string(told->culprits()[0]), to_string(told->teller())),
            {told->teller()}, inputs_intact);
    }
    if (failure.code() != StatusCode::DEADLINE_EXCEEDED) {
      throw_anew(failure, failure.what(), /*operation=*/{}, inputs_intact);
    }
    // Who has done its part is in no operation, or in the next one, and has nothing to say of this one.
    if (dynamic_cast<const OwnLatenessError*>(&failure) != nullptr) {
      raise(failure.code(), fmt::format("{}: {}", name, failure.what()),
            {failure.culprits().begin(), failure.culprits().end()}, inputs_intact);
    }
    blame(name, missed_ones(absent, failure.culprits(), operation_), *meeting_, inputs_intact);
  } catch (const OpError& better) {
    // The control plane knows who is gone and who has aborted; a difference between calls explains more than its consequences.
    const bool explains_more =
        weight(failure.code()) >= weight(better.code()) && refuted(failure, better) == nullptr;
    const OpError& cause = explains_more ? failure : better;
    raise(cause.code(), fmt::format("{}: {}", name, cause.what()),
          {cause.culprits().begin(), cause.culprits().end()}, inputs_intact);
  }
  std::vector<Statement> statements;
  statements.reserve(parts.size());
  for (const std::string& part : parts) {
    try {
      statements.push_back(decode(part, *meeting_));
    } catch (const InternalError&) {
      raise(StatusCode::INTERNAL, name + ": a worker's statement cannot be read", {},
            inputs_intact);
    }
  }
  conclude(name, statements, *meeting_, inputs_intact);
}

}  // namespace crossdevice::detail
