// SPDX-License-Identifier: Apache-2.0
/// Between two looks at a word that another core will write.
#pragma once

namespace crossdevice::detail {

/// Tells the core that it polls: it leaves the other thread of the core alone and sees the write sooner.
inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace crossdevice::detail
