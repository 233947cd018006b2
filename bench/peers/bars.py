# SPDX-License-Identifier: Apache-2.0
"""Which of the design's bars a comparison's rows meet: those about peers, limits on one host and links, and lists beside one buffer."""
import dataclasses
import enum
import math

import contenders as who
import summary
from drawings import in_order, title_of

OURS, FOREIGN = summary.REFERENCES
OPEN_MPI = ("openmpi", "openmpi-kept")
MPI_AND_GLOO = (*OPEN_MPI, "mpich", "mpich-kept", "gloo", "gloo-reno")
EVERY_PEER = tuple(contender.name for contender in who.CONTENDERS if not contender.is_ours and not contender.packs and contender.name != "tensorflow")
PROCESSES = ("workers-2", "workers-2-small")
ACROSS = ("network-1gbit", "network-1gbit-small")
DEVICES = ("devices-2", "devices-4", "devices-8")
MIB = 1 << 20


class State(enum.Enum):
    MET = "met"
    UNDECIDED = "undecided"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclasses.dataclass(frozen=True)
class Bound:
    value: float
    is_most: bool = False  # what is allowed at most, otherwise at least
    unit: str = "x"  # or " %"


def at_least(value, unit="x"):
    return Bound(value, False, unit)


def at_most(value):
    return Bound(value, True)


@dataclasses.dataclass(frozen=True)
class Figure:
    """One that a bar speaks of."""

    scene: str
    key: summary.Key
    contender: str
    value: summary.Spread
    bound: Bound

    @property
    def state(self):
        """As for who is ahead: met or missed in every round or by the sign test."""
        side = self.value.side_of(self.bound.value)
        return {-1: State.MISSED, 0: State.UNDECIDED, 1: State.MET}[-side if self.bound.is_most else side]

    @property
    def margin(self):
        """Below 1 the median misses it."""
        return self.bound.value / self.value.median if self.bound.is_most else self.value.median / self.bound.value


@dataclasses.dataclass(frozen=True)
class Judgement:
    figures: list  # the closest to missing it first
    lacking: list  # scenes and contenders' titles that it speaks of, and that have no figure

    @property
    def state(self):
        states = {figure.state for figure in self.figures}
        return next((state for state in (State.MISSED, State.UNDECIDED, State.MET) if state in states), State.NOT_MEASURED)

    @property
    def deciding(self):
        """All that miss it; or else all that are undecided; or else the one that is closest to missing it."""
        found = [figure for figure in self.figures if figure.state == self.state]
        return found[:1] if self.state == State.MET else found


def _judgement(figures, scene_names, names, counting=None):
    """figures: all that were measured; counting: those of them that count, where not all do."""
    lacking = [name for name in scene_names if name not in {figure.scene for figure in figures}]
    lacking += [title_of(name) for name in in_order(set(names) - {figure.contender for figure in figures})]
    return Judgement(sorted(figures if counting is None else counting, key=lambda figure: figure.margin), lacking)


def _cells(measured, scene_names, sizes, in_place):
    """(scene, key, cells) of the all-reduces that a bar speaks of. sizes: the smallest and the largest; in_place None: both placements."""
    for scene in scene_names:
        for key, cells in measured[scene].table.items() if scene in measured else ():
            if key.op == "all_reduce" and sizes[0] <= key.size_bytes <= sizes[1] and in_place in (None, key.in_place):
                yield scene, key, cells


def _last_of(figures):
    """Of a size that several scenes have the last of them counts, which has more rounds, or more calls."""
    return {(figure.key, figure.contender): figure for figure in figures}.values()


def peers_take(bound, scene_names, names, sizes=(8, math.inf), reference=OURS):
    """Each peer's times, in how many times ours."""
    def judge(measured):
        figures = [Figure(scene, key, name, cells[name].ratios[reference], bound)
                   for scene, key, cells in _cells(measured, scene_names, sizes, None)
                   for name in names if name in cells and reference in cells[name].ratios]
        return _judgement(figures, scene_names, names, _last_of(figures))
    return judge


