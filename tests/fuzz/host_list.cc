// SPDX-License-Identifier: Apache-2.0
// crossdevice-run's --hosts and --hostfile: refused, or hosts whose names no shell and no remote shell takes for anything else.
#include "run/host_list.h"

#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz_target.h"
#include "support/program.h"

namespace crossdevice::run {
namespace {

/// A file of that content, without a name in any folder.
class File {
 public:
  explicit File(const std::string& content) : fd_(::memfd_create("hosts", MFD_CLOEXEC)) {
    FUZZ_EXPECT(fd_ >= 0);
    FUZZ_EXPECT(::write(fd_, content.data(), content.size()) ==
                static_cast<ssize_t>(content.size()));
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void check(const std::vector<Host>& hosts) {
  FUZZ_EXPECT(!hosts.empty());
  std::string text;
  for (const Host& each : hosts) {
    FUZZ_EXPECT(each.slots >= 1 && each.slots <= kMaxSlots);
    FUZZ_EXPECT(!each.name.empty() && each.name[0] != '-');
    FUZZ_EXPECT(each.name.find_first_of(" \t\n'\"\\$`;&|<>(){}*?!~#,") == std::string::npos);
    const bool needs_brackets = each.name.find(':') != std::string::npos;
    if (!text.empty()) text += ',';
    text += needs_brackets ? "[" + each.name + "]" : each.name;
    text += ':' + std::to_string(each.slots);
  }
  const std::vector<Host> same = parse_hosts(text);
  FUZZ_EXPECT(same.size() == hosts.size());
  for (std::size_t i = 0; i < same.size(); ++i) {
    FUZZ_EXPECT(same[i].name == hosts[i].name && same[i].slots == hosts[i].slots);
  }
}

template <class Read>
void hosts_or_error(Read read) {
  std::vector<Host> hosts;
  try {
    hosts = read();
  } catch (const programs::ArgumentError& error) {
    FUZZ_EXPECT(std::string(error.what()).starts_with("--host"));
    return;
  }
  check(hosts);
}

}  // namespace
}  // namespace crossdevice::run

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdevice::run;
  const std::string text = crossdevice::fuzz::text_of(data, size);
  hosts_or_error([&] { return parse_hosts(text); });
  const File file(text);
  hosts_or_error([&] { return read_hostfile(file.path()); });
  return 0;
}
