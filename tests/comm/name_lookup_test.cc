// SPDX-License-Identifier: Apache-2.0
#include "comm/detail/name_lookup.h"

#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <gtest/gtest.h>
#include <netdb.h>

namespace crossdevice::detail {
namespace {

using asio::ip::tcp;

/// Runs `io` until there is an answer.
FoundEndpoints await(asio::io_context& io, const std::optional<FoundEndpoints>& answer) {
  const auto work = asio::make_work_guard(io);
  io.restart();  // it may have run out of work before
  while (!answer.has_value()) (void)io.run_one_for(std::chrono::milliseconds(10));
  return *answer;
}

FoundEndpoints ask(const std::string& host, NameResolver resolve) {
  asio::io_context io{1};
  NameLookup lookup(io, std::move(resolve));
  std::optional<FoundEndpoints> answer;
  lookup.start(host, 7, [&](const FoundEndpoints& found) { answer = found; });
  EXPECT_FALSE(answer.has_value());  // not inside start()
  return await(io, answer);
}

TEST(NameLookupTest, NumbersAskNobody) {
  for (const std::string host : {"127.0.0.1", "::1", "192.0.2.7"}) {
    const FoundEndpoints found = ask(host, [](const std::string&, std::uint16_t) {
      ADD_FAILURE() << "a resolver was asked";
      return FoundEndpoints{};
    });
    ASSERT_EQ(found.endpoints.size(), 1U);
    EXPECT_EQ(found.endpoints[0], tcp::endpoint(asio::ip::make_address(host), 7));
    EXPECT_EQ(found.error, "");
  }
}

TEST(NameLookupTest, WhatTheSystemFindsIsAnEndpoint) {
  const FoundEndpoints found = resolve_by_system("127.0.0.1", 7);  // which needs no /etc/hosts
  EXPECT_EQ(found.error, "");
  ASSERT_EQ(found.endpoints.size(), 1U);
  EXPECT_EQ(found.endpoints[0].address().to_string(), "127.0.0.1");
  EXPECT_EQ(found.endpoints[0].port(), 7);
}

TEST(NameLookupTest, NamesAreResolved) {
  addrinfo* known = nullptr;
  const int why = ::getaddrinfo("localhost", nullptr, nullptr, &known);
  if (why != 0) GTEST_SKIP() << "this system does not know localhost: " << ::gai_strerror(why);
  ::freeaddrinfo(known);
  const FoundEndpoints found = ask("localhost", {});
  EXPECT_EQ(found.error, "");
  ASSERT_FALSE(found.endpoints.empty());
  EXPECT_TRUE(found.endpoints[0].address().is_loopback());
  EXPECT_EQ(found.endpoints[0].port(), 7);
}

TEST(NameLookupTest, WhatTheResolverThrowsIsTheError) {
  const FoundEndpoints found = ask("name", [](const std::string&, std::uint16_t) -> FoundEndpoints {
    throw std::runtime_error("the resolver is broken");
  });
  EXPECT_EQ(found.error, "the resolver is broken");
  EXPECT_TRUE(found.endpoints.empty());
}

TEST(NameLookupTest, AnAnswerMayComeWhenEverythingHasEnded) {
  const auto may_answer = std::make_shared<std::latch>(1);
  const auto gone = std::make_shared<std::promise<void>>();
  std::future<void> is_gone = gone->get_future();
  {
    asio::io_context io{1};
    // Dies with what the thread holds, after it has found that nobody waits.
    const auto last = std::shared_ptr<void>(nullptr, [gone](void*) { gone->set_value(); });
    NameLookup lookup(io, [may_answer, last](const std::string&, std::uint16_t) {
      may_answer->wait();
      return FoundEndpoints{};
    });
    lookup.start("name", 7, [](const FoundEndpoints&) { ADD_FAILURE() << "nobody waits"; });
  }
  may_answer->count_down();
  is_gone.wait();
}

TEST(NameLookupTest, WhatIsPostedAndCancelledDoesNotRun) {
  asio::io_context io{1};
  NameLookup lookup(io, {});
  lookup.start("127.0.0.1", 7, [](const FoundEndpoints&) { ADD_FAILURE() << "it was cancelled"; });
  lookup.cancel();
  EXPECT_EQ(io.poll(), 1U);
  lookup.start("127.0.0.1", 7, [](const FoundEndpoints&) { ADD_FAILURE() << "another was asked"; });
  std::optional<FoundEndpoints> answer;
  lookup.start("127.0.0.1", 8, [&](const FoundEndpoints& found) { answer = found; });
  EXPECT_EQ(await(io, answer).endpoints.at(0).port(), 8);
}

TEST(NameLookupTest, WhoIsAnsweredMayAskAgain) {
  asio::io_context io{1};
  NameLookup lookup(io, [](const std::string& host, std::uint16_t) {
    return FoundEndpoints{.endpoints = {}, .error = "no " + host};
  });
  std::optional<FoundEndpoints> answer;
  lookup.start("first", 7, [&](const FoundEndpoints& first) {
    EXPECT_EQ(first.error, "no first");
    lookup.start("second", 7, [&](const FoundEndpoints& found) { answer = found; });
  });
  EXPECT_EQ(await(io, answer).error, "no second");
}

}  // namespace
}  // namespace crossdevice::detail
