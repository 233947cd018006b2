// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tcp_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

/// Read ahead of receives: small messages whole, and the longest reason.
constexpr std::size_t kAheadBytes = std::size_t{16} << 10;
static_assert(kAheadBytes >= kMaxTcpHeadBytes + kMaxStopBytes);
/// More than two machines' socket buffers hold.
constexpr std::size_t kMaxAheadBytes = std::size_t{64} << 20;

/// Four records each way.
constexpr std::size_t kTlsBufferBytes = std::size_t{66} << 10;
/// Frames up to this size are put together before they are sent: the system takes one piece faster than two.
constexpr std::size_t kSmallFrameBytes = 512;

/// Both ends do it with each frame, in the same order: what is not said is then known.
void remember(const TcpHead& head, SaidOperations& said) {
  if (head.kind == TcpFrameKind::MESSAGE) said.remember(head.operation);
}

bool must_wait() { return errno == EAGAIN || errno == EWOULDBLOCK; }

/// The system has given up, as nothing was answered; the second two say what it has heard on the way.
bool is_unanswered(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
}

}  // namespace

TcpConnection::TcpConnection(int socket, std::unique_ptr<TlsChannel> tls)
    : socket_(socket), tls_(std::move(tls)), buffer_(kAheadBytes) {
  if (tls_) tls_->set_buffer_bytes(kTlsBufferBytes);
}
TcpConnection::~TcpConnection() { ::close(socket_); }

/// What came of `call`, which sends or receives something, and how many bytes.
template <class Call>
TcpConnection::Result TcpConnection::outcome(const Call& call, std::size_t& num_bytes) {
  ssize_t count = 0;
  do {
    count = call();
  } while (count < 0 && errno == EINTR);
  if (count < 0 && must_wait()) return Result::BLOCKED;
  if (count < 0 && is_unanswered(errno)) was_unanswered_ = true;
  if (count <= 0) return Result::ENDED;
  num_bytes = static_cast<std::size_t>(count);
  return Result::MOVED;
}

// ---------------------------------------------------------------------------------------------- sending

void TcpConnection::begin_frame(const TcpHead& head) {
  out_head_ = encode_tcp_head(head, out_said_);
  remember(head, out_said_);
  num_head_sent_ = 0;
  num_left_ = head.payload_size;
  is_in_frame_ = true;
}

TcpConnection::Result TcpConnection::push(const std::byte* payload, bool more,
                                          std::size_t& num_sent) {
  num_sent = 0;
  const std::span<const std::byte> head = out_head_.view().subspan(num_head_sent_);
  const std::span<const std::byte> rest(payload, num_left_);
  std::size_t count = 0;
  const Result result =
      tls_ ? send_encrypted(head, rest, more, count) : send(head, rest, more, count);
  if (result == Result::ENDED) can_send_ = false;
  if (result != Result::MOVED) return result;
  const std::size_t of_head = std::min(count, head.size());
  num_head_sent_ += of_head;
  num_sent = count - of_head;
  num_left_ -= num_sent;
  is_in_frame_ = num_head_sent_ < out_head_.size || num_left_ != 0;
  return Result::MOVED;
}

TcpConnection::Result TcpConnection::send(std::span<const std::byte> head,
                                          std::span<const std::byte> payload, bool more,
                                          std::size_t& num_sent) {
  const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0);
  std::array<std::byte, kSmallFrameBytes> together;  // filled as far as it is sent
  std::span<const std::byte> piece = head.empty() ? payload : head;
  const std::size_t size = head.size() + payload.size();
  if (!head.empty() && !payload.empty() && size <= together.size()) {
    std::memcpy(together.data(), head.data(), head.size());
    std::memcpy(together.data() + head.size(), payload.data(), payload.size());
    piece = std::span(together).first(size);
  }
  if (piece.size() == size) {
    return outcome([&] { return ::sendto(socket_, piece.data(), piece.size(), flags, nullptr, 0); },
                   num_sent);
  }
  // NOLINTBEGIN(cppcoreguidelines-pro-type-const-cast): sendmsg() only reads
  std::array<iovec, 2> parts{{{const_cast<std::byte*>(head.data()), head.size()},
                              {const_cast<std::byte*>(payload.data()), payload.size()}}};
  // NOLINTEND(cppcoreguidelines-pro-type-const-cast)
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return outcome([&] { return ::sendmsg(socket_, &message, flags); }, num_sent);
}

