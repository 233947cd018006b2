// SPDX-License-Identifier: Apache-2.0
// Who connects to a member of a transport, alone or among others, and who answers where it connects to, over real connections, on either side of the proof.
// Nobody counts as connected who has not proved that it holds the secret for this very connection, pair and cluster, and each rank counts once.
#include "comm/detail/tcp_meeting.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/detail/tcp_greeting.h"
#include "comm/detail/tls_channel.h"
#include "comm/detail/wire.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/no_descriptors.h"
#include "fuzz/raw_socket.h"

namespace crossdevice::detail {
namespace {

constexpr std::uint64_t kCluster = 42;
constexpr const char* kSecret = "the secret";
constexpr int kRank = 1;  // of the tested one: 0 dials it, it dials 2
constexpr int kDialler = 0;
constexpr int kListener = 2;

template <std::size_t N>
std::string text_of(const std::array<char, N>& bytes) {
  return {bytes.data(), bytes.size()};
}
template <std::size_t N>
std::optional<std::array<char, N>> take_block(std::string& heard) {
  if (heard.size() < N) return std::nullopt;
  std::array<char, N> block{};
  std::copy_n(heard.begin(), N, block.begin());
  heard.erase(0, N);
  return block;
}

/// The peer, whose turn it is each time the tested one asks whether it should go on.
class Peer {
 public:
  Peer(fuzz::Input& input, bool dials) : input_(input), dials_(dials) {}

  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }
  [[nodiscard]] bool has_proved() const { return has_proved_; }
  void dial(std::uint16_t port) { socket_ = fuzz::RawSocket::to(port); }

  /// Whether all has been said, and heard.
  bool act() {
    if (++num_turns_ > 50) return true;
    if (!socket_.is_open()) {
      socket_ = listener_.accept();
      return false;
    }
    heard_ += socket_.hear();
    if (!has_spoken_) {
      if (dials_ && heard_.size() < kChallengeBytes && !socket_.has_ended()) return false;
      has_spoken_ = true;
      if (dials_) {
        say_hello();
      } else {
        say_challenge();
      }
    } else if (!has_answered_ && heard_.size() >= (dials_ ? kWelcomeBytes : kHelloBytes)) {
      has_answered_ = true;
      if (dials_) {
        say_here();
      } else {
        say_welcome();
      }
    }
    return socket_.has_ended();
  }

 private:
  void say_hello() {
    Nonce challenge{};
    if (const auto block = take_block<kChallengeBytes>(heard_))
      challenge = decode_challenge(*block);
    TcpPair pair{kCluster, kDialler, kRank};
    const std::size_t oddity = input_.below(8);
    if (oddity == 1) pair.cluster_id = input_.number<std::uint64_t>();
    if (oddity == 2) pair.dialler = input_.number<std::int32_t>();
    if (oddity == 3) pair.listener = input_.number<std::int32_t>();
    if (oddity == 4) challenge[input_.below(kNonceBytes)] ^= 1;
    Nonce nonce{};
    nonce[0] = input_.number<std::uint8_t>();
    std::string hello =
        text_of(encode_hello(oddity == 5 ? "guess" : kSecret, pair, challenge, nonce));
    if (oddity == 6) hello[input_.below(hello.size())] = input_.number<char>();
    if (oddity == 7) hello = input_.text();
    const bool is_right = pair == TcpPair{kCluster, kDialler, kRank};
    const bool is_whole = oddity == 0 || oddity == 6 || (oddity < 4 && is_right);
    has_proved_ = is_whole;  // a changed byte may be the same byte
    speak(hello);
  }
  void say_here() {
    std::string here = text_of(encode_here());
    const std::size_t oddity = input_.below(4);
    if (oddity == 1) here[input_.below(here.size())] = input_.number<char>();
    if (oddity == 2) here = input_.text();
    if (oddity == 3) here.clear();
    speak(here);
  }
  void say_challenge() {
    challenge_[0] = input_.number<std::uint8_t>();
    std::string bytes = text_of(encode_challenge(challenge_));
    if (input_.below(4) == 1) bytes = input_.text();
    if (bytes.size() >= kChallengeBytes) {
      ChallengeBytes block{};
      std::copy_n(bytes.begin(), block.size(), block.begin());
      try {
        challenge_ = decode_challenge(block);
      } catch (const WireError&) {
        has_answered_ = true;  // there will be no hello
      }
      rest_ = bytes.substr(kChallengeBytes);
    }
    socket_.say(bytes);
    if (bytes.size() < kChallengeBytes) socket_.end();
  }
  void say_welcome() {
    const auto block = take_block<kHelloBytes>(heard_);
    const TcpHello hello = decode_hello(*block);
    check_hello(hello, kSecret, challenge_);
    FUZZ_EXPECT(hello.pair == (TcpPair{kCluster, kRank, kListener}));
    const std::size_t oddity = input_.below(6);
    TcpPair pair = hello.pair;
    if (oddity == 1) std::swap(pair.dialler, pair.listener);
    std::string welcome =
        text_of(encode_welcome(oddity == 2 ? "guess" : kSecret, pair, challenge_, hello.nonce));
    if (oddity == 3) welcome[input_.below(welcome.size())] = input_.number<char>();
    if (oddity == 4) welcome = input_.text();
    if (oddity == 5) welcome = text_of(*block).substr(0, kWelcomeBytes);  // its own words
    has_proved_ = (oddity == 0 || oddity == 3) && rest_.empty();
    speak(welcome);
  }
  /// In pieces; then nothing more, so that nobody waits for the rest.
  void speak(const std::string& bytes) {
    const std::size_t cut = std::min<std::size_t>(input_.below(128), bytes.size());
    socket_.say(std::string_view(bytes).substr(0, cut));
    socket_.say(std::string_view(bytes).substr(cut));
    socket_.say(input_.text());  // and what comes behind it
    if (!has_proved_ || input_.coin()) socket_.end();
  }

