// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tls_channel.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "crossdevice/core/error.h"

namespace crossdevice::detail {
namespace {

constexpr std::string_view kIdentity = "crossdevice";
constexpr std::size_t kRecordBytes = std::size_t{16} << 10;
/// Around a record, and for what OpenSSL says by itself before it: a change of keys.
constexpr std::size_t kOverheadBytes = 128;
/// What OpenSSL may say by itself before it has to wait.
constexpr std::size_t kMaxOutBytes = std::size_t{1} << 20;
constexpr unsigned char kHandshakeRecord = 0x16;
constexpr unsigned char kClientHello = 1;
/// What a dialler says is within one record: its head, then the kind of the message and its size.
constexpr std::size_t kRecordHeadBytes = 5;
constexpr std::size_t kMessageHeadBytes = 4;
/// OpenSSL takes memory for as much as a hello announces, before it has come. One of the job's has some hundred bytes.
constexpr std::size_t kMaxHelloBytes = std::size_t{4} << 10;
/// TLS_AES_128_GCM_SHA256.
constexpr std::array<unsigned char, 2> kCipher = {0x13, 0x01};

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

/// The thread's list of OpenSSL's errors is the program's; what is added meanwhile goes away again.
class ErrorsKept {
 public:
  ErrorsKept() { ERR_set_mark(); }
  ~ErrorsKept() { ERR_pop_to_mark(); }
  ErrorsKept(const ErrorsKept&) = delete;
  ErrorsKept& operator=(const ErrorsKept&) = delete;
};

[[noreturn]] void throw_unavailable() {
  const ErrorsKept errors;
  const auto error = ERR_peek_last_error();
  if (ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE) {
    throw ResourceExhaustedError("there is no memory for TLS");
  }
  const char* const reason = ERR_reason_error_string(error);
  throw InternalError(std::string("TLS 1.3 is not available: ") +
                      (reason == nullptr ? "no reason is given" : reason));
}

void require(bool is_well) {
  if (!is_well) throw_unavailable();
}

/// Whether the handshake's last error says that the keys differ: found here, or an alert of the other side's, which found it.
bool means_other_secret(unsigned long error) {
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return false;
  switch (ERR_GET_REASON(error)) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_BAD_PSK:
    case SSL_AD_REASON_OFFSET + SSL_AD_ILLEGAL_PARAMETER:
    case SSL_AD_REASON_OFFSET + SSL_AD_DECRYPT_ERROR:
      return true;
    default:
      return false;
  }
}

/// Of `message`, at least kMessageHeadBytes.
bool is_hello_of_job(std::string_view message) {
  const auto byte = [&](std::size_t i) {
    return std::size_t{static_cast<unsigned char>(message[i])};
  };
  const std::size_t size = byte(1) << 16 | byte(2) << 8 | byte(3);
  return byte(0) == kClientHello && size <= kMaxHelloBytes;
}

}  // namespace

// ---------------------------------------------------------------------------------------------- key

struct TlsKey::Calls {
  /// A session for one handshake; it becomes that connection's.
  static SSL_SESSION* session_of(SSL* ssl) {
    const auto* const key = static_cast<const TlsKey*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
    SSL_SESSION* const session = SSL_SESSION_new();
    const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kCipher.data());
    if (session != nullptr && cipher != nullptr &&
        SSL_SESSION_set1_master_key(session, key->psk_.data(), key->psk_.size()) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set1_id_context(session, bytes_of(kIdentity), kIdentity.size()) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
      return session;
    }
    SSL_SESSION_free(session);
    return nullptr;
  }
  static int use(SSL* ssl, const EVP_MD* /*md*/, const unsigned char** id, std::size_t* id_size,
                 SSL_SESSION** session) {
    *id = bytes_of(kIdentity);
    *id_size = kIdentity.size();
    *session = session_of(ssl);
    return *session != nullptr ? 1 : 0;
  }
  static int find(SSL* ssl, const unsigned char* id, std::size_t id_size, SSL_SESSION** session) {
    *session = nullptr;
    if (std::string_view(reinterpret_cast<const char*>(id), id_size) != kIdentity) return 1;
    *session = session_of(ssl);
    return *session != nullptr ? 1 : 0;
  }
};

std::shared_ptr<const TlsKey> TlsKey::make(std::string_view secret, std::uint64_t records_per_key) {
  if (secret.empty()) {
    throw ValueError(
        "CROSSDEVICE_TLS=1 needs a secret: set CROSSDEVICE_SECRET_FILE on all workers");
  }
  return std::make_shared<const TlsKey>(Passkey(), secret, records_per_key);
}

