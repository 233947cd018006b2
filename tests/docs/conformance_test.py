# SPDX-License-Identifier: Apache-2.0
"""Every row of the catalogue of TensorFlow's tests is a test here whose name says its id, or a row of tests/conformance.md, which says why not; and that
table has no row but the catalogue's. What it names in backquotes as a test or a file of tests is there.

    conformance_test.py ROOT
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
# How many rows each part of the catalogue has.
CATALOGUE = {"C14": 8, "V1": 9, "C2": 18, "U": 7, "AR": 6, "TB": 7, "O": 1, "D": 3, "R": 8, "VL": 9, "CL": 12, "S": 42, "VA": 24, "RT": 22}
PARTS = "|".join(sorted(CATALOGUE, key=len, reverse=True))


def rows_of_table(text):
    """The ids of a table's first column: `S-21, S-23 with ...`, `C14-2`, `RT-16 to RT-18`."""
    table = text.partition("\n## ")[0]
    ids = set()
    for first_cell in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE):
        for part, first, last in re.findall(rf"\b({PARTS})-(\d+)(?: to (?:{PARTS})-(\d+))?", first_cell):
            ids.update((part, number) for number in range(int(first), int(last or first) + 1))
    return ids


def ids_of_tests(text):
    """Of names that begin with ids, such as `C14_3_V1_3_What` and `C2_14To17_What`. D is a defect's number in suites of defects, and beyond the catalogue's rows."""
    ids = set()
    for suite, name in re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", text):
        while match := re.match(rf"({PARTS})_?(\d+)(?:To_?(\d+))?_", name):
            part, first, last = match.groups()
            if part == "D" and (suite.endswith("Defects") or int(first) > CATALOGUE["D"]):
                part = "defect"
            ids.update((part, number) for number in range(int(first), int(last or first) + 1))
            name = name[match.end():]
    return ids


def defects_of_files(text):
    """What the section of defects says of each file: `path` (1, 5, 7 to 10)."""
    for path, numbers in re.findall(r"`(\w+/\w+\.cc)`\s*\(([\d,\sto]+)\)", text):
        defects = set()
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", numbers):
            defects.update(range(int(first), int(last or first) + 1))
        yield path, defects


def main():
    text = (ROOT / "tests" / "conformance.md").read_text()
    listed = rows_of_table(text)
    tested = set()
    for source in sorted((ROOT / "tests").rglob("*.cc")):
        tested |= ids_of_tests(source.read_text())
    catalogue = {(part, number) for part, rows in CATALOGUE.items() for number in range(1, rows + 1)}

    faults = [f"{part}-{number}: no test says it, and no row of tests/conformance.md" for part, number in sorted(catalogue - listed - tested)]
    faults += [f"{part}-{number}: not in the catalogue" for part, number in sorted((listed | tested) - catalogue) if part != "defect"]
    names = {path.stem for path in (ROOT / "tests").rglob("*.cc")} | {path.name for path in (ROOT / "tests").rglob("*.cc")}
    for called in re.findall(r"`(?:\w+/)?(\w+_(?:test|cf)(?:\.cc)?)`", text):
        if called not in names and called != "cross_device_ops_test":  # TensorFlow's
            faults.append(f"`{called}`: no such file of tests")
    num_files = 0
    for path, said in defects_of_files(text.partition("\n## Defects")[2]):
        num_files += 1
        there = {number for part, number in ids_of_tests((ROOT / "tests" / path).read_text()) if part == "defect"}
        faults += [f"{path}: no test of defect {number}" for number in sorted(said - there)]
        faults += [f"{path}: its test of defect {number} is not in tests/conformance.md" for number in sorted(there - said)]
    if not num_files or not tested or not listed:
        faults.append("no ids were found: the names or the table have changed their form")
    print("\n".join(faults) or f"{len(catalogue)} rows: {len(catalogue & tested)} of them tests, {len(catalogue & listed)} in the table")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
