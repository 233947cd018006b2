/// The version that was compiled into the library.
// SPDX-License-Identifier: Apache-2.0
#include "crossdevice/core/version.h"

#define CROSSDEVICE_TEXT_OF(x) #x
#define CROSSDEVICE_TEXT(x) CROSSDEVICE_TEXT_OF(x)

namespace crossdevice {

int library_version() noexcept { return CROSSDEVICE_VERSION; }

const char* library_version_string() noexcept {
  return CROSSDEVICE_TEXT(CROSSDEVICE_VERSION_MAJOR) "." CROSSDEVICE_TEXT(
      CROSSDEVICE_VERSION_MINOR) "." CROSSDEVICE_TEXT(CROSSDEVICE_VERSION_PATCH);
}

}  // namespace crossdevice
