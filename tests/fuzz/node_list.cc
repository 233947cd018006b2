// SPDX-License-Identifier: Apache-2.0
// Slurm's lists of nodes and of tasks per node: whatever is accepted has bounded length, and printed item by item means the same.
#include "comm/detail/node_list.h"

#include <optional>
#include <string>
#include <vector>

#include "fuzz/fuzz_target.h"

namespace {

constexpr std::size_t kMaxEntries = 100'000;
constexpr std::size_t kMaxHostBytes = 255;

template <class List, class ToText>
std::string joined(const List& list, ToText to_text) {
  std::string text;
  for (const auto& each : list) {
    if (!text.empty()) text += ',';
    text += to_text(each);
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = crossdevice::fuzz::text_of(data, size);
  if (const auto hosts = crossdevice::detail::expand_node_list(text)) {
    FUZZ_EXPECT(!hosts->empty() && hosts->size() <= kMaxEntries);
    for (const std::string& host : *hosts) {
      FUZZ_EXPECT(!host.empty() && host.size() <= kMaxHostBytes);
      FUZZ_EXPECT(host.find_first_of("[],") == std::string::npos);
    }
    if (hosts->size() <= 1000) {
      const auto same = [](const std::string& host) { return host; };
      FUZZ_EXPECT(crossdevice::detail::expand_node_list(joined(*hosts, same)) == hosts);
    }
  }
  if (const auto counts = crossdevice::detail::expand_task_counts(text)) {
    FUZZ_EXPECT(!counts->empty() && counts->size() <= kMaxEntries);
    for (const int count : *counts) FUZZ_EXPECT(count >= 0);
    if (counts->size() <= 1000) {
      const auto digits = [](int count) { return std::to_string(count); };
      FUZZ_EXPECT(crossdevice::detail::expand_task_counts(joined(*counts, digits)) == counts);
    }
  }
  return 0;
}
