// SPDX-License-Identifier: Apache-2.0
/// The agent sends, for each part, its name as a field, its size, ':' and its bytes; then an empty name. A byte comes back when all of it has been written.
#include "run/remote_trace.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/fields.h"
#include "run/forwarded_variables.h"
#include "run/remote_shell.h"
#include "run/system_error.h"
#include "run/trace_merge.h"
#include "run/worker_process.h"

namespace crossdevice::run {
namespace {

constexpr std::chrono::milliseconds kSilence{30'000};
constexpr std::size_t kPieceBytes = std::size_t{64} << 10U;
constexpr std::size_t kMaxNameBytes = 4096;
constexpr std::size_t kMaxDigits = 19;
constexpr std::size_t kMaxSaidBytes = 4096;
constexpr char kHave = 'k';

std::string stem_of(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// ---------------------------------------------------------------------------------------------- where they were written

void write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_failure("send a timeline");
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

/// As much as it has now: its worker has ended.
void send_part(const std::string& part) {
  std::ifstream file(part, std::ios::binary);
  if (!file) return;
  std::uint64_t rest = std::filesystem::file_size(part);
  std::string head;
  append_field(head, stem_of(part));
  write_all(head + fmt::format("{}:", rest));
  std::array<char, kPieceBytes> piece{};
  while (rest > 0) {
    const auto size = static_cast<std::streamsize>(std::min<std::uint64_t>(rest, piece.size()));
    if (!file.read(piece.data(), size)) throw std::runtime_error(part + " has become shorter");
    write_all({piece.data(), static_cast<std::size_t>(size)});
    rest -= static_cast<std::uint64_t>(size);
  }
}

// ---------------------------------------------------------------------------------------------- where they are wanted

/// What an agent sends, in pieces of any size.
class IncomingParts {
 public:
  IncomingParts(std::string path, const std::set<int>& ranks)
      : path_(std::move(path)), ranks_(ranks) {}
  ~IncomingParts() {
    std::error_code error;
    if (file_.is_open()) std::filesystem::remove(beside(name_), error);
  }
  IncomingParts(const IncomingParts&) = delete;
  IncomingParts& operator=(const IncomingParts&) = delete;

  [[nodiscard]] bool is_complete() const { return is_complete_; }
  /// Errors   std::runtime_error: these are no parts that were asked for, or they cannot be written.
  void feed(std::string_view bytes) {
    while (!bytes.empty() && !is_complete_) bytes.remove_prefix(take(bytes));
  }

 private:
  enum class Next : std::uint8_t { NAME_SIZE, NAME, SIZE, CONTENT };

  [[nodiscard]] std::string beside(const std::string& name) const {
    return std::filesystem::path(path_).replace_filename(name).string();
  }
  /// Returns how many bytes it has taken, at least one.
  std::size_t take(std::string_view bytes);
  void take_digit(char digit);
  void begin_part();
  void begin_content(std::uint64_t size_bytes);
  void end_part();

  const std::string path_;
  const std::set<int>& ranks_;
  Next next_ = Next::NAME_SIZE;
  std::string digits_;
  std::string name_;
  std::uint64_t rest_ = 0;  // of the name, or of the content
  std::ofstream file_;
  bool is_complete_ = false;
};

std::size_t IncomingParts::take(std::string_view bytes) {
  if (next_ == Next::NAME_SIZE || next_ == Next::SIZE) {
    take_digit(bytes[0]);
    return 1;
  }
  const std::string_view piece = bytes.substr(0, rest_);
  rest_ -= piece.size();
  if (next_ == Next::NAME) {
    name_ += piece;
    if (rest_ == 0) begin_part();
  } else {
    file_.write(piece.data(), static_cast<std::streamsize>(piece.size()));
    if (!file_) throw system_failure("write " + beside(name_));
    if (rest_ == 0) end_part();
  }
  return piece.size();
}

void IncomingParts::take_digit(char digit) {
  if (digit != ':') {
    const bool is_digit = digit >= '0' && digit <= '9';
    if (!is_digit || digits_.size() == kMaxDigits) throw BadFields("it sends no timeline");
    digits_ += digit;
    return;
  }
  const auto number = parse_number<std::uint64_t>(digits_);
  digits_.clear();
  if (next_ == Next::SIZE) return begin_content(number);
  if (number > kMaxNameBytes) throw BadFields("it sends no timeline");
  name_.clear();
  rest_ = number;
  next_ = Next::NAME;
  is_complete_ = number == 0;
}

/// What was not asked for is not written, wherever its name says.
void IncomingParts::begin_part() {
  const std::optional<int> rank = rank_of_trace_part(name_, stem_of(path_));
  if (name_.find('/') != std::string::npos || !rank.has_value() || !ranks_.contains(*rank)) {
    throw std::runtime_error("it sends what was not asked for: " + name_);
  }
  next_ = Next::SIZE;
}

void IncomingParts::begin_content(std::uint64_t size_bytes) {
  errno = 0;
  file_.open(beside(name_), std::ios::binary | std::ios::trunc);
  if (!file_) throw system_failure("write " + beside(name_));
  rest_ = size_bytes;
  next_ = Next::CONTENT;
  if (size_bytes == 0) end_part();
}

void IncomingParts::end_part() {
  file_.close();
  if (!file_) throw system_failure("write " + beside(name_));
  next_ = Next::NAME_SIZE;
}

/// Ends it, however far it is, and waits for that.
class Agent {
 public:
  Agent(const WorkerSetting& setting, const Janitor& janitor)
      : janitor_(janitor), process_(start_worker(setting, janitor)) {}
  ~Agent() {
    process_.in.reset();
    ::kill(-process_.pid, SIGKILL);
    while (::waitpid(process_.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    janitor_.forget_group(process_.pid);
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Fits into a pipe: a path, and up to some hundred ranks. That it has ended is found by listening.
  void say(std::string_view bytes) {
    const ssize_t count = ::write(process_.in.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EPIPE) return;
    if (count != static_cast<ssize_t>(bytes.size())) throw system_failure("speak to it");
  }
  /// What it sends goes to `feed`, until that is enough or it has ended.
  template <class Feed>
  void listen(const Feed& feed);
  /// Nothing more is said; until it has ended by itself, for a while.
  void await_end() {
    process_.in.reset();
    listen([](std::string_view) { return false; });  // nothing more should come
  }
  [[nodiscard]] const std::string& said() const { return said_; }

 private:
  const Janitor& janitor_;
  WorkerProcess process_;
  std::string said_;  // on standard error
};

template <class Feed>
void Agent::listen(const Feed& feed) {
  std::array<char, kPieceBytes> piece{};
  using Clock = std::chrono::steady_clock;
  Clock::time_point limit = Clock::now() + kSilence;  // complaints do not move it
  for (bool goes_on = true; goes_on;) {
    std::array<pollfd, 2> streams{pollfd{process_.out.get(), POLLIN, 0},
                                  pollfd{process_.err.get(), POLLIN, 0}};
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now());
    const int count = rest.count() <= 0
                          ? 0
                          : ::poll(streams.data(), streams.size(), static_cast<int>(rest.count()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_failure("wait for it");
    if (count == 0) throw std::runtime_error("it says nothing for half a minute");
    for (const pollfd& stream : streams) {
      if (stream.revents == 0) continue;
      const ssize_t size = ::read(stream.fd, piece.data(), piece.size());
      if (size < 0) continue;  // not now
      const std::string_view bytes(piece.data(), static_cast<std::size_t>(size));
      if (stream.fd == process_.err.get()) {
        said_ += bytes.substr(0, kMaxSaidBytes - std::min(said_.size(), kMaxSaidBytes));
        if (size == 0) process_.err.reset();  // poll() passes over what is not open
      } else {
        goes_on = size > 0 && feed(bytes);
        limit = Clock::now() + kSilence;
      }
    }
  }
}

void fetch_from(const HostShare& host, const std::string& path, const std::set<int>& ranks,
                const std::string& remote_shell, const Janitor& janitor) {
  WorkerSetting setting;
  setting.command = remote_command(
      remote_shell, host.name, std::filesystem::read_symlink("/proc/self/exe"), "--trace-agent");
  setting.environment = with_variables(environ, {});
  ::pthread_sigmask(SIG_SETMASK, nullptr, &setting.signal_mask);
  ::getrlimit(RLIMIT_NOFILE, &setting.max_open_files);
  setting.has_input = true;
  std::string fields;
  append_version(fields);
  append_field(fields, std::filesystem::absolute(path).string());
  std::vector<std::string> texts;
  for (const int rank : ranks) texts.push_back(std::to_string(rank));
  append_fields(fields, texts);
  std::string request;
  append_field(request, fields);

  Agent agent(setting, janitor);
  IncomingParts parts(path, ranks);
  try {
    agent.say(request);
    agent.listen([&parts](std::string_view bytes) {
      parts.feed(bytes);
      return !parts.is_complete();
    });
    if (!parts.is_complete()) throw std::runtime_error("it ended before");
    agent.say({&kHave, 1});
    agent.await_end();
  } catch (const std::exception& error) {
    const std::string_view said = agent.said();
    throw std::runtime_error(fmt::format("{}{}{}", error.what(), said.empty() ? "" : "; it said: ",
                                         said.substr(0, said.find_last_not_of('\n') + 1)));
  }
}

/// Supervisors hold them back. An agent that has ended is no reason to end.
void let_signals_through() {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t all;
  sigemptyset(&all);
  for (const int each : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) sigaddset(&all, each);
  ::pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
}

}  // namespace

int run_trace_agent() {
  std::string path;
  std::set<int> ranks;
  ::alarm(kPatienceSeconds);
  try {
    const std::string message = receive_message(STDIN_FILENO);
    ::alarm(0);
    FieldReader fields(message);
    take_version(fields);
    path = fields.take();
    for (const std::string& each : fields.take_list()) ranks.insert(parse_number<int>(each));
  } catch (const BadFields&) {
    throw std::runtime_error("--trace-agent: standard input names no timeline");
  }
  std::vector<std::string> sent;
  for (const auto& [rank, part] : ranked_trace_parts(path)) {
    if (!ranks.contains(rank) || !std::filesystem::is_regular_file(part)) continue;
    send_part(part);
    sent.push_back(part);
  }
  std::string end;
  append_field(end, "");
  write_all(end);
  char answer = 0;
  ::alarm(kPatienceSeconds);
  try {
    read_exactly(STDIN_FILENO, &answer, 1);
  } catch (const BadFields&) {
    return 1;  // it has not come: they stay
  }
  if (answer != kHave) return 1;
  for (const std::string& part : sent) {
    std::error_code error;
    std::filesystem::remove(part, error);
  }
  return 0;
}

void fetch_trace_parts(const std::string& path, const std::vector<HostShare>& shares,
                       const std::string& remote_shell, const Janitor& janitor) {
  let_signals_through();
  std::set<int> here;
  for (const auto& [rank, part] : ranked_trace_parts(path)) here.insert(rank);
  for (const HostShare& share : shares) {
    if (share.is_local) continue;
    std::set<int> ranks;
    for (int each = 0; each < share.num_workers; ++each) {
      const int rank = share.first_rank + each;
      if (!here.contains(rank)) ranks.insert(rank);
    }
    if (ranks.empty()) continue;
    try {
      fetch_from(share, path, ranks, remote_shell, janitor);
    } catch (const std::exception& error) {
      fmt::print(stderr, "crossdevice-run: the timelines of {} stay there, beside {}: {}\n",
                 share.name, path, error.what());
    }
  }
}

}  // namespace crossdevice::run
