# SPDX-License-Identifier: Apache-2.0
"""What workers in a namespace each see of shaped links between them, with the program link-speed and nothing of the library."""
import dataclasses
import json
import pathlib
import statistics
import subprocess
import tempfile

import contenders

TIMEOUT_SECONDS = 60
ERRORS = (OSError, ValueError, TypeError, KeyError, subprocess.SubprocessError)  # of measure()


@dataclasses.dataclass(frozen=True)
class Link:
    bytes_per_second: float  # each way, while both ways are full, between two workers
    all_reduce_us: float | None  # of 8 bytes among all workers of a scene, by recursive doubling: the median of samples, of which each is the mean of a
    # burst of calls, of the slowest worker, as crossdevice-bench and the peers have it; None: an older state has not measured it


def measure(tools, rate, num_workers):
    """A Link. Of the stream the slower worker counts."""
    pair = _run(tools, rate, 2)
    all_workers = pair if num_workers == 2 else _run(tools, rate, num_workers)
    samples = zip(*(each["all_reduces_us"] for each in all_workers), strict=True)
    link = Link(min(each["bytes_per_second"] for each in pair), statistics.median(max(sample) for sample in samples))
    if not (link.bytes_per_second > 0 and link.all_reduce_us > 0):
        raise ValueError(str(link))
    return link


def _run(tools, rate, num_workers):
    """What each worker has written."""
    with tempfile.TemporaryDirectory(prefix="crossdevice-link-") as directory:
        file = pathlib.Path(directory) / "speed"
        command = [tools.program("crossdevice-run"), "--plain", "-n", str(num_workers), "--netns", str(num_workers), "--rate", rate, "--",
                   str(contenders.HERE / "in-namespace"), contenders.CONGESTION_CONTROL, tools.program("link-speed"), str(file)]
        subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS, capture_output=True)
        return [json.loads(file.with_suffix(f".{rank}").read_text(encoding="utf-8")) for rank in range(num_workers)]
