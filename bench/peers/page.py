# SPDX-License-Identifier: Apache-2.0
"""Writes a comparison's folder: the page with the tables, the charts, the raw rows."""
import json

import charts
import contenders as who
import summary

NAMES_OF_OURS = {contender.name for contender in who.CONTENDERS if contender.is_ours}
TITLES = {contender.name: contender.title for contender in who.CONTENDERS}
# Rows of a table; the file of rows and the charts have all sizes.
SHOWN_SIZES = {8, 64, 256, 512, 2 << 10, 8 << 10, 32 << 10, 128 << 10, 256 << 10, 512 << 10, 2 << 20, 8 << 20, 16 << 20, 64 << 20}


def title_of(name):
    first, comma, rest = name.partition(", ")
    return TITLES.get(first, first) + comma + rest


def time_text(us):
    if us >= 1e4:
        return f"{us / 1e3:.4g} ms"
    return f"{us:.3g} us" if us < 1e3 else f"{us / 1e3:.3g} ms"


def cell_text(name, cell):
    if cell is None:
        return ""
    text = time_text(cell.time_us)
    if name == summary.OURS:
        return text + (f" ({cell.percent:.0f} %)" if cell.percent is not None else "")
    if cell.ratio is None:
        return text
    ratio = f"{cell.ratio:.2f}x"
    if cell.ratio < 1 and name not in NAMES_OF_OURS:
        ratio = f"**{ratio}**"
    return f"{text}, {ratio}"


def in_order(names):
    known = list(TITLES)
    return sorted(names, key=lambda name: (known.index(name.partition(", ")[0]), name))


def scene_table(table):
    """One line per size and placement."""
    names = in_order({name for cells in table.values() for name in cells})
    lines = ["| bytes | | " + " | ".join(title_of(name) for name in names) + " |", "|---|---|" + "---|" * len(names)]
    is_whole = len({key.size_bytes for key in table}) <= len(SHOWN_SIZES)
    for key in sorted(table, key=lambda key: (key.size_bytes, key.op, not key.in_place)):
        if not is_whole and key.size_bytes not in SHOWN_SIZES:
            continue
        cells = table[key]
        what = ("in place" if key.in_place else "out of place") + ("" if key.op == "all_reduce" else ", as a batch")
        lines.append(f"| {charts.byte_text(key.size_bytes)} | {what} | " + " | ".join(cell_text(name, cells.get(name)) for name in names) + " |")
    return lines


def scene_verdict(table):
    """Where a peer is ahead, or that none is."""
    ahead = summary.peers_ahead(table, NAMES_OF_OURS)
    if not ahead:
        slowest = [cell.ratio for cells in table.values() for name, cell in cells.items() if name not in NAMES_OF_OURS and cell.ratio]
        return [f"No peer is ahead: the closest takes {min(slowest):.2f} times ours."] if slowest else ["No peer was measured."]
    lines = ["A peer is ahead here:", ""]
    for key, name, cell in ahead:
        place = "in place" if key.in_place else "out of place"
        certain = "in every round" if cell.high_ratio < 1 else f"within the spread ({cell.low_ratio:.2f} to {cell.high_ratio:.2f})"
        lines.append(f"- {charts.byte_text(key.size_bytes)} {key.op} {place}: {title_of(name)} takes {cell.ratio:.2f} times ours, {certain}.")
    return lines


def size_charts(scene, table):
    """{file name: SVG}: time and bus bandwidth over sizes, in place where a contender does that."""
    points = {}
    for key, cells in table.items():
        if key.op != "all_reduce":
            continue
        for name, cell in cells.items():
            points.setdefault(name, {}).setdefault(key.size_bytes, {})[key.in_place] = cell.time_us
    times = []
    bandwidths = []
    n = scene.replicas
    for name in in_order(points):
        by_size = {size: placements.get(True, placements.get(False)) for size, placements in points[name].items()}
        times.append(charts.Series(title_of(name), list(by_size.items())))
        bandwidths.append(charts.Series(title_of(name), [(size, size / us / 1e3 * 2 * (n - 1) / n) for size, us in by_size.items()]))
    return {
        f"{scene.name}-time.svg": charts.line_chart(charts.Axes(f"All-reduce, {scene.title}: time", "bytes", "us", True), times),
        f"{scene.name}-bandwidth.svg": charts.line_chart(
            charts.Axes(f"All-reduce, {scene.title}: bus bandwidth", "bytes", "GB/s", True, y_is_logarithmic=False), bandwidths),
    }


