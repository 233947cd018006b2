// SPDX-License-Identifier: Apache-2.0
/// Programs that take one command per line on their standard input: ip and tc.
#pragma once

#include <string>

namespace crossdevice::run {

/// Runs `PROGRAM -batch -`, found in PATH or where Debian puts programs for root, with `commands` as its input, until it ends. It runs in the
/// network namespace of the calling thread.
///
/// Errors   std::runtime_error: "cannot PURPOSE: ", then that the program is missing, or what it has said.
void run_batch(const std::string& program, const std::string& commands, const std::string& purpose);

}  // namespace crossdevice::run
