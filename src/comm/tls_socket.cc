// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/tls_socket.h"

#include <cerrno>
#include <utility>

#include <asio/completion_condition.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <sys/socket.h>

namespace crossdevice::detail {
namespace {

using asio::ip::tcp;

bool must_wait(std::error_code error) {
  return error == std::errc::operation_would_block ||
         error == std::errc::resource_unavailable_try_again;
}

template <class Call>
std::size_t repeat(Call call, std::error_code& error) {
  ssize_t count = 0;
  do {
    count = call();
  } while (count < 0 && errno == EINTR);
  if (count < 0) error = {errno, std::system_category()};
  return count < 0 ? 0 : static_cast<std::size_t>(count);
}

}  // namespace

/// Who owns what. The owner of the socket holds this, and a handler may hold the owner; so handlers are held by what waits in the io_context alone. While
/// one of them has not been called, something waits.
class TlsSocket::Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(tcp::socket& socket, const TlsSetting& setting)
      : socket_(&socket),
        channel_(std::make_unique<TlsChannel>(setting.key, setting.role, setting.plain_greeting)) {}

  void begin() { run(tasks()); }
  void forget() { socket_ = nullptr; }
  void read(asio::mutable_buffer bytes, Handler handler) {
    const std::shared_ptr<Tasks> all = tasks();
    all->read = {static_cast<std::byte*>(bytes.data()), bytes.size(), 0, std::move(handler)};
    run(all);
  }
  void write(asio::const_buffer bytes, Handler handler) {
    const std::shared_ptr<Tasks> all = tasks();
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): only read
    auto* const begin = const_cast<std::byte*>(static_cast<const std::byte*>(bytes.data()));
    all->write = {begin, bytes.size(), 0, std::move(handler)};
    run(all);
  }
  void write_now(asio::const_buffer bytes, std::error_code& error) {
    std::span<const std::byte> left(static_cast<const std::byte*>(bytes.data()), bytes.size());
    while (!left.empty() && !error) {
      const std::size_t count = channel_->write({}, left);
      left = left.subspan(count);
      flush(error);
      const bool is_stuck = count == 0 || !channel_->outgoing().empty();
      if (is_stuck && !error) error = std::make_error_code(std::errc::no_buffer_space);
    }
  }
  [[nodiscard]] bool has_input() const { return channel_->has_input(); }
  [[nodiscard]] bool has_heard() const {
    return channel_->is_established() && trouble_ == TlsTrouble::NONE ? has_read_ : has_heard_;
  }
  [[nodiscard]] TlsTrouble trouble() const { return trouble_; }
  [[nodiscard]] const std::string& trouble_text() const { return trouble_text_; }
  [[nodiscard]] std::unique_ptr<TlsChannel> take_channel() {
    forget();
    return std::move(channel_);
  }

 private:
  struct Task {
    std::byte* bytes = nullptr;
    std::size_t size = 0;
    std::size_t num_done = 0;
    Handler handler{};  // none: there is no task
    [[nodiscard]] bool is_over() const { return num_done == size; }
    [[nodiscard]] std::span<std::byte> left() const { return {bytes + num_done, size - num_done}; }
  };
  struct Tasks {
    Task read{};
    Task write{};
  };

  std::shared_ptr<Tasks> tasks() {
    std::shared_ptr<Tasks> all = tasks_.lock();
    if (!all) tasks_ = all = std::make_shared<Tasks>();
    return all;
  }
  void run(const std::shared_ptr<Tasks>& all);
  bool move(Tasks& all, std::error_code& read_error, std::error_code& write_error);
  bool receive(std::error_code& error);
  void flush(std::error_code& error);
  void end(Task& task, std::error_code error);
  void await(tcp::socket::wait_type what, bool& is_waiting, const std::shared_ptr<Tasks>& all);

  tcp::socket* socket_;  // null: closed
  std::unique_ptr<TlsChannel> channel_;
  std::weak_ptr<Tasks> tasks_;
  bool awaits_input_ = false;
  bool awaits_room_ = false;
  bool has_heard_ = false;
  bool has_read_ = false;       // what the handshake is for
  std::error_code send_error_;  // of the first send that failed
  TlsTrouble trouble_ = TlsTrouble::NONE;
  std::string trouble_text_;
};

/// As far as it goes without waiting, then waits for what is missing.
void TlsSocket::Stream::run(const std::shared_ptr<Tasks>& all) {
  if (socket_ == nullptr) return;
  std::error_code read_error;
  std::error_code write_error;
  try {
    while (move(*all, read_error, write_error)) {
    }
  } catch (const TlsError& error) {
    if (trouble_ == TlsTrouble::NONE) trouble_text_ = error.what();
    if (trouble_ == TlsTrouble::NONE) trouble_ = error.trouble();
    flush(write_error);  // an alert
    read_error = write_error = std::make_error_code(std::errc::bad_message);
  }
  if (!channel_->is_established() && read_error && !write_error) write_error = read_error;
  if (read_error || all->read.is_over()) end(all->read, read_error);
  if (write_error || (all->write.is_over() && channel_->outgoing().empty())) {
    end(all->write, write_error);
  }
  const bool wants_input = all->read.handler || !channel_->is_established();
  if (wants_input && !read_error) await(tcp::socket::wait_read, awaits_input_, all);
  if (!channel_->outgoing().empty() && !write_error) {
    await(tcp::socket::wait_write, awaits_room_, all);
  }
}

