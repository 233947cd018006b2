// SPDX-License-Identifier: Apache-2.0
/// A moment in what this process says to others, other than one by a clock: before the n-th message is sent, or behind the n-th that has come.
///
/// A program that has this file has its own sendto(), sendmsg(), recvfrom() and recvmsg(), which are TcpConnection's alone: by them a schedule's step, a measured link
/// or a pack is found. What workers say through shared memory or UCX passes none of them, and of TLS they carry records.
#pragma once

#include <cstdint>
#include <functional>

namespace crossdevice::chaos {

enum class Direction : std::uint8_t { SEND, RECEIVE };

/// From now on, once, in the thread that sends or receives: `strike` must not send. Nothing else may be armed. `number`: from 1.
void strike_at_message(Direction direction, std::uint64_t number, std::function<void()> strike);
/// Whether it was still to come; then it comes no more.
bool disarm_strike();

}  // namespace crossdevice::chaos
