# SPDX-License-Identifier: Apache-2.0
"""Runs the contenders of a scene in turns, A B A B, and gathers their rows."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import contenders as who
import link_speed

TIMEOUT_SECONDS = 300


class Failure(Exception):
    pass


def run_once(contender, scene, tools, work):
    """The rows of one run of its program."""
    with tempfile.TemporaryDirectory(prefix="crossdevice-compare-") as directory:
        path = pathlib.Path(directory)
        store = path / "store"
        store.mkdir()
        rows = path / "rows.json"
        arguments = [*work.flags(), "-n", str(scene.iterations), "-w", str(scene.warmup), "--json", str(rows)]
        environment = os.environ | contender.environment() | {"GLOO_STORE": str(store), "PEER_STORE": str(store)}
        command = contender.command(scene, tools, arguments)
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise Failure(f"{contender.name}: no end after {TIMEOUT_SECONDS} s: {' '.join(command)}") from error
        if done.returncode != 0:
            raise Failure(f"{contender.name}: status {done.returncode}: {' '.join(command)}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        with open(rows, encoding="utf-8") as file:
            return json.load(file)


def label(row, contender):
    """Who a row is of, by name: TensorFlow's program measures several ops in one run."""
    return f"{contender.name}, {row['algorithm']}" if contender.name == "tensorflow" else contender.name


def run_scene(scene, present, tools, rounds):
    """All rows of all rounds, each with its scene, contender and round; what failed; and the link's speed where there is one."""
    rows = []
    failures = []
    speed = link_speed.measure(tools, scene.rate) if scene.rate else None
    for turn in range(rounds):
        for contender in present:
            is_slow = contender.is_slow(scene, tools)
            if contender.name in failures or (is_slow and turn >= who.SLOW_ROUNDS):
                continue
            begin = time.monotonic()
            try:
                for work in scene.work_for(is_slow):
                    for row in run_once(contender, scene, tools, work):
                        if row["wrong"] != 0:
                            raise Failure(f"{contender.name}: {row['wrong']} wrong elements at {row['size_bytes']} bytes")
                        rows.append({"scene": scene.name, "contender": label(row, contender), "round": turn, **row})
            except Failure as failure:
                failures.append(contender.name)
                print(failure, file=sys.stderr)
            print(f"{scene.name}, round {turn + 1} of {rounds}: {contender.name} {time.monotonic() - begin:.1f} s", flush=True)
    return rows, failures, speed
