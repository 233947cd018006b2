// SPDX-License-Identifier: Apache-2.0
/// Texts as bytes for a crossdevice-run on another host: each a decimal length, ':' and as many bytes.
#pragma once

#include <charconv>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace crossdevice::run {

/// The bytes are no such texts, or end before they should.
class BadFields : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// For alarm() on another host, while a message is awaited: who should send it is gone then, and nobody is left to be told.
inline constexpr unsigned kPatienceSeconds = 300;

void append_field(std::string& bytes, std::string_view text);
/// How many there are, and each.
void append_fields(std::string& bytes, const std::vector<std::string>& texts);

/// Reads a message that was append_field()ed as one, to its last byte and no further: other things may follow.
///
/// Errors   BadFields; std::runtime_error: the descriptor cannot be read.
[[nodiscard]] std::string receive_message(int fd);

/// Reads exactly as many bytes.
///
/// Errors   as receive_message().
void read_exactly(int fd, char* bytes, std::size_t size);

/// Errors   BadFields: it is no number of that type, or more than one.
template <typename Number>
[[nodiscard]] Number parse_number(std::string_view text) {
  Number number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || stop != text.data() + text.size()) throw BadFields("no number");
  return number;
}

/// The texts of a message, one after the other.
///
/// Errors   BadFields.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}
  [[nodiscard]] std::string_view take();
  template <typename Number>
  [[nodiscard]] Number take_number() {
    return parse_number<Number>(take());
  }
  [[nodiscard]] std::vector<std::string> take_list();
  [[nodiscard]] bool is_at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// What messages begin with, and what the other side makes of it.
void append_version(std::string& bytes);
/// Errors   as FieldReader; std::runtime_error: it is another one than this program's; names both.
void take_version(FieldReader& fields);

}  // namespace crossdevice::run
