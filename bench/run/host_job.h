// SPDX-License-Identifier: Apache-2.0
/// What crossdevice-run tells the crossdevice-run on another host: everything about the workers there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace crossdevice::run {

/// It travels over the remote shell's standard input: no shell reads a byte of it, and no list of processes shows it.
struct HostJob {
  int first_rank = 0;
  int num_local_workers = 1;
  int num_workers = 1;
  double grace_seconds = 5;
  double silence_seconds = 60;  ///< who has heard nothing for so long is alone; 0: never
  bool is_plain = false;
  bool keeps_going = false;
  std::string chief_address;
  std::string secret;
  std::string directory;               ///< where the workers begin
  std::vector<std::string> variables;  ///< "NAME=value", in place of the host's own
  std::vector<std::string> command;
};

/// A decimal length, ':' and as many bytes.
[[nodiscard]] std::string encode(const HostJob& job);

/// Reads from a descriptor, to the job's last byte and no further: signals follow.
///
/// Errors   std::runtime_error: the bytes end before, are no job, or come from another version.
[[nodiscard]] HostJob receive_host_job(int fd);

}  // namespace crossdevice::run
