# SPDX-License-Identifier: Apache-2.0
"""README's table beside other libraries says what was measured: each cell is what the rows of the page that it names give, rounded to the digits that it
shows, and a cell is empty only where nothing was measured.

    figures_test.py ROOT
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "bench" / "peers"))
sys.dont_write_bytecode = True

import measurement  # noqa: E402
import scenes  # noqa: E402
import summary  # noqa: E402

HEADING = "### Beside other libraries"
COLUMNS = {"ours": "crossdevice", "ours, ordinary memory": "crossdevice-foreign", "Open MPI": "openmpi", "its allocations kept": "openmpi-kept",
           "MPICH": "mpich", "Gloo": "gloo", "PyTorch (Gloo)": "torch", "TensorFlow": "tensorflow-workers"}
OUT_OF_PLACE = {"tensorflow-workers"}  # has no other
# Whose row begins so; "the same" is that of the row before.
SCENES = {"2 workers": "workers-2", "4 workers on the 2 cores": "workers-4", "4 workers in 4 namespaces, links of 1 Gbit/s": "network-1gbit",
          "4 workers in 4 namespaces, links of 200 Mbit/s": "network-200mbit", "the same": None}
BATCH = "ResNet-50's gradients as a batch"
BATCH_SCENES = {"workers-2": "gradients-resnet50", "network-1gbit": "network-1gbit-resnet50"}
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
MICROSECONDS = {"us": 1, "ms": 1e3}


def table_below(text, heading):
    """Of the first table below a heading: its head, and its rows."""
    lines = text[text.index(heading):].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first:last]]
    return cells[0][1:], cells[2:]


def place_of(label, scene_before):
    """Which scene a row speaks of, and the bytes, none for the batch."""
    where = next(where for where in SCENES if label.startswith(f"{where}, "))
    what = label.removeprefix(f"{where}, ")
    scene = SCENES[where] or scene_before
    if what == BATCH:
        return scene, None
    number, unit = re.match(r"([0-9.]+) (B|KiB|MiB)", what).groups()
    return scene, int(float(number) * UNITS[unit])


def rounds_to(value, shown):
    """Whether `shown`, digits with perhaps a point and commas, is value rounded."""
    digits = shown.replace(",", "")
    decimals = len(digits.partition(".")[2])
    return abs(value - float(digits)) <= 0.5 * 10 ** -decimals * (1 + 1e-9)


def complaints_of(cell, found, is_ours):
    """What is wrong with a cell. found: its summary.Cell."""
    wrong = []
    if is_ours:
        number, unit = re.match(r"([0-9.,]+) (us|ms)", cell).groups()
        if not rounds_to(found.time_us.median / MICROSECONDS[unit], number):
            wrong.append(f"says {number} {unit}, measured were {found.time_us.median / MICROSECONDS[unit]:.4g} {unit}")
        ratio = re.search(r"\(([0-9.,]+)\)", cell)
        shown = ratio.group(1) if ratio else None
    else:
        shown = cell
    measured = found.ratios[summary.OURS].median
    if shown and not rounds_to(measured, shown):
        wrong.append(f"says {shown} times ours, measured were {measured:.4g} times")
    return wrong


def main():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    head, rows = table_below(text, HEADING)
    folder = ROOT / re.search(r"\]\((bench/results/[^/)]+)/README\.md\)", text[text.index(HEADING):]).group(1)
    tables = {name: summary.summarise(found.rows, found.link_bytes_per_second) for name, found in measurement.read(folder, scenes.scenes(2)).items()}
    wrong = []
    num_cells = 0
    scene = None
    for label, *cells in rows:
        scene, size_bytes = place_of(label, scene)
        table = tables[BATCH_SCENES[scene] if size_bytes is None else scene]
        if size_bytes is None:
            size_bytes = next(key.size_bytes for key in table if key.op == "batch_reduce")
            op = "batch_reduce"
        else:
            op = "all_reduce"
        for title, cell in zip(head, cells, strict=True):
            name = COLUMNS[title]
            found = table.get(summary.Key(op, size_bytes, name not in OUT_OF_PLACE), {}).get(name)
            if found is None and cell:
                wrong.append(f"{label}, {title}: {cell}, but nobody has measured it")
            elif found is not None and not cell:
                wrong.append(f"{label}, {title}: empty, but {found.ratios[summary.OURS].median:.4g} times was measured")
            elif found is not None:
                wrong += [f"{label}, {title}: {each}" for each in complaints_of(cell, found, name.startswith("crossdevice"))]
                num_cells += 1
    print("\n".join(wrong) or f"{num_cells} cells are as {folder.name} has them")
    return 1 if wrong or num_cells == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
