# SPDX-License-Identifier: Apache-2.0
"""README's tables say what was measured, rounded to the digits that they show: those beside other libraries what the rows of the page give that they name,
with a cell empty only where nothing was measured, and a column for everybody who was; those beside the machine's limits what the record says that they
name. So do those sentences below the former that SAID and UNBEATEN have, docs/observing.md of each time, and docs/gpus.md.

    figures_test.py ROOT
"""
import json
import math
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "bench" / "peers"))
sys.dont_write_bytecode = True

import measurement  # noqa: E402
import scenes  # noqa: E402
import summary  # noqa: E402

PEERS = "### Beside other libraries"
LIMITS = "### Beside the machine's limits"
COLUMNS = {"ours": "crossdevice", "ours, ordinary memory": "crossdevice-foreign", "Open MPI": "openmpi", "its allocations kept": "openmpi-kept",
           "MPICH": "mpich", "MPICH, kept": "mpich-kept", "PyTorch (Gloo)": "torch", "TensorFlow": "tensorflow-workers"}
# In a row of one process: "TensorFlow, ring" is that one of its ops, "TensorFlow" the fastest of them.
OPS_OF_TENSORFLOW = "tensorflow, "
PACKED = "-packed"  # lists of tensors: one call for each, or packed by hand; the faster counts
GLOOS = ("gloo", "gloo-reno")  # with the system's congestion control, and with another: the faster counts
# Whose row begins so; "the same" is that of the row before.
SCENES = {"2 workers (20 rounds)": "workers-2-small", "2 workers": "workers-2", "4 workers on the 2 cores": "workers-4",
          "4 workers in 4 namespaces, links of 1 Gbit/s": "network-1gbit", "4 workers in 4 namespaces, links of 200 Mbit/s": "network-200mbit",
          "one process, 2 devices": "devices-2", "one process, 4 devices": "devices-4", "one process, 8 devices": "devices-8", "the same": None}
BATCH = "ResNet-50's gradients as a batch"
BATCH_SCENES = {"workers-2": "gradients-resnet50", "network-1gbit": "network-1gbit-resnet50", "devices-2": "devices-2-resnet50"}
OUT_OF_PLACE = ", out of place"  # ours too, where a label ends so; what has no other is held against ours out of place everywhere
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
MICROSECONDS = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}


def section_of(text, heading):
    return re.split(r"^#", text[text.index(heading) + len(heading):], maxsplit=1, flags=re.MULTILINE)[0]


def tables_in(section):
    """Of each table: its head, and its rows."""
    for table in re.findall(r"(?:^\|.*\n)+", section, flags=re.MULTILINE):
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        yield cells[0][1:], cells[2:]


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
    """What is wrong with a cell: a time, with or without its ratio, of ours; a ratio, or a time with it, of a peer. found: its summary.Cell."""
    wrong = []
    time = re.fullmatch(r"([0-9.,]+) (us|ms)(?: \(([0-9.,]+)\))?", cell)
    if time:
        number, unit, shown = time.groups()
        if not rounds_to(found.time_us.median / MICROSECONDS[unit], number):
            wrong.append(f"says {number} {unit}, measured were {found.time_us.median / MICROSECONDS[unit]:.4g} {unit}")
    else:
        shown = cell
    if (not time and is_ours) or not (shown or is_ours) or (shown and not re.fullmatch(r"[0-9.,]+", shown)):
        return [*wrong, f"'{cell}' should be {'a time, with or without' if is_ours else 'a ratio, or a time with'} its ratio: 0.27 us (1.03)"]
    measured = found.ratios[summary.OURS].median
    if shown and not rounds_to(measured, shown):
        wrong.append(f"says {shown} times ours, measured were {measured:.4g} times")
    return wrong


def fastest(names, cells, default):
    return min(names, key=lambda name: cells[name].ratios[summary.OURS].median, default=default)


