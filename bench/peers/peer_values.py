# SPDX-License-Identifier: Apache-2.0
"""The values that crossdevice-bench reduces, for peers in Python, and the check of the sums."""
import numpy as np

PATTERN_PERIOD = 1021
SHIFT_PER_TENSOR = 17


def _repeat(pattern, first_index, count):
    return np.resize(np.roll(pattern, -(first_index % PATTERN_PERIOD)), count)


def _one_period(replica):
    k = np.arange(PATTERN_PERIOD)
    return ((k * 7 + replica * 3 + k // 5) % 5 - 2).astype(np.float32)


def inputs_of(case, replica):
    """One array per tensor: small whole numbers that differ by replica and index, so every sum is exact."""
    return [_repeat(_one_period(replica), t * SHIFT_PER_TENSOR, n) for t, n in enumerate(case.counts)]


def sums_of(case, num_replicas):
    period = sum(_one_period(r) for r in range(num_replicas))
    return [_repeat(period, t * SHIFT_PER_TENSOR, n) for t, n in enumerate(case.counts)]


def count_wrong(case, num_replicas, outputs):
    expected = sums_of(case, num_replicas)
    return int(sum(np.count_nonzero(np.asarray(o).ravel() != e) for o, e in zip(outputs, expected, strict=True)))
