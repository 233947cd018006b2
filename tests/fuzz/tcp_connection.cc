// SPDX-License-Identifier: Apache-2.0
// What a member of a transport says after it has proved who it is, over a real connection, in plain or encrypted: bytes and frames in pieces of any size,
// read in pieces of any size. Payloads arrive as they were sent, also at a peer that reads late, or never: then frames are left in the middle, until last
// words end them. A frame is never longer than it says, and an end is noticed.
#include "comm/detail/tcp_connection.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/detail/wire.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/raw_socket.h"

namespace crossdevice::detail {
namespace {

constexpr int kNumRanks = 3;
/// Different ones, of which the first are forgotten before the last.
constexpr std::size_t kNumOperations = SaidOperations::kPlaces + 2;
constexpr const char* kLastWords = "last words";
/// As little as the kernel gives.
constexpr int kLeastBufferBytes = 1;

std::string_view view_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// One direction's heads.
class Heads {
 public:
  [[nodiscard]] std::string next(const TcpHead& head) {
    const TcpHeadBytes bytes = encode_tcp_head(head, said_);
    if (head.kind == TcpFrameKind::MESSAGE) said_.remember(head.operation);
    return std::string(view_of(bytes.view()));
  }

 private:
  SaidOperations said_;
};

/// Both ends of an encrypted connection, their hands shaken.
std::pair<std::unique_ptr<TlsChannel>, std::unique_ptr<TlsChannel>> make_channels() {
  static const std::shared_ptr<const TlsKey> key = TlsKey::make("secret", 3);
  auto ours = std::make_unique<TlsChannel>(key, TlsChannel::Role::LISTENER, "xdevtcp3");
  auto theirs = std::make_unique<TlsChannel>(key, TlsChannel::Role::DIALLER, "xdevtcp3");
  const auto carry = [](TlsChannel& from, TlsChannel& to) {
    const std::span<const std::byte> said = from.outgoing();
    const std::size_t size = std::min(said.size(), to.room().size());
    if (size != 0) std::memcpy(to.room().data(), said.data(), size);
    to.take_in(size);
    from.drop_outgoing(size);
  };
  for (bool is_done = false; !is_done;) {
    is_done = theirs->shake_hands();
    carry(*theirs, *ours);
    is_done = ours->shake_hands() && is_done && theirs->outgoing().empty();
    carry(*ours, *theirs);
  }
  return {std::move(ours), std::move(theirs)};
}

/// The other end.
class Peer {
 public:
  Peer() = default;
  Peer(int fd, std::unique_ptr<TlsChannel> tls) : socket_(fd), tls_(std::move(tls)) {}

  [[nodiscard]] bool is_open() const { return socket_.is_open(); }
  void say(std::string_view bytes) {
    if (!tls_) return socket_.say(bytes);
    for (std::span<const std::byte> left = std::as_bytes(std::span(bytes)); !left.empty();) {
      const std::size_t count = tls_->write({}, left);
      if (count == 0) return;  // this end has been told that the other one is broken
      left = left.subspan(count);
      say_records();
    }
  }
  /// Encrypted or not.
  void say_raw(std::string_view bytes) {
    socket_.say(bytes);
    is_honest_ = is_honest_ && (!tls_ || bytes.empty());
  }
  [[nodiscard]] std::string hear() {
    const std::string heard = socket_.hear();
    if (!tls_) return heard;
    std::string words;
    try {
      decrypt(heard, words);
    } catch (const TlsError&) {
      FUZZ_EXPECT(!is_honest_);  // it is told so
    }
    return words;
  }
  void end() {
    if (tls_) tls_->end();
    if (tls_) say_records();
    socket_.end();
  }
  void close() { socket_.close(); }

 private:
  void say_records() {
    socket_.say(view_of(tls_->outgoing()));
    tls_->drop_outgoing(tls_->outgoing().size());
  }
  void decrypt(std::string_view records, std::string& heard) {
    std::vector<std::byte> piece(3000);
    while (!records.empty()) {
      const std::span<std::byte> room = tls_->room();
      const std::size_t size = std::min(room.size(), records.size());
      if (size != 0) std::memcpy(room.data(), records.data(), size);
      tls_->take_in(size);
      records.remove_prefix(size);
      while (const std::size_t count = tls_->read(piece)) {
        heard += view_of(std::span(piece).first(count));
      }
      if (tls_->has_ended()) return;
    }
  }