/// Bytes count as sent once all records that they are in have left: a transfer that is done needs nobody to send the rest of it.
TcpConnection::Result TcpConnection::send_encrypted(std::span<const std::byte> head,
                                                    std::span<const std::byte> payload, bool more,
                                                    std::size_t& num_sent) {
  if (num_encrypted_ == 0) num_encrypted_ = tls_->write(head, payload);
  if (tls_->is_broken()) return Result::ENDED;
  const bool follows = more || num_encrypted_ < head.size() + payload.size();
  while (!tls_->outgoing().empty()) {
    std::size_t count = 0;
    const Result result = send({}, tls_->outgoing(), follows, count);
    if (result != Result::MOVED) return result;
    tls_->drop_outgoing(count);
  }
  num_sent = std::exchange(num_encrypted_, 0);
  return Result::MOVED;
}

void TcpConnection::say_last(const std::byte* payload, std::string_view words) {
  if (!can_send_) return;
  can_send_ = false;
  if (is_in_frame_) {
    const std::span<const std::byte> head = out_head_.view().subspan(num_head_sent_);
    last_.append(reinterpret_cast<const char*>(head.data()), head.size());
    if (num_left_ != 0) last_.append(reinterpret_cast<const char*>(payload), num_left_);
    is_in_frame_ = false;
  }
  last_.append(words);
  if (tls_) last_ = encrypted(std::string_view(last_).substr(num_encrypted_));
  (void)flush_last();
}

/// Behind what is encrypted already.
std::string TcpConnection::encrypted(std::string_view last) {
  std::string records;
  std::span<const std::byte> left = std::as_bytes(std::span(last));
  const auto take = [&] {
    const std::span<const std::byte> bytes = tls_->outgoing();
    records.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    tls_->drop_outgoing(bytes.size());
  };
  take();
  while (!left.empty() && !tls_->is_broken()) {
    left = left.subspan(tls_->write({}, left));
    take();
  }
  tls_->end();
  take();
  return records;
}

bool TcpConnection::flush_last() {
  while (num_last_sent_ < last_.size()) {
    const ssize_t count = ::send(socket_, last_.data() + num_last_sent_,
                                 last_.size() - num_last_sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && must_wait()) return false;
    if (count < 0) {
      drop_last();
      return true;
    }
    num_last_sent_ += static_cast<std::size_t>(count);
    if (num_last_sent_ == last_.size()) (void)::shutdown(socket_, SHUT_WR);
  }
  return true;
}

void TcpConnection::drop_last() {
  last_.clear();
  num_last_sent_ = 0;
  (void)::shutdown(socket_, SHUT_WR);
}

// ---------------------------------------------------------------------------------------------- receiving

const TcpHead* TcpConnection::head() {
  if (has_head_) return &head_;
  const std::span<const std::byte> bytes(buffer_.data() + begin_, end_ - begin_);
  const std::size_t size = tcp_head_size(bytes);
  if (size == 0 || bytes.size() < size) return nullptr;
  head_ = decode_tcp_head(bytes.first(size), said_);
  remember(head_, said_);
  begin_ += size;
  num_of_head_ = size;
  num_expected_ = head_.payload_size;
  has_head_ = true;
  return &head_;
}

/// As a sender begins what is left of the message under way.
std::size_t TcpConnection::size_of_next_head() const {
  TcpHead next = head_;
  next.offset += head_.payload_size;
  next.payload_size =
      static_cast<std::uint32_t>(std::min(head_.size - next.offset, kMaxTcpPayloadBytes));
  return encode_tcp_head(next, said_).size;
}

std::size_t TcpConnection::num_missing(std::size_t size) const {
  const std::size_t expected = has_head_ ? num_expected_ : num_of_head_ + size;
  const std::size_t num_there = end_ - begin_;
  return expected > num_there ? expected - num_there : kMaxTcpHeadBytes;
}

bool TcpConnection::may_end_next() const {
  const std::span<const std::byte> bytes(buffer_.data() + begin_, end_ - begin_);
  if (has_head_) return head_.kind != TcpFrameKind::MESSAGE;
  if (bytes.size() < kTcpKindBytes) return is_more_there_;
  return tcp_kind(bytes) != TcpFrameKind::MESSAGE;
}

std::span<const std::byte> TcpConnection::ahead() const {
  return {buffer_.data() + begin_, std::min(end_ - begin_, num_expected_)};
}

void TcpConnection::skip(std::size_t size) {
  begin_ += size;
  num_expected_ -= size;
}

/// From the beginning of the buffer.
void TcpConnection::drop_taken() {
  if (begin_ == 0) return;
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  num_before_buffer_ += begin_;
  end_ -= begin_;
  begin_ = 0;
}

