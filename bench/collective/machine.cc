// SPDX-License-Identifier: Apache-2.0
/// Reads /proc and /sys.
#include "collective/machine.h"

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string_view>

#include <fmt/core.h>
#include <unistd.h>

#include "crossdevice/device/host_thread_pool.h"
#include "crossdevice/device/reduce_kernel.h"
#include "crossdevice/device/tensor.h"

#include "support/byte_size.h"

namespace crossdevice::bench {

namespace {

/// What stands behind `key` and a colon in the first line that begins with it.
std::optional<std::string> value_in_file(const char* path, std::string_view key) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return std::nullopt;
}

/// The choice in brackets of a file such as "always [madvise] never".
std::optional<std::string> chosen_in_file(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const std::size_t begin = line.find('[');
  const std::size_t end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  return line.substr(begin + 1, end - begin - 1);
}

/// Whether any of the mapping that the pool's memory lies in is in huge pages, which the pool asks for whatever the system does by itself.
bool has_pool_huge_pages() {
  constexpr std::size_t kProbedBytes = std::size_t{8} << 20;
  const Tensor tensor = Tensor::empty(DType::UINT8, {kProbedBytes}, "CPU:0");
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data());
  std::ifstream in("/proc/self/smaps");
  std::string line;
  bool is_there = false;
  while (std::getline(in, line)) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      is_there = begin <= address && address < end;
    } else if (is_there && line.starts_with("ShmemPmdMapped:")) {
      return line.find_first_of("123456789") != std::string::npos;
    }
  }
  return false;
}

}  // namespace

std::string describe_machine() {
  std::string text = value_in_file("/proc/cpuinfo", "model name").value_or("unknown processor");
  text += fmt::format(", {} cores", sysconf(_SC_NPROCESSORS_ONLN));
  // The C library sums up what all of a package's cores share; the kernel says what these cores do.
  std::ifstream cache("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::string size;
  if (cache >> size) {
    text += fmt::format(", {} of third-level cache",
                        programs::format_byte_size(programs::parse_byte_size(size)));
  }
  text += fmt::format("; {} kernels on {} threads", reduce_kernel_target(),
                      HostThreadPool::instance().num_threads());
  if (const auto pages = chosen_in_file("/sys/kernel/mm/transparent_hugepage/enabled")) {
    text += fmt::format("; huge pages for the pool's memory: {}, for ordinary memory: {}",
                        has_pool_huge_pages() ? "yes" : "no", *pages);
  }
  return text;
}

std::optional<std::size_t> available_memory_bytes() {
  const std::optional<std::string> value = value_in_file("/proc/meminfo", "MemAvailable");
  if (!value) return std::nullopt;
  std::istringstream in(*value);
  std::size_t kibibytes = 0;
  if (!(in >> kibibytes)) return std::nullopt;
  return kibibytes << 10U;
}

}  // namespace crossdevice::bench
