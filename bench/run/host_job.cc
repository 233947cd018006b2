// SPDX-License-Identifier: Apache-2.0
#include "run/host_job.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <stdexcept>

#include <fmt/format.h>
#include <unistd.h>

#include "crossdevice/core/version.h"

#include "run/system_error.h"

namespace crossdevice::run {
namespace {

constexpr std::size_t kMaxJobBytes = std::size_t{64} << 20U;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;
constexpr double kMaxGraceSeconds = 1e6;
constexpr std::size_t kMaxReserved = 4096;
constexpr std::size_t kMaxDigits = 10;

[[noreturn]] void refuse() {
  throw std::runtime_error("--host-agent: standard input holds no job");
}

template <typename Number>
Number parse_number(std::string_view text) {
  Number number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || stop != text.data() + text.size()) refuse();
  return number;
}

void append(std::string& bytes, std::string_view text) {
  bytes += fmt::format("{}:", text.size());
  bytes += text;
}

void append(std::string& bytes, const std::vector<std::string>& texts) {
  append(bytes, std::to_string(texts.size()));
  for (const std::string& text : texts) append(bytes, text);
}

std::string_view take(std::string_view& bytes) {
  const std::size_t colon = bytes.find(':');
  if (colon == std::string_view::npos || colon > kMaxDigits) refuse();
  const auto size = parse_number<std::size_t>(bytes.substr(0, colon));
  bytes.remove_prefix(colon + 1);
  if (size > bytes.size()) refuse();
  const std::string_view text = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return text;
}

std::vector<std::string> take_list(std::string_view& bytes) {
  const auto count = parse_number<std::size_t>(take(bytes));
  if (count > bytes.size()) refuse();
  std::vector<std::string> texts;
  texts.reserve(std::min(count, kMaxReserved));  // the texts may be too short to pay for more
  for (std::size_t i = 0; i < count; ++i) texts.emplace_back(take(bytes));
  return texts;
}

void read_exactly(int fd, char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::read(fd, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_failure("read the job");
    if (count == 0) refuse();
    bytes += count;
    size -= static_cast<std::size_t>(count);
  }
}

}  // namespace

std::string encode(const HostJob& job) {
  std::string fields;
  append(fields, library_version_string());
  for (const int number : {job.first_rank, job.num_local_workers, job.num_workers}) {
    append(fields, std::to_string(number));
  }
  append(fields, fmt::format("{}", job.grace_seconds));
  append(fields, job.is_plain ? "1" : "0");
  append(fields, job.keeps_going ? "1" : "0");
  for (const std::string& text : {job.chief_address, job.secret, job.directory}) {
    append(fields, text);
  }
  append(fields, job.variables);
  append(fields, job.command);
  std::string bytes;
  append(bytes, fields);
  return bytes;
}

HostJob receive_host_job(int fd) {
  std::string digits;
  for (char byte = 0; digits.size() <= kMaxDigits; digits.push_back(byte)) {
    read_exactly(fd, &byte, 1);
    if (byte == ':') break;
  }
  const auto size = parse_number<std::size_t>(digits);
  if (size > kMaxJobBytes) refuse();
  std::string fields;
  while (fields.size() < size) {  // in pieces: a length alone allocates nothing
    const std::size_t begin = fields.size();
    fields.resize(std::min(size, begin + kPieceBytes));
    read_exactly(fd, fields.data() + begin, fields.size() - begin);
  }
  std::string_view rest = fields;
  const std::string_view version = take(rest);
  if (version != library_version_string()) {
    throw std::runtime_error(
        fmt::format("this host has crossdevice-run {}, but the one that starts the job is {}",
                    library_version_string(), version));
  }
  HostJob job;
  for (int* number : {&job.first_rank, &job.num_local_workers, &job.num_workers}) {
    *number = parse_number<int>(take(rest));
  }
  job.grace_seconds = parse_number<double>(take(rest));
  job.is_plain = take(rest) == "1";
  job.keeps_going = take(rest) == "1";
  for (std::string* text : {&job.chief_address, &job.secret, &job.directory}) *text = take(rest);
  job.variables = take_list(rest);
  job.command = take_list(rest);
  const bool has_ranks = job.first_rank >= 0 && job.num_local_workers >= 1 &&
                         job.num_workers >= job.num_local_workers &&
                         job.first_rank <= job.num_workers - job.num_local_workers;
  // Not a number is no more than anything.
  const bool has_grace = job.grace_seconds >= 0 && job.grace_seconds <= kMaxGraceSeconds;
  if (!has_ranks || !has_grace || job.command.empty() || !rest.empty()) refuse();
  return job;
}

}  // namespace crossdevice::run
