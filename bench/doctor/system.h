// SPDX-License-Identifier: Apache-2.0
/// What the kernel says of this machine, in small files and by calls.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

namespace crossdevice::doctor {

/// What probes call; tests have answers of their own in their place.
struct SystemCalls {
  int (*limit_of)(int, rlimit*) = ::getrlimit;
  int (*space_of)(const char*, struct statvfs*) = ::statvfs;
  int (*make_memory_file)(const char*, unsigned) = ::memfd_create;
  int (*advise)(void*, std::size_t, int) = ::madvise;
  ssize_t (*read_process)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                          unsigned long) = ::process_vm_readv;
};

/// Paths are those of the machine: "/proc/meminfo".
struct System {
  std::filesystem::path root = "/";  ///< of /proc, /sys and /dev; tests have a folder of their own
  SystemCalls calls{};

  [[nodiscard]] bool has(const std::string& path) const;

  /// Nothing where the file cannot be read.
  [[nodiscard]] std::optional<std::string> first_line_of(const std::string& path) const;

  /// The number behind `key` in the first line whose first word that is: "MemAvailable:", "inactive_file".
  [[nodiscard]] std::optional<std::size_t> number_in(const std::string& path,
                                                     const std::string& key) const;

  /// The choice in brackets of a file such as "always [madvise] never".
  [[nodiscard]] std::optional<std::string> choice_of(const std::string& path) const;

  /// What a folder has; empty where it is not there.
  [[nodiscard]] std::set<std::string> names_in(const std::string& folder) const;

  /// The folders of this process's control group (version 2) and of those that it is in, itself first.
  [[nodiscard]] std::vector<std::string> control_groups() const;

  /// By name.
  [[nodiscard]] std::set<std::string> rdma_devices() const;
};

}  // namespace crossdevice::doctor
