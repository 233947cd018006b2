// SPDX-License-Identifier: Apache-2.0
#include "run/fields.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include <fmt/format.h>
#include <unistd.h>

#include "crossdevice/core/version.h"

#include "run/system_error.h"

namespace crossdevice::run {
namespace {

constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 20U;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;
constexpr std::size_t kMaxReserved = 4096;
constexpr std::size_t kMaxDigits = 10;

}  // namespace

void append_field(std::string& bytes, std::string_view text) {
  bytes += fmt::format("{}:", text.size());
  bytes += text;
}

void append_fields(std::string& bytes, const std::vector<std::string>& texts) {
  append_field(bytes, std::to_string(texts.size()));
  for (const std::string& text : texts) append_field(bytes, text);
}

void read_exactly(int fd, char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::read(fd, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_failure("read a message");
    if (count == 0) throw BadFields("the end came before");
    bytes += count;
    size -= static_cast<std::size_t>(count);
  }
}

std::string receive_message(int fd) {
  std::string digits;
  for (char byte = 0; digits.size() <= kMaxDigits; digits.push_back(byte)) {
    read_exactly(fd, &byte, 1);
    if (byte == ':') break;
  }
  const auto size = parse_number<std::size_t>(digits);
  if (size > kMaxMessageBytes) throw BadFields("too long");
  std::string fields;
  while (fields.size() < size) {  // in pieces: a length alone allocates nothing
    const std::size_t begin = fields.size();
    fields.resize(std::min(size, begin + kPieceBytes));
    read_exactly(fd, fields.data() + begin, fields.size() - begin);
  }
  return fields;
}

std::string_view FieldReader::take() {
  const std::size_t colon = rest_.find(':');
  if (colon == std::string_view::npos || colon > kMaxDigits) throw BadFields("no length");
  const auto size = parse_number<std::size_t>(rest_.substr(0, colon));
  rest_.remove_prefix(colon + 1);
  if (size > rest_.size()) throw BadFields("too short");
  const std::string_view text = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return text;
}

std::vector<std::string> FieldReader::take_list() {
  const auto count = take_number<std::size_t>();
  if (count > rest_.size()) throw BadFields("too short");
  std::vector<std::string> texts;
  texts.reserve(std::min(count, kMaxReserved));  // the texts may be too short to pay for more
  for (std::size_t i = 0; i < count; ++i) texts.emplace_back(take());
  return texts;
}

void append_version(std::string& bytes) { append_field(bytes, library_version_string()); }

void take_version(FieldReader& fields) {
  const std::string_view version = fields.take();
  if (version == library_version_string()) return;
  throw std::runtime_error(
      fmt::format("this host has crossdevice-run {}, but the one that starts the job is {}",
                  library_version_string(), version));
}

}  // namespace crossdevice::run
