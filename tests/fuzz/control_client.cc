// SPDX-License-Identifier: Apache-2.0
// The side that connects: a worker that seeks its chief, and one that seeks another worker. What answers is whoever listens there and says what the
// fuzzer makes it say. Nobody is believed who has not proved that it holds the secret, and whoever asks is told at most once. What a chief says that has
// proved it is cut anywhere, and heard until the first nonsense; a chief is lost once, and only where all had come. In some scenes time passes as well, the
// chief lives on another machine, encrypts, takes no connection, or has a name that nobody can ask for at first, or there is no memory for what it says.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>

#include "comm/detail/chief_link.h"
#include "comm/detail/host_port.h"
#include "comm/detail/local_addresses.h"
#include "comm/detail/membership.h"
#include "comm/detail/seeker.h"
#include "comm/detail/tls_channel.h"
#include "comm/detail/wire.h"
#include "fuzz/clock_ahead.h"
#include "fuzz/frames_heard.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/no_descriptors.h"
#include "fuzz/no_threads.h"
#include "fuzz/raw_socket.h"

namespace crossdevice::detail {
namespace {

constexpr const char* kSecret = "the secret";
constexpr int kAskedRank = 2;

Members all_members() {
  Members all;
  for (int rank = 0; rank < 2; ++rank) all.members.emplace_back().rank = rank;
  return all;
}

constexpr const char* kLoopback = "127.0.0.1";

/// An address of this machine where who comes seems to come from another one; loopback's where there is none.
const std::string& address_elsewhere() {
  static const std::string& address = *new std::string([] {
    for (const std::string& each : select_addresses(interface_addresses(), "")) {
      std::error_code error;
      if (asio::ip::make_address(each, error).is_v4() && !error) return each;
    }
    return std::string(kLoopback);
  }());
  return address;
}

/// The host's side of a connection; `key`: what is said is encrypted.
class Line {
 public:
  Line() = default;
  Line(fuzz::RawSocket socket, const std::shared_ptr<const TlsKey>& key)
      : socket_(std::move(socket)) {
    if (!key) return;
    channel_ = std::make_unique<TlsChannel>(key, TlsChannel::Role::LISTENER, control_greeting());
    flush();
  }
  [[nodiscard]] bool is_open() const { return socket_.is_open(); }
  void close() { socket_.close(); }
  /// As it is, whatever the other side expects.
  void say_raw(std::string_view bytes) { socket_.say(bytes); }
  void say(std::string_view bytes) {
    if (!channel_) return say_raw(bytes);
    unsaid_ += bytes;
    go_on();
  }
  [[nodiscard]] std::string hear() {
    const std::string came = socket_.hear();
    if (!channel_) return came;
    for (std::string_view left = came; !left.empty() && !is_broken_;) {
      const std::span<std::byte> room = channel_->room();
      const std::size_t count = std::min(room.size(), left.size());
      if (count == 0) break;
      std::memcpy(room.data(), left.data(), count);
      channel_->take_in(count);
      left.remove_prefix(count);
      go_on();
    }
    return std::exchange(heard_, "");
  }

