// SPDX-License-Identifier: Apache-2.0
#include "doctor/refusal.h"

#include <cstdio>

#include <fmt/core.h>

namespace crossdevice::doctor {

int run_refusable(const std::function<int()>& body) {
  try {
    return body();
  } catch (const Refused& error) {
    fmt::print(stderr, "crossdevice-doctor: {}\n", error.what());
    return kExitRefused;
  }
}

}  // namespace crossdevice::doctor
