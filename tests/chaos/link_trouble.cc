// SPDX-License-Identifier: Apache-2.0
#include "chaos/link_trouble.h"

namespace crossdevice::chaos {
namespace {

LinkCounts difference(const LinkCounts& after, const LinkCounts& before) {
  return {.offered = after.offered - before.offered,
          .lost = after.lost - before.lost,
          .late = after.late - before.late,
          .doubled = after.doubled - before.doubled,
          .delayed = after.delayed - before.delayed,
          .delivered = after.delivered - before.delivered};
}

}  // namespace

LinkPolicy policy_of(const Plan& plan) {
  constexpr double kPerCent = 0.01;
  constexpr std::uint64_t kBytesOfKilobit = 125;
  const auto part = static_cast<double>(plan.amount) * kPerCent;
  switch (plan.fault) {
    case Fault::LINK_CUT:
    case Fault::LINK_OUTAGE:
      return {.sends = plan.amount == kIsDeaf, .receives = plan.amount == kIsMute};
    case Fault::LINK_PAUSE:
      return {.sends = false, .receives = false};
    case Fault::LINK_LOSS:
      return {.lost = part};
    case Fault::LINK_DELAY:
      return {.delay = std::chrono::microseconds(plan.amount)};
    case Fault::LINK_REORDER:
      return {.late = part};
    case Fault::LINK_DUPLICATE:
      return {.doubled = part};
    case Fault::LINK_RATE:
      return {.bytes_per_second = plan.amount * kBytesOfKilobit};
    case Fault::NONE:
    case Fault::KILL:
    case Fault::STOP:
    case Fault::SKIP:
    case Fault::OTHER_COUNT:
    case Fault::OTHER_DTYPE:
    case Fault::OTHER_OP:
    case Fault::OTHER_ROOT:
    case Fault::TWICE:
    case Fault::THROW:
    case Fault::DESCRIPTORS:
    case Fault::MEMORY:
    case Fault::SHARED_MEMORY:
    case Fault::CLOCK:
    case Fault::CLOCK_JUMP:
    case Fault::LINK_PARTED:
      break;
  }
  return {};
}

void LinkTrouble::set_trouble(bool is_there) {
  if (plan_.fault == Fault::LINK_PARTED) {
    const int other = host_of(plan_, static_cast<int>(plan_.amount));
    return relay_.set_between(host_of(plan_, plan_.victim), other, !is_there);
  }
  relay_.set(host_of(plan_, plan_.victim), is_there ? policy_of(plan_) : LinkPolicy{});
}

void LinkTrouble::begin(Time now) {
  if (state_ != State::NOT_YET) return;
  state_ = State::PENDING;
  when_ = now + std::chrono::microseconds(plan_.delay_us);
  look(now, /*have_gone_on=*/false);
}

void LinkTrouble::look(Time now, bool have_gone_on) {
  if (state_ == State::PENDING && now >= when_) {
    set_trouble(true);
    before_ = counts_until_now();
    state_ = State::TROUBLED;
    when_ += std::chrono::microseconds(plan_.lasting_us);
  }
  const bool is_over = plan_.lasting_us == 0 ? have_gone_on : now >= when_;
  if (state_ == State::TROUBLED && is_over) {
    set_trouble(false);
    counts_ = difference(counts_until_now(), before_);
    state_ = State::OVER;
  }
}

LinkCounts LinkTrouble::counts() {
  return state_ == State::TROUBLED ? difference(counts_until_now(), before_) : counts_;
}

LinkCounts LinkTrouble::counts_until_now() {
  LinkCounts sum = relay_.counts(host_of(plan_, plan_.victim));
  for (int host = 0; host < num_hosts(plan_); ++host) {
    if (host == host_of(plan_, plan_.victim)) continue;
    const LinkCounts other = relay_.counts(host);
    sum.lost += other.lost;
    sum.late += other.late;
    sum.doubled += other.doubled;
    sum.delayed += other.delayed;
  }
  return sum;
}

std::optional<LinkTrouble::Time> LinkTrouble::next() const {
  const bool is_timed =
      state_ == State::PENDING || (state_ == State::TROUBLED && plan_.lasting_us != 0);
  return is_timed ? std::optional<Time>(when_) : std::nullopt;
}

}  // namespace crossdevice::chaos