  fuzz::Input& input_;
  bool dials_;
  fuzz::RawListener listener_;
  fuzz::RawSocket socket_;
  std::string heard_;
  std::string rest_;
  Nonce challenge_{};
  int num_turns_ = 0;
  bool has_spoken_ = false;
  bool has_answered_ = false;
  bool has_proved_ = false;
};

/// `lacks_descriptors`: for a moment at first.
void check_meeting(fuzz::Input& input, bool dials, bool lacks_descriptors) {
  TcpMeeting meeting({.rank = kRank,
                      .num_ranks = 3,
                      .cluster_id = kCluster,
                      .secret = kSecret,
                      .is_loopback_only = true,
                      .addresses = {}});
  Peer peer(input, dials);
  if (dials) {
    peer.dial(meeting.port());
  } else {
    const std::string announcement =
        WireWriter().number(peer.port()).text("127.0.0.1").number(std::uint32_t{0}).take();
    meeting.learn(kListener, announcement, true);
  }
  const int peers[] = {dials ? kDialler : kListener};
  std::optional<fuzz::NoDescriptors> none;
  meeting.meet(peers, Deadline::after(std::chrono::seconds(2)), [&] {
    none.reset();
    const bool is_over = peer.act();
    if (std::exchange(lacks_descriptors, false)) none.emplace();
    return is_over;
  });
  for (const auto& [rank, fd, tls] : meeting.take_connected()) {
    FUZZ_EXPECT(rank == peers[0]);
    FUZZ_EXPECT(peer.has_proved());
    const fuzz::RawSocket closed(fd);
  }
}

/// Several who dial the tested one at once: some claim the same rank, are silent, or never say that they have heard the welcome.
class Crowd {
 public:
  static constexpr int kListener = 3;

  Crowd(fuzz::Input& input, std::uint16_t port, bool is_encrypted)
      : input_(input), port_(port), is_encrypted_(is_encrypted) {}

  [[nodiscard]] bool has_proved(int rank) const { return proved_.contains(rank); }
  /// Whether all have done what they do, and were heard. Something happens each time, or the tested one would wait for it.
  bool act() {
    none_.reset();
    if (++num_turns_ % kTurnsToHear != 0) return false;
    if (is_next_greeted()) {
      if (input_.is_empty() && num_idle_++ == kIdle + 2 * silent_.size()) return true;
      if (!input_.is_empty()) act_once();
    }
    (void)fuzz::RawSocket::to(port_);  // who goes at once
    if (lacks_descriptors_) none_.emplace();
    return false;
  }

 private:
  struct Guest {
    fuzz::RawSocket socket;
    std::string heard{};
    int num_waits = 0;
  };
  static constexpr std::size_t kMaxGuests = 12;
  static constexpr std::size_t kManySilent = 130;
  static constexpr int kTurnsToHear = 4;
  static constexpr int kMostWaits = 50;
  static constexpr std::size_t kIdle = 40;

