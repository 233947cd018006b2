// SPDX-License-Identifier: Apache-2.0
/// A job that goes on while strangers knock at its doors, and what its doors say of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossdevice/core/version.h"

#include "comm/detail/control_message.h"
#include "comm/detail/meeting_message.h"
#include "strangers/caller.h"
#include "strangers/job.h"
#include "strangers/process_view.h"
#include "support/worker_processes.h"

namespace crossdevice::strangers {

/// A job of three that is at work, and its doors.
class StrangersTest : public ::testing::Test {
 protected:
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets any
  explicit StrangersTest(bool is_encrypted = std::getenv("CROSSDEVICE_TLS") != nullptr)
      : is_encrypted_(is_encrypted) {}

  struct Door {
    int rank;
    std::uint16_t port;
    bool is_chiefs;  // else it is a meeting place
  };

  void begin(JobOptions options = {}) {
    if (is_encrypted_) options.variables.emplace_back("CROSSDEVICE_TLS=1");
    job_ = std::make_unique<Job>(std::move(options));
    ASSERT_TRUE(job_->await_rounds(3)) << job_->printed();
    find_doors(3);
  }
  /// One of each worker and the chief's: those of the transports are closed, as all have connected.
  void find_doors(int num_workers) {
    doors_.clear();
    for (int rank = 0; rank < num_workers; ++rank) {
      for (const std::uint16_t port : doors_of(job_->pid(rank))) {
        doors_.push_back({rank, port, port == job_->chief_port()});
      }
    }
    ASSERT_THAT(doors_, ::testing::SizeIs(num_workers + 1));
  }

  /// Where somebody calls who can begin as a member does: it says the rest inside TLS where the job does.
  [[nodiscard]] Where as_member(const Door& door) const {
    return {.port = door.port, .tls_secret = is_encrypted_ ? kJobSecret : ""};
  }

  /// Of each worker.
  [[nodiscard]] std::vector<std::size_t> num_open_files() const {
    std::vector<std::size_t> counts;
    for (int rank = 0; rank < 3; ++rank) counts.push_back(open_files_of(job_->pid(rank)).size());
    return counts;
  }
  /// Soon no worker has more open than it had then.
  void expect_open_files_again(const std::vector<std::size_t>& before) const {
    for (std::size_t rank = 0; rank < before.size(); ++rank) {
      EXPECT_TRUE(Job::await([&] { return num_open_files()[rank] <= before[rank]; })) << rank;
    }
  }

  void expect_going_on() { EXPECT_TRUE(job_->await_rounds(3)) << job_->printed(); }
  void expect_a_good_end() {
    EXPECT_EQ(job_->finish(), testing::all_well(3)) << job_->printed();
    EXPECT_THAT(job_->printed(), ::testing::Not(::testing::HasSubstr(kJobSecret)));
  }
  /// What a door's log calls it.
  [[nodiscard]] static std::string name_of(const Door& door) {
    return door.is_chiefs ? "the chief (rank 0)"
                          : "rank " + std::to_string(door.rank) + "'s meeting place";
  }
  /// How often the door's log has said `text` of somebody from an address.
  [[nodiscard]] std::size_t times_said(const Door& door, const std::string& text,
                                       const std::string& from = "127.0.0.1") const {
    const std::string all = job_->printed(door.rank);
    const std::string refusal = name_of(door) + " refused a connection from " + from + " (port ";
    std::size_t times = 0;
    for (std::size_t at = all.find(refusal); at != std::string::npos;
         at = all.find(refusal, at + 1)) {
      times += count_of("): " + text, all.substr(at, all.find('\n', at) - at));
    }
    return times;
  }

  /// A worker's first words, with a proof for `challenge` and that secret.
  [[nodiscard]] static std::string hello(const detail::Nonce& challenge, const std::string& secret,
                                         int rank, std::uint64_t job = 0, std::uint64_t epoch = 1) {
    detail::Hello hello;
    hello.library_version = library_version_string();
    hello.num_workers = 3;
    hello.job = job;
    hello.epoch = epoch;
    hello.member.rank = rank;
    hello.member.host = "elsewhere";
    hello.member.pid = 4711;
    hello.mac = hello.expected_mac(secret, challenge);
    return detail::encode_frame(detail::ControlKind::HELLO, hello.encode());
  }
  [[nodiscard]] static std::string seek(const detail::Nonce& challenge, const std::string& secret,
                                        std::uint64_t job) {
    detail::Seek seek;
    seek.job = job;
    seek.rank = 2;
    seek.epoch = {1000, {2}};  // would end the job if it were believed
    seek.mac = seek.expected_mac(secret, challenge);
    return detail::encode_frame(detail::ControlKind::SEEK, seek.encode());
  }
  [[nodiscard]] static std::string words_for(const Door& door, const detail::Nonce& challenge,
                                             const std::string& secret) {
    return door.is_chiefs ? hello(challenge, secret, 1) : seek(challenge, secret, 0);
  }

  /// That the connection is ended, and nothing said on it that is not for strangers.
  static void expect_dismissed(const Caller& caller) {
    while (const std::optional<detail::Frame> frame = caller.hear_frame()) {
      EXPECT_TRUE(frame->kind == detail::ControlKind::CHALLENGE ||
                  frame->kind == detail::ControlKind::REFUSED)
          << static_cast<int>(frame->kind);
    }
  }

  const bool is_encrypted_;
  std::unique_ptr<Job> job_;
  std::vector<Door> doors_;
};

}  // namespace crossdevice::strangers
