// SPDX-License-Identifier: Apache-2.0
/// What schedule.h says of executors over a transport: participants with rows of their own, each taking exactly the steps that name it in
/// their order, at any speed, never wait for ever and end with the sum of all.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "crossdevice/collective/halving_doubling.h"
#include "crossdevice/collective/hierarchical_copy.h"
#include "crossdevice/collective/ring.h"
#include "crossdevice/collective/schedule.h"
#include "crossdevice/collective/shuffle.h"
#include "crossdevice/collective/two_level.h"

namespace crossdevice {
namespace {

using Row = std::vector<std::uint64_t>;
using Lists = std::vector<std::vector<std::size_t>>;

enum class Sends : std::uint8_t { IN_TURN, AHEAD };

/// All participants, and the messages between them. Participant p begins with 1 << p in every element.
class Participants {
 public:
  Participants(const Schedule& schedule, Sends sends) : schedule_(schedule), sends_(sends) {
    members_.resize(schedule.num_participants);
    for (std::size_t p = 0; p < members_.size(); ++p) {
      members_[p].row.assign(schedule.num_elements, std::uint64_t{1} << p);
      for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
        const ScheduleStep& step = schedule.steps[i];
        const bool is_source = std::ranges::find(step.sources, p) != step.sources.end();
        if (is_source || step.target == p) members_[p].steps.push_back(i);
      }
    }
  }

  /// Lets participants take a step each, chosen by chance. False: nobody could, and somebody has not finished.
  [[nodiscard]] bool run(std::mt19937& random) {
    std::vector<std::size_t> order(members_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (;;) {
      std::ranges::shuffle(order, random);
      const auto progresses = [this](std::size_t p) { return advance(p); };
      if (std::ranges::none_of(order, progresses)) break;
    }
    return std::ranges::all_of(
        members_, [](const Member& member) { return member.next == member.steps.size(); });
  }

  [[nodiscard]] bool everybody_has_the_sum() const {
    const Row sum(schedule_.num_elements, (std::uint64_t{1} << members_.size()) - 1);
    return std::ranges::all_of(members_, [&](const Member& member) { return member.row == sum; });
  }

 private:
  struct Member {
    Row row;
    std::vector<std::size_t> steps;  // that name it
    std::size_t next = 0;            // of those
    std::size_t num_sent = 0;        // its sends keep their order
  };

  /// Of a participant's steps: is it a source of another's?
  [[nodiscard]] bool sends(std::size_t p, std::size_t step) const {
    return schedule_.steps[step].target != p;
  }

  bool advance(std::size_t p) {
    Member& member = members_[p];
    if (sends_ == Sends::AHEAD && send_ahead(p)) return true;
    if (member.next == member.steps.size()) return false;
    const std::size_t step = member.steps[member.next];
    if (!sends(p, step)) {
      if (!receive(p, schedule_.steps[step])) return false;
    } else if (!was_sent(p, member.next)) {
      send(p, schedule_.steps[step]);
    }
    ++member.next;
    return true;
  }

  [[nodiscard]] bool was_sent(std::size_t p, std::size_t position) const {
    std::size_t sends_before = 0;
    for (std::size_t i = 0; i < position; ++i)
      sends_before += sends(p, members_[p].steps[i]) ? 1U : 0U;
    return sends_before < members_[p].num_sent;
  }

  /// Sends what is next to be sent, if no step before it that is not finished writes these elements.
  bool send_ahead(std::size_t p) {
    const Member& member = members_[p];
    std::size_t num_sends = 0;
    for (std::size_t i = 0; i < member.steps.size(); ++i) {
      if (!sends(p, member.steps[i]) || num_sends++ < member.num_sent) continue;
      const Interval& range = schedule_.steps[member.steps[i]].range;
      for (std::size_t before = member.next; before < i; ++before) {
        const ScheduleStep& step = schedule_.steps[member.steps[before]];
        const bool overlaps = step.range.begin < range.end() && range.begin < step.range.end();
        if (step.target == p && overlaps) return false;
      }
      send(p, schedule_.steps[member.steps[i]]);
      return true;
    }
    return false;
  }

  void send(std::size_t p, const ScheduleStep& step) {
    const Row& row = members_[p].row;
    const auto begin = row.begin() + static_cast<std::ptrdiff_t>(step.range.begin);
    messages_[{p, step.target}].emplace_back(begin,
                                             begin + static_cast<std::ptrdiff_t>(step.range.count));
    ++members_[p].num_sent;
  }

  /// False: a message has not come yet.
  bool receive(std::size_t p, const ScheduleStep& step) {
    for (const std::size_t source : step.sources) {
      if (source != p && messages_[{source, p}].empty()) return false;
    }
    Row& row = members_[p].row;
    Row sum(step.range.count, 0);
    for (const std::size_t source : step.sources) {
      Row part;
      if (source == p) {
        const auto begin = row.begin() + static_cast<std::ptrdiff_t>(step.range.begin);
        part.assign(begin, begin + static_cast<std::ptrdiff_t>(step.range.count));
      } else {
        part = std::move(messages_[{source, p}].front());
        messages_[{source, p}].pop_front();
      }
      EXPECT_EQ(part.size(), step.range.count) << "a message of another step";
      for (std::size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
    }
    std::ranges::copy(sum, row.begin() + static_cast<std::ptrdiff_t>(step.range.begin));
    return true;
  }

  const Schedule& schedule_;
  Sends sends_;
  std::vector<Member> members_;
  std::map<std::pair<std::size_t, std::size_t>, std::deque<Row>> messages_;  // by source and target
};

std::vector<Schedule> schedules(std::size_t n, std::size_t num_elements) {
  std::vector<std::size_t> all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  Lists pairs((n + 1) / 2);
  for (std::size_t i = 0; i < n; ++i) pairs[i / 2].push_back(i);
  const std::size_t groups = pairs.size();
  return {ring_schedule(num_elements, ring_orders(Lists{all}, 1)),
          ring_schedule(num_elements, ring_orders(pairs, 3)),
          halving_doubling_schedule(n, num_elements, 2),
          shuffle_schedule(n, num_elements, all),
          shuffle_schedule(n, num_elements, all, 3),
          shuffle_schedule(n, num_elements, std::vector<std::size_t>{n - 1, 0, n / 2}),
          hierarchical_copy_schedule(n, num_elements, 1),
          two_level_schedule(pairs, halving_doubling_schedule(groups, num_elements)),
          two_level_schedule(pairs,
                             shuffle_schedule(groups, num_elements, std::vector<std::size_t>{0}))};
}

TEST(ScheduleDistributedTest, EverybodyEndsWithTheSumWhateverTheSpeeds) {
  std::mt19937 random(11);
  for (const std::size_t n : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 13u}) {
    for (const std::size_t num_elements : {std::size_t{0}, std::size_t{1}, n, std::size_t{29}}) {
      const std::vector<Schedule> all = schedules(n, num_elements);
      for (std::size_t s = 0; s < all.size(); ++s) {
        for (const Sends sends : {Sends::IN_TURN, Sends::AHEAD}) {
          for (int repetition = 0; repetition < 3; ++repetition) {
            Participants participants(all[s], sends);
            EXPECT_TRUE(participants.run(random)) << "somebody waits for ever";
            ASSERT_TRUE(participants.everybody_has_the_sum())
                << "schedule " << s << ", " << n << " participants, " << num_elements
                << " elements, " << (sends == Sends::AHEAD ? "sends ahead" : "sends in turn");
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace crossdevice
