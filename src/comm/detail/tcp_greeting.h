// SPDX-License-Identifier: Apache-2.0
/// How two members prove to each other who they are, when one has connected to the other:
///
///   listener  CHALLENGE  a number nobody could guess
///   dialler   HELLO      which cluster, from and to which rank, a number of its own, and a code over all this and the challenge
///   listener  WELCOME    a code over the same
///   dialler   HERE       it counts the connection: it has not given it up while the welcome was on its way, and does not any more
///
/// Both codes need the secret; each is good for one connection, direction and pair. All four have fixed sizes. With CROSSDEVICE_TLS=1 they are said inside
/// a TLS channel (tls_channel.h), which the secret has opened; one with and one without recognise each other by their first bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "comm/detail/authentication.h"

namespace crossdevice::detail {

/// Who meets whom.
struct TcpPair {
  std::uint64_t cluster_id = 0;
  std::int32_t dialler = -1;
  std::int32_t listener = -1;
  friend bool operator==(const TcpPair&, const TcpPair&) = default;
};

/// What each of them begins with.
inline constexpr std::string_view kTcpGreeting = "xdevtcp3";
inline constexpr std::size_t kGreetingMagicBytes = 8;
inline constexpr std::size_t kChallengeBytes = kGreetingMagicBytes + kNonceBytes;
inline constexpr std::size_t kHelloBytes = kGreetingMagicBytes + 16 + kNonceBytes + kMacBytes;
inline constexpr std::size_t kWelcomeBytes = kGreetingMagicBytes + kMacBytes;
inline constexpr std::size_t kHereBytes = kGreetingMagicBytes;
using ChallengeBytes = std::array<char, kChallengeBytes>;
using HelloBytes = std::array<char, kHelloBytes>;
using WelcomeBytes = std::array<char, kWelcomeBytes>;
using HereBytes = std::array<char, kHereBytes>;

struct TcpHello {
  TcpPair pair;
  Nonce nonce{};
  Mac mac{};
};

[[nodiscard]] ChallengeBytes encode_challenge(const Nonce& challenge);
[[nodiscard]] HelloBytes encode_hello(std::string_view secret, const TcpPair& pair,
                                      const Nonce& challenge, const Nonce& nonce);
[[nodiscard]] WelcomeBytes encode_welcome(std::string_view secret, const TcpPair& pair,
                                          const Nonce& challenge, const Nonce& nonce);
[[nodiscard]] HereBytes encode_here();

/// Errors   (of all four) WireError: something else speaks there, or it does not hold the secret.
[[nodiscard]] Nonce decode_challenge(const ChallengeBytes& bytes);
[[nodiscard]] TcpHello decode_hello(const HelloBytes& bytes);
void check_hello(const TcpHello& hello, std::string_view secret, const Nonce& challenge);
void check_welcome(const WelcomeBytes& bytes, std::string_view secret, const TcpPair& pair,
                   const Nonce& challenge, const Nonce& nonce);
void check_here(const HereBytes& bytes);

}  // namespace crossdevice::detail
