// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/comm/call_difference.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "comm/detail/wire.h"

namespace crossdevice {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{100} << 10;
constexpr std::string_view kValue = "value ";

/// Whether not all of those that have details have this one.
bool differs(std::span<const ToldCall> calls, std::size_t index) {
  const std::string* first = nullptr;
  bool is_absent = false;
  for (const ToldCall& each : calls) {
    if (each.details.empty()) continue;
    if (index >= each.details.size()) {
      is_absent = true;
    } else if (first == nullptr) {
      first = &each.details[index];
    } else if (*first != each.details[index]) {
      return true;
    }
  }
  return is_absent && first != nullptr;
}

bool is_value(std::span<const ToldCall> calls, std::size_t index) {
  return std::any_of(calls.begin(), calls.end(), [index](const ToldCall& each) {
    return index < each.details.size() && is_value_detail(each.details[index]);
  });
}

/// Indices of those that are told.
std::vector<std::size_t> told_details(std::span<const ToldCall> calls) {
  std::size_t longest = 0;
  for (const ToldCall& each : calls) longest = std::max(longest, each.details.size());
  std::vector<std::size_t> told;
  bool has_value = false;
  for (std::size_t i = 0; i < longest; ++i) {
    if (!differs(calls, i)) continue;
    const bool is_of_value = is_value(calls, i);
    if (is_of_value && has_value) continue;
    has_value |= is_of_value;
    told.push_back(i);
  }
  return told;
}

}  // namespace

std::string value_detail(std::size_t index, std::string_view size, DType dtype) {
  return fmt::format("{}{}: {} {}", kValue, index, size, to_string(dtype));
}

bool is_value_detail(std::string_view detail) { return detail.starts_with(kValue); }

std::string describe_difference(std::span<const ToldCall> calls) {
  const bool is_one_kind = std::all_of(calls.begin(), calls.end(), [&](const ToldCall& each) {
    return each.operation.kind == calls.front().operation.kind;
  });
  std::vector<std::size_t> told;
  if (is_one_kind) told = told_details(calls);  // of others they say different things
  const auto without_number = [](GroupOperation operation) {
    operation.sequence = 0;
    return describe(operation);
  };
  const bool are_alike =
      told.empty() && std::all_of(calls.begin(), calls.end(), [&](const ToldCall& each) {
        return without_number(each.operation) == without_number(calls.front().operation);
      });
  std::string text = "workers make different calls:";
  for (const ToldCall& each : calls) {
    text += fmt::format("{} rank {} {}", &each == &calls.front() ? "" : ";", each.rank,
                        are_alike ? to_string(each.operation) : describe(each.operation));
    for (const std::size_t i : told) {
      if (i < each.details.size()) text += ", " + each.details[i];
    }
  }
  return text;
}

std::string encode_details(const CallDetails& details) {
  detail::WireWriter out;
  CallDetails told;
  std::size_t num_bytes = 0;
  for (const std::string& each : details) {
    num_bytes += each.size() + sizeof(std::uint32_t);
    if (num_bytes > kMaxBytes) break;
    told.push_back(each);
  }
  return out.list(told, [](detail::WireWriter& list, const std::string& each) { list.text(each); })
      .take();
}

CallDetails decode_details(std::string_view bytes) {
  try {
    detail::WireReader in(bytes);
    return in.list<std::string>([](detail::WireReader& list) { return list.text(); });
  } catch (const detail::WireError&) {
    return {};
  }
}

}  // namespace crossdevice
