/// The second translation unit with all public headers.
// SPDX-License-Identifier: Apache-2.0
#include "all_headers.h"

int version_seen_by_the_second_unit();
int version_seen_by_the_second_unit() { return CROSSDEVICE_VERSION; }