def share_of_limit(bound, scene_names, size_bytes, in_place=None):
    """Ours, in percent of what the machine or the links allow."""
    def judge(measured):
        figures = [Figure(scene, key, OURS, cells[OURS].percents, bound)
                   for scene, key, cells in _cells(measured, scene_names, (size_bytes, size_bytes), in_place)
                   if OURS in cells and cells[OURS].percents]
        return _judgement(figures, scene_names, ())
    return judge


def beside_plain_sockets(bound, scene_names):
    """Ours for 8 bytes across links, in how many times what plain sockets take in the same round."""
    def judge(measured):
        figures = [Figure(scene, key, OURS, summary.spread_of(100 / percent for percent in cells[OURS].percents.rounds), bound)
                   for scene, key, cells in _cells(measured, scene_names, (8, 8), None)
                   if OURS in cells and cells[OURS].percents]
        return _judgement(figures, scene_names, (), _last_of(figures))
    return judge


def lists_beside_one_buffer(bound, scene_names):
    """Ours for a list, from the pool and from ordinary memory, in how many times one buffer of its bytes, measured in turns with it."""
    def judge(measured):
        rounds = {}
        for scene in scene_names:
            for row in measured[scene].rows if scene in measured else ():
                if row["contender"] in summary.REFERENCES and row["op"] == "batch_reduce" and row["limit"] == "flat_buffer":
                    rounds.setdefault((scene, summary.key_of(row), row["contender"]), []).append(row["limit_gbs"] / row["traffic_gbs"])
        figures = [Figure(*what, summary.spread_of(values), bound) for what, values in rounds.items()]
        return _judgement(figures, scene_names, summary.REFERENCES)
    return judge


@dataclasses.dataclass(frozen=True)
class Measured:
    """Of one scene."""

    table: dict  # as summary.summarise() gives it
    rows: list


# (what it says, function of {name of a scene: Measured} that gives its Judgement)
BARS = (
    ("one process, 2, 4 and 8 devices with 64 MiB each, in place: at least 90 % of the limit", share_of_limit(at_least(90, " %"), DEVICES, 64 * MIB, True)),
    ("one process, the same out of place: at least 85 % of the limit", share_of_limit(at_least(85, " %"), DEVICES, 64 * MIB, False)),
    ("2 workers on one host: not slower than any MPI or Gloo at any size from 8 B", peers_take(at_least(1), PROCESSES, MPI_AND_GLOO)),
    ("2 workers on one host, 8 MiB from the pool: at least 2.5 times as fast as the best of them",
     peers_take(at_least(2.5), PROCESSES[:1], MPI_AND_GLOO, (8 * MIB, 8 * MIB))),
    ("2 workers on one host, from 64 MiB from the pool: at least 3 times as fast as the best of them",
     peers_take(at_least(3), PROCESSES[:1], MPI_AND_GLOO, (64 * MIB, math.inf))),
    ("2 workers on one host, from 8 MiB not from the pool, where process_vm_readv is allowed (the rows do not say whether it is): at least 1.5 times as fast",
     peers_take(at_least(1.5), PROCESSES[:1], MPI_AND_GLOO, (8 * MIB, math.inf), FOREIGN)),
    ("4 workers on one host (oversubscribed on 2 cores): faster than each peer", peers_take(at_least(1), ("workers-4",), EVERY_PEER)),
    ("4 workers, links of 1 Gbit/s, 64 MiB: at least 98 % of what the links allow", share_of_limit(at_least(98, " %"), ("network-1gbit",), 64 * MIB)),
    ("4 workers, links of 1 Gbit/s, 8 B: at most 1.25 times an all-reduce by plain sockets", beside_plain_sockets(at_most(1.25), ACROSS)),
    ("4 workers, links of 1 Gbit/s, 8 B: faster than Open MPI", peers_take(at_least(1), ACROSS, OPEN_MPI, (8, 8))),
    ("ResNet-50's gradients as a batch: at most 1.10 times one buffer of the same bytes",
     lists_beside_one_buffer(at_most(1.10), ("devices-2-resnet50", "gradients-resnet50", "network-1gbit-resnet50"))),
)
