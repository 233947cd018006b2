// SPDX-License-Identifier: Apache-2.0
/// What a worker must know to meet the others.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/detail/name_lookup.h"

namespace crossdevice::detail {

class ListeningSocket;
class TlsKey;

/// What a worker is told that does not hold the chief's secret.
inline constexpr const char* kDifferentSecrets =
    "this worker and the chief hold different secrets: CROSSDEVICE_SECRET_FILE must name the same "
    "one on all workers";
/// The same, where it has none, or the chief has none.
inline constexpr const char* kSecretOnlyThere =
    "this worker has no secret, the chief has one: CROSSDEVICE_SECRET_FILE must name the same one "
    "on all workers";
inline constexpr const char* kSecretOnlyHere =
    "this worker has a secret, the chief has none: CROSSDEVICE_SECRET_FILE must name the same one "
    "on all workers";
/// The same of a chief that has none, if the worker has not come over loopback.
inline constexpr const char* kOwnMachineOnly =
    "without a secret the chief takes workers over loopback only: set CROSSDEVICE_SECRET_FILE "
    "on all workers";

/// Up to some thirty years, so that it can be added to a moment.
[[nodiscard]] inline std::chrono::nanoseconds whole_time(std::chrono::duration<double> time) {
  constexpr std::chrono::duration<double> kLongest{1e9};
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::min(time, kLongest));
}

struct ControlPlaneOptions {
  int rank = 0;
  int num_workers = 1;
  /// "host:port" or "[address]:port" of the chief, which listens there; unused for a single worker.
  std::string chief_address;
  /// Tried in turn where that does not answer.
  std::vector<std::string> more_chief_addresses{};
  /// The chief's, where it listens already.
  std::shared_ptr<ListeningSocket> listener{};
  /// The others': it listens already, so whoever finds nobody there finds a chief that has ended or given up.
  bool is_chief_listening = false;
  /// Which of the others that this worker meets have ended: the chief asks for all of them, the others for the chief. Asked again and again until all have come; may
  /// wait a moment, until `latest`. Empty: nobody can say, as of the first cluster, where another process may come in place of one that has ended.
  std::function<std::vector<int>(std::chrono::steady_clock::time_point latest)> find_gone{};
  /// Which of the job's clusters this is: who means another one is refused. The first one is 1, whose job has a
  /// number where the launcher gives it a name (number_of_job()); later ones have that of the first cluster.
  std::uint64_t epoch = 1;
  std::uint64_t job = 0;
  /// Where this worker can be found when the chief is gone.
  std::vector<std::string> addresses{};
  /// Where each rank should be, as far as the launcher says: "host:port" by rank, for messages. Empty: it does not say.
  std::vector<std::string> addresses_by_rank{};
  std::string secret;
  /// How names of hosts become addresses; empty: as the system does it.
  NameResolver resolve{};
  /// What is said is encrypted; null: it is not.
  std::shared_ptr<const TlsKey> tls{};
  std::string host;
  std::string host_id;
  /// How long a silent member counts as alive.
  std::chrono::duration<double> heartbeat_timeout{10};
  /// After how long a wait is spoken of on the log.
  std::chrono::duration<double> stall_warning{30};
};

}  // namespace crossdevice::detail
