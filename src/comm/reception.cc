// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/reception.h"

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include <asio/steady_timer.hpp>

#include "crossdevice/core/log.h"

namespace crossdevice::detail {
namespace {

using asio::ip::tcp;

constexpr std::chrono::seconds kHandshakeTime{5};
constexpr std::chrono::milliseconds kPause{20};
/// Strangers whose handshake is under way; more are turned away until one of them is done.
constexpr std::size_t kMaxStrangers = 256;

}  // namespace

void Reception::open(tcp::acceptor acceptor, std::size_t max_frame_bytes) {
  acceptor_.emplace(std::move(acceptor));
  max_frame_bytes_ = max_frame_bytes;
  accept_next();
}

void Reception::close() {
  std::error_code ignored;
  if (acceptor_.has_value()) acceptor_->close(ignored);
  for (const auto& stranger : strangers_) stranger->close();
  strangers_.clear();
}

void Reception::accept_next() {
  acceptor_->async_accept([this](std::error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error && strangers_.size() < kMaxStrangers) receive(std::move(socket));
    if (!error) return accept_next();
    // Out of descriptors, most likely: they do not come back faster for being asked for at once.
    auto pause = std::make_shared<asio::steady_timer>(io_, kPause);
    pause->async_wait([this, pause](std::error_code stopped) {
      if (!stopped && acceptor_->is_open()) accept_next();
    });
  });
}

/// Where nobody is behind it to hear of an error, a stranger is turned away, and may come again.
void Reception::receive(tcp::socket socket) {
  try {
    greet(std::move(socket));
  } catch (const std::exception& error) {
    log_once("reception", LogSeverity::WARNING,
             std::string("somebody who wanted to connect was turned away: ") + error.what());
  }
}

void Reception::greet(tcp::socket socket) {
  const Nonce challenge = make_nonce();  // first: it may throw
  auto connection = std::make_shared<ControlConnection>(std::move(socket));
  connection->set_max_frame_bytes(max_frame_bytes_);
  strangers_.insert(connection);
  auto timer = std::make_shared<asio::steady_timer>(io_, kHandshakeTime);
  const std::weak_ptr<ControlConnection> weak = connection;
  timer->async_wait([this, timer, weak](std::error_code stopped) {
    const std::shared_ptr<ControlConnection> late = weak.lock();
    if (stopped || !late || strangers_.erase(late) == 0) return;
    late->close();
  });
  connection->start(
      [this, weak, challenge, timer](const Frame& frame) {
        const std::shared_ptr<ControlConnection> stranger = weak.lock();
        timer->cancel();
        if (!stranger) return;
        strangers_.erase(stranger);
        on_answer_(stranger, challenge, frame);
      },
      [this, weak, timer](const std::string&) {
        timer->cancel();
        if (const auto stranger = weak.lock()) strangers_.erase(stranger);
      });
  connection->send(encode_frame(ControlKind::CHALLENGE, Challenge{.nonce = challenge}.encode()));
}

}  // namespace crossdevice::detail