TcpConnection::Result TcpConnection::read(std::span<std::byte> payload, std::size_t max_ahead,
                                          std::size_t& num_read) {
  num_read = 0;
  if (begin_ == end_ || end_ == buffer_.size()) drop_taken();
  const std::size_t room = buffer_.size() - end_;
  const Parts parts{payload, std::span(buffer_).subspan(end_, std::min(room, max_ahead))};
  if (parts.payload.empty() && parts.ahead.empty()) return Result::BLOCKED;
  std::size_t size = 0;
  const Result result = tls_ ? receive_encrypted(parts, size) : receive(parts, size);
  if (result == Result::ENDED) has_ended_ = true;
  is_more_there_ = size == parts.payload.size() + parts.ahead.size();
  num_read = std::min(size, payload.size());
  num_expected_ -= num_read;
  end_ += size - num_read;
  return result;
}

TcpConnection::Result TcpConnection::receive(const Parts& parts, std::size_t& num_received) {
  if (parts.payload.empty()) {
    const auto receive_ahead = [&] {
      return ::recvfrom(socket_, parts.ahead.data(), parts.ahead.size(), MSG_DONTWAIT, nullptr,
                        nullptr);
    };
    return outcome(receive_ahead, num_received);
  }
  std::array<iovec, 2> areas{
      {{parts.payload.data(), parts.payload.size()}, {parts.ahead.data(), parts.ahead.size()}}};
  msghdr message{};
  message.msg_iov = areas.data();
  message.msg_iovlen = areas.size();
  return outcome([&] { return ::recvmsg(socket_, &message, MSG_DONTWAIT); }, num_received);
}

/// Who ends a connection in good order has said goodbye on it; a cut is an end without that.
TcpConnection::Result TcpConnection::receive_encrypted(const Parts& parts,
                                                       std::size_t& num_received) {
  for (;;) {
    std::size_t count = 0;
    for (const std::span<std::byte> part : {parts.payload, parts.ahead}) {
      std::size_t num_filled = 0;
      while (num_filled < part.size()) {
        const std::size_t size = tls_->read(part.subspan(num_filled));
        if (size == 0) break;
        num_filled += size;
      }
      count += num_filled;
      if (num_filled < part.size()) break;
    }
    num_received = count;
    if (count != 0) return Result::MOVED;
    if (tls_->has_ended()) return Result::ENDED;
    const Result result = receive({{}, tls_->room()}, count);
    if (result != Result::MOVED) return result;
    tls_->take_in(count);
  }
}

bool TcpConnection::read_all() {
  std::size_t ignored = 0;
  for (;;) {
    if (end_ == buffer_.size() && begin_ == 0) {
      if (buffer_.size() >= kMaxAheadBytes) return false;
      buffer_.resize(2 * buffer_.size());
    }
    if (read({}, kAsMuchAsThereIs, ignored) != Result::MOVED) return true;
  }
}

/// Where it has looked lies between the same frames whatever is taken of those before, and what is taken behind it has been looked at, too: so it goes on there, or
/// behind the frame under way.
TcpConnection::LastWords TcpConnection::last_words() {
  LastWords words;
  const std::uint64_t end = num_before_buffer_ + end_;
  const std::uint64_t next = num_before_buffer_ + begin_ + (has_head_ ? num_expected_ : 0);
  if (next > end) return words;
  if (looked_.up_to <= next) looked_ = {next, said_};
  for (;;) {
    const std::span<const std::byte> rest =
        std::span(buffer_).first(end_).subspan(looked_.up_to - num_before_buffer_);
    const std::size_t head_size = tcp_head_size(rest);
    if (head_size == 0 || rest.size() < head_size) return words;
    const TcpHead head = decode_tcp_head(rest.first(head_size), looked_.said);
    ++words.num_looked_at;
    const std::span<const std::byte> payload = rest.subspan(head_size);
    if (payload.size() < head.payload_size) return words;
    if (head.kind != TcpFrameKind::MESSAGE) {
      words.kind = head.kind;
      words.payload.assign(reinterpret_cast<const char*>(payload.data()), head.payload_size);
      return words;
    }
    remember(head, looked_.said);
    looked_.up_to += head_size + head.payload_size;
  }
}

// ---------------------------------------------------------------------------------------------- ending

void TcpConnection::discard_input() {
  num_before_buffer_ += end_;
  begin_ = end_ = 0;
  // Bounded: who goes on sending for ever is not waited for.
  for (int i = 0; i < 4096 && !has_ended_; ++i) {
    const ssize_t count = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (count == 0) has_ended_ = true;
    if (count == 0 || (count < 0 && errno != EINTR)) return;
  }
}

bool TcpConnection::has_delivered() const {
  int num_unsent = 0;
  return ::ioctl(socket_, SIOCOUTQ, &num_unsent) != 0 || num_unsent == 0;
}

}  // namespace crossdevice::detail
