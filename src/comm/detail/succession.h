// SPDX-License-Identifier: Apache-2.0
/// Which workers go on together after a failure: one answer, whatever each of them believes about the others. No sockets, no clocks, no threads.
///
/// An epoch is a number and the ranks that work in it. The members of epoch e choose its successor, an epoch with a higher number, among themselves:
///
///   candidate                                member
///   PREPARE ballot             ------->      promises to vote for nothing below this ballot
///                              <-------      PROMISE, with what it has voted for so far
///   with promises of a quorum: the vote of the highest ballot among them, or else those who have come
///   PROPOSE ballot, members    ------->      votes, unless it has promised a higher ballot meanwhile
///                              <-------      ACCEPT
///   with votes of a quorum it is chosen; CHOSEN tells the members, and nobody works in an epoch before it is told
///
/// Why two workers never go on in two clusters. This is one instance of Paxos (Lamport, "Paxos Made Simple", 2001) per epoch, whose value is the list of
/// members: a ballot belongs to one candidate, which proposes one list in it. Let list L be chosen in ballot b, and let b' > b be the next
/// ballot in which a list is proposed. Its candidate has promises of a quorum, which shares a member m with the quorum that voted for L. m voted before it
/// promised b', or it would not have voted. So its promise tells of L, and no vote of a ballot above b exists: L is what is proposed in b',
/// and by induction in every later ballot. Quorums share a member because they are majorities. Epoch e+1 is succeeded by a choice of its own members
/// alone, so the epochs form one line, and members of one epoch that disagree about who is dead still find the same successor, or none.
/// With fewer than a majority (SuccessionCandidate's `quorum`) all of this is gone: both halves of a broken network may go on. That is the program's
/// choice, never the default.
///
/// Why a process need not remember its votes when it dies: nobody comes back under its rank.
///
/// Why it comes to an end while a majority lives and hears each other: every worker turns to the lowest rank that answers, so all but one stop being
/// candidates; that one hears of every promise above its ballot and takes a higher one. A list that was chosen but names somebody who is not
/// there is an epoch like another: its members choose its successor.
///
/// tests/model/succession.pml is this and the meeting around it as a model, every state of which is visited in every test run.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace crossdevice::detail {

/// Ranks are the job's: those that the workers had when they first met. Ascending.
struct Epoch {
  std::uint64_t number = 1;
  std::vector<int> members{};
  [[nodiscard]] bool has(int rank) const;
  friend bool operator==(const Epoch&, const Epoch&) = default;
};

struct Ballot {
  std::uint64_t round = 0;
  int rank = -1;  ///< whose it is
  // NOLINTNEXTLINE(modernize-use-nullptr): what the linter sees is the compiler's comparison with 0
  friend auto operator<=>(const Ballot&, const Ballot&) = default;
};

struct Vote {
  Ballot ballot{};
  std::vector<int> members{};
  friend bool operator==(const Vote&, const Vote&) = default;
};

/// What a member has promised, and for what it has voted last.
struct Promise {
  Ballot ballot{};
  std::optional<Vote> vote = std::nullopt;
};

/// A member's part in choosing one epoch's successor.
class SuccessionVoter {
 public:
  /// Promises the ballot unless a higher one is promised; says which is.
  Promise promise(const Ballot& ballot);
  /// Votes unless a higher ballot is promised; says which is promised.
  Ballot vote(const Vote& proposal);
  [[nodiscard]] const Promise& state() const { return state_; }

 private:
  Promise state_;
};

/// A candidate's part. The candidate is a member too: `own` votes like everybody.
class SuccessionCandidate {
 public:
  /// `quorum`: how many members must agree, at least 1.
  SuccessionCandidate(Epoch epoch, int rank, std::size_t quorum, SuccessionVoter& own);

  /// What is to be PREPAREd with.
  [[nodiscard]] const Ballot& ballot() const { return ballot_; }
  /// A member's promise. False: it has promised a higher ballot; everybody must be asked again, with the new ballot().
  [[nodiscard]] bool hear_promise(int rank, const Promise& promise);
  /// A member's vote. False: as above.
  [[nodiscard]] bool hear_vote(int rank, const Ballot& promised);
  /// The member's connection has ended: what it has promised and voted stands, but it is not there.
  void leave(int rank);
  /// Everything from the start, with a higher ballot: where a proposal cannot get the votes any more.
  void begin_again();

  /// Those who have promised this ballot and are there, the candidate among them; ascending.
  [[nodiscard]] std::vector<int> come() const;
  [[nodiscard]] bool has_promised(int rank) const { return promises_.contains(rank); }
  [[nodiscard]] bool has_quorum() const { return promises_.size() >= quorum_; }
  /// Whether somebody has voted before: then that is proposed, whoever has come.
  [[nodiscard]] bool is_bound() const { return bound_.has_value(); }
  /// Proposes; once per ballot, with a quorum.
  const Vote& propose();
  [[nodiscard]] bool has_proposed() const { return proposal_.has_value(); }
  [[nodiscard]] bool has_vote_of(int rank) const { return votes_.contains(rank); }
  /// Whether the proposal is chosen.
  [[nodiscard]] bool is_chosen() const { return has_proposed() && votes_.size() >= quorum_; }
  [[nodiscard]] const Vote& proposal() const { return *proposal_; }

 private:
  void begin(std::uint64_t round);

  Epoch epoch_;
  int rank_;
  std::size_t quorum_;
  SuccessionVoter& own_;
  Ballot ballot_;
  std::uint64_t highest_round_ = 0;
  std::map<int, Promise> promises_;
  std::set<int> absent_;       // have promised, but are gone
  std::optional<Vote> bound_;  // the vote of the highest ballot among the promises
  std::optional<Vote> proposal_;
  std::set<int> votes_;
};

}  // namespace crossdevice::detail