def name_of(title, scene, cells):
    """Of whom a column speaks in a row of that scene. cells: what was measured there."""
    if title == "TensorFlow" and scene.startswith("devices-"):
        ops = [name for name in cells if name.startswith(OPS_OF_TENSORFLOW)]
        return fastest(ops, cells, default=title)
    if title.startswith("TensorFlow, "):
        return OPS_OF_TENSORFLOW + title.removeprefix("TensorFlow, ").replace(" ", "_")
    names = GLOOS if title == "Gloo" else (COLUMNS[title],)
    return fastest([each for name in names for each in (name, name + PACKED) if each in cells], cells, default=names[0])


def complaints_of_row(label, scene, size_bytes, cells, tables):
    """What is wrong with a row of peers, and how many of its cells say something. cells: {title: text}"""
    table = tables[BATCH_SCENES[scene] if size_bytes is None else scene]
    op = "all_reduce"
    if size_bytes is None:
        op = "batch_reduce"
        size_bytes = next(key.size_bytes for key in table if key.op == op)
    wrong = []
    num_cells = 0
    by_place = {place: table.get(summary.Key(op, size_bytes, place), {}) for place in (True, False)}
    for title, cell in cells.items():
        name = name_of(title, scene, by_place[False])
        found = by_place[not name.startswith("tensorflow") and OUT_OF_PLACE not in label].get(name)
        if found is None and cell:
            wrong.append(f"{label}, {title}: {cell}, but nobody has measured it")
        elif found is not None and not cell:
            wrong.append(f"{label}, {title}: empty, but {found.ratios[summary.OURS].median:.4g} times was measured")
        elif found is not None:
            wrong += [f"{label}, {title}: {each}" for each in complaints_of(cell, found, name.startswith("crossdevice"))]
            num_cells += 1
    share = re.search(r", at ([0-9.]+) % of the link", label)
    percent = by_place[True][summary.OURS].percent if share else None
    if share and percent is None:
        wrong.append(f"{label}: of what share of the link it is nobody has measured")
    elif share and not rounds_to(percent, share.group(1)):
        wrong.append(f"{label}: measured were {percent:.4g} %")
    return wrong, num_cells


def peers_in(text):
    """README's section about them, and of the page that it names each scene's table and the name of its folder."""
    section = section_of(text, PEERS)
    folder = ROOT / re.search(r"\]\((bench/results/[^/)]+)/README\.md\)", section).group(1)
    return section, tables_of(folder), folder.name


def tables_of(folder):
    """{scene: its table} of a folder of measurements."""
    return {name: summary.summarise(found.rows, found.link_of)
            for name, found in measurement.read(folder, scenes.scenes(2)).items()}


def columns_for(name):
    """The titles of the columns that have a peer."""
    name = name.removesuffix(PACKED)
    if name in GLOOS:
        return {"Gloo"}
    if name.startswith(OPS_OF_TENSORFLOW):
        return {"TensorFlow", "TensorFlow, " + name.removeprefix(OPS_OF_TENSORFLOW).replace("_", " ")}
    return {title for title, whose in COLUMNS.items() if whose == name}


def peers_without_column(head, tables):
    """Complaints about peers that were measured in the scenes of a table of README. tables: {scene: its table}"""
    scenes_of = {}
    for scene, table in tables.items():
        for name in {name for cells in table.values() for name in cells if name not in summary.REFERENCES}:
            scenes_of.setdefault(name, []).append(scene)
    return [f"{name} was measured ({', '.join(where)}), but has no column" for name, where in sorted(scenes_of.items()) if not columns_for(name) & set(head)]


def check_peers(text):
    section, tables, name = peers_in(text)
    wrong = []
    num_cells = 0
    for head, rows in tables_in(section):
        scene = None
        shown = []
        for label, *cells in rows:
            scene, size_bytes = place_of(label, scene)
            shown.append(BATCH_SCENES[scene] if size_bytes is None else scene)
            more, num = complaints_of_row(label, scene, size_bytes, dict(zip(head, cells, strict=True)), tables)
            wrong += more
            num_cells += num
        wrong += peers_without_column(head, {scene: tables[scene] for scene in shown})
    return wrong, num_cells, name


