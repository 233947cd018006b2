// SPDX-License-Identifier: Apache-2.0
/// How two processes of one job prove to each other that they hold the job's secret.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace crossdevice::detail {

inline constexpr std::size_t kMacBytes = 32;
inline constexpr std::size_t kNonceBytes = 32;
using Mac = std::array<unsigned char, kMacBytes>;
using Nonce = std::array<unsigned char, kNonceBytes>;

/// Bytes nobody can guess, from the system.
///
/// Errors   ResourceExhaustedError: the system has none.
[[nodiscard]] Nonce make_nonce();

/// HMAC-SHA256 over the parts, each preceded by its length, so that no two lists of parts have one message.
///
/// Source: RFC 2104.
[[nodiscard]] Mac authenticate(std::string_view secret,
                               std::initializer_list<std::string_view> parts);

/// Compares in a time that does not depend on where they differ.
[[nodiscard]] bool is_equal(const Mac& a, const Mac& b);

[[nodiscard]] inline std::string_view view_of(const Mac& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace crossdevice::detail