 private:
  void go_on() {
    try {
      if (!is_broken_ && channel_->shake_hands()) {
        while (!unsaid_.empty()) {
          const std::size_t count = channel_->write({}, std::as_bytes(std::span(unsaid_)));
          if (count == 0) break;
          unsaid_.erase(0, count);
          flush();
        }
        std::byte piece[4096];
        while (const std::size_t count = channel_->read(piece)) {
          heard_.append(reinterpret_cast<const char*>(piece), count);
        }
      }
    } catch (const TlsError&) {
      is_broken_ = true;
    }
    flush();  // if nothing else, why
  }
  void flush() {
    const std::span<const std::byte> bytes = channel_->outgoing();
    socket_.say({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    channel_->drop_outgoing(bytes.size());
  }

  fuzz::RawSocket socket_;
  std::unique_ptr<TlsChannel> channel_;  // null: nothing is encrypted
  bool is_broken_ = false;
  std::string unsaid_;  // before the handshake is over
  std::string heard_;
};

/// What a host is, other than somebody on this machine who knows the secret and does not encrypt.
struct HostOptions {
  std::string address = kLoopback;
  std::string secret = kSecret;
  std::shared_ptr<const TlsKey> key{};
  bool is_elsewhere = false;  // nobody tells it anything without a secret
};

/// Whoever listens. Proofs are right or wrong as the input says.
class Host {
 public:
  explicit Host(fuzz::Input& input, HostOptions options = {})
      : input_(input), options_(std::move(options)), listener_(16, options_.address) {}

  [[nodiscard]] std::string address() const {
    return join_host_port(options_.address, listener_.port());
  }
  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }
  [[nodiscard]] bool has_proved() const { return has_proved_; }
  [[nodiscard]] bool has_guest() const { return line_.is_open(); }

  /// Takes the next one in; forgets who was there.
  void accept() {
    fuzz::RawSocket next = listener_.accept();
    if (!next.is_open()) return;
    line_ = Line(std::move(next), options_.key);
    heard_ = {};
    challenges_.clear();
    nonce_.reset();
  }
  void hear() {
    heard_.add(line_.hear());
    while (const std::optional<Frame> frame = heard_.next()) {
      if (frame->kind == ControlKind::HELLO) {
        const Hello hello = Hello::decode(frame->payload);
        FUZZ_EXPECT(!options_.is_elsewhere);
        require_proof(hello);
      } else if (frame->kind == ControlKind::SEEK) {
        require_proof(Seek::decode(frame->payload));
      } else if (frame->kind == ControlKind::CLOCK) {
        asked_ns_ = ClockReading::decode(frame->payload).asked_ns;
      }
    }
  }
  /// To what was asked last, if anything was.
  void tell_clock() {
    say(ControlKind::CLOCK,
        ClockReading{
            .asked_ns = asked_ns_, .answered_ns = input_.number<std::int8_t>(), .clock = "c"}
            .encode());
  }
  void act() {
    switch (input_.below(8)) {
      case 0:
        challenge_ = {};
        for (unsigned char& byte : challenge_) byte = input_.number<std::uint8_t>();
        return challenge(kControlProtocol);
      case 1:
        return line_.say_raw(input_.text());
      case 2:
        return say(static_cast<ControlKind>(input_.number<std::uint8_t>()), input_.text());
      case 3:
        return welcome();
      case 4:
        return found();
      case 5:
        return refused();
      case 6:
        return line_.close();
      case 7:
        switch (input_.below(4)) {
          case 1:
            return challenge(input_.number<std::uint8_t>());
          case 2:
            return say(ControlKind::MEMBERS, all_members().encode());
          case 3:
            return say(ControlKind::ASK, Ask{input_.below(3)}.encode());
          default:
            return say(ControlKind::EXCHANGED, Exchanged{{1, 2}, {input_.text()}}.encode());
        }
    }
  }

 private:
  void say(ControlKind kind, const std::string& payload) { line_.say(encode_frame(kind, payload)); }
  void challenge(std::uint32_t protocol) {
    challenges_.push_back(challenge_);
    say(ControlKind::CHALLENGE, Challenge{.protocol = protocol, .nonce = challenge_}.encode());
  }
  /// Of who has come, for this connection. What is encrypted comes later than it is said, so that several challenges may be on their way.
  template <class Message>
  void require_proof(const Message& message) {
    FUZZ_EXPECT(std::ranges::any_of(challenges_, [&](const Nonce& each) {
      return message.mac == message.expected_mac(options_.secret, each);
    }));
    nonce_ = message.nonce;
  }
  template <class Message>
  void prove(Message& message) {
    const bool is_right = input_.below(4) != 0 && nonce_.has_value();
    message.mac =
        message.expected_mac(is_right ? options_.secret : "guess", nonce_.value_or(Nonce{}));
    has_proved_ = has_proved_ || is_right;
  }
  void welcome() {
    Welcome message{.cluster_id = input_.number<std::uint64_t>()};
    prove(message);
    say(ControlKind::WELCOME, message.encode());
  }
  void refused() {
    Refused message{.code = StatusCode::INTERNAL, .text = input_.text()};
    prove(message);
    say(ControlKind::REFUSED, message.encode());
  }
  void found() {
    Found message;
    message.rank = input_.coin() ? kAskedRank : static_cast<int>(input_.below(4));
    message.takes_in = input_.coin();
    message.epoch = {input_.number<std::uint64_t>(), {0, 2, 1'000'000}};
    prove(message);
    say(ControlKind::FOUND, message.encode());
  }

  fuzz::Input& input_;
  const HostOptions options_;
  fuzz::RawListener listener_;
  Line line_;
  fuzz::FramesHeard heard_;
  std::int64_t asked_ns_ = 0;
  Nonce challenge_{};
  std::vector<Nonce> challenges_;  // of this connection
  std::optional<Nonce> nonce_;     // of who has come
  bool has_proved_ = false;
};

/// Lets both sides speak until the input is used up; after each turn of the host's it is `on_turn`'s.
template <class OnTurn>
void play(fuzz::Input& input, asio::io_context& io, Host& host, OnTurn on_turn) {
  while (!input.is_empty()) {
    while (io.poll() > 0) {
    }
    io.restart();
    host.accept();
    host.hear();
    if (!host.has_guest()) return;
    host.act();
    on_turn();
  }
  while (io.poll() > 0) {
  }
  io.restart();
}

/// Where somebody could be, who is not to be disturbed.
bool is_address(const std::string& text) {
  try {
    std::error_code error;
    (void)asio::ip::make_address(parse_host_port(text).host, error);
    return !error;
  } catch (const ValueError&) {
    return false;
  }
}

/// `how`: bits, who listens where it seeks, and whether it waits for them.
void check_seeker(fuzz::Input& input, std::size_t how) {
  static const fuzz::DeafListener deaf;
  asio::io_context io{1};
  Host host(input);
  Seek question;
  question.job = 7;
  question.rank = 1;
  question.epoch = {3, {0, 1, 2}};
  const bool asks_to_be_taken_in = (how & 3U) != 3U;
  if (asks_to_be_taken_in) question.call = "rebuild(ONLY)";
  // What a member says of its addresses comes from that member.
  std::vector<std::string> addresses;
  for (std::size_t num_odd = input.below(3); num_odd > 0; --num_odd) {
    addresses.push_back(input.text());
    if (is_address(addresses.back())) addresses.pop_back();
  }
  constexpr std::chrono::hours kLong{1};
  std::optional<SeekerPatience> patience;
  if ((how & 1U) != 0) patience = SeekerPatience{kLong, kLong};
  if ((how & 2U) != 0) patience = SeekerPatience{};
  if ((how & 4U) != 0) addresses.push_back(join_host_port("127.0.0.1", deaf.port()));
  if ((how & 8U) != 0) addresses.emplace_back("127.0.0.1:1");
  if ((how & 16U) == 0) addresses.push_back(join_host_port("127.0.0.1", host.port()));
  // Where this process cannot ask, it cannot know either.
  const bool may_be_there = (how & 20U) != 16U || (how & 40U) == 40U;
  int num_results = 0;
  const auto seeker = std::make_shared<Seeker>(
      io, SeekerProof{.secret = kSecret}, question, kAskedRank, addresses, patience,
      [&](const SeekResult& result) {
        ++num_results;
        FUZZ_EXPECT(!result.is_gone || !may_be_there);
        FUZZ_EXPECT(!result.found.has_value() || host.has_proved());
        FUZZ_EXPECT(!result.refused.has_value() || host.has_proved());
        FUZZ_EXPECT(!result.found.has_value() || result.found->rank == kAskedRank);
        FUZZ_EXPECT(!result.connection || (result.found.has_value() && result.found->takes_in));
        FUZZ_EXPECT(!result.connection || asks_to_be_taken_in);
        if (result.connection) result.connection->close();
      });
  if ((how & 32U) != 0) {
    const fuzz::NoDescriptors none;
    seeker->start();
  } else {
    seeker->start();
  }
  play(input, io, host, [] {});
  FUZZ_EXPECT(seeker->rank() == kAskedRank);
  seeker->cancel();
  FUZZ_EXPECT(num_results <= 1);
  while (io.poll() > 0) {
  }
}

/// Where a chief is and how it speaks, where that is not as always; and time passes there.
enum class Scene : std::uint8_t {
  AS_ALWAYS,
  TIME_PASSES,
  ELSEWHERE,      // on another machine, and the worker has no secret
  ENCRYPTED,      // both sides, with the same secret
  OTHER_SECRET,   // both sides encrypt, with different ones
  NO_CONNECTION,  // at the first of two addresses
  NO_THREADS,     // at first, to ask for its name, which then has no address at first
};
constexpr std::size_t kNumScenes = 7;

HostOptions host_of(Scene scene) {
  static const std::shared_ptr<const TlsKey> same = TlsKey::make(kSecret);
  static const std::shared_ptr<const TlsKey> other = TlsKey::make("another secret");
  HostOptions host;
  if (scene == Scene::ENCRYPTED) host.key = same;
  if (scene == Scene::OTHER_SECRET) host.key = other;
  if (scene == Scene::ELSEWHERE) {
    host.address = address_elsewhere();
    host.secret.clear();
    host.is_elsewhere = host.address != kLoopback;
  }
  return host;
}

/// The worker's. `how`: bits, what time it is for whoever waits, and what else the worker knows.
ControlPlaneOptions options_of(Scene scene, std::size_t how, const Host& host) {
  static const std::shared_ptr<const TlsKey> tls = TlsKey::make(kSecret);
  static const fuzz::DeafListener deaf;
  ControlPlaneOptions options;
  options.rank = 1;
  options.num_workers = 2;
  if (scene != Scene::ELSEWHERE) options.secret = kSecret;
  options.chief_address = host.address();
  options.heartbeat_timeout = (how & 1U) == 0 ? std::chrono::hours(1) : std::chrono::hours(0);
  options.stall_warning = (how & 2U) == 0 ? std::chrono::hours(1) : std::chrono::hours(0);
  if ((how & 4U) != 0) options.more_chief_addresses = {options.chief_address};
  const bool is_encrypted = scene == Scene::ENCRYPTED || scene == Scene::OTHER_SECRET;
  if ((how & 24U) == 24U || is_encrypted) options.tls = tls;
  if (scene == Scene::NO_CONNECTION) {
    options.more_chief_addresses = {options.chief_address};
    options.chief_address = join_host_port(kLoopback, deaf.port());
  }
  if (scene == Scene::NO_THREADS) {
    options.chief_address = join_host_port("a-name", host.port());
    const auto num_asked = std::make_shared<std::atomic<int>>(0);
    options.resolve = [num_asked](const std::string&, std::uint16_t port) {
      if ((*num_asked)++ == 0) return FoundEndpoints{.endpoints = {}, .error = "not yet"};
      return FoundEndpoints{.endpoints = {{asio::ip::make_address(kLoopback), port}}, .error = ""};
    };
  }
  return options;
}

/// `how`: as options_of(), and whether a descriptor can be had, and the heart beats.
void check_chief_link(fuzz::Input& input, std::size_t how) {
  const fuzz::ClockAhead clock;
  const Scene scene =
      (how & 24U) == 16U ? static_cast<Scene>(input.below(kNumScenes)) : Scene::AS_ALWAYS;
  asio::io_context io{1};
  Host host(input, host_of(scene));
  const ControlPlaneOptions options = options_of(scene, how, host);
  const bool beats = (how & 32U) != 0;
  MemberInfo self;
  self.rank = 1;
  std::optional<ChiefLink> link;
  bool is_welcome = false;
  bool has_all = false;
  bool is_lost = false;
  bool has_lacked = false;    // descriptors, threads or memory
  bool lacks_memory = false;  // for the next frame
  Membership membership(
      {.rank = 1, .num_workers = 2, .stall_warning = std::chrono::hours(1)},
      {.say = [](ControlKind, const std::string&) { FUZZ_FAIL("a worker that waits"); },
       .on_members =
           [&] {
             has_all = true;
             link->keep();
           },
       .on_question =
           [&](std::uint64_t nonce) {
             link->send(ControlKind::HEARTBEAT,
                        Heartbeat{.operation = "", .answers = nonce}.encode());
           }});
  ChiefLink::Events events;
  events.on_welcome = [&](std::uint64_t) {
    FUZZ_EXPECT(host.has_proved());
    FUZZ_EXPECT(scene != Scene::OTHER_SECRET);
    is_welcome = true;
  };
  events.on_frame = [&](const Frame& frame) {
    FUZZ_EXPECT(is_welcome && !is_lost);
    if (std::exchange(lacks_memory, false)) throw std::bad_alloc();
    membership.hear(frame);
  };
  // Without a proof it is at most the worker's own word, that they do not fit.
  events.on_refused = [&](const Refused& refused) {
    FUZZ_EXPECT(host.has_proved() || refused.code == StatusCode::FAILED_PRECONDITION);
  };
  events.on_absence = [&](const std::string&, ChiefLink::Fault fault) {
    FUZZ_EXPECT(!has_all);
    has_lacked = has_lacked || fault == ChiefLink::Fault::OWN;
  };
  events.on_lost = [&](const std::string& why) {
    FUZZ_EXPECT(has_all && !is_lost);
    is_lost = true;
    membership.lose_chief(why);
  };
  link.emplace(io, options, self, std::move(events));
  if ((how & 24U) == 8U) {
    const fuzz::NoDescriptors none;
    link->connect();
    (void)io.run_one_for(std::chrono::milliseconds(10));
  } else if (scene == Scene::NO_THREADS) {
    const fuzz::NoThreads none;
    link->connect();
    FUZZ_EXPECT(has_lacked);
  } else {
    link->connect();
  }
  if (scene == Scene::NO_CONNECTION) {
    (void)io.poll();
    fuzz::ClockAhead::pass(io, std::chrono::seconds(3));
  }
  // Addresses in numbers are looked up by nobody, but the answer comes later.
  for (int i = 0; i < 1000 && !host.has_guest(); ++i) {
    (void)io.run_one_for(std::chrono::milliseconds(10));
    host.accept();
  }
  play(input, io, host, [&] {
    if (beats) (void)link->beat(input.coin());
    if (scene == Scene::AS_ALWAYS) return;
    const std::size_t what = input.below(8);
    if (what == 4) host.tell_clock();
    if (what == 5) lacks_memory = true;
    if (what < 4) fuzz::ClockAhead::pass(io, std::chrono::seconds(what));
  });
  link->leave();
  while (io.poll() > 0) {
  }
}

/// Only a worker that writes a trace compares its clock with the chief's.
void write_a_trace() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread yet
  [[maybe_unused]] static const int set = ::setenv("CROSSDEVICE_TRACE", "/dev/null", 1);
}

}  // namespace
}  // namespace crossdevice::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  crossdevice::fuzz::silence_log();
  crossdevice::detail::write_a_trace();
  crossdevice::fuzz::Input input(data, size);
  const std::size_t choice = input.number<std::uint8_t>();
  if (choice % 4 != 0) {
    crossdevice::detail::check_seeker(input, choice / 4);
  } else {
    crossdevice::detail::check_chief_link(input, choice / 4);
  }
  return 0;
}
