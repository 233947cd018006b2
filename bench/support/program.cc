// SPDX-License-Identifier: Apache-2.0
/// Turns what a program throws into one line and an exit code.
#include "support/program.h"

#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>

#include <fmt/core.h>

#include "crossdevice/core/error.h"

namespace crossdevice::programs {

namespace {

/// A table that was lost, on a full disk for instance, is no success.
void require_written_output() {
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (!is_written) throw std::runtime_error("standard output could not be written");
}

}  // namespace

int run_program(std::string_view name, const std::function<int()>& body) {
  try {
    const int code = body();
    if (code == 0) require_written_output();
    return code;
  } catch (const ArgumentError& error) {
    fmt::print(stderr, "{}: {}\n(see {} --help)\n", name, error.what(), name);
    return kExitBadArguments;
  } catch (const ValueError& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return kExitBadArguments;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "{}: out of memory\n", name);
    return kExitFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return kExitFailed;
  }
}

}  // namespace crossdevice::programs
