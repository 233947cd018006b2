// SPDX-License-Identifier: Apache-2.0
// What a member of a transport says after it has proved who it is, over a real connection: bytes and frames in pieces of any size, read in pieces of
// any size. Payloads arrive as they were sent, a frame is never longer than it says, and an end is noticed.
#include "comm/detail/tcp_connection.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/detail/wire.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/raw_socket.h"

namespace crossdevice::detail {
namespace {

constexpr int kNumRanks = 3;

std::string_view view_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// One direction's heads.
class Heads {
 public:
  [[nodiscard]] std::string next(const TcpHead& head) {
    const TcpHeadBytes bytes = encode_tcp_head(head, said_ ? &*said_ : nullptr);
    if (head.kind == TcpFrameKind::MESSAGE) said_ = head.operation;
    return std::string(view_of(bytes.view()));
  }

 private:
  std::optional<GroupOperation> said_;
};

class Scene {
 public:
  explicit Scene(fuzz::Input& input) : input_(input) {
    int pair[2];
    FUZZ_EXPECT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    connection_.emplace(pair[0]);
    peer_ = fuzz::RawSocket(pair[1]);
  }

  void play() {
    // Nobody may want what is said: then the end is all that is listened for.
    const bool is_wanted = input_.below(4) != 0;
    const bool ends = input_.coin();
    while (!input_.is_empty()) {
      act();
      if (is_wanted && !pull()) return;  // nonsense, the end of the transport
    }
    if (ends) peer_.end();
    if (is_wanted && !pull()) return;
    finish();
  }

 private:
  void act() {
    switch (input_.below(6)) {
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
      case 5: {  // the other way
        const std::string payload = input_.text();
        return send(payload);
      }
    }
  }

  void frame(TcpFrameKind kind, const std::string& payload) {
    TcpHead head;
    head.kind = kind;
    head.payload_size = static_cast<std::uint32_t>(payload.size());
    head.size =
        payload.size() + (kind == TcpFrameKind::MESSAGE && !payload.empty() ? input_.below(3) : 0);
    if (kind == TcpFrameKind::MESSAGE) head.operation.num_values = input_.below(2);
    const std::string all = peer_heads_.next(head) + payload;
    said_ += all;
    peer_.say(all);
  }

  void send(const std::string& payload) {
    if (!connection_->can_send() || connection_->is_in_frame()) return;
    TcpHead head;
    head.payload_size = static_cast<std::uint32_t>(payload.size());
    head.size = payload.size();
    head.operation.num_values = input_.below(2);
    connection_->begin_frame(head);
    std::size_t num_sent = 0;
    const auto* const bytes = reinterpret_cast<const std::byte*>(payload.data());
    for (std::size_t sent = 0; connection_->is_in_frame(); sent += num_sent) {
      if (connection_->push(bytes + sent, false, num_sent) != TcpConnection::Result::MOVED) return;
    }
    FUZZ_EXPECT(peer_.hear() == own_heads_.next(head) + payload);
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
        const auto result = connection_->read(wanted, input_.coin(), num_read);
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
      (void)connection_->read_all();
      const TcpConnection::LastWords words = connection_->last_words();
      FUZZ_EXPECT(words.kind == TcpFrameKind::MESSAGE || words.payload.size() <= kMaxStopBytes);
    } catch (const WireError&) {
    }
    connection_->say_last(nullptr, "last words");
    (void)connection_->flush_last();
    FUZZ_EXPECT(!connection_->can_send());
    connection_->discard_input();
  }

  fuzz::Input& input_;
  std::optional<TcpConnection> connection_;
  fuzz::RawSocket peer_;
  Heads peer_heads_;
  Heads own_heads_;
  Heads heard_heads_;
  std::string said_;
  std::string heard_;
  bool is_in_frame_ = false;
  TcpFrameKind kind_ = TcpFrameKind::MESSAGE;
  std::size_t begin_of_payload_ = 0;
  std::size_t size_ = 0;
};

}  // namespace
}  // namespace crossdevice::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::Input input(data, size);
  crossdevice::detail::Scene(input).play();
  return 0;
}
