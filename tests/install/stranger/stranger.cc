/// Somebody else's program: includes the library, calls it, and fails if what it gets is wrong.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "crossdevice/core/version.h"

int main() {
  std::printf("crossdevice %s\n", crossdevice::library_version_string());
  return crossdevice::library_version() == CROSSDEVICE_VERSION ? 0 : 1;
}
