// SPDX-License-Identifier: Apache-2.0
/// How long 8 bytes take through two shaped links, and how many bytes per second a link carries each way while both ways are full: two workers of
/// crossdevice-run, in a network namespace each, send each other single messages and then a plain TCP stream, with nothing of the library. Each writes
/// what it saw to FILE.RANK: link-speed FILE
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t kMessageBytes = 8;
constexpr int kNumBlocks = 5;
constexpr int kExchangesPerBlock = 2000;
/// How long to look without giving up the core: as long as the library's transports do.
constexpr std::chrono::microseconds kSpinTime{20};
constexpr std::size_t kPieceBytes = std::size_t{1} << 16U;
constexpr std::chrono::milliseconds kStreamTime{3000};
constexpr std::chrono::milliseconds kSkippedTime{500};  // the bucket's burst, and TCP's start
constexpr std::chrono::milliseconds kPatience{30000};   // with a worker that says nothing
constexpr std::chrono::milliseconds kBetweenTries{50};

/// What errno says of `what`.
[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

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

/// Until the socket can do one of `events`; which of them it can.
short wait_for(int socket, int events) {
  pollfd polled{.fd = socket, .events = static_cast<short>(events), .revents = 0};
  const int num_ready = ::poll(&polled, 1, static_cast<int>(kPatience.count()));
  if (num_ready == 0) throw std::runtime_error("the other worker does nothing");
  if (num_ready < 0 && errno != EINTR) fail("poll");
  return polled.revents;
}

/// The first worker listens at the chief's address, and the other connects to it.
class Chief {
 public:
  explicit Chief(const std::string& address) {
    const std::size_t colon = address.rfind(':');
    if (colon == std::string::npos) throw std::runtime_error("no address: " + address);
    std::string host = address.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    const int status = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found_);
    if (status != 0) throw std::runtime_error(address + ": " + ::gai_strerror(status));
  }
  ~Chief() { ::freeaddrinfo(found_); }
  Chief(const Chief&) = delete;
  Chief& operator=(const Chief&) = delete;

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

/// Waits as the library's transports do where each worker has a core: looks, and from a moment on lets others run between looks.
class Spinner {
 public:
  void wait() {
    const Clock::duration waited = Clock::now() - begin_;
    if (waited < kSpinTime) {
      relax();
    } else if (waited < kPatience) {
      std::this_thread::yield();
    } else {
      throw std::runtime_error("the other worker says nothing");
    }
  }

 private:
  Clock::time_point begin_ = Clock::now();
};

/// Both workers send at once and wait for the other's message, as in a step of an all-reduce.
void exchange(int connection) {
  std::array<char, kMessageBytes> message{};
  Spinner spinner;
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
}

/// The upper one of two in the middle.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Microseconds: the median of some blocks' medians.
double measure_exchange(int connection) {
  const int yes = 1;
  if (::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) != 0)
    fail("TCP_NODELAY");
  std::vector<double> medians;
  for (int block = 0; block < kNumBlocks; ++block) {
    std::vector<double> samples;
    samples.reserve(kExchangesPerBlock);
    for (int i = 0; i < kExchangesPerBlock; ++i) {
      const Clock::time_point begin = Clock::now();
      exchange(connection);
      samples.push_back(Microseconds(Clock::now() - begin).count());
    }
    medians.push_back(median(std::move(samples)));
  }
  return median(std::move(medians));
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
  const std::string rank = from_environment("CROSSDEVICE_RANK");
  const Chief chief(from_environment("CROSSDEVICE_CHIEF_ADDRESS"));
  const Socket connection = rank == "0" ? chief.accept_other() : chief.connect_to();
  const double exchange_us = measure_exchange(connection.get());
  const double bytes_per_second = measure_stream(connection.get());
  std::ofstream out(file + "." + rank);
  out << std::fixed << "{\"bytes_per_second\": " << bytes_per_second
      << ", \"exchange_us\": " << exchange_us << "}\n";
  out.close();
  if (!out) throw std::runtime_error("cannot write " + file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: link-speed FILE, as a worker of crossdevice-run -n 2\n", stderr);
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
