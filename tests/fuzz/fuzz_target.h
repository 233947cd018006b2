// SPDX-License-Identifier: Apache-2.0
/// What a fuzz target is made of: the function that eats bytes, a reader that cuts them into values, and a check that ends the process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>

#include "crossdevice/core/log.h"

/// Each target defines it. libFuzzer, or the program that replays a corpus, calls it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace crossdevice::fuzz {

[[noreturn]] inline void fail(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
  std::abort();
}

/// Must hold whatever the bytes are.
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): it says where
#define FUZZ_EXPECT(condition) \
  ((condition) ? void() : ::crossdevice::fuzz::fail(__FILE__, __LINE__, #condition))

/// Must not be reached.
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): it says where
#define FUZZ_FAIL(what_should_be) ::crossdevice::fuzz::fail(__FILE__, __LINE__, what_should_be)

/// Nobody reads the log of a million runs.
inline void silence_log() {
  [[maybe_unused]] static const bool is_silent = [] {
    set_log_sink([](LogSeverity, std::string_view) {});
    return true;
  }();
}

[[nodiscard]] inline std::string text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Cuts an input into values. Where nothing is left, numbers are 0 and texts empty: a short input is a run like another.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  [[nodiscard]] bool is_empty() const { return rest_.empty(); }
  /// Least significant byte first.
  template <class T>
  requires std::is_integral_v<T>
  [[nodiscard]] T number() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T) && !rest_.empty(); ++i) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(rest_[0])) << (8 * i);
      rest_.remove_prefix(1);
    }
    return static_cast<T>(value);
  }
  /// A byte, brought below `limit` > 0.
  [[nodiscard]] std::size_t below(std::size_t limit) { return number<std::uint8_t>() % limit; }
  [[nodiscard]] bool coin() { return below(2) != 0; }
  /// As many bytes as there are, at most `size`.
  [[nodiscard]] std::string_view bytes(std::size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  /// One byte says how long it is.
  [[nodiscard]] std::string text() {
    const std::size_t size = number<std::uint8_t>();
    return std::string(bytes(size));
  }
  /// Everything that is left.
  [[nodiscard]] std::string rest() { return std::string(bytes(rest_.size())); }

 private:
  std::string_view rest_;
};

}  // namespace crossdevice::fuzz
