// SPDX-License-Identifier: Apache-2.0
#include "chaos/mishap.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "crossdevice/core/error.h"

namespace crossdevice::chaos {
namespace {

constexpr double kTimeoutSeconds = 60;
constexpr double kShortTimeoutSeconds = 0.2;  // of who waits in vain
constexpr double kRefusedTimeoutSeconds = -1;
constexpr std::string_view kRefused = "ValueError";
constexpr std::string_view kNothing = "no error";

/// What a call ends with: the error's code.
std::string outcome(CallMaker& maker, const Call& call, const Caller& caller,
                    double timeout_seconds) {
  CallMemory memory(call, caller, 1);
  try {
    maker.make(memory, timeout_seconds);
  } catch (const OpError& error) {
    return std::string(to_string(error.code()));
  } catch (const ValueError&) {
    return std::string(kRefused);
  }
  return std::string(kNothing);
}

void require(Mishap mishap, const Caller& caller, const std::string& heard,
             std::initializer_list<std::string_view> right) {
  if (std::find(right.begin(), right.end(), heard) != right.end()) return;
  throw std::runtime_error(
      fmt::format("rank {}: {} ends with {}", caller.rank, to_string(mishap), heard));
}

/// What the program does that gives up: whatever leaves run() is its own.
void give_up(CallMaker& maker) {
  try {
    maker.give_up("on purpose");
  } catch (const std::exception&) {
    return;
  }
}

void wait_for_others_deadline() {
  std::this_thread::sleep_for(std::chrono::duration<double>(1.5 * kShortTimeoutSeconds));
}

}  // namespace

std::string_view to_string(Mishap mishap) {
  switch (mishap) {
    case Mishap::GIVES_UP:
      return "giving up";
    case Mishap::OTHER_COUNT:
      return "another count";
    case Mishap::OTHER_DTYPE:
      return "another dtype";
    case Mishap::STAYS_AWAY:
      return "staying away";
    case Mishap::COMES_LATE:
      return "coming late";
    case Mishap::REFUSED:
      return "a call that is refused";
  }
  return "?";
}

Mishap draw_mishap(std::uint64_t seed, std::uint64_t number, Engine engine) {
  // What is refused in run() leaves it as an exception, with which its worker gives up.
  const std::uint64_t kinds = engine == Engine::STRATEGY ? kNumMishaps - 1 : kNumMishaps;
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
  return static_cast<Mishap>(((seed * kOdd + number + 1) * kOdd >> 32U) % kinds);
}

bool needs_rebuild(Mishap mishap) { return mishap != Mishap::REFUSED; }

void suffer(Mishap mishap, Engine engine, CallMaker& maker, const Caller& caller, int culprit) {
  const bool is_culprit = caller.rank == culprit;
  Call call{.count = 1000};
  switch (mishap) {
    case Mishap::GIVES_UP:
      if (is_culprit) return give_up(maker);
      return require(mishap, caller, outcome(maker, call, caller, kTimeoutSeconds), {"ABORTED"});
    case Mishap::OTHER_COUNT:
    case Mishap::OTHER_DTYPE: {
      if (is_culprit && mishap == Mishap::OTHER_COUNT) ++call.count;
      if (is_culprit && mishap == Mishap::OTHER_DTYPE) call.dtype = DType::INT32;
      const std::string heard = outcome(maker, call, caller, kTimeoutSeconds);
      // An exception that leaves run() is passed on to who is in the same call.
      if (engine == Engine::STRATEGY)
        return require(mishap, caller, heard, {"INTERNAL", "ABORTED"});
      return require(mishap, caller, heard, {"INTERNAL"});
    }
    case Mishap::STAYS_AWAY:
    case Mishap::COMES_LATE:
      if (is_culprit) wait_for_others_deadline();
      if (is_culprit && mishap == Mishap::STAYS_AWAY) return;
      if (is_culprit) {
        // To who comes late the other one has given up, or does not come.
        return require(mishap, caller, outcome(maker, call, caller, kShortTimeoutSeconds),
                       {"ABORTED", "DEADLINE_EXCEEDED"});
      }
      return require(mishap, caller, outcome(maker, call, caller, kShortTimeoutSeconds),
                     {"DEADLINE_EXCEEDED"});
    case Mishap::REFUSED:
      return require(mishap, caller, outcome(maker, call, caller, kRefusedTimeoutSeconds),
                     {kRefused});
  }
}

}  // namespace crossdevice::chaos
