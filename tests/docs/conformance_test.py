# SPDX-License-Identifier: Apache-2.0
"""Every row of the catalogue of TensorFlow's tests is a test here whose name says its id, or a row of tests/conformance.md which says that it is absent or
names the file of tests that has it. A row of the table that is about a part of an id excuses nobody. The table has no row but the catalogue's, and the files
of tests that it names are there.

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
    """Of each row: the ids of its first column (`S-21, S-23`, `RT-16 to RT-18`), whether it is about a part of them alone (`RT-1 (all-to-all)`), and whether
    it says why no test is called so."""
    for first_cell, here in re.findall(r"^\| ([^|]+) \| ([^|]+) \|", text.partition("\n## ")[0], re.MULTILINE):
        ids = set()
        for part, first, last in re.findall(rf"\b({PARTS})-(\d+)(?: to (?:{PARTS})-(\d+))?", first_cell):
            ids.update((part, number) for number in range(int(first), int(last or first) + 1))
        says_why = here.startswith(("absent", "does not compile")) or re.search(r"`\w+_(test|cf\.cc)`", here) is not None
        yield ids, "(" in first_cell or " with " in first_cell, says_why


def ids_of_tests(text):
    """Of names that begin with ids, such as `C14_3_V1_3_What` and `C2_14To17_What`. D is a defect's number in suites of defects, and beyond the catalogue's rows."""
    ids = set()
    for suite, name in re.findall(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", text, re.MULTILINE):
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
    listed, excused = set(), set()
    for ids, is_part, says_why in rows_of_table(text):
        listed |= ids
        if says_why and not is_part:
            excused |= ids
    sources = {str(source.relative_to(ROOT / "tests")): ids_of_tests(source.read_text()) for source in sorted((ROOT / "tests").rglob("*.cc"))}
    tested = set().union(*sources.values())
    catalogue = {(part, number) for part, rows in CATALOGUE.items() for number in range(1, rows + 1)}

    faults = [f"{part}-{number}: no test says it, and no row of tests/conformance.md says why not" for part, number in sorted(catalogue - excused - tested)]
    faults += [f"{part}-{number}: not in the catalogue" for part, number in sorted((listed | tested) - catalogue) if part != "defect"]
    names = {path.stem for path in (ROOT / "tests").rglob("*.cc")} | {path.name for path in (ROOT / "tests").rglob("*.cc")}
    for called in re.findall(r"`(?:\w+/)?(\w+_(?:test|cf)(?:\.cc)?)`", text):
        if called not in names and called != "cross_device_ops_test":  # TensorFlow's
            faults.append(f"`{called}`: no such file of tests")
    said = dict(defects_of_files(text.partition("\n## Defects")[2]))
    for path in sorted(said.keys() | sources.keys()):
        there = {number for part, number in sources.get(path, ()) if part == "defect"}
        faults += [f"{path}: no test of defect {number}" for number in sorted(said.get(path, set()) - there)]
        faults += [f"{path}: its test of defect {number} is not in tests/conformance.md" for number in sorted(there - said.get(path, set()))]
    if not said or not tested or not excused:
        faults.append("no ids were found: the names or the table have changed their form")
    print("\n".join(faults) or f"{len(catalogue)} rows: {len(catalogue & tested)} of them tests, {len(catalogue & listed)} in the table, {len(catalogue & excused)} of those without")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
