// SPDX-License-Identifier: Apache-2.0
/// What is behind MeetingPlace.
///
/// Who touches what. The io_context has one thread, and everything in "the service thread's" below is its alone. What other threads and it share is guarded
/// by mutex_. Listeners run on the service thread under listener_mutex_, which nobody takes while holding mutex_.
///
/// What a worker that calls meet() does, and when it stops:
///   1. It asks the members below its rank, the lowest first. The first that takes it in is its candidate; it promises, votes and is told there. When that
///      connection ends, or is silent for the heartbeat's time, it begins anew. One that does not answer for some time is asked on beside the next ones, for longer
///      each time, also by whoever is in a higher candidate's hands: if it takes this worker in after all, before there is a proposal, the other one is left.
///   2. Nobody below takes it in: it is a candidate itself, once it listens where the next epoch would meet, takes in members above, and goes on asking: those below, because one of them may come, and those
///      above that have not come, because one of them may be gone for good or in a later epoch. Whoever it still misses after kCourtesy may wait in an
///      operation of the epoch for somebody who is here: it is told to stop, by the same question, whatever has become of that epoch's chief.
///   3. A candidate proposes when everybody has come who is not known to be gone; or some time after a quorum has come (`patience`).
///   4. Who lacks descriptors to ask, to listen or to take in who comes ends its call. A candidate of that kind would keep some in its hands and hear
///      nothing of the others, who choose another one: neither need have a quorum. To the others it is one whose connections are cut; its vote stays.
/// Whoever is asked by a member of an earlier epoch says which one it is now, and whoever asks a member of a later one hears it: who is a member of it
/// takes part in choosing its successor, who is not is left out. So a late worker changes nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "crossdevice/core/service_thread.h"

#include "comm/detail/meeting_place.h"
#include "comm/detail/reception.h"
#include "comm/detail/seeker.h"
#include "comm/detail/service_loop.h"

namespace crossdevice::detail {

/// Why a call of meet() ended without a meeting.
struct MeetingFailure {
  StatusCode code;
  std::string text;
  std::vector<RankInfo> culprits;
};

class MeetingPlace::State {
 public:
  using Clock = std::chrono::steady_clock;
  using Connection = std::shared_ptr<ControlConnection>;

  explicit State(const MeetingPlaceOptions& options)
      : options_(options),
        socket_(ListeningSocket::open_beside(options.chief_host, options.chief_port)),
        addresses_(socket_->published_addresses()),
        reception_(io_, [this](const Connection& connection, const Nonce& challenge,
                               const Frame& frame) { answer(connection, challenge, frame); }) {}
  void start() {
    thread_ = start_service_thread("xdev-meeting", [this, work = asio::make_work_guard(io_)] {
      run_service(io_, "meeting", [this](const std::string& what) {
        end_call(std::nullopt, MeetingFailure{StatusCode::RESOURCE_EXHAUSTED, what, {}});
        reception_.go_on();
      });
    });
  }
  void stop() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
    // Who asks and its connection hold each other until it is done.
    ask_nobody();
    for (const auto& [rank, messenger] : messengers_) messenger->cancel();
    for (const auto& [rank, inquirer] : inquirers_) inquirer->cancel();
  }
  void begin(std::uint64_t job, int rank, const std::vector<MemberInfo>& everyone);
  Meeting meet(const MeetingRequest& request);
  std::vector<int> find_gone(const std::vector<int>& ranks, Clock::time_point latest);
  std::shared_ptr<void> listen(const std::shared_ptr<State>& self, OnEpoch on_epoch,
                               OnCall on_call);

  [[nodiscard]] const std::vector<std::string>& addresses() const { return addresses_; }
  [[nodiscard]] std::uint64_t job() const { return job_; }
  [[nodiscard]] Epoch epoch() const {
    const std::lock_guard lock(mutex_);
    return epoch_;
  }

