// SPDX-License-Identifier: Apache-2.0
/// TLS 1.3 between two processes of one job, without a socket: plain bytes on one side, records on the other.
///
/// Nobody has a certificate. Both sides derive one key from the job's secret (external PSK), and add a fresh Diffie-Hellman exchange (psk_dhe_ke), so that
/// whoever learns the secret later cannot read what was recorded. Before its records a listener says kTlsPreamble, so that one with TLS and one without
/// recognise each other instead of waiting for each other.
///
/// Source: RFC 8446.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/detail/authentication.h"
#include "comm/detail/wire.h"

// Of OpenSSL, whose headers only tls_channel.cc needs.
struct ssl_ctx_st;
struct ssl_st;

namespace crossdevice::detail {

/// As long as the longest plain greeting that a dialler waits for (kChallengeBytes).
inline constexpr std::string_view kTlsPreamble = "xdevtls1 CROSSDEVICE_TLS=1 is set here.\n";
/// What the key is called that is made of a secret.
inline constexpr std::string_view kTlsKeyLabel = "crossdevice tls 1.3 external psk";
/// What one with TLS and one without say of each other.
inline constexpr const char* kTlsOnlyHere =
    "CROSSDEVICE_TLS=1 is set here, but not there: all workers must agree";
inline constexpr const char* kTlsOnlyThere =
    "CROSSDEVICE_TLS=1 is set there, but not here: all workers must agree";

/// Whether one with TLS says this, as far as the first bytes tell.
[[nodiscard]] inline bool is_tls(std::string_view bytes) {
  return bytes.starts_with("\x16\x03\x01") ||
         (!bytes.empty() &&
          bytes.substr(0, 8) == kTlsPreamble.substr(0, std::min<std::size_t>(bytes.size(), 8)));
}

enum class TlsTrouble : std::uint8_t {
  NONE,
  OTHER_SIDE_IS_PLAIN,      // it has not CROSSDEVICE_TLS=1, which is set here
  OTHER_SIDE_IS_ENCRYPTED,  // it has CROSSDEVICE_TLS=1, which is not set here
  OTHER_SECRET,             // it does not hold the secret of this job
  BROKEN,                   // what comes is not what was sent, or no TLS at all
};

/// The connection cannot be believed any more.
class TlsError : public WireError {
 public:
  TlsError(TlsTrouble trouble, const std::string& text) : WireError(text), trouble_(trouble) {}
  [[nodiscard]] TlsTrouble trouble() const { return trouble_; }

 private:
  TlsTrouble trouble_;
};

/// What the connections of a job are encrypted with. Constant.
///
/// Threads  any.
class TlsKey {
  struct Passkey {};

 public:
  /// `records_per_key`: after how many records a direction takes a new key.
  ///
  /// Errors   ValueError: there is no secret. InternalError: this OpenSSL has no TLS 1.3.
  [[nodiscard]] static std::shared_ptr<const TlsKey> make(
      std::string_view secret, std::uint64_t records_per_key = std::uint64_t{1} << 22);
  TlsKey(Passkey key, std::string_view secret, std::uint64_t records_per_key);
  ~TlsKey();
  TlsKey(const TlsKey&) = delete;
  TlsKey& operator=(const TlsKey&) = delete;

 private:
  friend class TlsChannel;
  struct Calls;  // OpenSSL's, to here
  Mac psk_;
  std::uint64_t records_per_key_;
  std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st*)> context_;
};

/// One end of a connection. Never waits.
///
/// Memory   less than 64 KiB, whatever the other side says; after set_buffer_bytes() twice that many and 50 KiB. OpenSSL takes and gives back a little for
///          each record.
/// Threads  one at a time.
class TlsChannel {
 public:
  enum class Role : std::uint8_t { DIALLER, LISTENER };
  static constexpr std::size_t kSmallBufferBytes = std::size_t{4} << 10;

  /// `plain_greeting`: what a listener of the same kind without TLS says first.
  TlsChannel(std::shared_ptr<const TlsKey> key, Role role, std::string_view plain_greeting);
  ~TlsChannel();
  TlsChannel(const TlsChannel&) = delete;
  TlsChannel& operator=(const TlsChannel&) = delete;

  // The network's side.

  /// Where what comes is to be put; empty only while has_input().
  [[nodiscard]] std::span<std::byte> room();
  void take_in(std::size_t size) { in_end_ += size; }
  /// To be sent, the first ones first.
  [[nodiscard]] std::span<const std::byte> outgoing() const {
    return {out_.data() + out_begin_, out_.size() - out_begin_};
  }
  void drop_outgoing(std::size_t size);

  // The user's side.

  /// Goes on with the handshake as far as what has come allows. True: it is done.
  ///
  /// Errors   TlsError; outgoing() may say why to the other side.
  bool shake_hands();
  [[nodiscard]] bool is_established() const { return is_established_; }
  /// Encrypts `head`, then `payload`, as far as there is room. How much of both together was taken; 0: nothing before outgoing() has been sent, or ever again.
  [[nodiscard]] std::size_t write(std::span<const std::byte> head,
                                  std::span<const std::byte> payload);
  /// 0: more must come before there is a byte, or has_ended().
  ///
  /// Errors   TlsError.
  [[nodiscard]] std::size_t read(std::span<std::byte> bytes);
  /// Something has come that has not been read; part of a record is nothing after read() has returned 0, nor is what comes behind the end.
  [[nodiscard]] bool has_input() const;
  /// Nothing can be written any more.
  [[nodiscard]] bool is_broken() const { return is_broken_; }
  /// Says that nothing follows.
  void end();
  /// The other side has said that nothing follows. A connection that ends without this was cut.
  [[nodiscard]] bool has_ended() const { return has_ended_; }
  /// For many bytes at once; on an established channel.
  void set_buffer_bytes(std::size_t size);

 private:
  struct Calls;  // OpenSSL's, to here
  bool recognise();
  void begin();
  void check_peer();
  bool write_record(std::span<const std::byte> bytes);
  [[nodiscard]] ssl_st* ssl() const { return ssl_.get(); }
  [[noreturn]] void fail();

  const std::shared_ptr<const TlsKey> key_;
  const Role role_;
  const std::string_view plain_greeting_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> ssl_{
      nullptr, nullptr};  // a listener's: once something has come that looks like TLS
  bool is_recognised_ = false;
  bool is_established_ = false;
  bool is_broken_ = false;
  bool has_ended_ = false;
  bool is_starved_ =
      false;  // OpenSSL has asked for more than has come; SSL_want() says so of errors, too
  std::uint64_t num_records_ = 0;  // written with this key

  std::vector<std::byte> in_;  // records that have come: [in_begin_, in_end_)
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;
  std::vector<std::byte> out_;  // from out_begin_ on; has room for buffer_bytes_
  std::size_t out_begin_ = 0;
  std::size_t buffer_bytes_ = kSmallBufferBytes;
  std::vector<std::byte> joined_;  // a head and what goes into its record
};

}  // namespace crossdevice::detail
