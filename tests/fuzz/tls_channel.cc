// SPDX-License-Identifier: Apache-2.0
// Two ends of an encrypted connection, and between them a network that alters, loses, makes up and cuts what they say, in pieces of any size. Whatever it
// does, what is read is the beginning of what was written; where it does nothing, all of it; and without the secret there is no connection.
#include "comm/detail/tls_channel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "crossdevice/core/error.h"

#include "fuzz/fuzz_target.h"

namespace crossdevice::detail {
namespace {

constexpr std::string_view kGreeting = "xdevtcp3";
constexpr std::size_t kBulkBytes = std::size_t{66} << 10;
/// What tls_channel.h promises of its memory, and more than a hello's answer.
constexpr std::size_t kMaxOutgoing = 2 * kBulkBytes;
/// More turns than the longest exchange takes.
constexpr int kMaxTurns = 10'000;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

const std::shared_ptr<const TlsKey>& key(bool is_right) {
  // A new key every few records.
  static const std::shared_ptr<const TlsKey> right = TlsKey::make("secret", 3);
  static const std::shared_ptr<const TlsKey> wrong = TlsKey::make("another secret", 3);
  return is_right ? right : wrong;
}

void require_secret() {
  try {
    (void)TlsKey::make("");
    FUZZ_FAIL("no secret, no key");
  } catch (const ValueError&) {
  }
}

/// Shakes hands, writes all it has to say, says that nothing follows, and reads.
class End {
 public:
  End(TlsChannel::Role role, bool has_secret, bool is_bulky, std::string words)
      : channel_(key(has_secret), role, kGreeting), is_bulky_(is_bulky), words_(std::move(words)) {}

  void act() {
    if (is_dead_) return;
    try {
      if (!channel_.shake_hands()) return;
      if (is_bulky_) channel_.set_buffer_bytes(kBulkBytes);
      is_bulky_ = false;
      say();
      hear();
    } catch (const TlsError& error) {
      FUZZ_EXPECT(error.what()[0] != '\0');
      FUZZ_EXPECT(error.trouble() != TlsTrouble::NONE);
      is_dead_ = true;
    }
    FUZZ_EXPECT(channel_.outgoing().size() <= kMaxOutgoing);
  }

  [[nodiscard]] TlsChannel& channel() { return channel_; }
  [[nodiscard]] bool is_dead() const { return is_dead_; }
  [[nodiscard]] bool has_heard_all_of(const End& other) const {
    return heard_ == other.words_ && channel_.has_ended();
  }
  [[nodiscard]] bool has_heard_beginning_of(const End& other) const {
    return other.words_.starts_with(heard_) &&
           (!channel_.has_ended() || heard_.size() == other.num_said_);
  }

 private:
  void say() {
    const std::string_view left = std::string_view(words_).substr(num_said_);
    const std::size_t num_of_head = std::min<std::size_t>(left.size(), 40);
    num_said_ +=
        channel_.write(bytes_of(left.substr(0, num_of_head)), bytes_of(left.substr(num_of_head)));
    if (num_said_ == words_.size() && !std::exchange(has_said_all_, true)) channel_.end();
  }
  void hear() {
    std::array<std::byte, 3000> piece{};
    while (const std::size_t size = channel_.read(piece)) {
      heard_.append(reinterpret_cast<const char*>(piece.data()), size);
    }
    FUZZ_EXPECT(!channel_.has_input());
  }

