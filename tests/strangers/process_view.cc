// SPDX-License-Identifier: Apache-2.0
#include "strangers/process_view.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

namespace crossdevice::strangers {
namespace {

constexpr const char* kListens = "0A";  // net/tcp's state of a socket that listens

/// Of the sockets in one of its network's tables, those that listen: "inode port", each.
void add_doors(const std::string& table, const std::set<std::string>& sockets,
               std::set<std::uint16_t>& ports) {
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);  // the heads of the columns
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string number;
    std::string local;
    std::string remote;
    std::string state;
    std::string skipped;
    std::string inode;
    words >> number >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) words >> skipped;
    words >> inode;
    if (state != kListens || !sockets.contains(fmt::format("socket:[{}]", inode))) continue;
    ports.insert(
        static_cast<std::uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
  }
}

}  // namespace

std::string proc_file_of(pid_t process, const std::string& name) {
  std::ostringstream bytes;
  bytes << std::ifstream(fmt::format("/proc/{}/{}", process, name), std::ios::binary).rdbuf();
  return bytes.str();
}

std::vector<OpenFile> open_files_of(pid_t process) {
  std::vector<OpenFile> files;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process), error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (!error) files.push_back({std::stoi(entry.path().filename().string()), target});
  }
  return files;
}

std::vector<std::uint16_t> doors_of(pid_t process) {
  std::set<std::string> sockets;
  for (const OpenFile& each : open_files_of(process)) sockets.insert(each.target);
  std::set<std::uint16_t> ports;
  for (const char* table : {"net/tcp", "net/tcp6"}) {
    add_doors(proc_file_of(process, table), sockets, ports);
  }
  return {ports.begin(), ports.end()};
}

std::size_t peak_bytes_of(pid_t process) {
  const std::string status = proc_file_of(process, "status");
  const std::string key = "VmHWM:";
  const std::size_t at = status.find(key);
  return at == std::string::npos ? 0 : std::stoul(status.substr(at + key.size())) * 1024;
}

}  // namespace crossdevice::strangers