OPEN_MPI = ("openmpi", "openmpi-kept")
MPICH = ("mpich", "mpich-kept")
ORDINARY = ("crossdevice-foreign",)
KIB, MIB = UNITS["KiB"], UNITS["MiB"]
WORKERS = [f"workers-{n}" for n in (2, 3, 4, 5, 8)]


SMALLEST, LARGEST = 0, math.inf  # whichever they are


def require_measured(tables, scenes_of, names, sizes):
    """A bound that was not measured would give the figures of fewer sizes than a sentence names."""
    for scene in scenes_of:
        measured = {key.size_bytes for key, cells in tables[scene].items() if key.op == "all_reduce" and not set(names).isdisjoint(cells)}
        for size in set(sizes) - {SMALLEST, LARGEST} - measured:
            raise LookupError(f"in {scene} nobody has measured {size} B of {', '.join(names)}")


def span(tables, scenes_of, names, sizes=(SMALLEST, LARGEST), in_place=None, of_rounds=False):
    """[lowest, highest] of how many times as long as ours the named ones took for sizes from one to another: of the medians, or of single rounds."""
    require_measured(tables, scenes_of, names, sizes)
    ratios = [each.ratios[summary.OURS] for scene in scenes_of for key, cells in tables[scene].items() for name, each in cells.items()
              if name in names and key.op == "all_reduce" and sizes[0] <= key.size_bytes <= sizes[1] and in_place in (None, key.in_place)]
    values = [value for ratio in ratios for value in (ratio.rounds if of_rounds else (ratio.median,))]
    return [min(values), max(values)]


def times_apart(tables, scene):
    """[lowest, highest] of how many times as long as somebody's fastest round its slowest took."""
    apart = [each.time_us.high / each.time_us.low for cells in tables[scene].values() for each in cells.values()]
    return [min(apart), max(apart)]


def largest(table):
    size = max(key.size_bytes for key in table)
    return (size, size)


def beside_plain_sockets(tables, scenes_of):
    """[lowest, highest] of how many times as long as an all-reduce of 8 bytes by plain sockets ours took for as many."""
    shares = [100 / each.percent for scene in scenes_of for key, cells in tables[scene].items() for name, each in cells.items()
              if name == summary.OURS and key.op == "all_reduce" and key.size_bytes == 8]
    return [min(shares), max(shares)]


LINKS = ("network-1gbit", "network-200mbit")
# {what a sentence says, with (#) for each figure: the figures}
SAID = {
    "With 64 B out of place among 4 workers on 2 cores Open MPI, its allocations kept, takes (#) times as long as ours from ordinary memory":
        lambda t: [t["workers-4"][summary.Key("all_reduce", 64, False)]["openmpi-kept"].ratios[ORDINARY[0]].median],
    "twenty rounds up to 512 B, of whichever library, are (#) to (#) times apart": lambda t: times_apart(t, "workers-2-small"),
    "Open MPI's medians are (#) to (#) times ours in twenty rounds, and (#) to (#) times in five":
        lambda t: span(t, ["workers-2-small"], OPEN_MPI, (SMALLEST, 512)) + span(t, ["workers-2"], OPEN_MPI, (SMALLEST, 4 * KIB)),
    "From 8 KiB on Open MPI takes (#) to (#) times as long in place, (#) to (#) out of place, and MPICH (#) to (#) times":
        lambda t: span(t, ["workers-2"], OPEN_MPI, (8 * KIB, LARGEST), True) + span(t, ["workers-2"], OPEN_MPI, (8 * KIB, LARGEST), False)
        + span(t, ["workers-2"], MPICH, (8 * KIB, LARGEST)),
    "up to (#) times as slowly as memory that is reduced where it lies": lambda t: span(t, WORKERS, ORDINARY)[1:],
    "With 4 workers on 2 cores Open MPI takes (#) to (#) times as long up to 256 B, where some rounds disagree, too, and (#) to (#) times from 512 B on":
        lambda t: span(t, ["workers-4"], OPEN_MPI, (SMALLEST, 256)) + span(t, ["workers-4"], OPEN_MPI, (512, LARGEST)),
    "single rounds of ordinary memory take (#) to (#) times as long up to 2 KiB":
        lambda t: span(t, ["workers-4"], ORDINARY, (SMALLEST, 2 * KIB), of_rounds=True),
    "with 8 workers ordinary memory took (#) to (#) times as long for 8 B": lambda t: span(t, ["workers-8"], ORDINARY, (8, 8), of_rounds=True),
    "Across 200 Mbit/s Gloo and PyTorch are ahead with 4 MiB, at (#) times our time":
        lambda t: span(t, ["network-200mbit"], (*GLOOS, "torch"), (4 * MIB, 4 * MIB))[:1],
    "both MPIs take (#) to (#) times as long with the largest":
        lambda t: [pick(values) for pick, values in zip((min, max), zip(*(span(t, [scene], OPEN_MPI + MPICH, largest(t[scene])) for scene in LINKS)))],
    "at 2 KiB across 200 Mbit/s Open MPI takes (#) to (#) times as long": lambda t: span(t, ["network-200mbit"], OPEN_MPI, (2 * KIB, 2 * KIB)),
    "For 8 B ours takes (#) to (#) times as long as an all-reduce by plain sockets": lambda t: beside_plain_sockets(t, LINKS),
}
# {a sentence that says so: whether a scene is one in which no peer may be ahead of ours, in memory of the pool or ordinary one, but with the bytes that it names there}
UNBEATEN = {"nobody is ahead anywhere else on one machine": (lambda scene: not scene.startswith("network-"), {("workers-4", 64)}),
            "nobody is ahead anywhere else across links": (lambda scene: scene.startswith("network-"), {("network-200mbit", 4 * MIB)})}


