# SPDX-License-Identifier: Apache-2.0
"""Medians over rounds, ratios within rounds, and percentages of the physical limit."""
import collections
import dataclasses
import statistics

OURS = "crossdevice"


@dataclasses.dataclass(frozen=True)
class Key:
    """What was done; all contenders of a scene that did it can be compared."""

    op: str
    size_bytes: int
    in_place: bool


@dataclasses.dataclass
class Cell:
    """One contender's results for one key."""

    time_us: float  # the median of the rounds' medians
    low_us: float
    high_us: float
    ratio: float | None = None  # to ours of the same round: the median; above 1 ours is faster
    low_ratio: float | None = None
    high_ratio: float | None = None
    percent: float | None = None  # of the limit


def key_of(row):
    return Key(row["op"], row["size_bytes"], row["in_place"])


def _bound_us(row, bytes_per_second):
    n = row["workers"]
    return 2 * (n - 1) / n * row["size_bytes"] / bytes_per_second * 1e6


def summarise(rows, link_bytes_per_second=None):
    """{Key: {contender: Cell}} of one scene's rows.

    The limit is the one that ours measured in the same round, in turns with the operation: it is the same for all. Across links it is
    2(n-1)/n times the bytes over the link's speed.
    """
    times = collections.defaultdict(lambda: collections.defaultdict(dict))  # [key][contender][round]
    limits = collections.defaultdict(dict)  # [key][round]: microseconds
    for row in rows:
        key = key_of(row)
        times[key][row["contender"]][row["round"]] = row["time_us_median"]
        if link_bytes_per_second:
            limits[key][row["round"]] = _bound_us(row, link_bytes_per_second)
        elif row["contender"] == OURS and row["limit"] and row["limit_gbs"]:
            share = 1.0 if row["op"] == "all_reduce" else row["percent_of_limit"] / 100
            if row["limit"] != "flat_buffer":
                limits[key][row["round"]] = row["time_us_median"] * row["traffic_gbs"] / row["limit_gbs"] * share
    for key, found in list(times.items()):  # a batch is held against the limit of the same bytes in one buffer
        flat = Key("all_reduce", key.size_bytes, key.in_place)
        if key.op == "batch_reduce" and flat in limits:
            limits[key] = limits[flat]
    return {key: {name: _cell(by_round, found.get(OURS, {}), limits[key]) for name, by_round in found.items()}
            for key, found in times.items()}


def _cell(by_round, ours, limits):
    values = list(by_round.values())
    cell = Cell(statistics.median(values), min(values), max(values))
    ratios = [time / ours[turn] for turn, time in by_round.items() if turn in ours]
    if ratios:
        cell.ratio, cell.low_ratio, cell.high_ratio = statistics.median(ratios), min(ratios), max(ratios)
    percents = [100 * limits[turn] / time for turn, time in by_round.items() if turn in limits]
    if percents:
        cell.percent = statistics.median(percents)
    return cell


def peers_ahead(table, names_of_ours):
    """(key, contender, cell) of every peer that was faster than ours, in the median of the rounds."""
    found = []
    for key, cells in table.items():
        for name, cell in cells.items():
            if name not in names_of_ours and cell.ratio is not None and cell.ratio < 1:
                found.append((key, name, cell))
    return sorted(found, key=lambda item: item[2].ratio)
