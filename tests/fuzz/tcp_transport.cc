// SPDX-License-Identifier: Apache-2.0
// A member of a transport that has proved who it is and then says whatever the fuzzer makes it say, on either side of the connection, and ends as it likes, or
// never comes. The other member's wait ends, by what was asked for or by an error; what it took for its message is what was said, and what it sends is what it
// was given.
#include "crossdevice/comm/tcp_transport.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>

#include "crossdevice/core/error.h"

#include "comm/detail/tcp_introduction.h"
#include "comm/detail/tcp_message.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/raw_socket.h"
#include "support/threaded_cluster.h"

namespace crossdevice {
namespace {

using detail::TcpFrameKind;
using detail::TcpHead;

constexpr std::chrono::milliseconds kPatience{10'000};
constexpr std::chrono::milliseconds kAbsenceIsNoted{20};
constexpr std::chrono::milliseconds kLook{20};
/// No longer than a member may say at once.
constexpr std::size_t kMostToIntroduce = 4096;
/// A message of so many times its size is more than a connection holds.
constexpr std::size_t kBulk = 32;
constexpr int kPeersPatienceMilliseconds = 5'000;

/// How the member that is not to be trusted ends.
enum class Manner : std::uint8_t {
  NONSENSE,  // goes on with what is no frame
  HEAR,      // only hears any more
  ABORT,     // ends what the cluster does
  END,       // says nothing more
  RESET,     // is cut off
  ABSENT,    // does not meet the other
  LEFT,      // has left the cluster before they meet
};
constexpr std::array kManners = {Manner::NONSENSE, Manner::NONSENSE, Manner::HEAR,   Manner::ABORT,
                                 Manner::END,      Manner::RESET,    Manner::ABSENT, Manner::LEFT};

/// Two workers of one cluster, for all runs.
const std::array<std::shared_ptr<Cluster>, 2>& clusters() {
  static const auto both = [] {
    std::array<std::shared_ptr<Cluster>, 2> joined;
    const std::vector<std::string> errors =
        testing::run_clusters(2, [&joined](const std::shared_ptr<Cluster>& cluster) {
          joined[static_cast<std::size_t>(cluster->rank())] = cluster;
        });
    FUZZ_EXPECT(errors == testing::no_errors(2));
    return joined;
  }();
  return both;
}

GroupOperationInfo operation() {
  return {.kind = "test", .num_values = 1, .size_bytes = 8, .fingerprint = 1};
}

char right_byte(std::size_t position) { return static_cast<char>(position * 7 + 1); }

/// What is to be said, made before anybody listens. A message comes in as many frames as the input says, rightly or not.
struct Words {
  std::string bytes;
  bool are_right = true;  // all payloads are what they should be

  Words(fuzz::Input& input, std::size_t size, Manner manner) {
    for (std::size_t num_frames = input.below(6); num_frames > 0; --num_frames) add(input, size);
    if (input.coin()) are_right = false;
    if (!are_right) bytes += input.text();
    // Whatever has begun is filled up by this, and no frame begins like this.
    if (manner == Manner::NONSENSE) {
      bytes.append(detail::kMaxTcpPayloadBytes + detail::kMaxTcpHeadBytes, '\0');
    }
  }

 private:
  void add(fuzz::Input& input, std::size_t size) {
    TcpHead head;
    head.operation_count = 1;
    head.operation = pack_operation(operation());
    head.number = number_;
    head.size = size;
    head.offset = offset_;
    head.payload_size = static_cast<std::uint32_t>(
        std::min<std::size_t>(size - offset_, 1 + input.number<std::uint16_t>() % (size + 1)));
    std::string payload(head.payload_size, '\0');
    for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = right_byte(offset_ + i);
    offset_ += payload.size();
    const std::size_t oddity = input.below(12);
    if (oddity == 1) head.operation_count = input.number<std::uint8_t>();
    if (oddity == 2) head.operation.fingerprint = 2;
    if (oddity == 3) head.number = input.number<std::uint8_t>();
    if (oddity == 4) head.size = input.number<std::uint64_t>();
    if (oddity == 5) head.offset = input.number<std::uint16_t>();
    if (oddity == 6) head.payload_size = input.number<std::uint32_t>();
    if (oddity == 7) std::ranges::fill(head.operation.kind, input.number<char>());
    if (oddity == 8) {
      head.kind = TcpFrameKind::STOPPED;
      payload = input.coin() ? detail::encode_stop({.code = StatusCode::ABORTED,
                                                    .text = input.text(),
                                                    .culprits = {},
                                                    .origin = static_cast<int>(input.below(4)) - 1})
                             : input.text();
      head.payload_size = static_cast<std::uint32_t>(payload.size());
    }
    if (oddity == 9) {
      head.kind = TcpFrameKind::GOODBYE;
      payload.clear();
      head.payload_size = 0;
    }
    are_right = are_right && (oddity == 0 || oddity > 9);
    const detail::TcpHeadBytes said = detail::encode_tcp_head(head, operations_);
    if (head.kind == TcpFrameKind::MESSAGE) operations_.remember(head.operation);
    bytes.append(reinterpret_cast<const char*>(said.bytes.data()), said.size);
    bytes += payload;
    if (offset_ == size) {
      offset_ = 0;
      ++number_;
    }
  }

  std::uint64_t number_ = 0;
  std::uint64_t offset_ = 0;
  detail::SaidOperations operations_;
};

/// What the other member says: messages, of which payloads are what was sent, and perhaps why it has stopped.
class Heard {
 public:
  void add(std::string_view bytes) {
    bytes_ += bytes;
    for (;;) {
      const auto said = std::as_bytes(std::span(bytes_));
      const std::size_t head_size = detail::tcp_head_size(said);
      if (head_size == 0 || said.size() < head_size) return;
      const TcpHead head = detail::decode_tcp_head(said.first(head_size), operations_);
      if (said.size() - head_size < head.payload_size) return;
      if (head.kind == TcpFrameKind::MESSAGE) {
        operations_.remember(head.operation);
        for (std::size_t i = 0; i < head.payload_size; ++i) {
          FUZZ_EXPECT(bytes_[head_size + i] == right_byte(head.offset + i));
        }
      }
      bytes_.erase(0, head_size + head.payload_size);
    }
  }

 private:
  std::string bytes_;
  detail::SaidOperations operations_;
};

/// Says and hears at the same time, until the other one ends it.
void converse(fuzz::RawSocket& socket, std::string_view words, Manner manner) {
  Heard heard;
  bool has_said_all = false;
  while (!socket.has_ended()) {
    if (!words.empty()) {
      const ssize_t count = ::send(socket.fd(), words.data(), words.size(), MSG_NOSIGNAL);
      if (count > 0) words.remove_prefix(static_cast<std::size_t>(count));
      if (count < 0 && errno != EAGAIN && errno != EINTR) return;
    }
    if (words.empty() && !std::exchange(has_said_all, true)) {
      if (manner == Manner::RESET) return;
      if (manner == Manner::END) socket.end();
    }
    const short events = words.empty() ? POLLIN : POLLIN | POLLOUT;
    pollfd waiting{.fd = socket.fd(), .events = events, .revents = 0};
    if (::poll(&waiting, 1, kPeersPatienceMilliseconds) <= 0) return;
    heard.add(socket.hear());
  }
}

/// Whether it introduces itself with its words instead of where it can be found.
bool is_misintroduced(const Words& words, Manner manner) {
  return manner == Manner::ABSENT && !words.bytes.empty();
}

/// The member that is not to be trusted: meets the other, and says its words.
void speak(Cluster& cluster, const Words& words, Manner manner) {
  if (is_misintroduced(words, manner)) {
    (void)cluster.all_gather_bytes(words.bytes.substr(0, kMostToIntroduce), meeting_deadline());
    return;
  }
  detail::TcpIntroduction introduction = detail::introduce_members(cluster, meeting_deadline());
  if (manner == Manner::ABSENT || manner == Manner::LEFT) return;
  const int other[] = {1 - cluster.rank()};
  introduction.meeting->meet(other, Deadline::after(std::chrono::seconds(5)), [] { return false; });
  for (const auto& [peer, fd, tls] : introduction.meeting->take_connected()) {
    fuzz::RawSocket socket(fd);
    if (manner == Manner::ABORT) cluster.abort_collective_ops("enough");
    converse(socket, words.bytes, manner);
  }
}

/// Who ends the connection at once may have done so before the other one knows of it, and counts as one that has not come.
std::chrono::milliseconds time_to_meet(Manner manner) {
  switch (manner) {
    case Manner::NONSENSE:
    case Manner::HEAR:
    case Manner::ABORT:
    case Manner::LEFT:
      return kPatience / 2;
    case Manner::END:
    case Manner::RESET:
      return kPatience / 20;
    case Manner::ABSENT:
      return kAbsenceIsNoted;
  }
  FUZZ_FAIL("a manner");
}

/// What the other member wants.
struct Wish {
  std::size_t size = 0;  // of each message
  std::size_t num_received = 0;
  std::size_t num_sent = 0;
  bool looks = false;  // listens to what nobody has asked for, for a while
  bool stops = false;  // ends it before all has come
};

void listen(const std::shared_ptr<Cluster>& cluster, const Wish& wish, const Words& words,
            Manner manner) {
  std::unique_ptr<Transport> transport;
  try {
    transport = make_tcp_transport(cluster);
  } catch (const OpError&) {
    FUZZ_EXPECT(is_misintroduced(words, manner));
    return;
  }
  const int other[] = {1 - cluster->rank()};
  std::vector<std::vector<std::byte>> heard(wish.num_received, std::vector<std::byte>(wish.size));
  std::vector<std::byte> said(wish.size);
  for (std::size_t i = 0; i < said.size(); ++i) said[i] = static_cast<std::byte>(right_byte(i));
  std::vector<Transfer> receives(wish.num_received);
  std::vector<Transfer> sends(wish.num_sent);
  bool has_all = false;
  const Deadline deadline = Deadline::after(kPatience);
  try {
    const bool is_absent = manner == Manner::ABSENT;
    transport->connect(other, Deadline::after(time_to_meet(manner)));
    FUZZ_EXPECT(!is_absent && manner != Manner::LEFT);
    transport->begin(operation());
    for (std::size_t i = 0; i < receives.size(); ++i) {
      transport->receive(other[0], heard[i], receives[i]);
    }
    for (Transfer& each : sends) {
      // The first one may go to who has ended meanwhile, the others to who is known to have.
      transport->send(other[0], said, each);
      transport->look();
      if (wish.looks) transport->look_until(Deadline::after(kLook));
    }
    if (sends.empty() && wish.looks) transport->look_until(Deadline::after(kLook));
    if (wish.stops) transport->stop(StatusCode::ABORTED, "enough");
    for (Transfer& each : receives) transport->wait(each, deadline);
    for (Transfer& each : sends) transport->wait(each, deadline);
    has_all = true;
  } catch (const OpError& error) {
    FUZZ_EXPECT(!deadline.has_passed());
    FUZZ_EXPECT(error.what()[0] != '\0');
  }
  for (std::size_t i = 0; i < receives.size(); ++i) {
    FUZZ_EXPECT(!has_all || receives[i].is_done());
    if (!receives[i].is_done() || !words.are_right || !has_all) continue;
    for (std::size_t at = 0; at < wish.size; ++at) {
      FUZZ_EXPECT(heard[i][at] == static_cast<std::byte>(right_byte(at)));
    }
  }
}

/// The cluster is none for the next run, whose other member has left or aborted.
void play_in_own_cluster(int rank, const Wish& wish, const Words& words, Manner manner) {
  const std::vector<std::string> errors =
      testing::run_clusters(2, [&](const std::shared_ptr<Cluster>& cluster) {
        if (cluster->rank() == rank) {
          listen(cluster, wish, words, manner);
        } else {
          speak(*cluster, words, manner);
        }
      });
  FUZZ_EXPECT(errors == testing::no_errors(2));
}

}  // namespace
}  // namespace crossdevice

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdevice;
  fuzz::silence_log();
  fuzz::Input input(data, size);
  const std::size_t how = input.number<std::uint8_t>();
  const int rank = static_cast<int>(how % 2);
  const Manner manner = kManners[how / 2 % kManners.size()];
  Wish wish{.looks = how / 16 % 2 != 0, .stops = how / 32 % 8 == 1};
  wish.size = input.number<std::uint16_t>() % 40'000;
  if (how / 128 != 0) wish.size *= kBulk;
  const std::size_t counts = input.number<std::uint8_t>();
  wish.num_received = counts % 4;
  wish.num_sent = counts / 4 % 4;
  const Words words(input, wish.size, manner);
  if (manner == Manner::HEAR) wish.num_received = 0;  // it would wait for the rest for ever
  if (manner == Manner::LEFT || manner == Manner::ABORT) {
    play_in_own_cluster(rank, wish, words, manner);
    return 0;
  }
  std::thread peer([&] { speak(*clusters()[static_cast<std::size_t>(1 - rank)], words, manner); });
  listen(clusters()[static_cast<std::size_t>(rank)], wish, words, manner);
  peer.join();
  return 0;
}
