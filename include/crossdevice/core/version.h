/// The library's version: of the headers as macros, of the library in use as a function.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "crossdevice/core/export.h"

// The build refuses to configure when these three differ from the project's version.
#define CROSSDEVICE_VERSION_MAJOR 0
#define CROSSDEVICE_VERSION_MINOR 1
#define CROSSDEVICE_VERSION_PATCH 0

/// One number for comparisons: 1.2.3 is 10203.
#define CROSSDEVICE_VERSION \
  (CROSSDEVICE_VERSION_MAJOR * 10000 + CROSSDEVICE_VERSION_MINOR * 100 + CROSSDEVICE_VERSION_PATCH)

namespace crossdevice {

/// The version of the library this process runs with, as CROSSDEVICE_VERSION counts it.
///
/// ABI: the shared object's name carries the major version (libcrossdevice.so.0). While that is 0, every minor version may
/// change the ABI, so build against the headers of the library that you run with; patch versions keep it. From 1.0 on, only a
/// major version changes it.
CROSSDEVICE_EXPORT int library_version() noexcept;

/// The same as text, "0.1.0".
CROSSDEVICE_EXPORT const char* library_version_string() noexcept;

}  // namespace crossdevice
