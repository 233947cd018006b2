// SPDX-License-Identifier: Apache-2.0
#include "doctor/system_file.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace crossdevice::doctor {

std::optional<std::string> first_line_of(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

std::optional<std::string> choice_of(const std::string& path) {
  const std::string line = first_line_of(path).value_or("");
  const auto begin = line.find('[');
  const auto end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  return line.substr(begin + 1, end - begin - 1);
}

std::optional<std::string> group_limit(const std::string& file) {
  // Version 2 of control groups has one line, "0::/path"; a container sees its own group as the root.
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  std::filesystem::path group = "/sys/fs/cgroup";
  while (std::getline(in, line)) {
    if (line.starts_with("0::/")) group /= line.substr(4);
  }
  const std::filesystem::path root = "/sys/fs/cgroup";
  for (;; group = group.parent_path()) {
    const auto limit = first_line_of(group / file);
    if (limit.has_value() && !limit->starts_with("max")) return limit;
    if (group == root || group == group.root_path() || group.empty()) return std::nullopt;
  }
}

std::set<std::string> rdma_devices() {
  std::set<std::string> names;
  std::error_code error;  // a folder that is not there has none
  for (std::filesystem::directory_iterator each("/sys/class/infiniband", error), end;
       !error && each != end; each.increment(error)) {
    names.insert(each->path().filename().string());
  }
  return names;
}

}  // namespace crossdevice::doctor
