// SPDX-License-Identifier: Apache-2.0
/// How long an all-reduce of 8 bytes takes through shaped links, and how many bytes per second a link carries each way while both ways are full: workers
/// of crossdevice-run, in a network namespace each, send each other single messages in recursive doubling and, where they are two, then a plain TCP stream,
/// with nothing of the library. Each writes what it saw to FILE.RANK: link-speed FILE
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collective/sample.h"
#include "peers/system_failure.h"

namespace {

using crossdevice::bench::fail;
using crossdevice::bench::kMaxCallsPerSample;
using crossdevice::bench::kReductionsPerLineUp;
using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t kNumSamples = 150;
/// How long to look without giving up the core: as long as the library's transports do.
constexpr std::chrono::microseconds kSpinTime{20};
constexpr std::size_t kPieceBytes = std::size_t{1} << 16U;
constexpr std::chrono::milliseconds kStreamTime{3000};
constexpr std::chrono::milliseconds kSkippedTime{500};  // the bucket's burst, and TCP's start
constexpr std::chrono::milliseconds kPatience{30000};   // with a worker that says nothing
constexpr std::chrono::milliseconds kBetweenTries{50};

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_;
};

/// The value of a variable that crossdevice-run sets.
std::string from_environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets any
  if (value == nullptr)
    throw std::runtime_error(std::string("not a worker of crossdevice-run: no ") + name);
  return value;
}

/// Who takes part.
struct Job {
  unsigned rank = static_cast<unsigned>(std::stoul(from_environment("CROSSDEVICE_RANK")));
  unsigned num_workers =
      static_cast<unsigned>(std::stoul(from_environment("CROSSDEVICE_NUM_WORKERS")));
  std::string chief = from_environment("CROSSDEVICE_CHIEF_ADDRESS");
};

/// Until the socket can do one of `events`; which of them it can.
short wait_for(int socket, int events) {
  pollfd polled{.fd = socket, .events = static_cast<short>(events), .revents = 0};
  const int num_ready = ::poll(&polled, 1, static_cast<int>(kPatience.count()));
  if (num_ready == 0) throw std::runtime_error("the other worker does nothing");
  if (num_ready < 0 && errno != EINTR) fail("poll");
  return polled.revents;
}

