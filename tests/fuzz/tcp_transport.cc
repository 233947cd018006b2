// SPDX-License-Identifier: Apache-2.0
// A member of a transport that has proved who it is and then says whatever the fuzzer makes it say, on either side of the connection. The other member's
// wait ends, by what was asked for or by an error; what it took for its message is what was said.
#include "crossdevice/comm/tcp_transport.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/time.h>

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

constexpr std::chrono::seconds kPatience{10};

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

  explicit Words(fuzz::Input& input, std::size_t size) {
    for (std::size_t num_frames = input.below(6); num_frames > 0; --num_frames) add(input, size);
    if (input.coin()) are_right = false;
    if (!are_right) bytes += input.text();
    // Whatever has begun is filled up by this, and no frame begins like this.
    bytes.append(detail::kMaxTcpPayloadBytes + detail::kMaxTcpHeadBytes, '\0');
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
    const detail::TcpHeadBytes said =
        detail::encode_tcp_head(head, operation_ ? &*operation_ : nullptr);
    if (head.kind == TcpFrameKind::MESSAGE) operation_ = head.operation;
    bytes.append(reinterpret_cast<const char*>(said.bytes.data()), said.size);
    bytes += payload;
    if (offset_ == size) {
      offset_ = 0;
      ++number_;
    }
  }

  std::uint64_t number_ = 0;
  std::uint64_t offset_ = 0;
  std::optional<GroupOperation> operation_;  // of the last message that was said
};

/// The member that is not to be trusted: meets the other, and says its words.
void speak(int rank, const std::string& words) {
  detail::TcpIntroduction introduction =
      detail::introduce_members(*clusters()[static_cast<std::size_t>(rank)], meeting_deadline());
  const int other[] = {1 - rank};
  introduction.meeting->meet(other, Deadline::after(std::chrono::seconds(5)), [] { return false; });
  for (const auto& [peer, fd, tls] : introduction.meeting->take_connected()) {
    fuzz::RawSocket socket(fd);
    (void)::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    const timeval limit{.tv_sec = 5, .tv_usec = 0};
    (void)::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    (void)::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (std::size_t sent = 0; sent < words.size();) {
      const ssize_t count = ::send(fd, words.data() + sent, words.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) break;
      sent += static_cast<std::size_t>(count);
    }
    // The other one ends it.
    std::array<char, 4096> ignored{};
    while (::recv(fd, ignored.data(), ignored.size(), 0) > 0) {
    }
  }
}

void listen(int rank, std::size_t size, std::size_t num_messages, const Words& words) {
  const std::unique_ptr<Transport> transport =
      make_tcp_transport(clusters()[static_cast<std::size_t>(rank)]);
  const int other[] = {1 - rank};
  std::vector<std::vector<std::byte>> heard(num_messages, std::vector<std::byte>(size));
  std::vector<Transfer> transfers(num_messages);
  bool has_all = false;
  const Deadline deadline = Deadline::after(kPatience);
  try {
    transport->connect(other, Deadline::after(std::chrono::seconds(5)));
    transport->begin(operation());
    for (std::size_t i = 0; i < num_messages; ++i) {
      transport->receive(1 - rank, heard[i], transfers[i]);
    }
    for (Transfer& each : transfers) transport->wait(each, deadline);
    has_all = true;
  } catch (const OpError& error) {
    FUZZ_EXPECT(!deadline.has_passed());
    FUZZ_EXPECT(error.what()[0] != '\0');
  }
  for (std::size_t i = 0; i < num_messages; ++i) {
    FUZZ_EXPECT(!has_all || transfers[i].is_done());
    if (!transfers[i].is_done() || !words.are_right || !has_all) continue;
    for (std::size_t at = 0; at < size; ++at) {
      FUZZ_EXPECT(heard[i][at] == static_cast<std::byte>(right_byte(at)));
    }
  }
}

}  // namespace
}  // namespace crossdevice

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace crossdevice;
  fuzz::silence_log();
  fuzz::Input input(data, size);
  const int rank = input.coin() ? 1 : 0;
  const std::size_t message_size = input.number<std::uint16_t>() % 40'000;
  const std::size_t num_messages = input.below(4);
  const Words words(input, message_size);
  std::thread peer([&] { speak(1 - rank, words.bytes); });
  listen(rank, message_size, num_messages, words);
  peer.join();
  return 0;
}
