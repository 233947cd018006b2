// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/control_connection.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include <asio/buffer.hpp>

#include "comm/detail/plain_address.h"
#include "comm/detail/wire.h"

namespace crossdevice::detail {
namespace {

constexpr std::size_t kSentPieceBytes = std::size_t{256} << 10;

bool is_loopback(const asio::ip::tcp::socket& socket) {
  std::error_code error;
  const asio::ip::address address = socket.remote_endpoint(error).address();
  return !error && plain_address(address).is_loopback();
}

}  // namespace

ControlConnection::ControlConnection(asio::ip::tcp::socket socket,
                                     std::shared_ptr<const TlsKey> tls, TlsChannel::Role role)
    : socket_(std::move(socket)), is_encrypted_(tls), is_loopback_(is_loopback(socket_)) {
  std::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  words_.begin({.key = std::move(tls), .role = role, .plain_greeting = control_greeting()});
}

void ControlConnection::start(OnFrame on_frame, OnEnd on_end) {
  take_over(std::move(on_frame), std::move(on_end));
  read_head();
}

void ControlConnection::take_over(OnFrame on_frame, OnEnd on_end) {
  on_frame_ = std::move(on_frame);
  on_end_ = std::move(on_end);
}

void ControlConnection::send(SharedFrame frame) {
  if (closed_ || closing_ || !can_send_) return;
  queue_.push_back(std::move(frame));
  if (queue_.size() == 1) write_next();
}

void ControlConnection::close_after_sending() {
  closing_ = true;
  on_frame_ = nullptr;
  on_end_ = nullptr;
  if (queue_.empty()) close();
}

void ControlConnection::close() {
  if (closed_) return;
  closed_ = true;
  // What has been read already is not told any more; and who is told may be kept alive by being told.
  on_frame_ = nullptr;
  on_end_ = nullptr;
  std::error_code ignored;
  words_.forget();
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  queue_.clear();
}

void ControlConnection::read_head() {
  words_.read(asio::buffer(head_), [self = shared_from_this()](std::error_code error, std::size_t) {
    if (self->closed_) return;
    if (error) return self->end(error);
    self->count_as_heard();
    try {
      const std::size_t size =
          decode_frame_head({self->head_.data(), self->head_.size()}, self->max_frame_bytes_);
      self->body_.clear();
      self->read_body(size);
    } catch (const WireError& broken) {
      self->end_by_length(broken.what());
    }
  });
}

/// What is no length may be the beginning of TLS.
void ControlConnection::end_by_length(const std::string& why) {
  if (is_encrypted_ || !is_tls({head_.data(), head_.size()})) return end(why);
  trouble_ = TlsTrouble::OTHER_SIDE_IS_ENCRYPTED;
  std::error_code ignored;  // who waits for TLS learns from this who came
  words_.write_now(asio::buffer(encode_frame(ControlKind::GOODBYE, "")), ignored);
  end(kTlsOnlyThere);
}

void ControlConnection::read_body(std::size_t size) {
  const std::size_t begin = body_.size();
  try {
    body_.resize(std::min(size, begin + kPieceBytes));
  } catch (const std::bad_alloc& want) {
    return end_for_want(want);
  }
  words_.read(asio::buffer(body_.data() + begin, body_.size() - begin),
              [self = shared_from_this(), size](std::error_code error, std::size_t) {
                if (self->closed_) return;
                if (error) return self->end(error);
                self->count_as_heard();
                if (self->body_.size() < size) return self->read_body(size);
                try {
                  const Frame frame = decode_frame_body(self->body_);
                  const OnFrame on_frame = self->on_frame_;  // which may replace itself
                  if (on_frame) on_frame(frame);
                } catch (const std::bad_alloc& want) {
                  return self->end_for_want(want);
                } catch (const std::exception& broken) {
                  return self->end(broken.what());
                }
                if (!self->closed_ && !self->closing_) self->read_head();
              });
}

void ControlConnection::end_for_want(const std::bad_alloc& want) {
  has_lacked_memory_ = true;
  end(want.what());
}

/// In pieces, so that whoever waits for the end of it sees that it goes on.
void ControlConnection::write_next() {
  const std::string_view left = std::string_view(*queue_.front()).substr(num_sent_);
  words_.write(asio::buffer(left.substr(0, kSentPieceBytes)),
               [self = shared_from_this()](std::error_code error, std::size_t count) {
                 if (self->closed_) return;
                 if (error) return self->stop_sending();
                 self->last_sent_ = Clock::now();
                 self->num_sent_ += count;
                 if (self->num_sent_ == self->queue_.front()->size()) {
                   self->queue_.pop_front();
                   self->num_sent_ = 0;
                 }
                 if (!self->queue_.empty()) return self->write_next();
                 if (self->closing_) self->close();
               });
}

/// The peer takes nothing more. What it has sent before, a goodbye perhaps, can still be read; the end of that ends the connection.
void ControlConnection::stop_sending() {
  can_send_ = false;
  queue_.clear();
  if (closing_) close();
}

void ControlConnection::end(std::error_code error) {
  trouble_ = words_.trouble();
  end(words_.text_of(error));
}

void ControlConnection::end(const std::string& why) {
  if (closed_) return;
  const OnEnd on_end = std::exchange(on_end_, nullptr);
  close();
  if (on_end) on_end(why);
}

}  // namespace crossdevice::detail
