// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/ops/all_reduce_spec.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice {
namespace {

constexpr std::string_view kAlgorithms[] = {"nccl",       "xring",      "rechd",
                                            "pscpu",      "psgpu",      "nccl/xring",
                                            "nccl/rechd", "nccl/pscpu", "pscpu/pscpu"};
constexpr int kMaxShards = 1024;
constexpr std::int64_t kNoLimit = -1;

void require_valid(const AllReduceSpecTuple& tuple) {
  if (std::find(std::begin(kAlgorithms), std::end(kAlgorithms), tuple.algorithm) ==
      std::end(kAlgorithms)) {
    throw ValueError(fmt::format("all_reduce_spec: unknown algorithm '{}', expected one of {}",
                                 tuple.algorithm, fmt::join(kAlgorithms, ", ")));
  }
  if (tuple.shards < 1 || tuple.shards > kMaxShards) {
    throw ValueError(fmt::format("all_reduce_spec: {} has 1 to {} shards, not {}", tuple.algorithm,
                                 kMaxShards, tuple.shards));
  }
}

void require_valid(std::span<const AllReduceSpecTuple> tuples) {
  if (tuples.empty()) {
    throw ValueError("all_reduce_spec: expected at least one algorithm, got an empty list");
  }
  std::int64_t previous = kNoLimit;
  for (const AllReduceSpecTuple& tuple : tuples) {
    require_valid(tuple);
    const std::int64_t limit = tuple.limit.value();
    const bool is_last = &tuple == &tuples.back();
    if (is_last && limit != kNoLimit) {
      throw ValueError(
          fmt::format("all_reduce_spec: the last algorithm, {}, takes what is left: expected the "
                      "limit -1, not {}",
                      tuple.algorithm, limit));
    }
    if (!is_last && limit < 0) {
      throw ValueError(fmt::format(
          "all_reduce_spec: the limit of {}, {}, is negative: expected bytes, only the last "
          "algorithm has no limit",
          tuple.algorithm, limit));
    }
    if (!is_last && limit <= previous) {
      throw ValueError(fmt::format(
          "all_reduce_spec: the limit of {}, {} bytes, must be more than the one before, {}",
          tuple.algorithm, limit, previous));
    }
    previous = limit;
  }
}

[[noreturn]] void throw_malformed(std::string_view text, const std::string& what) {
  throw ValueError(fmt::format(
      "all_reduce_spec '{}': {}; expected ALGORITHM[#SHARDS][:LIMIT:ALGORITHM[#SHARDS]]..., LIMIT "
      "in bytes with K, k, M, G or T for powers of 1024",
      text, what));
}

/// Digits and nothing else, that fit.
template <class Integer>
std::optional<Integer> parse_digits(std::string_view digits) {
  const bool only_digits =
      !digits.empty() && std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  Integer value = 0;
  if (!only_digits ||
      std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc{}) {
    return std::nullopt;
  }
  return value;
}

std::int64_t parse_limit(std::string_view text, std::string_view limit) {
  constexpr std::pair<char, int> kUnits[] = {{'K', 10}, {'k', 10}, {'M', 20}, {'G', 30}, {'T', 40}};
  int shift = 0;
  std::string_view digits = limit;
  for (const auto& [letter, exponent] : kUnits) {
    if (!limit.empty() && limit.back() == letter) {
      shift = exponent;
      digits.remove_suffix(1);
    }
  }
  const std::optional<std::int64_t> value = parse_digits<std::int64_t>(digits);
  std::int64_t size_bytes = 0;
  if (!value.has_value() || __builtin_mul_overflow(*value, std::int64_t{1} << shift, &size_bytes)) {
    throw_malformed(text, fmt::format("'{}' is no limit", limit));
  }
  return size_bytes;
}

AllReduceSpecTuple parse_algorithm(std::string_view text, std::string_view part) {
  const std::size_t sign = part.find('#');
  AllReduceSpecTuple tuple{.algorithm = std::string(part.substr(0, sign))};
  if (sign == std::string_view::npos) return tuple;
  const std::string_view digits = part.substr(sign + 1);
  const std::optional<int> shards = parse_digits<int>(digits);
  if (!shards.has_value()) {
    throw_malformed(text, fmt::format("'{}' is no number of shards", digits));
  }
  tuple.shards = *shards;
  return tuple;
}

std::vector<AllReduceSpecTuple> parse(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (std::size_t colon = text.find(':'); colon != std::string_view::npos;
       colon = text.find(':', begin)) {
    parts.push_back(text.substr(begin, colon - begin));
    begin = colon + 1;
  }
  parts.push_back(text.substr(begin));
  if (parts.size() % 2 == 0) throw_malformed(text, "it ends with a limit");

  std::vector<AllReduceSpecTuple> tuples;
  tuples.reserve(parts.size() / 2 + 1);
  for (std::size_t i = 0; i < parts.size(); i += 2) {
    AllReduceSpecTuple tuple = parse_algorithm(text, parts[i]);
    if (i + 1 < parts.size()) tuple.limit = parse_limit(text, parts[i + 1]);
    tuples.push_back(std::move(tuple));
  }
  return tuples;
}

}  // namespace

AllReduceSpec::AllReduceSpec(std::vector<AllReduceSpecTuple>&& tuples)
    : tuples_(std::move(tuples)) {
  require_valid(tuples_);
}

AllReduceSpec::AllReduceSpec(std::initializer_list<AllReduceSpecTuple> tuples)
    : AllReduceSpec(std::vector<AllReduceSpecTuple>(tuples)) {}

AllReduceSpec::AllReduceSpec(const char* algorithm, int shards, Int64 limit)
    : AllReduceSpec(std::vector<AllReduceSpecTuple>{
          {.algorithm = algorithm, .shards = shards, .limit = limit}}) {}

AllReduceSpec::AllReduceSpec(const char* text) : AllReduceSpec(std::string_view(text)) {}
AllReduceSpec::AllReduceSpec(std::string_view text) : AllReduceSpec(parse(text)) {}
AllReduceSpec::AllReduceSpec(const std::string& text) : AllReduceSpec(std::string_view(text)) {}

AllReduceSpec AllReduceSpec::from_tuples(std::vector<AllReduceSpecTuple> tuples) {
  return AllReduceSpec(std::move(tuples));
}

std::size_t AllReduceSpec::index_for(std::size_t size_bytes) const {
  for (std::size_t i = 0; i + 1 < tuples_.size(); ++i) {
    if (size_bytes <= static_cast<std::size_t>(tuples_[i].limit.value())) return i;
  }
  return tuples_.size() - 1;
}

std::string AllReduceSpec::to_string() const {
  std::string text;
  for (const AllReduceSpecTuple& tuple : tuples_) {
    text += tuple.algorithm;
    if (tuple.shards != 1) text += fmt::format("#{}", tuple.shards);
    if (tuple.limit != kNoLimit) text += fmt::format(":{}:", tuple.limit.value());
  }
  return text;
}

}  // namespace crossdevice