def check_sentences(text):
    section, tables, name = peers_in(text)
    words = " ".join(section.split())
    wrong = []
    num_figures = 0
    for sentence, measure in SAID.items():
        found = re.search(re.escape(sentence).replace(re.escape("(#)"), r"([0-9]+(?:\.[0-9]+)?)"), words)
        if not found:
            wrong.append(f"README does not say any more: {sentence}")
            continue
        try:
            values = measure(tables)
        except LookupError as error:
            wrong.append(f"'{sentence}': {error.args[0]}")
            continue
        if not all(rounds_to(value, shown) for value, shown in zip(values, found.groups(), strict=True)):
            wrong.append(f"says '{found.group(0)}', measured were {', '.join(f'{value:.4g}' for value in values)}")
        num_figures += len(values)
    for sentence, (is_meant, but) in UNBEATEN.items():
        ahead = [f"{scene}, {key.size_bytes} B: {peer} ahead of {reference}" for scene in filter(is_meant, tables) for reference in summary.REFERENCES
                 for key, peer, _ in summary.peers_by_verdict(tables[scene], reference, summary.REFERENCES)[summary.Verdict.CONTENDER]
                 if (scene, key.size_bytes) not in but]
        if sentence not in words:
            wrong.append(f"README does not say any more: {sentence}")
        if ahead:
            wrong.append(f"says '{sentence}', but ahead are {', '.join(ahead)}")
    return wrong, num_figures, name


# What README says of the machine on which a peer is ahead, with (#) for each figure, and up to which size.
SLOWER = "there **Open MPI takes (#) to (#) times as long between two workers up to 512 B**, in the median of twenty rounds, of (#) to (#) us of ours"
SLOWER_UP_TO = 512
SLOWER_AS_LONG = ("among workers on one machine ours takes (#) to (#) times as long as in the table, Open MPI (#) to (#) times, "
                  "in the median (#) and (#)")
SLOWER_LINKS = ("(#) to (#) times an all-reduce by plain sockets in the median of five rounds that lie far apart (1.07 to 1.50), "
                "and Open MPI (#) to (#) times ours.")


def times_as_long(tables, page, names):
    """Medians there by those on the page, of all-reduces among workers on one machine."""
    return [tables[scene][key][name].time_us.median / cells[name].time_us.median
            for scene, table in page.items() if scene.startswith("workers-") for key, cells in table.items()
            for name in names if name in cells and name in tables.get(scene, {}).get(key, {})]


