// SPDX-License-Identifier: Apache-2.0
/// A job of real processes that reduces until it is told to stop: what strangers knock at. A program that has one starts itself once per worker.
///
///   int main(int argc, char** argv) {
///     if (const std::optional<int> status = run_as_worker()) return *status;
///     ...
///   }
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace crossdevice::strangers {

/// Of a job that is given no other one.
inline constexpr const char* kJobSecret = "what nobody else knows";

struct JobOptions {
  int num_workers = 3;
  /// Whether each believes that it is on a machine of its own, so that they talk over TCP; else they share memory.
  bool apart = true;
  /// Whether they have a transport of their own first, to which the last one connects when it is told "go": until then the others wait for it there.
  bool is_last_late = false;
  /// Whether those that are left go on when one is gone.
  bool rebuilds = false;
  std::size_t num_elements = 1000;
  std::string secret = kJobSecret;  // empty: none
  std::string chief_host = "127.0.0.1";
  std::map<int, std::string> chief_address_of{};  // by rank, where it is another than the chief's
  std::map<int, unsigned>
      user_of{};  // by rank, where it is another than this process's, which must be root
  std::vector<std::string> variables{};   // "NAME=value", for all
  std::vector<int> network_namespaces{};  // descriptors, by rank; empty: this one's
  std::size_t max_descriptors = 0;        // of each worker; 0: as it is
  double join_seconds = 60;
};

/// What a worker tells of itself while it runs, in shared memory.
struct Progress {
  std::atomic<std::uint64_t> rounds{0};   // all-reduces with exact values
  std::atomic<std::uint64_t> epoch{0};    // 0: has not joined yet
  std::atomic<std::uint64_t> cluster{0};  // that it has joined
};

/// Threads  one at a time.
class Job {
 public:
  explicit Job(JobOptions options);
  /// Kills whoever is left.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::uint16_t chief_port() const { return chief_port_; }
  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] std::uint64_t rounds(int rank) const;
  [[nodiscard]] std::uint64_t epoch(int rank) const;
  /// Of the cluster that a worker has joined; 0: none yet.
  [[nodiscard]] std::uint64_t cluster_id(int rank) const;
  /// Until every worker that lives has made so many more all-reduces; false where that takes minutes, or one has ended.
  [[nodiscard]] bool await_rounds(std::uint64_t more);
  /// Until `condition` holds; false after minutes.
  [[nodiscard]] static bool await(const std::function<bool()>& condition);
  /// "go", "stop".
  void tell(const std::string& word) const;
  void kill(int rank);
  /// All that a worker has printed so far: its log, and its errors.
  [[nodiscard]] std::string printed(int rank) const;
  [[nodiscard]] std::string printed() const;
  /// Tells the workers to stop, and returns how they ended: an exit status, or minus the signal.
  [[nodiscard]] std::vector<int> finish();
  /// The same, of a job that ends by itself.
  [[nodiscard]] std::vector<int> wait();

 private:
  [[nodiscard]] std::string path(const std::string& name) const { return directory_ + "/" + name; }
  void write_secret(const std::string& name, unsigned user) const;
  pid_t start(int rank);

  JobOptions options_;
  std::string directory_;
  std::uint16_t chief_port_ = 0;
  std::shared_ptr<void> reservation_;
  Progress* progress_ = nullptr;  // by rank
  std::vector<pid_t> pids_;       // 0: has ended
  std::vector<int> results_;
};

/// Does a worker's work, and returns its exit status, in a process that a Job has started: 0, 2 where a value was wrong, 3 where an error came.
[[nodiscard]] std::optional<int> run_as_worker();

/// How often `part` is in `text`.
[[nodiscard]] std::size_t count_of(std::string_view part, std::string_view text);

}  // namespace crossdevice::strangers
