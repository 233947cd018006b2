// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/host_name.h"

#include <array>
#include <fstream>
#include <optional>

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "crossdevice/core/environment.h"
#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

/// "net:[4026531840]", or nothing where the kernel does not say.
std::string namespace_of(const char* kind) {
  std::array<char, 64> text{};
  const std::string file = std::string("/proc/self/ns/") + kind;
  const ssize_t size = ::readlink(file.c_str(), text.data(), text.size());
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : "";
}

}  // namespace

std::string host_name() {
  utsname names{};
  return ::uname(&names) == 0 ? names.nodename : "unknown host";
}

std::string host_id() {
  const std::optional<std::string> given = process_environment()(kHostIdVariable);
  if (given.has_value() && given->size() > kMaxHostIdBytes) {
    throw ValueError(fmt::format("{} has {} bytes, more than the {} that the others can be told",
                                 kHostIdVariable, given->size(), kMaxHostIdBytes));
  }
  if (given.has_value() && !given->empty()) return *given;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  std::getline(file, boot_id);
  return boot_id + ' ' + host_name() + ' ' + namespace_of("net") + ' ' + namespace_of("pid");
}

}  // namespace crossdevice::detail
