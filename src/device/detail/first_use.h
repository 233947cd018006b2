// SPDX-License-Identifier: Apache-2.0
/// What happens once, when a process first uses the library's threads, locks or memory.
#pragma once

namespace crossdevice::detail {

void begin_first_use();

}  // namespace crossdevice::detail