 private:
  /// A member that this candidate has taken in.
  struct Session {
    Connection connection;
    Completed completed;
    std::vector<int> lost;
  };
  /// The candidate that has taken this member in.
  struct Link {
    Connection connection;
    int rank = -1;
    std::string host;
    bool has_proposed = false;
  };
  struct Listener {
    OnEpoch on_epoch;
    OnCall on_call;  // may be empty
  };
  /// For something that this process lacks again and again.
  struct Want {
    Clock::time_point since;
    Clock::time_point last;
  };
  struct Call {
    MeetingRequest request;
    Clock::time_point since = Clock::now();
    std::optional<Clock::time_point> quorum_since{};
    std::set<int> gone{};                  // nobody listens there any more
    std::map<int, std::string> hearsay{};  // of who is not believed; empty: of nobody
    // Of whom nothing was heard: how long their word is waited for the next time.
    std::map<int, Clock::duration> silent{};
    // Where the next epoch meets, if this worker is its chief.
    std::shared_ptr<ListeningSocket> listener{};
    std::string chief_address{};
    std::string why_not_listening{};
    bool lacks_means_to_listen = false;
    std::string why_not_asking{};  // what this process lacked when it last would
    std::optional<Want> want{};
    // Guarded by mutex_.
    std::optional<Meeting> meeting{};
    std::optional<MeetingFailure> failure{};
    [[nodiscard]] bool is_over() const { return meeting.has_value() || failure.has_value(); }
  };

  // The service thread's.
  void answer(const Connection& connection, const Nonce& challenge, const Frame& frame);
  void be_roused(const Seek& seek);
  void take_in(const Connection& connection, const Seek& seek);
  void hear_member(int rank, const Frame& frame);
  void drop_member(int rank);
  void tick();
  [[nodiscard]] bool may_ask(int rank) const;
  [[nodiscard]] bool is_to_be_asked(int rank) const;
  void seek_next();
  void ask_silent();
  void ask(int rank);
  void ask_nobody();
  void note_silence(int rank, const SeekResult& result);
  void hear_answer(int rank, SeekResult result);
  void join(SeekResult result);
  void hear_candidate(const Frame& frame);
  void hear_chosen(const Chosen& chosen);
  void leave_candidate();
  void become_candidate();
  void prepare();
  void try_to_propose();
  void try_to_choose();
  void dissolve();
  void adopt(const Epoch& epoch);
  void tell_left_out(const Epoch& before);
  void beat();
  void check_deadline();
  void check_want();
  void end_call(std::optional<Meeting> meeting, std::optional<MeetingFailure> failure);
  void refuse_all(const MeetingFailure& failure);
  [[nodiscard]] Seek question(bool only_tells) const;
  [[nodiscard]] bool is_called() const { return call_ != nullptr; }
  /// Where a member can be found; nowhere if the job has no such rank, whoever speaks of it.
  [[nodiscard]] std::vector<std::string> addresses_of(int rank) const;
  /// How many members must agree.
  [[nodiscard]] std::size_t enough() const;
  [[nodiscard]] static std::string describe(const std::vector<RankInfo>& ranks);
  [[nodiscard]] std::vector<RankInfo> infos(const std::vector<int>& ranks) const;
  [[nodiscard]] std::vector<int> not_come() const;
  [[nodiscard]] std::vector<int> expected() const;
  [[nodiscard]] MeetingFailure left_out() const;
  [[nodiscard]] MeetingFailure too_late() const;
  [[nodiscard]] std::string own_want() const;

  const MeetingPlaceOptions options_;
  asio::io_context io_{1};
  std::thread thread_;
  std::shared_ptr<ListeningSocket> socket_;
  const std::vector<std::string> addresses_;

  // Written by begin(), constant afterwards.
  std::uint64_t job_ = 0;
  int rank_ = -1;
  std::vector<MemberInfo> everyone_;

  // The service thread's.
  Reception reception_;
  asio::steady_timer timer_{io_};
  std::shared_ptr<Call> call_;  // under way
  SuccessionVoter voter_;
  std::optional<SuccessionCandidate> candidate_;
  std::map<int, Session> sessions_;
  std::optional<Link> link_;
  std::map<int, std::shared_ptr<Seeker>> seekers_;  // ask members
  std::optional<int> awaited_;  // the one of them whose answer comes before the next one is asked
  std::size_t next_asked_ = 0;  // position in the epoch's members
  int last_silent_asked_ = -1;  // the next one above is the first in the next round
  Clock::time_point ask_next_at_{};                    // at the latest, where one is awaited
  std::map<int, std::shared_ptr<Seeker>> messengers_;  // tell who was left out, which is once
  std::map<int, std::shared_ptr<Seeker>> inquirers_;   // ask whether anybody is there
  Clock::time_point last_beat_{};

  mutable std::mutex mutex_;  // guards the following; the service thread alone writes the epoch
  std::condition_variable changed_;
  Epoch epoch_{0, {}};  // 0: not begun
  bool is_calling_ = false;

  std::recursive_mutex listener_mutex_;  // guards the following
  std::list<Listener> listeners_;
};

}  // namespace crossdevice::detail
