# SPDX-License-Identifier: Apache-2.0
"""What README shows of the demo is what the demo prints, but for times, speeds, losses and hashes, which are the machine's. "..." stands for lines left out.

    demo_test.py README OUTPUT
"""
import pathlib
import re
import sys

# Of a line of the table: size, count, type, redop and root are what was asked for, the rest was measured.
NUM_ASKED = 5


def shape_of(line):
    """What every machine prints."""
    words = re.sub(r"\b[0-9a-f]{16}\b", "#", line).split()
    if len(words) > NUM_ASKED and words[0].isdigit() and words[1].isdigit():
        return " ".join(words[:NUM_ASKED])
    return re.sub(r"\d+\.\d+", "#", " ".join(words))


def pieces_of(readme):
    """The shapes of the lines that README shows, in the pieces between those that it leaves out."""
    block = re.search(r"What the demo prints.*?^```text\n(.*?)^```$", readme, flags=re.MULTILINE | re.DOTALL).group(1)
    return [[shape_of(line) for line in piece.splitlines()] for piece in re.split(r"^\.\.\.\n", block, flags=re.MULTILINE)]


def main():
    readme, output = (pathlib.Path(each).read_text(encoding="utf-8") for each in sys.argv[1:3])
    printed = [shape_of(line) for line in output.splitlines()]
    pieces = pieces_of(readme)
    begin = 0
    for piece in pieces:
        places = [i for i in range(begin, len(printed)) if printed[i:i + len(piece)] == piece]
        if not places:
            print("the demo does not print, or not in this order:", *piece, sep="\n  ")
            return 1
        begin = places[0] + len(piece)
    print(f"{sum(map(len, pieces))} lines are as the demo prints them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
