// SPDX-License-Identifier: Apache-2.0
/// One connection between two members: what has been sent and read of the frame under way, and the bytes read ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/detail/tcp_message.h"
#include "comm/detail/tls_channel.h"

namespace crossdevice::detail {

/// Never waits, and knows of transfers only where the next bytes are.
///
/// Threads  the transport's turn.
class TcpConnection {
 public:
  enum class Result : std::uint8_t {
    MOVED,    // at least a byte
    BLOCKED,  // not now
    ENDED,    // the peer takes, or has, nothing more
  };

  /// Owns `socket`. `tls`: what is said is encrypted; null: it is not.
  explicit TcpConnection(int socket, std::unique_ptr<TlsChannel> tls = nullptr);
  ~TcpConnection();
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;
  [[nodiscard]] int socket() const { return socket_; }

  // Sending: begin_frame(), then push() until the frame is whole.

  [[nodiscard]] bool is_in_frame() const { return is_in_frame_; }
  void begin_frame(const TcpHead& head);
  /// Sends what is left of the frame; `payload` is what is left of its payload, num_left() bytes. Says how much of it has left. `more`: another
  /// frame follows at once.
  Result push(const std::byte* payload, bool more, std::size_t& num_sent);
  [[nodiscard]] std::size_t num_left() const { return num_left_; }
  [[nodiscard]] bool can_send() const { return can_send_; }

  // Last words, which need no transfer any more.

  /// What is left of the frame, then `words`; nothing can be sent afterwards.
  void say_last(const std::byte* payload, std::string_view words);
  /// Sends what of them has not been sent, then ends this direction. True: nothing is left to do.
  bool flush_last();
  [[nodiscard]] std::size_t num_last_unsent() const { return last_.size() - num_last_sent_; }
  /// Ends this direction without the rest.
  void drop_last();

  // Receiving: read() until there is a head, then take() and read_into() until the frame is whole.

  /// The head of the frame under way; null: it is not there yet. Errors   WireError.
  [[nodiscard]] const TcpHead* head();
  /// Of the frame under way: bytes of its payload that have not been taken.
  [[nodiscard]] std::size_t num_expected() const { return num_expected_; }
  /// Bytes of the payload that have been read ahead; they are there until the next call.
  [[nodiscard]] std::span<const std::byte> ahead() const;
  /// Goes past the first `size` bytes of ahead().
  void skip(std::size_t size);
  /// The frame is whole.
  void end_frame() { has_head_ = false; }
  /// Reads: first into `payload`, what is missing of the frame's payload, which is not ahead; then ahead, up to `max_ahead` bytes. Says how much came for `payload`.
  /// Errors   TlsError.
  Result read(std::span<std::byte> payload, std::size_t max_ahead, std::size_t& num_read);
  static constexpr std::size_t kAsMuchAsThereIs = SIZE_MAX;
  /// For read(): a head, where another frame of the message under way follows. Where its sender does otherwise, more is read ahead, or another read is needed.
  [[nodiscard]] std::size_t size_of_next_head() const;
  /// For read(): what is not there of the frame under way; of the next one, where there is none: with a payload of `size` bytes, and a head as long as the last
  /// one, which most are. At least 1.
  [[nodiscard]] std::size_t num_missing(std::size_t size) const;
  /// Behind the last message something else may follow that is here: what has been read of the next frame says so, or too little of what was there has been read to
  /// know its kind.
  [[nodiscard]] bool may_end_next() const;
  /// Reads everything that is there, however much: when the peer has ended, so that its last words are heard though nobody wants what it said
  /// before. False: it is too much. Errors   TlsError.
  [[nodiscard]] bool read_all();
  /// Whole frames that have been read ahead, behind the one under way, of other kinds than MESSAGE: the first, its payload with it. Looks at no message twice that is
  /// whole: however often it is asked, the work is linear in the bytes that have come. Errors   WireError.
  struct LastWords {
    TcpFrameKind kind = TcpFrameKind::MESSAGE;  // MESSAGE: there are none
    std::string payload{};
    std::size_t num_looked_at = 0;  // heads, this time
  };
  [[nodiscard]] LastWords last_words();
  /// Something has come that the kernel does not know of any more: the next read() finds it.
  [[nodiscard]] bool has_input() const { return tls_ && tls_->has_input(); }
  /// The peer has ended its direction, and everything it said has been read (if not taken).
  [[nodiscard]] bool has_ended() const { return has_ended_; }
  /// It was the system that ended it, as nobody answered any more.
  [[nodiscard]] bool was_unanswered() const { return was_unanswered_; }

  /// Reads and forgets what is there, so that closing does not disturb what was sent.
  void discard_input();
  /// The peer's machine has all that was sent.
  [[nodiscard]] bool has_delivered() const;

 private:
  struct Parts {  // of memory, one after the other
    std::span<std::byte> payload;
    std::span<std::byte> ahead;
  };
  template <class Call>
  Result outcome(const Call& call, std::size_t& num_bytes);
  Result send(std::span<const std::byte> head, std::span<const std::byte> payload, bool more,
              std::size_t& num_sent);
  Result send_encrypted(std::span<const std::byte> head, std::span<const std::byte> payload,
                        bool more, std::size_t& num_sent);
  Result receive(const Parts& parts, std::size_t& num_received);
  Result receive_encrypted(const Parts& parts, std::size_t& num_received);
  [[nodiscard]] std::string encrypted(std::string_view last);
  void drop_taken();

  const int socket_;
  const std::unique_ptr<TlsChannel> tls_;
  std::size_t num_encrypted_ = 0;  // of the frame under way: bytes that outgoing() of tls_ is

  TcpHeadBytes out_head_;
  SaidOperations out_said_;  // by the messages that have begun
  std::size_t num_head_sent_ = 0;
  std::size_t num_left_ = 0;
  bool is_in_frame_ = false;
  bool can_send_ = true;
  std::string last_;  // not sent yet, from num_last_sent_ on
  std::size_t num_last_sent_ = 0;

  std::vector<std::byte> buffer_;  // read ahead: [begin_, end_)
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t num_before_buffer_ = 0;  // bytes that were read ahead and are no longer in it
  struct Looked {                        // for last words
    std::uint64_t up_to = 0;             // of the bytes ever read ahead: a whole frame ends there
    SaidOperations said{};               // as said_, there
  };
  Looked looked_;
  TcpHead head_;
  std::size_t num_of_head_ = 0;  // the last one's bytes
  SaidOperations said_;          // by the messages whose heads have come
  bool has_head_ = false;
  bool is_more_there_ = false;  // the last read was filled
  std::size_t num_expected_ = 0;
  bool has_ended_ = false;
  bool was_unanswered_ = false;
};

}  // namespace crossdevice::detail
