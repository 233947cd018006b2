// SPDX-License-Identifier: Apache-2.0
// Calls, answers to whoever asks, and epochs; meeting_candidate.cc has how members find each other and choose.
#include "comm/detail/meeting_place.h"

#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "crossdevice/device/shutdown.h"

#include "comm/detail/meeting_state.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {

// ---------------------------------------------------------------------------------------------- calls

void MeetingPlace::State::begin(std::uint64_t job, int rank,
                                const std::vector<MemberInfo>& everyone) {
  job_ = job;
  rank_ = rank;
  everyone_ = everyone;
  {
    const std::lock_guard lock(mutex_);
    epoch_.number = 1;
    epoch_.members.reserve(everyone.size());
    for (const MemberInfo& each : everyone) epoch_.members.push_back(each.rank);
  }
  // What has connected before waits in the kernel. Here, before there is a thread: what this throws is the caller's to hear.
  reception_.open(socket_->acceptor(io_), fmt::format("rank {}'s meeting place", rank_),
                  kMaxSeekFrameBytes, options_.tls);
  start();
}

Meeting MeetingPlace::State::meet(const MeetingRequest& request) {
  require_not_forked();
  auto call = std::make_shared<Call>();
  call->request = request;
  std::unique_lock lock(mutex_);
  if (is_calling_) throw FailedPreconditionError(request.call + " is called already");
  asio::post(io_, [this, call] {
    call_ = call;
    if (!epoch_.has(rank_)) return end_call(std::nullopt, left_out());
    next_asked_ = 0;
    ask_next_at_ = Clock::now();
    tick();
  });
  is_calling_ = true;  // only now: that may have thrown
  changed_.wait(lock, [&] { return call->is_over(); });
  is_calling_ = false;
  lock.unlock();
  if (call->meeting.has_value()) return std::move(*call->meeting);
  const MeetingFailure failure = *call->failure;
  throw_op_error(failure.code, failure.text,
                 {.operation = {}, .culprits = failure.culprits, .inputs_intact = true});
}

std::shared_ptr<void> MeetingPlace::State::listen(const std::shared_ptr<State>& self,
                                                  OnEpoch on_epoch, OnCall on_call) {
  const std::lock_guard lock(listener_mutex_);
  const Epoch now = epoch();
  on_epoch(now, now.has(rank_));
  const auto position =
      listeners_.insert(listeners_.end(), {std::move(on_epoch), std::move(on_call)});
  return {nullptr, [self, position](void*) {
            std::list<Listener> removed;
            const std::lock_guard guard(self->listener_mutex_);
            removed.splice(removed.begin(), self->listeners_, position);
          }};
}

void MeetingPlace::State::end_call(std::optional<Meeting> meeting,
                                   std::optional<MeetingFailure> failure) {
  if (!is_called()) return;
  dissolve();
  leave_candidate();
  ask_nobody();
  const std::shared_ptr<Call> call = std::move(call_);
  call_ = nullptr;
  const std::lock_guard lock(mutex_);
  call->meeting = std::move(meeting);
  call->failure = std::move(failure);
  changed_.notify_all();
}

// ---------------------------------------------------------------------------------------------- being asked

void MeetingPlace::State::answer(const Connection& connection, const Nonce& challenge,
                                 const Frame& frame) {
  if (frame.kind != ControlKind::SEEK) throw WireError("expected a question");
  const auto refuse = [&](std::string_view reason, const Refused& refused) {
    reception_.refuse(connection, reason, refused.text);
    connection->send(encode_frame(ControlKind::REFUSED, refused.encode()));
    connection->close_after_sending();
  };
  if (const std::uint32_t protocol = protocol_of(frame.payload); protocol != kControlProtocol) {
    return refuse("protocol", {.text = fmt::format("it speaks protocol {}, rank {} speaks {}",
                                                   protocol, rank_, kControlProtocol)});
  }
  const Seek seek = Seek::decode(frame.payload);
  const auto prove = [&](Refused refused) {
    refused.mac = refused.expected_mac(options_.secret, seek.nonce);
    return refused;
  };
  Refused refused;
  if (options_.secret.empty() && !connection->is_from_this_machine()) {
    refused.text = "without a secret only this machine is believed";
  } else if (!is_equal(seek.mac, seek.expected_mac(options_.secret, challenge))) {
    refused.text = "it does not hold the secret of this job";
  } else if (seek.job != job_) {
    refused = prove({.text = "it is of another job"});
  } else if (const auto num_ranks = static_cast<int>(everyone_.size());
             num_ranks != 0 && (seek.rank < 0 || seek.rank >= num_ranks)) {
    refused = prove({.text = "this job has no such rank"});
  }
  if (!refused.text.empty()) return refuse(refused.text, refused);
  if (seek.epoch.number > epoch_.number) adopt(seek.epoch);
  if (!seek.rouses.empty() && seek.epoch == epoch_) be_roused(seek);
  const bool is_peer =
      seek.epoch == epoch_ && epoch_.has(seek.rank) && epoch_.has(rank_) && seek.rank > rank_;
  const bool takes_in = is_peer && !seek.call.empty() && is_called() && candidate_.has_value() &&
                        !candidate_->has_proposed();
  if (takes_in && seek.call != call_->request.call) {
    const MeetingFailure differ{
        StatusCode::INTERNAL,
        fmt::format("workers make different calls: {} {}, {} {}", describe(infos({rank_})),
                    call_->request.call, describe(infos({seek.rank})), seek.call),
        infos({seek.rank})};
    connection->send(encode_frame(
        ControlKind::REFUSED,
        prove({.code = differ.code, .text = differ.text, .culprits = differ.culprits}).encode()));
    connection->close_after_sending();
    refuse_all(differ);
    return end_call(std::nullopt, differ);
  }
  Found found;
  found.rank = rank_;
  found.epoch = epoch_;
  found.takes_in = takes_in;
  found.mac = found.expected_mac(options_.secret, seek.nonce);
  connection->send(encode_frame(ControlKind::FOUND, found.encode()));
  if (!takes_in) return connection->close_after_sending();
  take_in(connection, seek);
}

