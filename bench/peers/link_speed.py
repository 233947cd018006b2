# SPDX-License-Identifier: Apache-2.0
"""What two workers in a namespace each see of shaped links between them, with the program link-speed and nothing of the library."""
import dataclasses
import json
import pathlib
import subprocess
import tempfile

import contenders

TIMEOUT_SECONDS = 60
ERRORS = (OSError, ValueError, TypeError, subprocess.SubprocessError)  # of measure()


@dataclasses.dataclass(frozen=True)
class Link:
    bytes_per_second: float  # each way, while both ways are full
    exchange_us: float  # in which each of two workers, which look without sleeping, has the other's 8 bytes


def measure(tools, rate):
    """A Link, as the slower of the two workers sees it."""
    with tempfile.TemporaryDirectory(prefix="crossdevice-link-") as directory:
        file = pathlib.Path(directory) / "speed"
        command = [tools.program("crossdevice-run"), "--plain", "-n", "2", "--netns", "2", "--rate", rate, "--",
                   str(contenders.HERE / "in-namespace"), contenders.CONGESTION_CONTROL, tools.program("link-speed"), str(file)]
        subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS, capture_output=True)
        return slowest([Link(**json.loads(file.with_suffix(f".{rank}").read_text(encoding="utf-8"))) for rank in range(2)])


def slowest(seen):
    link = Link(min(each.bytes_per_second for each in seen), max(each.exchange_us for each in seen))
    if not (link.bytes_per_second > 0 and link.exchange_us > 0):
        raise ValueError(str(link))
    return link