def check_slower_machine(text):
    words = " ".join(section_of(text, PEERS).split())
    found = re.search(r"\[Another AMD EPYC\]\((bench/results/[^/)]+)/README\.md\).*?" + re.escape(SLOWER).replace(re.escape("(#)"), "([0-9.]*[0-9])"), words)
    if not found:
        return [f"README does not say any more: {SLOWER}"], 0, "README.md"
    folder, *figures = found.groups()
    tables = tables_of(ROOT / folder)
    as_long = re.search(re.escape(SLOWER_AS_LONG).replace(re.escape("(#)"), "([0-9.]*[0-9])"), words)
    if not as_long:
        return [f"README does not say any more: {SLOWER_AS_LONG}"], 0, "README.md"
    links = re.search(re.escape(SLOWER_LINKS).replace(re.escape("(#)"), "([0-9.]*[0-9])"), words)
    if not links:
        return [f"README does not say any more: {SLOWER_LINKS}"], 0, "README.md"
    page = tables_of(ROOT / re.search(r"\]\((bench/results/[^/)]+)/README\.md\)", section_of(text, PEERS)).group(1))
    own, open_mpis = times_as_long(tables, page, (summary.OURS,)), times_as_long(tables, page, OPEN_MPI)
    slower = [min(own), max(own), min(open_mpis), max(open_mpis), statistics.median(own), statistics.median(open_mpis)]
    across = [*beside_plain_sockets(tables, ["network-1gbit"]), *span(tables, ["network-1gbit"], OPEN_MPI, (8, 8))]
    return judge_machine("the slower machine", folder, tables, small_calls(tables) + slower + across, [*figures, *as_long.groups(), *links.groups()])


def small_calls(tables):
    """[lowest, highest] of how many times as long as ours Open MPI's small calls between two workers took, and of our times."""
    ours = [cells[summary.OURS].time_us.median for key, cells in tables["workers-2-small"].items() if key.size_bytes <= SLOWER_UP_TO]
    return [*span(tables, ["workers-2-small"], OPEN_MPI, (SMALLEST, SLOWER_UP_TO)), min(ours), max(ours)]


def judge_machine(which, folder, tables, values, figures):
    """Complaints about figures that are not those values, and about peers that are ahead in a folder of which README says that none is."""
    wrong = [f"says {shown} of {which}, measured were {value:.4g}" for value, shown in zip(values, figures, strict=True) if not rounds_to(value, shown)]
    wrong += [f"does not say that {peer} is ahead of {reference} in {scene} at {key.size_bytes} B" for scene, table in tables.items()
              for reference in summary.REFERENCES
              for key, peer, _ in summary.peers_by_verdict(table, reference, summary.REFERENCES)[summary.Verdict.CONTENDER]]
    return wrong, len(values), pathlib.Path(folder).name


# What README says of a machine on which nobody is ahead, with (#) for each figure.
UNBEATEN_MACHINE = (
    "Between two workers Open MPI takes (#) to (#) times as long up to 512 B, in the median of twenty rounds, of (#) to (#) us of ours",
    "ordinary memory of 8 MiB in place, where it takes (#) times as long as ours if its allocations are kept",
    "Across 1 Gbit/s 8 B among 4 workers take (#) to (#) times an all-reduce by plain sockets there, and Open MPI (#) to (#) times ours",
    "with a state of the library shortly before, it was (#) and (#) times, and Open MPI takes (#) to (#) times as long")


def check_unbeaten_machine(text):
    words = " ".join(section_of(text, PEERS).split())
    found = re.search(r"\[An Intel Xeon\]\((bench/results/[^/)]+)/README\.md\) .*? nobody is ahead there, in any scene that was measured\. "
                      + ".*?".join(re.escape(each).replace(re.escape("(#)"), "([0-9.]*[0-9])") for each in UNBEATEN_MACHINE), words)
    if not found:
        return [f"README does not say any more: {' ... '.join(UNBEATEN_MACHINE)}"], 0, "README.md"
    folder, *figures = found.groups()
    tables = tables_of(ROOT / folder)
    values = [*small_calls(tables), tables["workers-2"][summary.Key("all_reduce", 8 * MIB, True)]["openmpi-kept"].ratios[ORDINARY[0]].median,
              *beside_plain_sockets(tables, ["network-1gbit-small"]), *span(tables, ["network-1gbit-small"], OPEN_MPI, (8, 8)),
              *beside_plain_sockets(tables, ["network-1gbit"]), *span(tables, ["network-1gbit"], OPEN_MPI, (8, 8))]
    return judge_machine("the machine on which nobody is ahead", folder, tables, values, figures)