void MeetingPlace::State::be_roused(const Seek& seek) {
  const std::lock_guard lock(listener_mutex_);
  for (const Listener& each : listeners_) {
    if (each.on_call) each.on_call(seek.epoch, seek.rank, seek.rouses);
  }
}

void MeetingPlace::State::take_in(const Connection& connection, const Seek& seek) {
  const int rank = seek.rank;
  drop_member(rank);  // an earlier connection of its
  connection->set_max_frame_bytes(kMaxFrameBytes);
  sessions_[rank] = {connection, seek.completed, seek.lost};
  connection->take_over([this, rank](const Frame& frame) { hear_member(rank, frame); },
                        [this, rank](const std::string&) { drop_member(rank); });
  connection->send(
      encode_frame(ControlKind::PREPARE, BallotMessage{candidate_->ballot()}.encode()));
}

void MeetingPlace::State::hear_member(int rank, const Frame& frame) {
  bool is_answer_to_all = true;
  if (frame.kind == ControlKind::PROMISE) {
    is_answer_to_all =
        candidate_->hear_promise(rank, PromiseMessage::decode(frame.payload).promise);
  } else if (frame.kind == ControlKind::ACCEPT) {
    is_answer_to_all = candidate_->hear_vote(rank, BallotMessage::decode(frame.payload).ballot);
  } else if (frame.kind != ControlKind::HEARTBEAT) {
    throw WireError("a member does not say this");
  }
  if (!is_answer_to_all) prepare();
  try_to_propose();
  try_to_choose();
}

void MeetingPlace::State::drop_member(int rank) {
  const auto entry = sessions_.find(rank);
  if (entry == sessions_.end()) return;
  entry->second.connection->close_after_sending();
  sessions_.erase(entry);
  if (!candidate_.has_value()) return;
  candidate_->leave(rank);
  try_to_choose();
}

// ---------------------------------------------------------------------------------------------- epochs

/// Another epoch than the one that this worker was in.
void MeetingPlace::State::adopt(const Epoch& epoch) {
  if (epoch.number <= epoch_.number) return;
  dissolve();
  leave_candidate();
  ask_nobody();
  voter_ = {};
  next_asked_ = 0;
  ask_next_at_ = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    epoch_ = epoch;
  }
  {
    // First: whoever is told by its call that it was left out finds that all its objects know.
    const std::lock_guard lock(listener_mutex_);
    for (const Listener& each : listeners_) each.on_epoch(epoch, epoch.has(rank_));
  }
  if (!is_called()) return;
  call_->quorum_since.reset();
  call_->gone.clear();
  std::erase_if(call_->silent, [&epoch](const auto& each) { return !epoch.has(each.first); });
  if (!epoch.has(rank_)) end_call(std::nullopt, left_out());
}

MeetingFailure MeetingPlace::State::left_out() const {
  return {StatusCode::ABORTED,
          fmt::format("this worker was left out: epoch {} has begun with {} workers without it",
                      epoch_.number, epoch_.members.size()),
          {}};
}

/// Who was left out and lives is told, also when it was stopped and goes on much later.
void MeetingPlace::State::tell_left_out(const Epoch& before) {
  for (const int rank : before.members) {
    if (epoch_.has(rank) || rank == rank_) continue;
    auto messenger = std::make_shared<Seeker>(
        io_, SeekerProof{options_.secret, options_.tls}, question(/*only_tells=*/true), rank,
        addresses_of(rank), std::nullopt,
        [this, rank](const SeekResult&) { messengers_.erase(rank); });
    messengers_[rank] = messenger;
    messenger->start();
  }
}

// ---------------------------------------------------------------------------------------------- MeetingPlace

MeetingPlace::MeetingPlace(Passkey /*key*/, std::shared_ptr<State> state)
    : state_(std::make_unique<std::shared_ptr<State>>(std::move(state))) {}

std::shared_ptr<MeetingPlace> MeetingPlace::open(const MeetingPlaceOptions& options) {
  require_not_forked();
  return std::make_shared<MeetingPlace>(Passkey(), std::make_shared<State>(options));
}

MeetingPlace::~MeetingPlace() {
  if (is_forked_child()) {
    (void)state_.release();  // its thread and its connections are the parent's
    return;
  }
  (*state_)->stop();
}

const std::vector<std::string>& MeetingPlace::addresses() const { return (*state_)->addresses(); }
void MeetingPlace::begin(std::uint64_t job, int rank, const std::vector<MemberInfo>& everyone) {
  (*state_)->begin(job, rank, everyone);
}
std::uint64_t MeetingPlace::job() const { return (*state_)->job(); }
Epoch MeetingPlace::epoch() const { return (*state_)->epoch(); }
Meeting MeetingPlace::meet(const MeetingRequest& request) { return (*state_)->meet(request); }
std::vector<int> MeetingPlace::find_gone(const std::vector<int>& ranks,
                                         std::chrono::steady_clock::time_point latest) {
  return (*state_)->find_gone(ranks, latest);
}
std::shared_ptr<void> MeetingPlace::listen(OnEpoch on_epoch, OnCall on_call) {
  return (*state_)->listen(*state_, std::move(on_epoch), std::move(on_call));
}

}  // namespace crossdevice::detail
