// SPDX-License-Identifier: Apache-2.0
/// A Question belongs to the thread that asks and to the NameLookup together; whoever goes last frees it. Its `io` is null once nobody waits for the answer.
/// The thread posts under the lock under which cancel() takes `io` away, and the NameLookup, which cancels at its end, ends before its io_context: so nothing
/// is ever posted to one that has ended. What was posted and does not run is freed with the io_context, and holds nothing but the Question.
#include "comm/detail/name_lookup.h"

#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>

#include <asio/ip/address.hpp>
#include <asio/post.hpp>

#include "crossdevice/core/backoff.h"
#include "crossdevice/core/service_thread.h"

namespace crossdevice::detail {

using asio::ip::tcp;

FoundEndpoints resolve_by_system(const std::string& host, std::uint16_t port) {
  FoundEndpoints found;
  asio::io_context io;  // gets no thread: what blocks asks on its caller's
  tcp::resolver resolver(io);
  std::error_code error;
  const tcp::resolver::results_type all = resolver.resolve(host, std::to_string(port), error);
  if (error) {
    found.error = error.message();
    return found;
  }
  found.endpoints.reserve(all.size());
  for (const auto& each : all) found.endpoints.push_back(each.endpoint());
  return found;
}

struct NameLookup::Question {
  std::string host;
  std::uint16_t port = 0;
  FoundEndpoints found;  // the thread's, then the io_context's
  Answer answer;         // the io_context's

  std::mutex mutex;  // guards the following
  asio::io_context* io = nullptr;

  /// On the io_context. By the time it runs it may be asked no more.
  static void give(const std::shared_ptr<Question>& self) {
    {
      const std::lock_guard lock(self->mutex);
      if (std::exchange(self->io, nullptr) == nullptr) return;
    }
    self->answer(self->found);
  }
  /// Whether nothing is left to be done.
  static bool post(const std::shared_ptr<Question>& self) {
    const std::lock_guard lock(self->mutex);
    if (self->io == nullptr) return true;
    try {
      asio::post(*self->io, [self] { give(self); });
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  /// The thread's body.
  static void ask(const std::shared_ptr<Question>& self, const NameResolver& resolve) noexcept {
    try {
      self->found = resolve(self->host, self->port);
    } catch (const std::exception& error) {
      self->found.endpoints.clear();
      try {
        self->found.error = error.what();
      } catch (const std::bad_alloc&) {
        self->found.error = "no memory";  // short enough to need none
      }
    }
    // Else who asked would wait in vain. Ends with its wait, if not before.
    for (Backoff backoff; !post(self);) backoff.pause(Deadline::never());
  }
};

NameLookup::NameLookup(asio::io_context& io, NameResolver resolve)
    : io_(io), resolve_(resolve ? std::move(resolve) : NameResolver(resolve_by_system)) {}

void NameLookup::start(const std::string& host, std::uint16_t port, Answer answer) {
  cancel();
  auto question = std::make_shared<Question>();
  question->host = host;
  question->port = port;
  question->answer = std::move(answer);
  question->io = &io_;
  std::error_code error;
  const asio::ip::address numbers = asio::ip::make_address(host, error);
  if (!error) {
    question->found.endpoints.emplace_back(numbers, port);
    asio::post(io_, [question] { Question::give(question); });
  } else {
    start_service_thread("xdev-names", [question, resolve = resolve_] {
      Question::ask(question, resolve);
    }).detach();
  }
  question_ = std::move(question);
}

void NameLookup::cancel() {
  if (!question_) return;
  {
    const std::lock_guard lock(question_->mutex);
    question_->io = nullptr;
  }
  question_.reset();
}

}  // namespace crossdevice::detail
