// SPDX-License-Identifier: Apache-2.0
/// Which instruction sets the kernels are compiled for: included before any of Highway's headers, in every file that uses it.
///
/// SSSE3 adds nothing over the baseline for these kernels. Scalable vectors (SVE, RVV) are left out because the
/// kernels keep arrays of vectors in registers, which needs vectors of a size known to the compiler.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