/// Whether to go on at once.
bool TlsSocket::Stream::move(Tasks& all, std::error_code& read_error,
                             std::error_code& write_error) {
  const bool is_ready = channel_->shake_hands();
  if (is_ready && all.write.handler) {
    all.write.num_done += channel_->write({}, all.write.left());
    if (channel_->is_broken()) write_error = std::make_error_code(std::errc::bad_message);
  }
  flush(write_error);
  const bool can_write_more = !write_error && is_ready && all.write.handler &&
                              !all.write.is_over() && channel_->outgoing().empty();
  const bool wants_input = !is_ready || (all.read.handler && !all.read.is_over());
  if (!wants_input) return can_write_more;
  const std::size_t num_read = is_ready ? channel_->read(all.read.left()) : 0;
  all.read.num_done += num_read;
  has_read_ = has_read_ || num_read != 0;
  if (num_read != 0) return true;
  if (channel_->has_ended()) {
    read_error = asio::error::eof;
    return false;
  }
  return receive(read_error) || (can_write_more && !read_error);
}

bool TlsSocket::Stream::receive(std::error_code& error) {
  const std::span<std::byte> room = channel_->room();
  std::error_code trouble;
  const std::size_t count = repeat(
      [&] { return ::recv(socket_->native_handle(), room.data(), room.size(), MSG_DONTWAIT); },
      trouble);
  if (must_wait(trouble)) return false;
  if (!trouble && count == 0) trouble = asio::error::eof;
  error = trouble;
  channel_->take_in(count);
  has_heard_ = has_heard_ || count != 0;
  return count != 0;
}

/// `error`: the other side takes nothing more, now or since an earlier call. What is left for it is dropped; what it has sent before can still be read.
void TlsSocket::Stream::flush(std::error_code& error) {
  while (!send_error_ && !channel_->outgoing().empty()) {
    const std::span<const std::byte> bytes = channel_->outgoing();
    std::error_code trouble;
    const std::size_t count = repeat(
        [&] {
          return ::send(socket_->native_handle(), bytes.data(), bytes.size(),
                        MSG_DONTWAIT | MSG_NOSIGNAL);
        },
        trouble);
    if (must_wait(trouble)) return;
    send_error_ = trouble;
    channel_->drop_outgoing(count);
  }
  if (!send_error_) return;
  channel_->drop_outgoing(channel_->outgoing().size());
  error = send_error_;
}

void TlsSocket::Stream::end(Task& task, std::error_code error) {
  if (!task.handler) return;
  const Task done = std::exchange(task, {});
  asio::post(socket_->get_executor(),
             [handler = done.handler, error, count = done.num_done] { handler(error, count); });
}

void TlsSocket::Stream::await(tcp::socket::wait_type what, bool& is_waiting,
                              const std::shared_ptr<Tasks>& all) {
  if (std::exchange(is_waiting, true)) return;
  socket_->async_wait(what, [self = shared_from_this(), all, &is_waiting](std::error_code error) {
    is_waiting = false;
    if (self->socket_ == nullptr) return;
    if (!error) return self->run(all);
    self->end(all->read, error);
    self->end(all->write, error);
  });
}

// ---------------------------------------------------------------------------------------------- TlsSocket

void TlsSocket::begin(const TlsSetting& setting) {
  forget();
  has_heard_ = false;
  if (!setting.key) return;
  stream_ = std::make_shared<Stream>(socket_, setting);
  stream_->begin();
}

void TlsSocket::forget() {
  if (!stream_) return;
  has_heard_ = stream_->has_heard();
  stream_->forget();
  stream_.reset();
}

void TlsSocket::read(asio::mutable_buffer bytes, Handler handler) {
  if (stream_) return stream_->read(bytes, std::move(handler));
  const auto go_on = [this](std::error_code error, std::size_t count) {
    has_heard_ = has_heard_ || count != 0;
    return asio::transfer_all()(error, count);
  };
  // That is not asked once all is there.
  asio::async_read(socket_, bytes, go_on,
                   [this, done = std::move(handler)](std::error_code error, std::size_t count) {
                     has_heard_ = has_heard_ || count != 0;
                     done(error, count);
                   });
}

void TlsSocket::write(asio::const_buffer bytes, Handler handler) {
  if (stream_) return stream_->write(bytes, std::move(handler));
  asio::async_write(socket_, bytes, std::move(handler));
}

void TlsSocket::write_now(asio::const_buffer bytes, std::error_code& error) {
  if (stream_) return stream_->write_now(bytes, error);
  const std::size_t size = repeat(
      [&] {
        return ::send(socket_.native_handle(), bytes.data(), bytes.size(),
                      MSG_DONTWAIT | MSG_NOSIGNAL);
      },
      error);
  if (!error && size != bytes.size()) error = std::make_error_code(std::errc::no_buffer_space);
}

bool TlsSocket::has_input() const { return stream_ && stream_->has_input(); }
bool TlsSocket::has_heard() const { return stream_ ? stream_->has_heard() : has_heard_; }
TlsTrouble TlsSocket::trouble() const { return stream_ ? stream_->trouble() : TlsTrouble::NONE; }

std::string TlsSocket::text_of(std::error_code error) const {
  return trouble() == TlsTrouble::NONE ? error.message() : stream_->trouble_text();
}

std::unique_ptr<TlsChannel> TlsSocket::take_channel() {
  std::unique_ptr<TlsChannel> channel = stream_ ? stream_->take_channel() : nullptr;
  stream_.reset();
  return channel;
}

}  // namespace crossdevice::detail
