// SPDX-License-Identifier: Apache-2.0
#include "strangers/tls_words.h"

#include <memory>
#include <span>
#include <stdexcept>

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "comm/detail/tls_channel.h"

namespace crossdevice::strangers {

std::string tls_hello_of(std::string_view secret) {
  detail::TlsChannel channel(detail::TlsKey::make(secret), detail::TlsChannel::Role::DIALLER, "");
  (void)channel.shake_hands();
  const std::span<const std::byte> words = channel.outgoing();
  return {reinterpret_cast<const char*>(words.data()), words.size()};
}

std::string tls_hello_without_key() {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free);
  const std::unique_ptr<SSL, void (*)(SSL*)> client(SSL_new(context.get()), SSL_free);
  BIO* const heard = BIO_new(BIO_s_mem());
  BIO* const said = BIO_new(BIO_s_mem());
  if (client == nullptr || heard == nullptr || said == nullptr) {
    throw std::runtime_error("there is no TLS");
  }
  SSL_set_bio(client.get(), heard, said);
  SSL_set_connect_state(client.get());
  (void)SSL_do_handshake(client.get());  // which waits for an answer
  const char* words = nullptr;
  const long size = BIO_get_mem_data(said, &words);
  return {words, static_cast<std::size_t>(size)};
}

}  // namespace crossdevice::strangers