  fuzz::RawSocket socket_;
  std::unique_ptr<TlsChannel> tls_;
  bool is_honest_ = true;
};

class Scene {
 public:
  /// `how`: bits.
  Scene(fuzz::Input& input, std::size_t how) : input_(input), is_encrypted_((how & 2U) != 0) {
    int pair[2];
    FUZZ_EXPECT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    if ((how & 1U) != 0) {
      FUZZ_EXPECT(::setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &kLeastBufferBytes,
                               sizeof kLeastBufferBytes) == 0);
    }
    std::pair<std::unique_ptr<TlsChannel>, std::unique_ptr<TlsChannel>> channels;
    if (is_encrypted_) channels = make_channels();
    connection_.emplace(pair[0], std::move(channels.first));
    peer_ = Peer(pair[1], std::move(channels.second));
  }

  void play() {
    // Nobody may want what is said: then the end is all that is listened for.
    const bool is_wanted = input_.below(4) != 0;
    const bool ends = input_.coin();
    while (!input_.is_empty() && is_sense_) {
      act();
      if (is_wanted) is_sense_ = pull();  // nonsense is the end of the transport
    }
    if (is_sense_ && ends) peer_.end();
    if (is_sense_ && is_wanted) is_sense_ = pull();
    finish();
  }

 private:
  void act() {
    switch (input_.below(10)) {
      case 0: {
        const std::string bytes = input_.text();
        said_ += bytes;
        return peer_.say(bytes);
      }
      case 1:
        return frame(TcpFrameKind::MESSAGE, input_.text());
      case 2:
        return frame(TcpFrameKind::MESSAGE, std::string(input_.number<std::uint16_t>(), 'x'));
      case 3:
        return frame(TcpFrameKind::STOPPED, input_.text());
      case 4:
        return frame(TcpFrameKind::GOODBYE, "");
      case 5:  // the other way
        begin_to_send(input_.text());
        send();
        return hear();
      case 6:
        begin_to_send(std::string(input_.number<std::uint16_t>(), 'y'));
        return send();
      case 7:
        hear();
        return send();
      case 8: {
        const std::string bytes = input_.text();
        if (!is_encrypted_) said_ += bytes;
        return peer_.say_raw(bytes);
      }
      case 9:
        if (input_.below(4) == 1) peer_.close();
        return;
    }
  }

  void frame(TcpFrameKind kind, const std::string& payload) {
    TcpHead head;
    head.kind = kind;
    head.payload_size = static_cast<std::uint32_t>(payload.size());
    head.size =
        payload.size() + (kind == TcpFrameKind::MESSAGE && !payload.empty() ? input_.below(3) : 0);
    if (kind == TcpFrameKind::MESSAGE) head.operation.num_values = input_.below(kNumOperations);
    const std::string all = peer_heads_.next(head) + payload;
    said_ += all;
    peer_.say(all);
  }

  void begin_to_send(const std::string& payload) {
    if (!connection_->can_send() || connection_->is_in_frame()) return;
    TcpHead head;
    head.payload_size = static_cast<std::uint32_t>(payload.size());
    head.size = payload.size();
    head.operation.num_values = input_.below(kNumOperations);
    connection_->begin_frame(head);
    payload_ = payload;
    num_pushed_ = 0;
    to_be_heard_ += own_heads_.next(head) + payload;
  }
  /// As much of the frame as the peer's side takes now.
  void send() {
    if (!connection_->can_send()) return;
    while (connection_->is_in_frame()) {
      std::size_t num_sent = 0;
      const auto result = connection_->push(rest_of_payload(), input_.coin(), num_sent);
      num_pushed_ += num_sent;
      FUZZ_EXPECT(num_pushed_ + connection_->num_left() == payload_.size());
      FUZZ_EXPECT(num_sent == 0 || result == TcpConnection::Result::MOVED);
      FUZZ_EXPECT(connection_->can_send() == (result != TcpConnection::Result::ENDED));
      if (result != TcpConnection::Result::MOVED) return;
    }
  }
  [[nodiscard]] const std::byte* rest_of_payload() const {
    return reinterpret_cast<const std::byte*>(payload_.data()) + num_pushed_;
  }
  void hear() {
    peer_heard_ += peer_.hear();
    FUZZ_EXPECT(to_be_heard_.starts_with(peer_heard_));
  }

