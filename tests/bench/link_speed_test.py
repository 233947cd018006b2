# SPDX-License-Identifier: Apache-2.0
"""Runs link-speed with two workers on this machine, as far as it needs no links: what each writes must have speeds and times, all above zero, of samples
that have as many calls, and as many before them, as those of the peers.

    link_speed_test.py BENCH_DIRECTORY CROSSDEVICE_RUN LINK_SPEED
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(BENCH / "peers"))
sys.dont_write_bytecode = True

import peer_rows  # noqa: E402

NUM_WORKERS = 2
CALLS_PER_SAMPLE = peer_rows.REDUCTIONS_PER_LINE_UP + peer_rows.MAX_CALLS_PER_SAMPLE


def is_positive(value):
    return math.isfinite(value) and value > 0


def main():
    run, program = sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="crossdevice-link-") as directory:
        file = pathlib.Path(directory) / "speed"
        subprocess.run([run, "-n", str(NUM_WORKERS), "--", program, str(file)], check=True)
        written = [json.loads(file.with_suffix(f".{rank}").read_text(encoding="utf-8")) for rank in range(NUM_WORKERS)]
    samples = {len(each["all_reduces_us"]) for each in written}
    if len(samples) != 1 or 0 in samples:
        sys.exit(f"link_speed_test: the workers have taken {samples} samples")
    for each in written:
        if each["num_calls"] != len(each["all_reduces_us"]) * CALLS_PER_SAMPLE:
            sys.exit(f"link_speed_test: {each['num_calls']} calls are not {len(each['all_reduces_us'])} times {CALLS_PER_SAMPLE}")
        for value in (each["bytes_per_second"], *each["all_reduces_us"]):
            if not is_positive(value):
                sys.exit(f"link_speed_test: {value} is neither a time nor a speed")
        print(f"{each['bytes_per_second']:.4g} bytes per second; {len(each['all_reduces_us'])} samples, the fastest {min(each['all_reduces_us'])} us")


if __name__ == "__main__":
    main()
