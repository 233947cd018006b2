# SPDX-License-Identifier: Apache-2.0
"""Writes a comparison's page: the tables, who is ahead, the charts."""
import re
import sys

import bars
import charts
import contenders as who
import drawings
import measurement
import peer_rows
import summary
from drawings import in_order, placement_text, title_of

NAMES_OF_OURS = {contender.name for contender in who.CONTENDERS if contender.is_ours}
# Rows of a table; the file of rows and the charts have all sizes.
SHOWN_SIZES = {8, 64, 256, 512, 2 << 10, 8 << 10, 32 << 10, 128 << 10, 256 << 10, 512 << 10, 2 << 20, 8 << 20, 16 << 20, 64 << 20}
# On one host: smaller values lie in the caches, and what they take are steps, not bytes.
MEMORY_BOUND_FROM = 64 << 10
OWN_DRAWINGS = re.compile(r"(.+-(time|bandwidth)|gradients|gradients-network|workers-\d+[KMG]?)\.svg")
PREAMBLE = "\n".join((
    "- Times, those of the charts too, are medians of the rounds' medians, of the slowest worker. Everybody's values were checked, and buffers are rewritten "
    "before each timed call.",
    "- Behind a peer's time, and wherever there is an x: the median of the ratios of its time to ours in the rounds in which both took part, and the lowest "
    "and the highest of them; above 1 ours is faster. It is not the ratio of the two times of the table, least of all where a peer took part in fewer rounds. "
    "**Bold**: the peer is ahead in every round, or in so many that chance would do that less than once in twenty (of 20 rounds in 15). *Italic*: undecided.",
    "- Behind ours: the fastest and the slowest round, and the median of the rounds' percentages of a bound; \"-\": the bound was not measured.",
    "- The bound on one host is the physical limit, measured in the same run, in turns with the operation (in place: scaling the same buffers in place; out of "
    "place: a non-temporal copy; by all workers at once). More than 100 % means that ours profits more from the caches than the plain loop does. Below "
    f"{charts.byte_text(MEMORY_BOUND_FROM)} memory bounds nothing, and it is not shown.",
    "- The bound across links is 2(n-1)/n of the bytes over the speed of a plain TCP stream on such a link, each way while both ways are full. "
    "More than 100 % means that the links let some bytes pass at once after a rest, as shapers do.",
    "- Below 4 KiB, where the links' speed says nothing, the bound across links is an all-reduce of 8 bytes among as many workers on the same cores, by plain "
    "TCP sockets and nothing else: recursive doubling, in each step of which two workers send to each other at once and look for the other's message, letting "
    "others run where workers share cores. More than 100 %: another pattern can be faster, such as a message from each to all others.",
    "- Stream and that all-reduce are measured by a program without any library (bench/peers/link_speed.cc), which has its turn in each round, between "
    "namespaces with links made as the scene's, and is what that round is held against; the stream between two. The all-reduce is timed as everybody's of 8 "
    f"bytes is: the workers line up, and a sample is the mean of {peer_rows.MAX_CALLS_PER_SAMPLE} calls in a row, of the slowest worker."))


def time_text(us):
    if us >= 1e4:
        return f"{us / 1e3:.4g} ms"
    return f"{us:.3g} us" if us < 1e3 else f"{us / 1e3:.3g} ms"


def span_text(spread):
    """Of times, in the unit of their median, behind which it stands: "4.5-5.1"."""
    unit = 1e3 if time_text(spread.median).endswith(" ms") else 1
    return "-".join(f"{time / unit:.4g}" if time >= 1e3 * unit else f"{time / unit:.3g}" for time in (spread.low, spread.high))


