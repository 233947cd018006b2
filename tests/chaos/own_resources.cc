// SPDX-License-Identifier: Apache-2.0
#include "chaos/own_resources.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <malloc.h>
#include <unistd.h>

#include "crossdevice/device/memory_pool.h"

namespace crossdevice::chaos {
namespace {

/// "7 /memfd:crossdevice ...", for each; but that of the listing itself.
std::vector<std::string> descriptors() {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (error || target.find("/proc/") == 0) continue;
    found.push_back(entry.path().filename().string() + ' ' + target);
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// The library's files in memory that this process has mapped: "4711 /memfd:crossdevice ...", by their numbers, each once.
std::set<std::string> mapped_files() {
  std::set<std::string> found;
  std::ifstream lines("/proc/self/maps");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t name = line.find("/memfd:crossdevice");
    if (name == std::string::npos) continue;
    const std::size_t end = line.find_last_not_of(' ', name - 1);
    const std::size_t number = line.rfind(' ', end) + 1;
    found.insert(line.substr(number, end + 1 - number) + ' ' + line.substr(name));
  }
  return found;
}

/// A number of /proc/self/statm, in pages.
std::size_t statm(int index) {
  std::ifstream file("/proc/self/statm");
  std::size_t number = 0;
  for (int i = 0; i <= index; ++i) file >> number;
  return number * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// A number of the first host devices' pools, added up.
std::size_t of_pools(std::size_t num_devices, std::size_t MemoryPoolStatistics::*number) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < num_devices; ++i) {
    sum += MemoryPool::of("CPU:" + std::to_string(i)).statistics().*number;
  }
  return sum;
}

}  // namespace

OwnResources::OwnResources(std::size_t num_devices)
    : first_descriptors_(descriptors()), num_devices_(num_devices) {
  (void)::getrlimit(RLIMIT_NOFILE, &descriptors_);
  (void)::getrlimit(RLIMIT_AS, &memory_);
  (void)::getrlimit(RLIMIT_FSIZE, &files_);
}

void OwnResources::limit_descriptors(std::uint64_t more) {
  rlimit limit = descriptors_;
  limit.rlim_cur = std::min<rlim_t>(num_descriptors() + more, limit.rlim_max);
  is_limited_ = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void OwnResources::limit_memory(std::uint64_t more_bytes) {
  rlimit limit = memory_;
  limit.rlim_cur = std::min<rlim_t>(statm(0) + more_bytes, limit.rlim_max);
  is_limited_ = ::setrlimit(RLIMIT_AS, &limit) == 0;
}

void OwnResources::limit_files(std::uint64_t bytes) {
  rlimit limit = files_;
  limit.rlim_cur = std::min<rlim_t>(bytes, limit.rlim_max);
  is_limited_ = ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

void OwnResources::lift_limits() {
  if (!is_limited_) return;
  (void)::setrlimit(RLIMIT_NOFILE, &descriptors_);
  (void)::setrlimit(RLIMIT_AS, &memory_);
  (void)::setrlimit(RLIMIT_FSIZE, &files_);
  is_limited_ = false;
}

std::vector<std::string> OwnResources::new_descriptors() const {
  std::vector<std::string> found;
  std::size_t segments = num_pool_segments(num_devices_);
  for (const std::string& each : descriptors()) {
    if (std::binary_search(first_descriptors_.begin(), first_descriptors_.end(), each)) continue;
    const bool is_segment = each.find("/memfd:") != std::string::npos &&
                            each.find("group") == std::string::npos && segments > 0;
    if (is_segment) {
      --segments;
    } else {
      found.push_back(each);
    }
  }
  return found;
}

std::vector<int> OwnResources::left_over() const {
  std::vector<int> counts;
  for (int attempt = 0; attempt < 200; ++attempt) {
    counts = {static_cast<int>(num_threads()) - 1, static_cast<int>(new_descriptors().size()),
              static_cast<int>(mapped_files().size()) -
                  static_cast<int>(num_pool_segments(num_devices_))};
    if (std::all_of(counts.begin(), counts.end(), [](int count) { return count <= 0; })) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return counts;
}

std::string OwnResources::left_over_text() const {
  std::string text;
  for (const std::string& each : new_descriptors()) text += (text.empty() ? "" : ", ") + each;
  for (const std::string& each : mapped_files()) text += " mapped " + each;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    text += " thread " + name;
  }
  return text;
}

std::size_t num_threads() {
  std::error_code error;
  const std::filesystem::directory_iterator tasks("/proc/self/task", error);
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

std::size_t num_descriptors() { return descriptors().size(); }

std::size_t num_pool_segments(std::size_t num_devices) {
  return of_pools(num_devices, &MemoryPoolStatistics::num_segments);
}

std::size_t pool_bytes(std::size_t num_devices) {
  return of_pools(num_devices, &MemoryPoolStatistics::bytes_in_use);
}

std::size_t private_bytes() {
  const std::size_t shared = shared_bytes();
  return statm(1) - shared;
}
std::size_t shared_bytes() { return statm(2); }

std::size_t heap_bytes() {
  const struct mallinfo2 heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

}  // namespace crossdevice::chaos
