// SPDX-License-Identifier: Apache-2.0
// One attempt to reach a worker, where what listens at its address is slow, or stops in the middle.
#include "comm/detail/seeker.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/detail/meeting_message.h"
#include "comm/detail/meeting_place.h"
#include "support/loopback_listener.h"

namespace crossdevice::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kSecret = "secret";
constexpr int kLongMilliseconds = 30'000;

/// What speaks on one connection, frame by frame.
class Speaker {
 public:
  explicit Speaker(int fd) : fd_(fd) {}
  ~Speaker() { ::close(fd_); }
  Speaker(const Speaker&) = delete;
  Speaker& operator=(const Speaker&) = delete;

  void say(ControlKind kind, const std::string& payload) const {
    const std::string frame = encode_frame(kind, payload);
    (void)::send(fd_, frame.data(), frame.size(), MSG_NOSIGNAL);
  }
  /// Nothing: the connection has ended.
  [[nodiscard]] std::optional<Frame> hear() const {
    std::array<char, kFrameHeadBytes> head{};
    if (!read(head.data(), head.size())) return std::nullopt;
    std::string body(decode_frame_head({head.data(), head.size()}, kMaxSeekFrameBytes), '\0');
    if (!read(body.data(), body.size())) return std::nullopt;
    return decode_frame_body(body);
  }

 private:
  [[nodiscard]] bool read(char* to, std::size_t size) const {
    for (std::size_t done = 0; done < size;) {
      const ssize_t count = ::recv(fd_, to + done, size - done, 0);
      if (count <= 0) return false;
      done += static_cast<std::size_t>(count);
    }
    return true;
  }
  int fd_;
};

/// Where a worker is said to listen.
class Address {
 public:
  [[nodiscard]] std::string text() const { return listener_.address(); }
  void stop() const { ::shutdown(listener_.descriptor(), SHUT_RDWR); }
  /// The next one that comes; nothing: it was stopped, or nobody has for a long while.
  [[nodiscard]] std::unique_ptr<Speaker> accept() const {
    pollfd waited{listener_.descriptor(), POLLIN, 0};
    if (::poll(&waited, 1, kLongMilliseconds) != 1) return nullptr;
    const int fd = ::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    return fd < 0 ? nullptr : std::make_unique<Speaker>(fd);
  }

 private:
  testing::LoopbackListener listener_{100};
};

Seek question() {
  Seek seek;
  seek.job = 4711;
  seek.rank = 0;
  seek.epoch = {1, {0, 1}};
  return seek;
}

TEST(SeekerTest, ASlowAnswerIsAnAnswerAsLongAsSomethingIsHeard) {
  constexpr milliseconds kPatience{1000};
  constexpr milliseconds kEachWord{600};
  const Address address;
  std::thread slow([&] {
    for (;;) {  // whoever was held up comes again
      const std::unique_ptr<Speaker> speaker = address.accept();
      if (!speaker) return;
      std::this_thread::sleep_for(kEachWord);
      speaker->say(ControlKind::CHALLENGE, Challenge{}.encode());
      const std::optional<Frame> frame = speaker->hear();
      if (!frame.has_value()) continue;
      const Seek seek = Seek::decode(frame->payload);
      std::this_thread::sleep_for(kEachWord);
      Found found;
      found.rank = 1;
      found.epoch = seek.epoch;
      found.mac = found.expected_mac(kSecret, seek.nonce);
      speaker->say(ControlKind::FOUND, found.encode());
      (void)speaker->hear();
    }
  });
  asio::io_context io(1);
  std::optional<SeekResult> result;
  const std::vector<std::string> tries(5, address.text());
  std::make_shared<Seeker>(io, SeekerProof{.secret = kSecret}, question(), 1, tries, kPatience,
                           [&](SeekResult found) { result = std::move(found); })
      ->start();
  io.run();
  EXPECT_TRUE(result.has_value() && result->found.has_value());
  address.stop();
  slow.join();
}

TEST(SeekerTest, WhoSaysNothingIsGivenUp) {
  const Address silent;
  asio::io_context io(1);
  std::optional<SeekResult> result;
  std::make_shared<Seeker>(io, SeekerProof{.secret = kSecret}, question(), 1,
                           std::vector<std::string>{silent.text()}, milliseconds(50),
                           [&](SeekResult found) { result = std::move(found); })
      ->start();
  io.run();
  ASSERT_TRUE(result.has_value());
  EXPECT_FALSE(result->found.has_value());
  EXPECT_FALSE(result->is_gone);  // somebody listens
}

std::size_t num_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(SeekerTest, AMeetingPlaceThatEndsWhileItTellsSomebodyLeavesNothing) {
  const Address left_out;  // of a worker that takes long to hear that it was left out
  const std::size_t before = num_descriptors();
  std::vector<std::shared_ptr<MeetingPlace>> places;
  std::vector<MemberInfo> everyone;
  for (int rank = 0; rank < 2; ++rank) {
    places.push_back(MeetingPlace::open({.chief_host = "127.0.0.1",
                                         .chief_port = 0,
                                         .secret = kSecret,
                                         .heartbeat_timeout = seconds(5)}));
    everyone.push_back({.rank = rank, .host = "h", .host_id = "i", .pid = 100 + rank});
    everyone.back().addresses = places.back()->addresses();
  }
  everyone.push_back({.rank = 2, .host = "h", .host_id = "i", .pid = 102});
  everyone.back().addresses = {left_out.text()};
  for (int rank = 0; rank < 2; ++rank)
    places[static_cast<std::size_t>(rank)]->begin(4711, rank, everyone);

  MeetingRequest request;
  request.call = "rebuild(ONLY)";
  request.deadline = Deadline::after(seconds(60));
  request.lost = {2};
  std::thread other([&] { EXPECT_EQ(places[1]->meet(request).epoch.members.size(), 2U); });
  EXPECT_EQ(places[0]->meet(request).epoch.members, (std::vector<int>{0, 1}));
  other.join();
  // Those that looked for it have given up; who tells it that it was left out has not.
  for (;;) {
    const std::unique_ptr<Speaker> speaker = left_out.accept();
    ASSERT_NE(speaker, nullptr);
    speaker->say(ControlKind::CHALLENGE, Challenge{}.encode());
    if (!speaker->hear().has_value()) continue;
    places.clear();
    EXPECT_EQ(num_descriptors(), before + 1);  // this end of the connection
    return;
  }
}

}  // namespace
}  // namespace crossdevice::detail
