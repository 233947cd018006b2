// SPDX-License-Identifier: Apache-2.0
#include "strangers/flood.h"

#include <algorithm>
#include <cerrno>
#include <random>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crossdevice/core/version.h"

#include "comm/detail/control_message.h"

namespace crossdevice::strangers {
namespace {

using Clock = std::chrono::steady_clock;

struct Connection {
  int fd = -1;
  Clock::time_point since{};
  std::size_t number = 0;
  bool has_spoken = false;
};

/// A socket that connects and is not waited for; ended by a reset.
int open_to(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const linger reset{.l_onoff = 1, .l_linger = 0};
  (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 ||
      errno == EINPROGRESS) {
    return fd;
  }
  ::close(fd);
  return -1;
}

/// Whether the other side has ended it; reads what it said.
bool has_ended(int fd) {
  char piece[4096];
  for (;;) {
    const ssize_t count = ::recv(fd, piece, sizeof piece, MSG_DONTWAIT);
    if (count > 0) continue;
    return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
  }
}

}  // namespace

std::string words_of_stranger(std::size_t n) {
  switch (n % 4) {
    case 0:
      return "";
    case 1: {
      std::mt19937 random(static_cast<std::uint32_t>(n));
      std::string noise(64 + n % 1000, '\0');
      for (char& each : noise) each = static_cast<char>(random());
      return noise;
    }
    case 2:
      return "\xff\xff\xff\x7f" + std::string(2000, 'x');
    default:
      break;
  }
  detail::Hello hello;
  hello.library_version = library_version_string();
  hello.num_workers = 2;
  hello.member.rank = 1;
  hello.member.host = "nowhere";
  return detail::encode_frame(detail::ControlKind::HELLO, hello.encode());
}

namespace {

/// They repeat, so that saying them costs the generator little.
std::vector<std::string> words_in_turn(const FloodOptions& options) {
  if (!options.words.empty()) return options.words;
  constexpr std::size_t kWords = 32;
  std::vector<std::string> words;
  words.reserve(kWords);
  for (std::size_t i = 0; i < kWords; ++i) words.push_back(words_of_stranger(i));
  return words;
}

}  // namespace

FloodCounts flood(const FloodOptions& options, const std::function<bool()>& is_over) {
  FloodCounts counts;
  const std::vector<std::string> words = words_in_turn(options);
  std::vector<Connection> open;
  open.reserve(options.at_once);
  std::vector<pollfd> polled;
  polled.reserve(options.at_once);
  const Clock::time_point begin = Clock::now();
  std::size_t number = 0;
  const auto may_begin = [&] {
    if (open.size() >= options.at_once || (options.count > 0 && number >= options.count)) {
      return false;
    }
    if (options.per_second == 0) return true;
    const std::chrono::duration<double> time = Clock::now() - begin;
    return static_cast<double>(number) < time.count() * static_cast<double>(options.per_second);
  };
  while (!is_over() && !(options.count > 0 && number >= options.count && open.empty())) {
    while (may_begin()) {
      const int fd = open_to(options.ports[number % options.ports.size()]);
      if (fd < 0) {
        ++counts.failed;
      } else {
        open.push_back({.fd = fd, .since = Clock::now(), .number = number});
        if (options.num_begun != nullptr) options.num_begun->fetch_add(1);
      }
      ++number;
    }
    polled.clear();
    for (const Connection& each : open) {
      polled.push_back({each.fd, static_cast<short>(each.has_spoken ? POLLIN : POLLOUT), 0});
    }
    (void)::poll(polled.data(), polled.size(), 1);
    const Clock::time_point now = Clock::now();
    for (std::size_t i = 0; i < polled.size(); ++i) {
      Connection& each = open[i];
      bool is_done = now - each.since > options.stay;
      if ((polled[i].revents & (POLLERR | POLLHUP)) != 0 && !each.has_spoken) {
        ++counts.failed;
        is_done = true;
      } else if (polled[i].revents != 0 && !each.has_spoken) {
        ++counts.connected;
        each.has_spoken = true;
        const std::string& said = words[each.number / options.ports.size() % words.size()];
        (void)::send(each.fd, said.data(), said.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      } else if (polled[i].revents != 0 && has_ended(each.fd)) {
        ++counts.ended;
        is_done = true;
      } else if (is_done && !each.has_spoken) {
        ++counts.failed;
      }
      if (!is_done) continue;
      ::close(each.fd);
      each.fd = -1;
    }
    std::erase_if(open, [](const Connection& each) { return each.fd < 0; });
  }
  for (const Connection& each : open) ::close(each.fd);
  return counts;
}

}  // namespace crossdevice::strangers
