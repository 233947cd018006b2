# SPDX-License-Identifier: Apache-2.0
"""What README shows of the demo is what the demo prints: line by line and in this order, whatever the numbers; "..." stands for lines that are left out.

    demo_test.py README OUTPUT
"""
import pathlib
import re
import sys


def shape_of(line):
    """With a # for each number and hash: times and speeds are the machine's, and alignment is theirs."""
    line = re.sub(r"\b[0-9a-f]{16}\b", "#", line)
    return " ".join(re.sub(r"\d+(?:\.\d+)?", "#", line).split())


def main():
    readme, output = (pathlib.Path(each).read_text(encoding="utf-8") for each in sys.argv[1:3])
    shown = re.search(r"^What the demo prints.*?^```text\n(.*?)^```$", readme, flags=re.MULTILINE | re.DOTALL).group(1).splitlines()
    printed = iter([shape_of(line) for line in output.splitlines()])
    lines = [line for line in shown if line != "..."]
    for line in lines:
        if shape_of(line) not in printed:  # goes on behind the one before
            print(f"the demo does not print, or not in this order: {line}")
            return 1
    print(f"{len(lines)} lines are as the demo prints them")
    return 0 if lines else 1


if __name__ == "__main__":
    sys.exit(main())
