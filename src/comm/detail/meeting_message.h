// SPDX-License-Identifier: Apache-2.0
/// The words with which workers find each other after a failure: how one asks another, and what a candidate and a member say (see succession.h).
///
/// A connection begins with CHALLENGE (who is asked), SEEK (who asks) and FOUND or REFUSED; both sides prove that they hold the job's secret. Then the
/// asked one, if it is a candidate that takes the other in, speaks: PREPARE, PROPOSE, CHOSEN or REFUSED; PROMISE and ACCEPT answer. HEARTBEAT goes both ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/detail/authentication.h"
#include "comm/detail/control_message.h"
#include "comm/detail/succession.h"

namespace crossdevice::detail {

/// Of a frame between workers that have not met yet; ranks of a million workers need more, but not the first frame of a stranger.
inline constexpr std::size_t kMaxSeekFrameBytes = std::size_t{64} << 10;

/// The last operation that a worker has completed: of which epoch, and its number there.
struct Completed {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): what the linter sees is the compiler's comparison with 0
  friend auto operator<=>(const Completed&, const Completed&) = default;
};

/// Who asks, and what it knows.
struct Seek {
  std::uint32_t protocol = kControlProtocol;
  std::uint64_t job = 0;
  int rank = -1;
  Epoch epoch;
  std::string call;  ///< "rebuild(ONLY)": equal on all that meet. Empty: it only tells
  Completed completed;
  std::vector<int> lost;  ///< ranks that it knows to be gone
  std::string
      rouses;  ///< the call in which the asked one has been missed so long that it is to leave what it waits for in its epoch; else empty
  Nonce nonce{};
  Mac mac{};
  [[nodiscard]] Mac expected_mac(std::string_view secret, const Nonce& challenge) const;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Seek decode(std::string_view payload);
};

/// What the asked one answers.
struct Found {
  int rank = -1;
  Epoch epoch;
  bool takes_in = false;  ///< it is a candidate, and the asking one is taken in
  Mac mac{};
  [[nodiscard]] Mac expected_mac(std::string_view secret, const Nonce& nonce) const;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Found decode(std::string_view payload);
};

/// PREPARE, and the answer to PROPOSE.
struct BallotMessage {
  Ballot ballot;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static BallotMessage decode(std::string_view payload);
};

struct PromiseMessage {
  Promise promise;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static PromiseMessage decode(std::string_view payload);
};

/// PROPOSE.
struct VoteMessage {
  Vote vote;
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static VoteMessage decode(std::string_view payload);
};

/// The next epoch.
struct Chosen {
  Epoch epoch;
  std::uint16_t port =
      0;  ///< where the new cluster meets, on the machine that says this; 0: nowhere, as not all of it are there
  Completed completed;  ///< by all of them
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static Chosen decode(std::string_view payload);
};

}  // namespace crossdevice::detail
