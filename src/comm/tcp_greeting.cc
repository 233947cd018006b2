// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tcp_greeting.h"

#include <algorithm>
#include <string>

#include "comm/detail/tls_channel.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

constexpr std::string_view kMagic = kTcpGreeting;
static_assert(kTlsPreamble.size() >= kChallengeBytes, "a dialler without TLS reads so many");
static_assert(kMagic.size() == kGreetingMagicBytes);

std::string name_of(const TcpPair& pair) {
  return WireWriter().number(pair.cluster_id).number(pair.dialler).number(pair.listener).take();
}

Mac mac_of(std::string_view role, std::string_view secret, const TcpPair& pair,
           const Nonce& challenge, const Nonce& nonce) {
  return authenticate(secret, {role, name_of(pair), view_of(challenge), view_of(nonce)});
}

Mac hello_mac(std::string_view secret, const TcpPair& pair, const Nonce& challenge,
              const Nonce& nonce) {
  return mac_of("crossdevice tcp hello", secret, pair, challenge, nonce);
}

Mac welcome_mac(std::string_view secret, const TcpPair& pair, const Nonce& challenge,
                const Nonce& nonce) {
  return mac_of("crossdevice tcp welcome", secret, pair, challenge, nonce);
}

template <std::size_t N>
std::array<char, N> block_of(WireWriter& writer) {
  std::array<char, N> block{};
  const std::string bytes = writer.take();
  std::copy_n(bytes.begin(), std::min(N, bytes.size()), block.begin());
  return block;
}

template <std::size_t N>
WireReader reader_of(const std::array<char, N>& bytes) {
  WireReader reader({bytes.data(), bytes.size()});
  if (reader.raw(kMagic.size()) != kMagic) {
    if (is_tls({bytes.data(), bytes.size()})) {
      throw TlsError(TlsTrouble::OTHER_SIDE_IS_ENCRYPTED, kTlsOnlyThere);
    }
    throw WireError("something else speaks there");
  }
  return reader;
}

}  // namespace

ChallengeBytes encode_challenge(const Nonce& challenge) {
  return block_of<kChallengeBytes>(WireWriter().raw(kMagic).raw(view_of(challenge)));
}

HelloBytes encode_hello(std::string_view secret, const TcpPair& pair, const Nonce& challenge,
                        const Nonce& nonce) {
  const Mac mac = hello_mac(secret, pair, challenge, nonce);
  return block_of<kHelloBytes>(
      WireWriter().raw(kMagic).raw(name_of(pair)).raw(view_of(nonce)).raw(view_of(mac)));
}

WelcomeBytes encode_welcome(std::string_view secret, const TcpPair& pair, const Nonce& challenge,
                            const Nonce& nonce) {
  const Mac mac = welcome_mac(secret, pair, challenge, nonce);
  return block_of<kWelcomeBytes>(WireWriter().raw(kMagic).raw(view_of(mac)));
}

HereBytes encode_here() { return block_of<kHereBytes>(WireWriter().raw(kMagic)); }

Nonce decode_challenge(const ChallengeBytes& bytes) {
  return reader_of(bytes).block<kNonceBytes>();
}

TcpHello decode_hello(const HelloBytes& bytes) {
  WireReader reader = reader_of(bytes);
  TcpHello hello;
  hello.pair.cluster_id = reader.number<std::uint64_t>();
  hello.pair.dialler = reader.number<std::int32_t>();
  hello.pair.listener = reader.number<std::int32_t>();
  hello.nonce = reader.block<kNonceBytes>();
  hello.mac = reader.block<kMacBytes>();
  reader.require_end();
  return hello;
}

void check_hello(const TcpHello& hello, std::string_view secret, const Nonce& challenge) {
  if (!is_equal(hello.mac, hello_mac(secret, hello.pair, challenge, hello.nonce))) {
    throw WireError("it does not hold the secret of this job");
  }
}

void check_welcome(const WelcomeBytes& bytes, std::string_view secret, const TcpPair& pair,
                   const Nonce& challenge, const Nonce& nonce) {
  const Mac mac = reader_of(bytes).template block<kMacBytes>();
  if (!is_equal(mac, welcome_mac(secret, pair, challenge, nonce))) {
    throw WireError("it does not hold the secret of this job");
  }
}

void check_here(const HereBytes& bytes) { reader_of(bytes).require_end(); }

}  // namespace crossdevice::detail
