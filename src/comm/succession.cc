// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/succession.h"

#include <algorithm>
#include <utility>

namespace crossdevice::detail {

bool Epoch::has(int rank) const { return std::binary_search(members.begin(), members.end(), rank); }

Promise SuccessionVoter::promise(const Ballot& ballot) {
  state_.ballot = std::max(state_.ballot, ballot);
  return state_;
}

Ballot SuccessionVoter::vote(const Vote& proposal) {
  if (proposal.ballot >= state_.ballot) {
    state_.ballot = proposal.ballot;
    state_.vote = proposal;
  }
  return state_.ballot;
}

SuccessionCandidate::SuccessionCandidate(Epoch epoch, int rank, std::size_t quorum,
                                         SuccessionVoter& own)
    : epoch_(std::move(epoch)), rank_(rank), quorum_(quorum), own_(own) {
  begin(own.state().ballot.round + 1);
}

void SuccessionCandidate::begin(std::uint64_t round) {
  highest_round_ = std::max(highest_round_, round);
  ballot_ = {highest_round_, rank_};
  promises_.clear();
  absent_.clear();
  bound_.reset();
  proposal_.reset();
  votes_.clear();
  (void)hear_promise(rank_, own_.promise(ballot_));
}

void SuccessionCandidate::begin_again() { begin(highest_round_ + 1); }

bool SuccessionCandidate::hear_promise(int rank, const Promise& promise) {
  if (!epoch_.has(rank) || promise.ballot < ballot_) return true;  // of an earlier ballot
  if (promise.ballot > ballot_) {
    begin(promise.ballot.round + 1);
    return false;
  }
  promises_[rank] = promise;
  absent_.erase(rank);
  // What comes after the proposal has no part in it.
  if (!has_proposed() && promise.vote.has_value() &&
      (!bound_.has_value() || bound_->ballot < promise.vote->ballot)) {
    bound_ = promise.vote;
  }
  return true;
}

bool SuccessionCandidate::hear_vote(int rank, const Ballot& promised) {
  if (!epoch_.has(rank) || promised < ballot_) return true;
  if (promised > ballot_) {
    begin(promised.round + 1);
    return false;
  }
  if (has_proposed()) votes_.insert(rank);
  return true;
}

void SuccessionCandidate::leave(int rank) { absent_.insert(rank); }

std::vector<int> SuccessionCandidate::come() const {
  std::vector<int> ranks;
  ranks.reserve(promises_.size());
  for (const auto& [rank, promise] : promises_) {
    if (!absent_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

const Vote& SuccessionCandidate::propose() {
  proposal_ = Vote{ballot_, bound_.has_value() ? bound_->members : come()};
  (void)hear_vote(rank_, own_.vote(*proposal_));
  return *proposal_;
}

}  // namespace crossdevice::detail
