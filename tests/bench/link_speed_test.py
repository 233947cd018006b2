# SPDX-License-Identifier: Apache-2.0
"""Runs link-speed with two workers on this machine, as far as it needs no links: what each writes must have speeds and times, all above zero.

    link_speed_test.py CROSSDEVICE_RUN LINK_SPEED
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

NUM_WORKERS = 2


def is_positive(value):
    return math.isfinite(value) and value > 0


def main():
    run, program = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="crossdevice-link-") as directory:
        file = pathlib.Path(directory) / "speed"
        subprocess.run([run, "-n", str(NUM_WORKERS), "--", program, str(file)], check=True)
        written = [json.loads(file.with_suffix(f".{rank}").read_text(encoding="utf-8")) for rank in range(NUM_WORKERS)]
    calls = {len(each["all_reduces_us"]) for each in written}
    if len(calls) != 1 or 0 in calls:
        sys.exit(f"link_speed_test: the workers have timed {calls} calls")
    for each in written:
        for value in (each["bytes_per_second"], *each["all_reduces_us"]):
            if not is_positive(value):
                sys.exit(f"link_speed_test: {value} is neither a time nor a speed")
        print(f"{each['bytes_per_second']:.4g} bytes per second; {len(each['all_reduces_us'])} calls, the fastest {min(each['all_reduces_us'])} us")


if __name__ == "__main__":
    main()
