# SPDX-License-Identifier: Apache-2.0
"""Runs the contenders of a scene in turns, in another order in each round, and gathers their rows."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import contenders as who
import link_speed
import machine
import measurement

TIMEOUT_SECONDS = 300
NEEDED_FIELDS = ("op", "size_bytes", "in_place", "time_us_median", "algorithm", "wrong")
SPEED_OF_LINK = "the speed of the link"
LINK = who.Contender(SPEED_OF_LINK, SPEED_OF_LINK)  # takes its turns across links, as what a round is held against
ORDER_REMARK = "Turns were taken in another order in each round"


class Failure(Exception):
    pass


def read_rows(path, contender):
    """What its program wrote."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        missing = [name for row in rows for name in NEEDED_FIELDS if name not in row]
        missing += ["time_us_median"] if not missing and not all(row["time_us_median"] > 0 for row in rows) else []
    except (OSError, ValueError, TypeError) as error:
        raise Failure(f"{contender.name}: ended well, but its rows cannot be read: {error}") from error
    if not rows or missing:
        raise Failure(f"{contender.name}: ended well, but its rows lack {', '.join(sorted(set(missing))) or 'everything'}")
    for row in rows:
        if row["wrong"] != 0:
            raise Failure(f"{contender.name}: {row['wrong']} wrong elements at {row['size_bytes']} bytes")
    return rows


def run_once(contender, scene, tools, work):
    """The rows of one run of its program."""
    with tempfile.TemporaryDirectory(prefix="crossdevice-compare-") as directory:
        path = pathlib.Path(directory)
        store = path / "store"
        store.mkdir()
        rows = path / "rows.json"
        arguments = [*work.flags(), *scene.calls_for(contender.name), "--json", str(rows)]
        environment = os.environ | contender.environment() | {"GLOO_STORE": str(store), "PEER_STORE": str(store)}
        command = contender.command(scene, tools, arguments)
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise Failure(f"{contender.name}: no end after {TIMEOUT_SECONDS} s: {' '.join(command)}") from error
        except OSError as error:
            raise Failure(f"{contender.name}: cannot be started: {error}") from error
        if done.returncode != 0:
            raise Failure(f"{contender.name}: status {done.returncode}: {' '.join(command)}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        return read_rows(rows, contender)


def label(row, contender):
    """Who a row is of, by name: TensorFlow's program measures several ops in one run."""
    return f"{contender.name}, {row['algorithm']}" if contender.name == "tensorflow" else contender.name


def order_of(contenders, turn):
    """That of a round: A B E C D, B C A D E, C D B E A, ... Everybody has each place in turn and, unlike in A B C D E, B C D E A, comes after another
    one, who may have left caches and clocks in another state."""
    count = len(contenders)
    places = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(count)]  # 0 1 -1 2 -2 ...
    if turn // max(1, count) % 2:  # of an odd number each has followed only half of the others
        places.reverse()
    return [contenders[(turn + place) % count] for place in places]


def measure_link(found, tools):
    """In one round."""
    try:
        found.links.append(link_speed.measure(tools, found.scene.rate, found.scene.workers))
    except link_speed.ERRORS as error:
        found.failures.append(SPEED_OF_LINK)
        print(f"{found.scene.name}: {SPEED_OF_LINK}: {error}", file=sys.stderr)


def take_turn(found, contender, tools, turn):
    """All or nothing of one contender's round."""
    is_slow = contender.is_slow(found.scene, tools)
    try:
        rows = [row for work in found.scene.work_for(contender.name, is_slow) for row in run_once(contender, found.scene, tools, work)]
    except Failure as failure:
        found.failures.append(contender.name)
        print(failure, file=sys.stderr)
        return
    found.rows += [{"scene": found.scene.name, "contender": label(row, contender), "round": turn, **row} for row in rows]


def measure(scene, present, tools, num_rounds):
    """A Measurement with the rows of all rounds, each with its scene, contender and round."""
    here = [contender for contender in present if who.reason_of_absence(contender, scene, tools) is None]
    found = measurement.Measurement(scene, busy_share=machine.busy_share(), remarks=[*who.remarks(scene, here, tools), ORDER_REMARK])
    warning = machine.busy_warning(found.busy_share)
    if warning:
        found.warnings.append(warning)
        print(f"{scene.name}: {warning}", file=sys.stderr)
    takers = [*here, LINK] if scene.rate else here
    for turn in range(num_rounds):
        for contender in order_of(takers, turn):
            if contender.name in found.failures or turn >= who.max_rounds(contender, scene):
                continue
            begin = time.monotonic()
            if contender is LINK:
                measure_link(found, tools)
            else:
                take_turn(found, contender, tools, turn)
            print(f"{scene.name}, round {turn + 1} of {num_rounds}: {contender.name} {time.monotonic() - begin:.1f} s", flush=True)
    return found