  /// As the transport does it: ahead first, then into the receiver's memory. False: what has come cannot be.
  bool pull() {
    try {
      for (int turn = 0; turn < 64; ++turn) {
        while (const TcpHead* const head = connection_->head()) {
          if (!is_in_frame_) begin(*head);
          const std::span<const std::byte> ahead = connection_->ahead();
          FUZZ_EXPECT(ahead.size() <= connection_->num_expected());
          heard_ += view_of(ahead);
          connection_->skip(ahead.size());
          if (connection_->num_expected() != 0) break;
          end();
        }
        std::vector<std::byte> wanted(is_in_frame_ ? connection_->num_expected() : 0);
        if (!wanted.empty()) wanted.resize(1 + input_.below(255) % wanted.size());
        const bool is_part = is_in_frame_ && wanted.size() < connection_->num_expected();
        if (is_part) wanted.resize(connection_->num_expected());
        std::size_t num_read = 0;
        const auto result = connection_->read(wanted, max_ahead(wanted.empty()), num_read);
        FUZZ_EXPECT(num_read <= wanted.size());
        heard_ += view_of(std::span<const std::byte>(wanted).first(num_read));
        if (is_in_frame_ && num_read != 0 && connection_->num_expected() == 0) end();
        if (result != TcpConnection::Result::MOVED) break;
      }
      FUZZ_EXPECT(said_.starts_with(heard_));
      return true;
    } catch (const WireError&) {
      return false;
    }
  }
  std::size_t max_ahead(bool is_all) {
    switch (input_.below(4)) {
      case 0:
        return TcpConnection::kAsMuchAsThereIs;
      case 1:
        return connection_->size_of_next_head();
      case 2:
        return connection_->num_missing(input_.below(64));
      default:
        return is_all ? 1 : 0;
    }
  }
  void begin(const TcpHead& head) {
    is_in_frame_ = true;
    kind_ = head.kind;
    heard_ += heard_heads_.next(head);
    begin_of_payload_ = heard_.size();
    size_ = head.payload_size;
  }
  void end() {
    FUZZ_EXPECT(heard_.size() - begin_of_payload_ == size_);
    if (kind_ == TcpFrameKind::STOPPED) {
      try {
        (void)decode_stop(std::string_view(heard_).substr(begin_of_payload_), kNumRanks);
      } catch (const WireError&) {
      }
    }
    is_in_frame_ = false;
    connection_->end_frame();
  }

  void finish() {
    try {
      if (is_sense_) {
        (void)connection_->read_all();
        const TcpConnection::LastWords words = connection_->last_words();
        FUZZ_EXPECT(words.kind == TcpFrameKind::MESSAGE || words.payload.size() <= kMaxStopBytes);
      }
    } catch (const WireError&) {
      is_sense_ = false;
    }
    const bool could_send = connection_->can_send();
    if (could_send) to_be_heard_ += kLastWords;
    connection_->say_last(rest_of_payload(), kLastWords);
    connection_->say_last(nullptr, "nobody says anything after the last words");
    FUZZ_EXPECT(!connection_->can_send());
    const bool are_dropped = input_.coin();
    while (!connection_->flush_last() && !are_dropped) hear();
    if (are_dropped) connection_->drop_last();
    FUZZ_EXPECT(connection_->num_last_unsent() == 0);
    hear();
    // What is encrypted after nonsense is nothing that anybody could read.
    if (could_send && !are_dropped && peer_.is_open() && (is_sense_ || !is_encrypted_)) {
      FUZZ_EXPECT(peer_heard_ == to_be_heard_);
      FUZZ_EXPECT(connection_->has_delivered());
    }
    connection_->discard_input();
  }

  fuzz::Input& input_;
  const bool is_encrypted_;
  std::optional<TcpConnection> connection_;
  Peer peer_;
  Heads peer_heads_;
  Heads own_heads_;
  Heads heard_heads_;
  bool is_sense_ = true;  // what has come, so far

  std::string said_;   // by the peer
  std::string heard_;  // of it
  bool is_in_frame_ = false;
  TcpFrameKind kind_ = TcpFrameKind::MESSAGE;
  std::size_t begin_of_payload_ = 0;
  std::size_t size_ = 0;

  std::string payload_;  // of the frame that is being sent
  std::size_t num_pushed_ = 0;
  std::string to_be_heard_;  // by the peer
  std::string peer_heard_;
};

}  // namespace
}  // namespace crossdevice::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::Input input(data, size);
  const std::size_t how = input.below(4);
  crossdevice::detail::Scene(input, how).play();
  return 0;
}
