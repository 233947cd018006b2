# SPDX-License-Identifier: Apache-2.0
"""Medians over rounds, ratios within rounds, and percentages of the physical limit."""
import collections
import dataclasses
import enum
import math
import statistics

OURS = "crossdevice"
OURS_FOREIGN = "crossdevice-foreign"
REFERENCES = (OURS, OURS_FOREIGN)


@dataclasses.dataclass(frozen=True)
class Key:
    """What was done; all contenders of a scene that did it can be compared."""

    op: str
    size_bytes: int
    in_place: bool


class Verdict(enum.Enum):
    """Whether a contender or the one it is held against is faster."""

    CONTENDER = "the contender, in every round or by the sign test"
    REFERENCE = "the reference, in every round or by the sign test"
    UNDECIDED = "the rounds disagree, or there was one only"


# What chance may do at most, on both sides together, for the sign test to decide: of 20 rounds 15 on one side.
SIGNIFICANCE = 0.05


def is_beyond_chance(count, of):
    """Whether so many rounds on one side would be rare if both sides were as likely: the sign test."""
    tail = sum(math.comb(of, k) for k in range(count, of + 1)) / 2 ** of
    return 2 * tail <= SIGNIFICANCE


@dataclasses.dataclass(frozen=True)
class Spread:
    """Over rounds."""

    median: float
    low: float
    high: float
    rounds: tuple = dataclasses.field(default=(), compare=False)  # what it was made of

    def side_of(self, bound):
        """-1: the rounds are below it; 1: above; 0: they disagree, or there was one only, which decides nothing."""
        if len(self.rounds) < 2:
            return 0
        below = sum(value < bound for value in self.rounds)
        above = sum(value > bound for value in self.rounds)
        if self.high < bound or (below > above and is_beyond_chance(below, len(self.rounds))):
            return -1
        return 1 if self.low > bound or (above > below and is_beyond_chance(above, len(self.rounds))) else 0

    def verdict(self):
        """Of ratios to the reference."""
        return {-1: Verdict.CONTENDER, 0: Verdict.UNDECIDED, 1: Verdict.REFERENCE}[self.side_of(1)]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One contender's results for one key."""

    time_us: Spread  # of the rounds' medians
    ratios: dict  # {reference: Spread}: to a contender of ours in the same round; above 1 ours is faster
    percents: Spread | None = None  # of the limit

    @property
    def percent(self):
        """The median."""
        return self.percents and self.percents.median


def key_of(row):
    return Key(row["op"], row["size_bytes"], row["in_place"])


# Below, what a link carries per second says nothing of an all-reduce's time: messages wait for each other.
SMALL_BYTES = 4 << 10


def _bound_us(row, link):
    """None: there is none that means anything."""
    n = row["workers"]
    if row["size_bytes"] < SMALL_BYTES:
        return link.all_reduce_us
    return 2 * (n - 1) / n * row["size_bytes"] / link.bytes_per_second * 1e6


def summarise(rows, link_of=lambda turn: None):
    """{Key: {contender: Cell}} of one scene's rows. link_of(round): the Link between its workers, or None.

    The limit is the one that ours measured in the same round, in turns with the operation: it is the same for all. Across links it is
    2(n-1)/n times the bytes over the link's speed, and of small values what 8 bytes take by plain sockets, where that was measured.
    """
    times = collections.defaultdict(lambda: collections.defaultdict(dict))  # [key][contender][round]
    limits = collections.defaultdict(dict)  # [key][round]: microseconds
    for row in rows:
        key = key_of(row)
        times[key][row["contender"]][row["round"]] = row["time_us_median"]
        link = link_of(row["round"])
        if link:
            bound = _bound_us(row, link)
            if bound:
                limits[key][row["round"]] = bound
        elif row["contender"] == OURS and row["limit_gbs"] and row["limit"] != "flat_buffer":
            limits[key][row["round"]] = row["time_us_median"] * row["traffic_gbs"] / row["limit_gbs"]
    for key, found in list(times.items()):  # a batch is held against the limit of the same bytes in one buffer
        flat = Key("all_reduce", key.size_bytes, key.in_place)
        if key.op == "batch_reduce" and flat in limits:
            limits[key] = limits[flat]
    return {key: {name: _cell(by_round, found, limits[key]) for name, by_round in found.items()}
            for key, found in times.items()}


def spread_of(values):
    values = tuple(values)
    return Spread(statistics.median(values), min(values), max(values), values)


def _cell(by_round, found, limits):
    ratios = {}
    for reference in REFERENCES:
        theirs = found.get(reference, {})
        shared = [time / theirs[turn] for turn, time in by_round.items() if turn in theirs]
        if shared:
            ratios[reference] = spread_of(shared)
    percents = [100 * limits[turn] / time for turn, time in by_round.items() if turn in limits]
    return Cell(spread_of(by_round.values()), ratios, spread_of(percents) if percents else None)


def peers_by_verdict(table, reference, names_of_ours):
    """{Verdict: [(key, contender, ratio)]} of every peer held against one of ours; the closest first."""
    found = {verdict: [] for verdict in Verdict}
    for key, cells in table.items():
        for name, cell in cells.items():
            if name not in names_of_ours and reference in cell.ratios:
                ratio = cell.ratios[reference]
                found[ratio.verdict()].append((key, name, ratio))
    for items in found.values():
        items.sort(key=lambda item: item[2].median)
    return found


def rounds_of(rows):
    """{contender: number of its rounds}."""
    turns = collections.defaultdict(set)
    for row in rows:
        turns[row["contender"]].add(row["round"])
    return {name: len(found) for name, found in turns.items()}
