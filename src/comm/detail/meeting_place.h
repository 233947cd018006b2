// SPDX-License-Identifier: Apache-2.0
/// Where a worker can be found for the life of the job, whatever becomes of its chiefs: it listens, answers who asks which epoch it is, and meets the
/// others for the next one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "crossdevice/core/deadline.h"
#include "crossdevice/core/error.h"

#include "comm/detail/listening_socket.h"
#include "comm/detail/meeting_message.h"
#include "comm/detail/succession.h"

namespace crossdevice::detail {

class TlsKey;

struct MeetingPlaceOptions {
  /// Of the chief: on its rules this worker listens too.
  std::string chief_host;
  /// Where the chief may only be about to listen, so that this worker must not.
  std::uint16_t chief_port = 0;
  std::string secret;
  std::shared_ptr<const TlsKey> tls{};  // what is said is encrypted; null: it is not
  std::chrono::duration<double> heartbeat_timeout{10};
};

/// How the members of an epoch are to meet for the next one.
struct MeetingRequest {
  std::string call;  ///< what all of them must call alike
  /// Whether all must come; else those who come within `patience` of the moment when enough have come.
  bool needs_all = false;
  std::size_t min_workers = 0;  ///< how many are enough; 0: a majority
  std::chrono::duration<double> patience{10};
  Deadline deadline = Deadline::never();
  Completed completed;
  std::vector<int> lost;        ///< ranks that are known to be gone
  std::vector<RankInfo> names;  ///< by rank of the job: what errors call it
};

/// The next epoch, and where its members meet.
struct Meeting {
  Epoch epoch;
  Completed completed;  ///< by all of them
  std::string chief_address;
  std::shared_ptr<ListeningSocket> listener;  ///< on its chief
};

/// Threads  any; one of its own serves it.
class MeetingPlace {
  class State;
  struct Passkey {};

 public:
  /// Listens; answers nobody before begin().
  ///
  /// Errors   UnavailableError.
  [[nodiscard]] static std::shared_ptr<MeetingPlace> open(const MeetingPlaceOptions& options);
  ~MeetingPlace();
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  [[nodiscard]] const std::vector<std::string>& addresses() const;
  /// The workers of the job have met: this is epoch 1. `everyone`: by rank.
  void begin(std::uint64_t job, int rank, const std::vector<MemberInfo>& everyone);
  [[nodiscard]] std::uint64_t job() const;
  [[nodiscard]] Epoch epoch() const;

  /// Returns when the next epoch has been chosen and this worker is told where its members meet. One call at a time.
  ///
  /// Errors   DeadlineExceededError: names who did not come. UnavailableError: too many are gone for good. AbortedError: the others have gone on without this
  ///          worker; names their epoch. ResourceExhaustedError: this worker lacks descriptors, for a second or longer; names it. InternalError: the
  ///          members call different things. FailedPreconditionError: it is called already.
  [[nodiscard]] Meeting meet(const MeetingRequest& request);

  /// Which of `ranks` (of the job) have ended, so that nobody listens any more where they were to be found; at least one, if
  /// there are any. Waits for those that say nothing, a second at most, and not after `latest`.
  [[nodiscard]] std::vector<int> find_gone(const std::vector<int>& ranks,
                                           std::chrono::steady_clock::time_point latest);

  /// An epoch has begun; with this worker or without. Called on the thread of this object: must be quick. Until the handle dies; then it no longer runs.
  using OnEpoch = std::function<void(const Epoch& epoch, bool is_member)>;
  /// Others have waited in meet() for this worker as long as operations that are about to complete need: whatever it waits for in that epoch is to end.
  /// `rank` (of the job) says so, which has made `call`. May be said more than once.
  using OnCall = std::function<void(const Epoch& epoch, int rank, const std::string& call)>;
  [[nodiscard]] std::shared_ptr<void> listen(OnEpoch on_epoch, OnCall on_call = nullptr);

  MeetingPlace(Passkey key, std::shared_ptr<State> state);

 private:
  std::unique_ptr<std::shared_ptr<State>>
      state_;  // can be let go of, which a shared pointer cannot
};

}  // namespace crossdevice::detail
