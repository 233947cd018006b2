// SPDX-License-Identifier: Apache-2.0
/// Turns what a program throws into one line and an exit code.
#include "support/program.h"

#include <cstdio>
#include <exception>
#include <new>

#include <fmt/core.h>

#include "crossdevice/core/error.h"

namespace crossdevice::programs {

int run_program(std::string_view name, const std::function<int()>& body) {
  try {
    return body();
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
