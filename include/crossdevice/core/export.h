/// CROSSDEVICE_EXPORT marks what crosses the library's edge; everything else is hidden, and CROSSDEVICE_HIDDEN says so inside of what is not.
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// On a class: its members, type information and virtual table are visible outside the library (exceptions need that to be
/// caught there). On a function: it can be called from outside. The same in shared, static and internal builds, so nobody
/// who includes our headers has to define anything.
#define CROSSDEVICE_EXPORT __attribute__((visibility("default")))

/// On a class within an exported one, which would be exported with it: its functions may be inlined, and calls of the others
/// need no table.
#define CROSSDEVICE_HIDDEN __attribute__((visibility("hidden")))