/// authenticate() comes first: it begins with OpenSSL in the way that is this library's.
TlsKey::TlsKey(Passkey /*key*/, std::string_view secret, std::uint64_t records_per_key)
    : psk_(authenticate(secret, {kTlsKeyLabel})),
      records_per_key_(records_per_key),
      context_(SSL_CTX_new(TLS_method()), SSL_CTX_free) {
  require(static_cast<bool>(context_));
  SSL_CTX* const context = context_.get();
  SSL_CTX_set_app_data(context, this);
  require(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1);
  require(SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1);
  require(SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1);
  require(SSL_CTX_set_num_tickets(context, 0) == 1);
  require(SSL_CTX_set_session_id_context(context, bytes_of(kIdentity), kIdentity.size()) == 1);
  (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  (void)SSL_CTX_set_mode(context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  // Nobody has a certificate, and none is believed; check_peer() asks for the key besides.
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_psk_use_session_callback(context, Calls::use);
  SSL_CTX_set_psk_find_session_callback(context, Calls::find);
}

TlsKey::~TlsKey() = default;

// ---------------------------------------------------------------------------------------------- the network's side

/// OpenSSL's reads and writes are of the two buffers.
struct TlsChannel::Calls {
  static int read(BIO* bio, char* bytes, int size) {
    auto& channel = *static_cast<TlsChannel*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    // What a dialler has heard while it says its first words is the preamble, which is not OpenSSL's.
    const std::size_t heard =
        channel.is_recognised_ ? channel.in_end_ - channel.in_begin_ : std::size_t{0};
    const std::size_t count = std::min(static_cast<std::size_t>(size), heard);
    channel.is_starved_ = count == 0;
    if (channel.is_starved_) {
      BIO_set_retry_read(bio);
      return -1;
    }
    std::memcpy(bytes, channel.in_.data() + channel.in_begin_, count);
    channel.in_begin_ += count;
    return static_cast<int>(count);
  }
  static int write(BIO* bio, const char* bytes, int size) {
    auto& channel = *static_cast<TlsChannel*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    const auto count = static_cast<std::size_t>(size);
    if (channel.out_.size() + count > kMaxOutBytes) return -1;
    try {
      const auto* const begin = reinterpret_cast<const std::byte*>(bytes);
      channel.out_.insert(channel.out_.end(), begin, begin + count);
    } catch (const std::bad_alloc&) {
      return -1;
    }
    return size;
  }
  static long control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }
  /// Never freed: connections may outlive whatever would.
  static const BIO_METHOD* method() {
    static const BIO_METHOD* const method = [] {
      BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "xdev");
      require(made != nullptr);
      BIO_meth_set_read(made, read);
      BIO_meth_set_write(made, write);
      BIO_meth_set_ctrl(made, control);
      return made;
    }();
    return method;
  }
};

TlsChannel::TlsChannel(std::shared_ptr<const TlsKey> key, Role role,
                       std::string_view plain_greeting)
    : key_(std::move(key)), role_(role), plain_greeting_(plain_greeting), in_(kSmallBufferBytes) {
  out_.reserve(buffer_bytes_);
  if (role_ == Role::LISTENER) {
    const auto* const preamble = reinterpret_cast<const std::byte*>(kTlsPreamble.data());
    out_.assign(preamble, preamble + kTlsPreamble.size());
  } else {
    begin();
  }
}

TlsChannel::~TlsChannel() = default;

void TlsChannel::begin() {
  ssl_ = {SSL_new(key_->context_.get()), SSL_free};
  require(static_cast<bool>(ssl_));
  BIO* const bio = BIO_new(Calls::method());
  require(bio != nullptr);
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl(), bio, bio);
  if (role_ == Role::DIALLER) {
    SSL_set_connect_state(ssl());
  } else {
    SSL_set_accept_state(ssl());
  }
}

std::span<std::byte> TlsChannel::room() {
  if (in_begin_ == in_end_) in_begin_ = in_end_ = 0;
  return std::span(in_).subspan(in_end_);
}

void TlsChannel::drop_outgoing(std::size_t size) {
  out_begin_ += size;
  if (out_begin_ < out_.size()) return;
  out_.clear();
  out_begin_ = 0;
}

void TlsChannel::set_buffer_bytes(std::size_t size) {
  buffer_bytes_ = size;
  out_.reserve(size + kOverheadBytes);
  in_.resize(std::max(in_.size(), size));
  joined_.reserve(kRecordBytes);
  (void)SSL_clear_mode(ssl(), SSL_MODE_RELEASE_BUFFERS);
}

bool TlsChannel::has_input() const {
  if (has_ended_) return false;
  return in_begin_ != in_end_ || (is_established_ && SSL_pending(ssl()) != 0);
}

// ---------------------------------------------------------------------------------------------- handshake