/// One of the workers listens, and another one connects to it.
class Listener {
 public:
  /// The addresses of crossdevice-run's namespaces follow one another, the chief's first. `step`: each has a port of its own, beside the chief's.
  Listener(const std::string& address, unsigned rank, unsigned step) {
    const std::size_t colon = address.rfind(':');
    if (colon == std::string::npos) throw std::runtime_error("no address: " + address);
    std::string host = address.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    const int status = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found_);
    if (status != 0) throw std::runtime_error(address + ": " + ::gai_strerror(status));
    if (found_->ai_family != AF_INET) {
      ::freeaddrinfo(found_);
      throw std::runtime_error("no address of crossdevice-run --netns: " + address);
    }
    auto* const place = reinterpret_cast<sockaddr_in*>(found_->ai_addr);
    place->sin_addr.s_addr = htonl(ntohl(place->sin_addr.s_addr) + rank);
    place->sin_port = htons(static_cast<std::uint16_t>(ntohs(place->sin_port) + step));
  }
  ~Listener() { ::freeaddrinfo(found_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] Socket accept_other() const {
    const Socket server = make_socket();
    const int yes = 1;
    if (::setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0)
      fail("reuse the address");
    if (::bind(server.get(), found_->ai_addr, found_->ai_addrlen) != 0) fail("bind");
    if (::listen(server.get(), 1) != 0) fail("listen");
    wait_for(server.get(), POLLIN);
    Socket connection(::accept(server.get(), nullptr, nullptr));
    if (connection.get() < 0) fail("accept");
    return connection;
  }

  [[nodiscard]] Socket connect_to() const {
    for (const Clock::time_point end = Clock::now() + kPatience;;) {
      Socket connection = make_socket();
      if (::connect(connection.get(), found_->ai_addr, found_->ai_addrlen) == 0) return connection;
      if (errno != ECONNREFUSED || Clock::now() >= end) fail("connect");
      std::this_thread::sleep_for(kBetweenTries);
    }
  }

 private:
  [[nodiscard]] Socket make_socket() const {
    Socket made(::socket(found_->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (made.get() < 0) fail("socket");
    return made;
  }

  addrinfo* found_ = nullptr;
};

/// Between two looks.
void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// What a call on a socket moved; 0 where it would have had to wait.
std::size_t moved(ssize_t count, const char* what) {
  if (count >= 0) return static_cast<std::size_t>(count);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) fail(what);
  return 0;
}

/// Waits as the library's transports do: looks, and lets others run between looks, where each worker has a core from a moment on only.
class Spinner {
 public:
  explicit Spinner(bool has_core) : spin_time_(has_core ? kSpinTime : Clock::duration(0)) {}
  void wait() {
    const Clock::duration waited = Clock::now() - begin_;
    if (waited < spin_time_) {
      relax();
    } else if (waited < kPatience) {
      std::this_thread::yield();
    } else {
      throw std::runtime_error("the other worker says nothing");
    }
  }

 private:
  Clock::duration spin_time_;
  Clock::time_point begin_ = Clock::now();
};

/// Both workers send their number at once and wait for the other's, which is the step of an all-reduce.
std::uint64_t exchange(int connection, std::uint64_t own, bool has_core) {
  std::array<char, sizeof own> message{};
  std::memcpy(message.data(), &own, sizeof own);
  Spinner spinner(has_core);
  for (std::size_t num_sent = 0; num_sent < message.size();) {
    const std::size_t count = moved(::send(connection, message.data() + num_sent,
                                           message.size() - num_sent, MSG_DONTWAIT | MSG_NOSIGNAL),
                                    "send");
    if (count == 0) spinner.wait();
    num_sent += count;
  }
  for (std::size_t num_read = 0; num_read < message.size();) {
    const ssize_t count =
        ::recv(connection, message.data() + num_read, message.size() - num_read, MSG_DONTWAIT);
    if (count == 0) throw std::runtime_error("the other worker has left");
    if (count < 0) spinner.wait();
    num_read += moved(count, "recv");
  }
  std::uint64_t theirs = 0;
  std::memcpy(&theirs, message.data(), sizeof theirs);
  return theirs;
}

/// With whom a worker exchanges numbers, first to last; each step doubles of how many it has heard.
std::vector<Socket> connect_partners(const Job& job) {
  std::vector<Socket> connections;
  for (unsigned step = 0; (1U << step) < job.num_workers; ++step) {
    const unsigned partner = job.rank ^ (1U << step);
    const Listener listener(job.chief, std::min(job.rank, partner), step);
    connections.push_back(job.rank < partner ? listener.accept_other() : listener.connect_to());
    const int yes = 1;
    if (::setsockopt(connections.back().get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) != 0)
      fail("TCP_NODELAY");
  }
  return connections;
}

struct Times {
  std::vector<double> samples_us;  ///< of one all-reduce of 8 bytes, for this worker
  std::size_t num_calls = 0;       ///< including those that line the workers up
};

/// As what is held against it is timed: the slowest worker counts once for all calls of a sample,
/// not in each call anew, and what takes a worker off its core for a while is in the mean.
Times time_all_reduces(const Job& job, const std::vector<Socket>& connections) {
  const bool has_core = job.num_workers <= std::thread::hardware_concurrency();
  const std::uint64_t n = job.num_workers;
  Times times;
  const auto all_reduce = [&] {
    std::uint64_t sum = job.rank + 1;
    for (const Socket& each : connections) sum += exchange(each.get(), sum, has_core);
    if (sum != n * (n + 1) / 2) throw std::runtime_error("a wrong sum: " + std::to_string(sum));
    ++times.num_calls;
  };
  times.samples_us.reserve(kNumSamples);
  for (std::size_t i = 0; i < kNumSamples; ++i) {
    for (int k = 0; k < kReductionsPerLineUp; ++k) all_reduce();
    const Clock::time_point begin = Clock::now();
    for (std::size_t k = 0; k < kMaxCallsPerSample; ++k) all_reduce();
    const Microseconds taken = Clock::now() - begin;
    times.samples_us.push_back(taken.count() / static_cast<double>(kMaxCallsPerSample));
  }
  return times;
}

/// What comes while the stream is full: from the first piece after kSkippedTime to the last before kStreamTime.
class Arrivals {
 public:
  void add(std::size_t num_bytes) {
    const Clock::time_point now = Clock::now();
    if (now - begin_ < kSkippedTime || now - begin_ > kStreamTime) return;
    if (first_ == Clock::time_point()) {
      first_ = now;
    } else {
      num_bytes_ += num_bytes;
    }
    last_ = now;
  }
  [[nodiscard]] bool are_over() const { return Clock::now() - begin_ > kStreamTime; }
  [[nodiscard]] double bytes_per_second() const {
    if (num_bytes_ == 0) throw std::runtime_error("too little came to say how fast the link is");
    return static_cast<double>(num_bytes_) / Seconds(last_ - first_).count();
  }

 private:
  Clock::time_point begin_ = Clock::now();
  Clock::time_point first_;
  Clock::time_point last_;
  std::size_t num_bytes_ = 0;
};

/// Bytes per second that come while as many go.
double measure_stream(int connection) {
  const std::vector<char> out(kPieceBytes);
  std::vector<char> in(kPieceBytes);
  Arrivals arrivals;
  bool sends = true;
  bool receives = true;
  while (sends || receives) {
    const int ready = wait_for(connection, (sends ? POLLOUT : 0) | (receives ? POLLIN : 0));
    if (sends && arrivals.are_over()) {
      sends = false;
      if (::shutdown(connection, SHUT_WR) != 0) fail("shutdown");
    }
    if (sends && (ready & POLLOUT) != 0) {
      moved(::send(connection, out.data(), out.size(), MSG_DONTWAIT | MSG_NOSIGNAL), "send");
    }
    if (receives && (ready & ~POLLOUT) != 0) {
      const ssize_t count = ::recv(connection, in.data(), in.size(), MSG_DONTWAIT);
      receives = count != 0;
      arrivals.add(moved(count, "recv"));
    }
  }
  return arrivals.bytes_per_second();
}

void measure(const std::string& file) {
  const Job job;
  if (job.num_workers < 2 || !std::has_single_bit(job.num_workers))
    throw std::runtime_error("recursive doubling needs 2, 4, 8, ... workers");
  const std::vector<Socket> connections = connect_partners(job);
  const Times times = time_all_reduces(job, connections);
  std::ofstream out(file + "." + std::to_string(job.rank));
  out << std::fixed << "{\"num_calls\": " << times.num_calls << ", \"all_reduces_us\": [";
  for (std::size_t i = 0; i < times.samples_us.size(); ++i)
    out << (i == 0 ? "" : ", ") << times.samples_us[i];
  out << "]";
  if (job.num_workers == 2)
    out << ", \"bytes_per_second\": " << measure_stream(connections.front().get());
  out << "}\n";
  out.close();
  if (!out) throw std::runtime_error("cannot write " + file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: link-speed FILE, as a worker of crossdevice-run --netns\n", stderr);
    return 2;
  }
  try {
    measure(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "link-speed: %s\n", error.what());
    return 1;
  }
}