class Record:
    """What bench/record wrote down of a machine: each command, and what it printed, each time where it ran several times."""

    def __init__(self, path):
        blocks = re.findall(r"^```\n\$ build/release/bin/(.*)\n((?:.*\n)*?)```$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        self._printed = {}
        for command, text in blocks:
            self._printed.setdefault(command, []).append(text)

    def search_all(self, command, pattern):
        if command not in self._printed:
            raise LookupError(f"there is no '{command}'")
        found = [re.search(pattern, text, flags=re.MULTILINE) for text in self._printed[command]]
        if not all(found):
            raise LookupError(f"'{command}' did not print {pattern}")
        return [each.group(1) for each in found]

    def search(self, command, pattern):
        return self.search_all(command, pattern)[-1]

    def columns(self, arguments, size, in_place):
        """The time in microseconds and the share of the limit, as far as there is one, of a line of crossdevice-bench's table."""
        words = self.search(f"crossdevice-bench {arguments}", rf"^ +({size} .*)$").split()
        time, _, _, percent, _ = words[10:15] if in_place else words[5:10]
        return float(time), percent

    def times(self, cases, in_place=True):
        """What a row says of some pairs of arguments and a size: their times, and their shares of the limit."""
        lines = [self.columns(arguments, size, in_place) for arguments, size in cases]
        return [(time, "time") for time, _ in lines], [(float(percent), "%") for _, percent in lines if percent != "-"]

    def batches(self, cases):
        """A batch in place in how many times as long as one flat buffer."""
        pattern = r"^# batch of .* in-place ([0-9.]+)$"
        return [], [(float(text), "times") for arguments in cases for text in self.search_all(f"crossdevice-bench {arguments}", pattern)]

    def links(self, arguments, num_hosts, size):
        """Across links of 1 Gbit/s: the time in place, and its share of what an all-reduce among hosts has to send, at 125 MB/s."""
        time, _ = self.columns(arguments, size, True)
        return [(time, "time")], [(100 * 2 * (num_hosts - 1) / num_hosts * size / 125e6 * 1e6 / time, "%")]


SCALE = [(f"-g {n} -b 64M -e 64M -n 25 --rounds 5", 64 * MIB) for n in (2, 4, 8)]
BATCHES = [f"--op batch_reduce --gradients bench/workloads/resnet50.csv -g {n} -n 25" for n in (2, 4)]
TWO_WORKERS = "--workers 2 -b 8 -e 64M -f 8"
OVERHEAD = r"^ReduceInto<cd::ReductionToOneDevice>/2 +([0-9.]+) ns"
# {label: what the record says: of the first cell, and of the second}. Further figures of a cell explain.
LIMITED = {
    "all-reduce in place, 64 MiB of float32 on each of 2, 4, 8 devices": lambda record: record.times(SCALE),
    "the same out of place": lambda record: record.times(SCALE, in_place=False),
    "ResNet-50's 161 gradients in one `batch_reduce_into`, 2 devices (three runs), 4 devices": lambda record: record.batches(BATCHES),
    "float16 and bfloat16, 64 MiB on 2 devices, in place":
        lambda record: record.times([(f"-g 2 -b 64K -e 64M -f 32 -d {dtype}", 64 * MIB) for dtype in ("half", "bfloat16")]),
    "`reduce_into` of 8 bytes on 2 devices":
        lambda record: ([(float(record.search("bench_call_overhead --benchmark_color=false", OVERHEAD)) * 1e-3, "time")], []),
    "`crossdevice-train`: 5 epochs of Fashion-MNIST, 4 devices":
        lambda record: ([(float(record.search("crossdevice-train", r"^test accuracy ([0-9.]+) %$")), "%"),
                         (float(record.search("crossdevice-train", r"^trained for ([0-9.]+) s:")) * 1e6, "time")], []),
    "2 workers, all-reduce in place of 8 B, 256 KiB, 2 MiB from the pool":
        lambda record: record.times([(TWO_WORKERS, size) for size in (8, 256 * KIB, 2 * MIB)]),
    "the same from memory of their own": lambda record: record.times([(f"{TWO_WORKERS} --foreign", size) for size in (8, 256 * KIB, 2 * MIB)]),
    "ResNet-50's gradients in one batch, 2 workers":
        lambda record: record.batches(["--workers 2 --op batch_reduce --gradients bench/workloads/resnet50.csv"]),
    "the same, 4 workers in 4 namespaces with links of 1 Gbit/s":
        lambda record: record.batches(["--workers 4 --netns 4 --rate 1gbit --op batch_reduce --gradients bench/workloads/resnet50.csv -n 5 -w 1"]),
    "2 workers in 2 network namespaces: 8 B, 2 MiB":
        lambda record: record.times([("--workers 2 --netns 2 -b 8 -e 64M -f 8", size) for size in (8, 2 * MIB)]),
    "4 workers in 4 namespaces with links of 1 Gbit/s: 16 MiB":
        lambda record: record.links("--workers 4 --netns 4 --rate 1gbit -b 8 -e 16M -f 128 -n 5 -w 1", 4, 16 * MIB),
    "4 workers in 2 namespaces, the same": lambda record: record.links("--workers 4 --netns 2 --rate 1gbit -b 16M -e 16M -n 5 -w 1", 2, 16 * MIB),
}


def figures_in(cell):
    """[(digits, unit)]: a unit belongs to all numbers since the one before it."""
    figures = []
    pending = []
    for digits, unit in re.findall(r"(\d+(?:,\d{3})*(?:\.\d+)?)|(\b(?:ns|us|ms|s|times)\b|%)", cell):
        if digits:
            pending.append(digits)
        else:
            figures += [(each, unit) for each in pending]
            pending = []
    return figures


def complaints_of_figures(cell, expected):
    shown = figures_in(cell)
    if len(shown) < len(expected):
        return [f"says '{cell}', expected {len(expected)} figures with their units"]
    wrong = []
    for (digits, unit), (value, kind) in zip(shown, expected):
        value_in_unit = value / MICROSECONDS.get(unit, 1) if kind == "time" else value
        if (unit in MICROSECONDS) != (kind == "time") or (kind != "time" and unit != kind) or not rounds_to(value_in_unit, digits):
            wrong.append(f"says {digits} {unit}, measured were {value_in_unit:.4g}{'' if kind == 'time' else f' {kind}'}")
    return wrong


def check_limits(text):
    section = section_of(text, LIMITS)
    path = ROOT / re.search(r"\]\((bench/results/[^/)]+\.md)\)", section).group(1)
    record = Record(path)
    wrong = []
    num_figures = 0
    missed = set(LIMITED)
    for _, rows in tables_in(section):
        for label, *cells in rows:
            missed.discard(label)
            if label not in LIMITED:
                wrong.append(f"{label}: nobody says where this row's figures come from: add it to LIMITED of figures_test.py")
                continue
            try:
                expected = LIMITED[label](record)
            except LookupError as error:
                wrong.append(f"{label}: {path.name}: {error.args[0]}")
                continue
            for cell, figures in zip(cells, expected, strict=True):
                wrong += [f"{label}: {each}" for each in complaints_of_figures(cell, figures)]
                num_figures += len(figures)
    wrong += [f"{label}: README has no such row: take it out of LIMITED of figures_test.py" for label in sorted(missed)]
    return wrong, num_figures, path.name


OBSERVATION = ("bench_observation --benchmark_color=false --benchmark_min_time=0.1 --benchmark_repetitions=9 "
               "--benchmark_enable_random_interleaving=true --benchmark_report_aggregates_only=true")
# Whose medians the times of docs/observing.md are, in their order there.
OBSERVED = ("SmallestCallAsItIs/counters:1", "SmallestCallAsItIs/counters:0", "WhatItObserves/counters:0", "MessageBelowTheLevel")


def check_observing(text):
    path = ROOT / "docs" / re.search(r"\]\((\.\./bench/results/[^/)]+\.md)\)", text).group(1)
    record = Record(path)
    shown = re.findall(r"[0-9][0-9,.]*\s+(?:ns|us|ms|s)\b", text)
    try:
        expected = [(float(record.search(OBSERVATION, rf"^{name}_median +([0-9.]+) ns")) * 1e-3, "time") for name in OBSERVED]
    except LookupError as error:
        return [f"docs/observing.md: {path.name}: {error.args[0]}"], 0, path.name
    wrong = complaints_of_figures(", ".join(shown), expected)
    if len(shown) > len(expected):
        wrong.append(f"has the times {shown}: OBSERVED of figures_test.py says where {len(expected)} come from: add the others")
    return [f"docs/observing.md: {each}" for each in wrong], len(expected), path.name


# What docs/gpus.md says of one GPU, with (#) for each figure.
GPUS = ("a call with NCCL took (#) to (#) us longer than raw NCCL, whatever its size; "
        "sums of four devices of one GPU ran at (#) to (#) percent of a flat copy at 256 MiB. Our kernels take 56 tensors of up to four devices in a "
        "launch: the 161 gradients of a ResNet-50 took (#) to (#) times as long as one buffer of their size, for the host has to list them. "
        "With NCCL on that one GPU they took (#) us out of place; a call of `ncclAllReduce` for each, all in one group, (#) us")


def check_gpus(text):
    page = ROOT / "docs" / re.search(r"\]\((\.\./bench/results/nvidia[^/)]+\.md)\)", text).group(1)
    folder = page.with_suffix("")

    def rows_of(name):
        return json.loads((folder / f"h200_{name}.json").read_text(encoding="utf-8"))

    nccl = rows_of("all_reduce_nccl_1")
    longer = [row["time_us_median"] - row["raw_nccl_us_median"] for row in nccl]
    at_limit = [row["percent_of_limit"] for name in ("all_reduce_hierarchical_copy", "all_reduce_reduction_to_one_device") for row in rows_of(name)
                if row["size_bytes"] == 256 << 20]
    slower = []
    for name in ("batch_hierarchical_copy_resnet50", "batch_reduction_to_one_device_resnet50"):
        time_of = {(row["op"], row["in_place"]): row["time_us_median"] for row in rows_of(name)}
        slower += [time_of["batch_reduce", in_place] / time_of["all_reduce", in_place] for in_place in (False, True)]
    batch = next(row for row in rows_of("batch_nccl_resnet50") if row["op"] == "batch_reduce" and not row["in_place"])
    expected = (min(longer), max(longer), min(at_limit), max(at_limit), min(slower), max(slower), batch["time_us_median"], batch["raw_nccl_us_median"])
    shown = re.search(re.escape(GPUS).replace(re.escape("(#)"), "([0-9.]*[0-9])").replace(r"\ ", r"\s+"), text)
    if shown is None:
        return [f"docs/gpus.md no longer says: {GPUS}"], 0, page.name
    wrong = [f"docs/gpus.md says {digits}, measured were {value:.4g}" for digits, value in zip(shown.groups(), expected, strict=True)
             if not rounds_to(value, digits)]
    return wrong, len(expected), page.name


def main():
    failed = False
    for check, page in ((check_peers, "README.md"), (check_sentences, "README.md"), (check_slower_machine, "README.md"),
                        (check_unbeaten_machine, "README.md"), (check_limits, "README.md"),
                        (check_observing, "docs/observing.md"), (check_gpus, "docs/gpus.md")):
        wrong, count, name = check((ROOT / page).read_text(encoding="utf-8"))
        print("\n".join(wrong) or f"{count} figures are as {name} has them")
        failed = failed or bool(wrong) or count == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