def factor_text(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def ratio_text(ratio):
    text = f"{factor_text(ratio.median)}x"
    return text if ratio.low == ratio.high else f"{text} ({factor_text(ratio.low)}-{factor_text(ratio.high)})"


def cell_text(name, cell, has_links=False, has_bound=True):
    if cell is None:
        return ""
    text = time_text(cell.time_us.median)
    if name == summary.OURS:
        more = [span_text(cell.time_us)] if cell.time_us.low != cell.time_us.high else []
        if has_bound:
            more += [f"{cell.percent:.0f} %"] if cell.percent is not None else ["-"] if has_links else []
        return text + (f" ({'; '.join(more)})" if more else "")
    ratio = cell.ratios.get(summary.OURS)
    if ratio is None:
        return text
    mark = "" if name in NAMES_OF_OURS else {summary.Verdict.CONTENDER: "**", summary.Verdict.UNDECIDED: "*"}.get(ratio.verdict(), "")
    return f"{text}, {mark}{ratio_text(ratio)}{mark}"


def scene_table(table, has_links=False):
    """One line per size and placement."""
    names = in_order({name for cells in table.values() for name in cells})
    lines = ["| bytes | | " + " | ".join(title_of(name) for name in names) + " |", "|---|---|" + "---|" * len(names)]
    is_whole = len({key.size_bytes for key in table}) <= len(SHOWN_SIZES)
    for key in sorted(table, key=lambda key: (key.size_bytes, key.op, not key.in_place)):
        if not is_whole and key.size_bytes not in SHOWN_SIZES:
            continue
        cells = table[key]
        what = placement_text(key.in_place) + ("" if key.op == "all_reduce" else ", as a batch")
        has_bound = has_links or key.size_bytes >= MEMORY_BOUND_FROM
        lines.append(f"| {charts.byte_text(key.size_bytes)} | {what} | " + " | ".join(cell_text(name, cells.get(name), has_links, has_bound) for name in names) + " |")
    return lines


def ratio_list(items):
    """One line per peer, op and placement with all its sizes."""
    grouped = {}
    for key, name, ratio in sorted(items, key=lambda item: item[0].size_bytes):
        grouped.setdefault((name, key.op, key.in_place), []).append(f"{charts.byte_text(key.size_bytes)}: {ratio_text(ratio)}")
    lines = []
    for name in in_order({name for name, _, _ in grouped}):
        for (whose, op, in_place), texts in grouped.items():
            if whose == name:
                lines.append(f"- {title_of(name)}, {op} {placement_text(in_place)}, {', '.join(texts)}")
    return lines


def verdict_against(table, reference):
    """Where peers are ahead of one of ours and where that is undecided; empty: ours is ahead of all, or nothing can be said."""
    found = summary.peers_by_verdict(table, reference, NAMES_OF_OURS)
    whom = "" if reference == summary.OURS else f" of {title_of(reference)}"
    one_only = " or there was one only" if any(len(ratio.rounds) == 1 for _, _, ratio in found[summary.Verdict.UNDECIDED]) else ""
    lines = []
    for verdict, heading in ((summary.Verdict.CONTENDER, f"A peer is ahead{whom} here (its time in how many times ours):"),
                             (summary.Verdict.UNDECIDED, f"Undecided{whom and ' against ' + title_of(reference)}, as the rounds disagree{one_only}:")):
        if found[verdict]:
            lines += [heading, "", *ratio_list(found[verdict]), ""]
    ours = found[summary.Verdict.REFERENCE]
    if not lines and ours:
        key, name, ratio = ours[0]
        where = " in any round" if all(each.low > 1 for _, _, each in ours) else ""
        lines = [f"No peer is ahead{whom}{where}: the closest is {title_of(name)}, {charts.byte_text(key.size_bytes)} {placement_text(key.in_place)}, "
                 f"with {ratio_text(ratio)}.", ""]
    return lines


def scene_verdict(table, failures=()):
    """Who is ahead of ours in each kind of memory."""
    lines = []
    if summary.OURS in failures:
        lines = ["**crossdevice failed here**: whatever follows is of the rounds before.", ""]
    found = verdict_against(table, summary.OURS)
    if not found:
        has_peer = any(name not in NAMES_OF_OURS for cells in table.values() for name in cells)
        found = ["Nothing can be said of who is ahead: ours was not measured." if has_peer else "No peer was measured.", ""]
    lines += found
    if any(summary.OURS_FOREIGN in cells for cells in table.values()):
        lines += verdict_against(table, summary.OURS_FOREIGN)
    return lines[:-1]


def rounds_text(rows):
    """"5 rounds; 3 of PyTorch (Gloo)"."""
    by_contender = summary.rounds_of(rows)
    most = max(by_contender.values(), default=0)
    fewer = {}
    for name in in_order(by_contender):
        if by_contender[name] < most:
            fewer.setdefault(by_contender[name], []).append(title_of(name))
    return ", ".join([f"{most} round{'' if most == 1 else 's'}", *(f"{count} of {who.listed(names)}" for count, names in fewer.items())])


def ops_of_ours(found):
    """A sentence, or none where there is no choice of ops, as between processes."""
    kinds = dict.fromkeys(f"{row['ops']} ({row['algorithm']})" for row in found.rows if row["contender"] == summary.OURS)
    return [f"The ops of crossdevice: {who.listed(kinds)}"] if kinds and found.scene.workers == 0 else []


def list_calls(rows):
    """Who reduces the gradients of a list how: a sentence for each way."""
    by_name = {contender.name: contender for contender in who.CONTENDERS}
    algorithms = {row["contender"]: row["algorithm"] for row in rows if row["op"] == "batch_reduce"}
    titles = {}
    for name in in_order(algorithms):
        how = by_name[name.partition(", ")[0]].how_lists(algorithms[name])
        titles.setdefault(how, []).append(title_of(name))
    return [f"Gradients {how}: {who.listed(found)}" for how, found in titles.items()]


def link_sentences(found):
    """What the links were seen to do; none where there are none."""
    if found.links:
        speed = summary.spread_of(link.bytes_per_second * 8 / 1e6 for link in found.links)
        plain = summary.spread_of(link.all_reduce_us for link in found.links)
        among = f" ({plain.low:.1f}-{plain.high:.1f} in {len(plain.rounds)} rounds)" if len(plain.rounds) > 1 else ""
        return [f"The link carries {speed.median:.0f} Mbit/s each way, and plain sockets all-reduce 8 bytes in {plain.median:.1f} us{among}"]
    if not found.link_bytes_per_second:
        return []
    speed = f"The link carries {found.link_bytes_per_second * 8 / 1e6:.0f} Mbit/s each way"
    if not found.plain_all_reduce_us:
        return [f"{speed}: measured once, before the rounds"]
    return [f"{speed}, and plain sockets all-reduce 8 bytes in {found.plain_all_reduce_us:.1f} us: measured once, before the rounds, and each call timed by "
            "itself"]


def circumstances(found, head):
    """What a reader must know of a scene. head: the facts that stand at the top of the page."""
    sentences = [rounds_text(found.rows), *ops_of_ours(found), *list_calls(found.rows)]
    if found.busy_share is not None:
        sentences.append(f"{100 * found.busy_share:.0f} % of the cores were busy before")
    sentences += link_sentences(found)
    sentences += found.remarks
    sentences += [f"Not here: {who.listed(title_of(name) for name in names)} ({reason})" for reason, names in found.absent.items()]
    if found.failures:
        sentences.append(f"**Failed**, so not shown in full: {who.listed(title_of(name) for name in found.failures)}")
    others = [f"{name}: {value}" for name, value in found.facts.items() if head.get(name) != value]
    if not found.facts:
        sentences.append("An older state of the programs measured this; when, and under which load, is not noted")
    elif others:
        sentences.append(f"Measured apart from the rest. {', '.join(others)}")
    return [*(f"- {sentence}." for sentence in sentences), *(f"- **{warning}**" for warning in found.warnings), ""]


def apart_text(shown):
    """What a reader of a chart must know of its scenes' times. shown: their Measurements."""
    if all(found.facts and found.facts == shown[0].facts for found in shown):
        return "The scenes of these charts were measured in one run, one after the other, not in turns."
    times = {}
    for found in shown:
        when = ", ".join([found.facts[name] for name in ("Date", "Commit") if name in found.facts]) or "not noted when"
        times.setdefault(when, []).append(found.scene.title)
    return ("**The scenes of these charts were measured apart**, so the state of the machine and of the programs differs between them too: "
            + ". ".join(f"{when}: {who.listed(titles)}" for when, titles in times.items()) + ".")


def read_notes(folder, names):
    """{scene: text} of notes.md, which people write: why a peer is ahead. Each part has the name of its scene as a heading: ## workers-2."""
    path = folder / "notes.md"
    if not path.exists():
        return {}
    parts = re.split(r"^## +(.+?) *$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    notes = {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}
    for name in notes.keys() - set(names):
        print(f"{path}: no scene {name} is on the page", file=sys.stderr)
    return notes


MOST_FIGURES = 5  # of one bar
BARS_PREAMBLE = ("Those of the design's bars that these rows can judge; `bench/record`, `bench/predictions` and tests judge others. Where a bar names no "
                 "placement, both count. A figure meets or misses its bar in every round, or in so many that chance would do that less than once in twenty; "
                 "otherwise it is undecided. A bar is missed where a figure misses it, undecided where none does and some are undecided, and met where all "
                 "meet it; in parentheses: how many of its figures do so. Shown are those that miss it, or else those that are undecided, "
                 f"{MOST_FIGURES} at most, or else the one that is closest to missing it.")


def figure_text(figure):
    value, unit = figure.value, figure.bound.unit
    text = ratio_text(value) if unit == "x" else f"{value.median:.0f}{unit}" + (f" ({value.low:.0f}-{value.high:.0f})" if value.low != value.high else "")
    return f"{figure.scene}, {charts.size_text(figure.key.size_bytes)} {placement_text(figure.key.in_place)}, {title_of(figure.contender)}: {text}"


def bar_line(text, judgement):
    """A bar's line of the table."""
    deciding = judgement.deciding
    parts = [figure_text(figure) for figure in deciding[:MOST_FIGURES]]
    parts += [f"and {len(deciding) - MOST_FIGURES} more"] if len(deciding) > MOST_FIGURES else []
    parts += [f"not measured: {', '.join(judgement.lacking)}"] if judgement.lacking and judgement.figures else []
    count = sum(figure.state == judgement.state for figure in judgement.figures)
    state = judgement.state.value + (f" ({count} of {len(judgement.figures)})" if judgement.figures else "")
    return f"| {text} | {state} | {who.listed(parts)} |"


def bars_part(measured):
    """measured: {name of a scene: bars.Measured}."""
    return ["## Bars", "", BARS_PREAMBLE, "", "| bar | | figures that decide |", "|---|---|---|",
            *(bar_line(text, judge(measured)) for text, judge in bars.BARS), ""]


def scene_part(found, table, head, note, pictures):
    """One scene's lines of the page; adds its charts to pictures."""
    title = found.scene.title
    lines = [f"## {title[0].upper()}{title[1:]}", "", *circumstances(found, head), *scene_table(table, bool(found.scene.rate)), ""]
    lines += [*scene_verdict(table, found.failures), ""]
    lines += [note, ""] if note else []
    if drawings.has_size_charts(table):
        charts_here = drawings.size_charts(found.scene, table)
        pictures |= charts_here
        lines += [f"![{name}]({name})" for name in charts_here]
        missing = drawings.not_drawn(found.scene, table)
        placements = (drawings.is_drawn_in_place(found.scene), not drawings.is_drawn_in_place(found.scene))
        lines += ["", f"Drawn {placement_text(placements[0])}" +
                  (f"; only {placement_text(placements[1])}, so only in the table: {who.listed(title_of(name) for name in missing)}." if missing else "."), ""]
    return lines


def write(folder, measurements):
    """measurements: {name of a scene: Measurement}. At the top stand the facts of most of them, as they were noted then."""
    folder.mkdir(parents=True, exist_ok=True)
    head = measurement.facts_of_most(measurements.values())
    lines = [f"# Side by side with the peers: {head.get('cpu', 'unknown processor')}, {head.get('cores', 'unknown')} cores", ""]
    lines += [f"{name}: {value}  " for name, value in head.items() if name not in ("cpu", "cores")]
    lines += ["", PREAMBLE, ""]
    pictures = {}
    tables = [(found.scene, summary.summarise(found.rows, found.link_of)) for found in measurements.values()]
    lines += bars_part({scene.name: bars.Measured(table, measurements[scene.name].rows) for scene, table in tables})
    notes = read_notes(folder, measurements)
    for scene, table in tables:
        lines += scene_part(measurements[scene.name], table, head, notes.get(scene.name), pictures)
    for title, choose, draw in (("Gradients", drawings.with_gradients, drawings.gradient_charts),
                                ("Cost against the number of workers", drawings.by_workers, drawings.worker_charts)):
        chosen = choose(tables)
        further = draw(chosen)
        if further:
            lines += [f"## {title}", "", *(f"![{name}]({name})" for name in further), "", apart_text([measurements[scene.name] for scene, _ in chosen]), ""]
            pictures |= further
    measurement.write_text(folder / "README.md", "\n".join(lines).rstrip() + "\n")
    for name, drawing in pictures.items():
        measurement.write_text(folder / name, drawing)
    for path in folder.glob("*.svg"):  # of scenes that are no more
        if path.name not in pictures and OWN_DRAWINGS.fullmatch(path.name):
            path.unlink()