def gradient_chart(scenes_and_tables):
    groups = {}
    for scene, table in scenes_and_tables:
        for in_place in (True, False):
            for key, cells in table.items():
                if key.op == "batch_reduce" and key.in_place == in_place:
                    title = f"{scene.title}, {'in place' if in_place else 'out of place'}"
                    groups[title] = {title_of(name): cells[name].time_us / 1e3 for name in in_order(cells)}
    return charts.bar_chart("Gradients of a model, one step", "ms", groups)


def worker_chart(scenes_and_tables, size_bytes):
    """Time against the number of workers of one host."""
    points = {}
    key = summary.Key("all_reduce", size_bytes, True)
    for scene, table in scenes_and_tables:
        if scene.workers and not scene.rate:
            for name, cell in table.get(key, {}).items():
                points.setdefault(name, []).append((scene.workers, cell.time_us))
    series = [charts.Series(title_of(name), points[name]) for name in in_order(points) if len(points[name]) > 1]
    return charts.line_chart(charts.Axes(f"All-reduce of {charts.byte_text(size_bytes)} in place, one host", "workers", "us"), series)


def write(folder, machine, results):
    """results: of turns.run_scene, by scene: {scene: (rows, failures, link speed, load before)}."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"# Side by side with the peers: {machine['cpu']}, {machine['cores']} cores", ""]
    lines += [f"{name}: {value}  " for name, value in machine.items() if name not in ("cpu", "cores")]
    lines += ["",
              "Times are medians of the rounds' medians, of the slowest worker. Behind a peer's time: its ratio to ours, the median of the rounds, in which all took "
              "turns; above 1 ours is faster; **bold**: the peer is ahead. Behind ours, in percent: of the physical limit that was measured in the same "
              "run, in turns with it (in place: scaling the same buffers in place; out of place: a non-temporal copy; by all workers at once), across links of the "
              "bound 2(n-1)/n bytes over the speed of a plain TCP stream each way on that link. Everybody's values were checked, and buffers are rewritten before "
              "each timed call.", ""]
    tables = []
    for scene, (rows, failures, speed, load) in results.items():
        table = summary.summarise(rows, speed)
        tables.append((scene, table))
        rounds = 1 + max((row["round"] for row in rows), default=-1)
        lines += [f"## {scene.title[0].upper()}{scene.title[1:]}", "", f"{rounds} rounds. Load before: {load:.1f}."]
        if speed:
            lines[-1] += f" The link carries {speed * 8 / 1e6:.0f} Mbit/s each way."
        if failures:
            lines[-1] += f" Failed, so not shown in full: {', '.join(failures)}."
        lines += ["", *scene_table(table), "", *scene_verdict(table), ""]
        if not scene.name.startswith("gradients") and len({key.size_bytes for key in table}) > 2:
            for name, drawing in size_charts(scene, table).items():
                (folder / name).write_text(drawing, encoding="utf-8")
                lines += [f"![{name}]({name})"]
            lines.append("")
    if any(key.op == "batch_reduce" for _, table in tables for key in table):
        (folder / "gradients.svg").write_text(gradient_chart(tables), encoding="utf-8")
        lines += ["## Gradients", "", "![gradients](gradients.svg)", ""]
    if sum(1 for scene, _ in tables if scene.workers and not scene.rate) > 1:
        lines += ["## Cost against the number of workers", ""]
        for size in (8, 8 << 20):
            name = f"workers-{charts.byte_text(size)}.svg"
            (folder / name).write_text(worker_chart(tables, size), encoding="utf-8")
            lines += [f"![{name}]({name})"]
    (folder / "README.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    with open(folder / "rows.jsonl", "w", encoding="utf-8") as file:
        for rows, *_ in results.values():
            for row in rows:
                file.write(json.dumps({name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}) + "\n")
