# SPDX-License-Identifier: Apache-2.0
"""The charts of a comparison's page, each of one placement. All take {Key: {contender: Cell}} tables as summary makes them."""
import charts
import contenders as who
import summary

TITLES = {contender.name: contender.title for contender in who.CONTENDERS}
SIZES_OVER_WORKERS = (8, 8 << 20)


def title_of(name):
    first, comma, rest = name.partition(", ")
    return TITLES.get(first, first) + comma + rest


def in_order(names):
    known = list(TITLES)
    return sorted(names, key=lambda name: (known.index(name.partition(", ")[0]), name))


def placement_text(in_place):
    return "in place" if in_place else "out of place"


def is_drawn_in_place(scene):
    """What most contenders do there: TensorFlow's ops, which are those of one process, never reduce in place."""
    return scene.workers > 0


def has_size_charts(table):
    return len({key.size_bytes for key in table if key.op == "all_reduce"}) > 2


def not_drawn(scene, table):
    """Who has only the other placement."""
    drawn = {name for key, cells in table.items() if key.in_place == is_drawn_in_place(scene) for name in cells}
    return in_order({name for cells in table.values() for name in cells} - drawn)


def size_charts(scene, table):
    """{file name: SVG}: time and bus bandwidth over sizes."""
    in_place = is_drawn_in_place(scene)
    points = {}
    for key, cells in table.items():
        if key.op == "all_reduce" and key.in_place == in_place:
            for name, cell in cells.items():
                points.setdefault(name, []).append((key.size_bytes, cell.time_us.median))
    n = scene.replicas
    times = [charts.Series(title_of(name), points[name]) for name in in_order(points)]
    bandwidths = [charts.Series(title_of(name), [(size, size / us / 1e3 * 2 * (n - 1) / n) for size, us in points[name]]) for name in in_order(points)]
    title = f"All-reduce {placement_text(in_place)}, {scene.title}"
    return {
        f"{scene.name}-time.svg": charts.line_chart(charts.Axes(f"{title}: time", "bytes", "us", True), times),
        f"{scene.name}-bandwidth.svg": charts.line_chart(
            charts.Axes(f"{title}: bus bandwidth", "bytes", "GB/s", True, y_is_logarithmic=False), bandwidths),
    }


def gradient_chart(title, scenes_and_tables):
    groups = {}
    for scene, table in scenes_and_tables:
        for in_place in (True, False):
            for key, cells in table.items():
                if key.op == "batch_reduce" and key.in_place == in_place:
                    groups[f"{scene.title}, {placement_text(in_place)}"] = {title_of(name): cells[name].time_us.median / 1e3 for name in in_order(cells)}
    return charts.bar_chart(title, "ms", groups)


def with_gradients(scenes_and_tables):
    return [(scene, table) for scene, table in scenes_and_tables if any(key.op == "batch_reduce" for key in table)]


def gradient_charts(scenes_and_tables):
    """{file name: SVG} of scenes with gradients: those across links apart, which take a hundred times as long."""
    drawings = {}
    for name, title, has_links in (("gradients.svg", "one host", False), ("gradients-network.svg", "across links", True)):
        chosen = [(scene, table) for scene, table in scenes_and_tables if bool(scene.rate) == has_links]
        if chosen:
            drawings[name] = gradient_chart(f"Gradients of a model, one step, {title}", chosen)
    return drawings


def by_workers(scenes_and_tables):
    """Of each number of workers of one host the first scene with a size that is drawn over it."""
    chosen = {}
    for scene, table in scenes_and_tables:
        if scene.workers and not scene.rate and any(key.op == "all_reduce" and key.size_bytes in SIZES_OVER_WORKERS for key in table):
            chosen.setdefault(scene.workers, (scene, table))
    return list(chosen.values())


def worker_charts(scenes_and_tables):
    """{file name: SVG} of scenes that by_workers() chose: time against the number of workers."""
    if len(scenes_and_tables) < 2:
        return {}
    return {f"workers-{charts.byte_text(size)}.svg": _worker_chart(scenes_and_tables, size) for size in SIZES_OVER_WORKERS}


def _worker_chart(scenes_and_tables, size_bytes):
    points = {}
    key = summary.Key("all_reduce", size_bytes, True)
    for scene, table in scenes_and_tables:
        for name, cell in table.get(key, {}).items():
            points.setdefault(name, []).append((scene.workers, cell.time_us.median))
    series = [charts.Series(title_of(name), points[name]) for name in in_order(points) if len(points[name]) > 1]
    return charts.line_chart(charts.Axes(f"All-reduce of {charts.size_text(size_bytes)} in place, one host", "workers", "us"), series)
