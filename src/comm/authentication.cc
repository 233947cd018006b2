// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/authentication.h"

#include <cerrno>
#include <cstdint>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

/// A cluster may live in a variable that is destroyed after main(), its control thread with it. Were OpenSSL to clean up in an exit handler of its own,
/// that thread would use what is gone, and its own part would never be freed. So it does not, unless the program has begun to use it before.
void begin_openssl() {
  [[maybe_unused]] static const int has_begun =
      OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
}

}  // namespace

Nonce make_nonce() {
  begin_openssl();
  Nonce nonce{};
  if (RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) != 1) {
    throw ResourceExhaustedError("the system has no random bytes for a handshake");
  }
  return nonce;
}

Mac authenticate(std::string_view secret, std::initializer_list<std::string_view> parts) {
  begin_openssl();
  std::string message;
  for (const std::string_view part : parts) {
    std::uint64_t size = part.size();
    for (int i = 0; i < 8; ++i, size >>= 8U) message.push_back(static_cast<char>(size & 0xFFU));
    message.append(part);
  }
  Mac mac{};
  unsigned int size = 0;
  errno = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), mac.data(),
           &size) == nullptr ||
      size != mac.size()) {
    // What OpenSSL says of it is that there is no such algorithm.
    if (errno == ENOMEM) throw ResourceExhaustedError("there is no memory for a handshake");
    throw InternalError("HMAC-SHA256 is not available");
  }
  return mac;
}

bool is_equal(const Mac& a, const Mac& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace crossdevice::detail