  TlsChannel channel_;
  bool is_bulky_;
  const std::string words_;
  std::size_t num_said_ = 0;
  bool has_said_all_ = false;
  bool is_dead_ = false;
  std::string heard_;
};

/// One direction.
class Network {
 public:
  /// What `from` says goes on its way.
  void take(End& from) {
    const std::span<const std::byte> said = from.channel().outgoing();
    if (!is_cut_) on_its_way_.append(reinterpret_cast<const char*>(said.data()), said.size());
    from.channel().drop_outgoing(said.size());
  }
  /// At most `size` bytes of it arrive. Whether any did.
  bool deliver(End& to, std::size_t size) {
    if (to.is_dead()) return false;
    const std::span<std::byte> room = to.channel().room();
    size = std::min({size, room.size(), on_its_way_.size()});
    if (size == 0) return false;
    std::memcpy(room.data(), on_its_way_.data(), size);
    on_its_way_.erase(0, size);
    to.channel().take_in(size);
    return true;
  }
  /// Before anything else, as one without TLS begins.
  void begin_plainly() { on_its_way_.insert(0, kGreeting); }
  /// One thing that no network should do.
  void meddle(fuzz::Input& input) {
    const std::size_t at = std::min<std::size_t>(input.number<std::uint16_t>(), on_its_way_.size());
    switch (input.below(4)) {
      case 0:
        if (at < on_its_way_.size()) {
          const auto mask = static_cast<unsigned char>(1 + input.below(255));
          on_its_way_[at] = static_cast<char>(static_cast<unsigned char>(on_its_way_[at]) ^ mask);
        }
        break;
      case 1:
        on_its_way_.erase(at, input.number<std::uint8_t>());
        break;
      case 2:
        on_its_way_.insert(at, input.text());
        break;
      default:
        on_its_way_.resize(at);
        is_cut_ = true;
    }
  }

 private:
  std::string on_its_way_;
  bool is_cut_ = false;
};

std::string words(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + 1);
  return text;
}

class Scene {
 public:
  explicit Scene(fuzz::Input& input) : Scene(input, input.number<std::uint8_t>()) {}

  void play(fuzz::Input& input) {
    bool is_honest = !begins_plainly_;
    if (begins_plainly_) back_.begin_plainly();
    while (!input.is_empty()) {
      const bool to_listener = input.coin();
      const std::size_t deed = input.below(4);
      if (deed == 3) is_honest = false;
      turn(to_listener, deed == 0 ? kBulkBytes : input.number<std::uint16_t>(),
           deed == 3 ? &input : nullptr);
    }
    int num_turns = 0;
    for (bool has_moved = true; has_moved; ++num_turns) {
      FUZZ_EXPECT(num_turns < kMaxTurns);
      has_moved = turn(true, kBulkBytes, nullptr);
      has_moved = turn(false, kBulkBytes, nullptr) || has_moved;
    }
    FUZZ_EXPECT(listener_.has_heard_beginning_of(dialler_));
    FUZZ_EXPECT(dialler_.has_heard_beginning_of(listener_));
    if (!have_one_secret_) {
      require_secret();
      FUZZ_EXPECT(!dialler_.channel().is_established() && !listener_.channel().is_established());
    } else if (is_honest) {
      FUZZ_EXPECT(listener_.has_heard_all_of(dialler_) && dialler_.has_heard_all_of(listener_));
    }
  }

 private:
  Scene(fuzz::Input& input, std::size_t how)
      : have_one_secret_(how % 8 != 1),
        begins_plainly_(how % 8 == 2),
        dialler_{TlsChannel::Role::DIALLER, true, input.coin(),
                 words(input.number<std::uint16_t>())},
        listener_{TlsChannel::Role::LISTENER, have_one_secret_, input.coin(),
                  words(input.number<std::uint16_t>())} {}

  /// Whether anything has arrived.
  bool turn(bool to_listener, std::size_t size, fuzz::Input* meddler) {
    End& from = to_listener ? dialler_ : listener_;
    End& to = to_listener ? listener_ : dialler_;
    Network& network = to_listener ? there_ : back_;
    from.act();
    network.take(from);
    if (meddler != nullptr) network.meddle(*meddler);
    const bool has_moved = network.deliver(to, size);
    to.act();
    return has_moved;
  }

  const bool have_one_secret_;
  const bool begins_plainly_;  // the listener, without TLS
  End dialler_;
  End listener_;
  Network there_;
  Network back_;
};

}  // namespace
}  // namespace crossdevice::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdevice;
  fuzz::Input input(data, size);
  detail::Scene(input).play(input);
  return 0;
}