  /// Who has come last has been told what its hello is to prove; or that does not come.
  bool is_next_greeted() {
    if (guests_.empty()) return true;
    Guest& next = guests_.back();
    next.heard += next.socket.hear();
    return next.heard.size() >= kChallengeBytes || !next.socket.is_open() ||
           next.socket.has_ended() || ++next.num_waits > kMostWaits;
  }

  void act_once() {
    lacks_descriptors_ = false;
    const std::size_t what = input_.below(8);
    if (what == 0 || guests_.empty()) {
      if (guests_.size() < kMaxGuests) guests_.push_back({.socket = fuzz::RawSocket::to(port_)});
      return;
    }
    if (what == 1) {
      const std::size_t num_silent = input_.below(8) == 1 && silent_.empty() ? kManySilent : 1;
      for (std::size_t i = 0; i < num_silent; ++i) silent_.push_back(fuzz::RawSocket::to(port_));
      return;
    }
    if (what == 2) {
      lacks_descriptors_ = true;
      return;
    }
    Guest& guest = guests_[input_.below(guests_.size())];
    if (what == 3) return guest.socket.close();
    if (what == 4) return guest.socket.say(input_.text());
    if (what == 5) return guest.socket.say(text_of(encode_here()));
    say_hello(guest);
  }
  void say_hello(Guest& guest) {
    Nonce challenge{};
    std::string heard = guest.heard;
    const auto block = take_block<kChallengeBytes>(heard);
    if (block.has_value() && !is_encrypted_) challenge = decode_challenge(*block);
    const int rank = static_cast<int>(input_.below(4));
    proved_.insert(rank);  // perhaps as nobody's first word
    guest.socket.say(
        text_of(encode_hello(kSecret, {kCluster, rank, kListener}, challenge, Nonce{})));
  }

  fuzz::Input& input_;
  std::uint16_t port_;
  bool is_encrypted_;  // what it should hear and say, and does not
  std::vector<Guest> guests_;
  std::vector<fuzz::RawSocket> silent_;
  std::set<int> proved_;
  std::optional<fuzz::NoDescriptors> none_;
  bool lacks_descriptors_ = false;
  int num_turns_ = 0;
  std::size_t num_idle_ = 0;
};

void check_crowd(fuzz::Input& input) {
  static const std::shared_ptr<const TlsKey> tls = TlsKey::make(kSecret);
  const bool is_encrypted = input.below(8) == 1;
  TcpMeeting meeting({.rank = Crowd::kListener,
                      .num_ranks = 4,
                      .cluster_id = kCluster,
                      .secret = kSecret,
                      .is_loopback_only = true,
                      .addresses = {},
                      .tls = is_encrypted ? tls : nullptr});
  Crowd crowd(input, meeting.port(), is_encrypted);
  const int peers[] = {0, 1, 2};
  meeting.meet(peers, Deadline::after(std::chrono::seconds(2)), [&] { return crowd.act(); });
  meeting.dismiss("no more");
  std::set<int> ranks;
  for (const auto& [rank, fd, channel] : meeting.take_connected()) {
    FUZZ_EXPECT(rank >= 0 && rank < Crowd::kListener && !is_encrypted);
    FUZZ_EXPECT(crowd.has_proved(rank) && meeting.has_met(rank));
    FUZZ_EXPECT(meeting.last_error(rank).empty());
    FUZZ_EXPECT(ranks.insert(rank).second);
    const fuzz::RawSocket closed(fd);
  }
}

void check_announcement(fuzz::Input& input) {
  TcpMeeting meeting({.rank = kRank,
                      .num_ranks = 3,
                      .cluster_id = kCluster,
                      .secret = kSecret,
                      .is_loopback_only = input.coin(),
                      .addresses = {}});
  try {
    meeting.learn(kDialler, meeting.announcement(), true);
    meeting.learn(kListener, input.rest(), input.coin());
  } catch (const WireError&) {
  }
}

}  // namespace
}  // namespace crossdevice::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::silence_log();
  crossdevice::fuzz::Input input(data, size);
  const std::size_t what = input.below(8);
  if (what == 7) {
    crossdevice::detail::check_announcement(input);
  } else if (what == 6) {
    crossdevice::detail::check_crowd(input);
  } else {
    crossdevice::detail::check_meeting(input, what % 2 == 0, what == 5);
  }
  return 0;
}