/// Whether the first bytes of the other side are there, and those of TLS.
bool TlsChannel::recognise() {
  const std::string_view came(reinterpret_cast<const char*>(in_.data()) + in_begin_,
                              in_end_ - in_begin_);
  if (came.empty()) return false;
  if (role_ == Role::LISTENER) {
    if (static_cast<unsigned char>(came[0]) != kHandshakeRecord) {
      is_broken_ = true;
      throw TlsError(TlsTrouble::OTHER_SIDE_IS_PLAIN, kTlsOnlyHere);
    }
    if (came.size() < kRecordHeadBytes + kMessageHeadBytes) return false;
    if (!is_hello_of_job(came.substr(kRecordHeadBytes))) {
      is_broken_ = true;
      throw TlsError(TlsTrouble::BROKEN, "it begins TLS as nobody of this job does");
    }
    begin();
    return is_recognised_ = true;
  }
  const std::string_view wanted = kTlsPreamble.substr(0, came.size());
  if (came.substr(0, wanted.size()) != wanted) {
    const std::string_view plain = plain_greeting_.substr(0, came.size());
    if (came.substr(0, plain.size()) != plain) {
      is_broken_ = true;
      throw TlsError(TlsTrouble::BROKEN, "something else speaks there");
    }
    if (plain.size() < plain_greeting_.size()) return false;
    is_broken_ = true;
    throw TlsError(TlsTrouble::OTHER_SIDE_IS_PLAIN, kTlsOnlyHere);
  }
  if (came.size() < kTlsPreamble.size()) return false;
  in_begin_ += kTlsPreamble.size();
  return is_recognised_ = true;
}

bool TlsChannel::shake_hands() {
  if (is_established_) return true;
  if (is_broken_) fail();
  if (ssl_ && !is_recognised_ && SSL_in_before(ssl()) == 1) {
    const ErrorsKept errors;  // a dialler speaks at once
    if (SSL_do_handshake(ssl()) != 1 && !is_starved_) fail();
  }
  if (!is_recognised_ && !recognise()) return false;
  const ErrorsKept errors;
  is_starved_ = false;
  if (SSL_do_handshake(ssl()) != 1) {
    if (is_starved_) return false;
    fail();
  }
  check_peer();
  return is_established_ = true;
}

/// That the handshake was made with the key, whatever else the other side may have offered.
void TlsChannel::check_peer() {
  if (SSL_session_reused(ssl()) == 1 && SSL_version(ssl()) == TLS1_3_VERSION) return;
  is_broken_ = true;
  throw TlsError(TlsTrouble::OTHER_SECRET, "it does not hold the secret of this job");
}

void TlsChannel::fail() {
  const unsigned long error = is_broken_ ? 0 : ERR_peek_last_error();
  is_broken_ = true;
  if (!is_established_ && means_other_secret(error)) {
    throw TlsError(TlsTrouble::OTHER_SECRET, "it does not hold the secret of this job");
  }
  const char* const reason = ERR_reason_error_string(error);
  throw TlsError(TlsTrouble::BROKEN,
                 std::string("TLS: ") + (reason == nullptr ? "the connection is broken" : reason));
}

// ---------------------------------------------------------------------------------------------- the user's side

bool TlsChannel::write_record(std::span<const std::byte> bytes) {
  // AES-GCM keeps its strength for some 2^24 records (RFC 8446, 5.5).
  if (num_records_++ == key_->records_per_key_) {
    num_records_ = 1;
    if (SSL_key_update(ssl(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) is_broken_ = true;
  }
  std::size_t count = 0;
  if (is_broken_ || SSL_write_ex(ssl(), bytes.data(), bytes.size(), &count) != 1) is_broken_ = true;
  return !is_broken_;
}

std::size_t TlsChannel::write(std::span<const std::byte> head, std::span<const std::byte> payload) {
  if (!is_established_ || is_broken_) return 0;
  const ErrorsKept errors;
  std::size_t num_taken = 0;
  const std::size_t size = head.size() + payload.size();
  while (num_taken < size) {
    const std::size_t used = out_.size() + kOverheadBytes;
    const std::size_t free = buffer_bytes_ > used ? buffer_bytes_ - used : 0;
    const std::size_t wanted = std::min(size - num_taken, kRecordBytes);
    if (free == 0 || (free < wanted && !out_.empty())) break;
    const std::size_t count = std::min(wanted, free);
    std::span<const std::byte> record;
    if (num_taken < head.size()) {
      record = head.subspan(num_taken, std::min(head.size() - num_taken, count));
      joined_.assign(record.begin(), record.end());
      record = payload.first(count - joined_.size());
      joined_.insert(joined_.end(), record.begin(), record.end());
      record = joined_;
    } else {
      record = payload.subspan(num_taken - head.size(), count);
    }
    if (!write_record(record)) break;
    num_taken += count;
  }
  return num_taken;
}

std::size_t TlsChannel::read(std::span<std::byte> bytes) {
  if (!is_established_ || has_ended_ || bytes.empty()) return 0;
  if (is_broken_) fail();
  const ErrorsKept errors;
  std::size_t count = 0;
  is_starved_ = false;
  if (SSL_read_ex(ssl(), bytes.data(), bytes.size(), &count) == 1) return count;
  // A fatal alert sets this, too, and leaves the state of a connection that is done with its handshake. SSL_get_error() would look at the program's errors.
  if ((SSL_get_shutdown(ssl()) & SSL_RECEIVED_SHUTDOWN) != 0 && SSL_in_init(ssl()) == 0) {
    has_ended_ = true;
  } else if (!is_starved_) {
    fail();
  }
  return 0;
}

void TlsChannel::end() {
  if (!is_established_ || is_broken_) return;
  const ErrorsKept errors;
  (void)SSL_shutdown(ssl());
}

}  // namespace crossdevice::detail
