// SPDX-License-Identifier: Apache-2.0
#include "doctor/system.h"

#include <fstream>
#include <sstream>
#include <system_error>

namespace crossdevice::doctor {
namespace {

std::filesystem::path below(const std::filesystem::path& root, const std::string& path) {
  return root / std::filesystem::path(path).relative_path();
}

}  // namespace

bool System::has(const std::string& path) const {
  std::error_code error;
  return std::filesystem::exists(below(root, path), error);
}

std::optional<std::string> System::first_line_of(const std::string& path) const {
  std::ifstream in(below(root, path));
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

std::optional<std::size_t> System::number_in(const std::string& path,
                                             const std::string& key) const {
  std::ifstream in(below(root, path));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    std::size_t number = 0;
    if (words >> name >> number && name == key) return number;
  }
  return std::nullopt;
}

std::optional<std::string> System::choice_of(const std::string& path) const {
  const std::string line = first_line_of(path).value_or("");
  const auto begin = line.find('[');
  const auto end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  return line.substr(begin + 1, end - begin - 1);
}

std::set<std::string> System::names_in(const std::string& folder) const {
  std::set<std::string> names;
  std::error_code error;  // a folder that is not there has none
  for (std::filesystem::directory_iterator each(below(root, folder), error), end;
       !error && each != end; each.increment(error)) {
    names.insert(each->path().filename().string());
  }
  return names;
}

std::vector<std::string> System::control_groups() const {
  // Version 2 has one line, "0::/path"; a container sees its own group as the root, or its path without the folder.
  std::ifstream in(below(root, "/proc/self/cgroup"));
  const std::filesystem::path top = "/sys/fs/cgroup";
  std::filesystem::path group = top;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("0::/") && line.size() > 4) group = top / line.substr(4);
  }
  std::vector<std::string> all;
  for (; group != top && group.has_relative_path(); group = group.parent_path()) {
    all.push_back(group.string());
  }
  all.push_back(top.string());
  return all;
}

std::set<std::string> System::rdma_devices() const { return names_in("/sys/class/infiniband"); }

}  // namespace crossdevice::doctor
