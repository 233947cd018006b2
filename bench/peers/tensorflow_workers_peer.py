# SPDX-License-Identifier: Apache-2.0
"""Measures the all_reduce of MultiWorkerMirroredStrategy's replicas with RING, in a tf.function. Started by crossdevice-run; PEER_STORE names an
empty directory."""
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import peer_rows
import peer_team
import peer_values
import tensorflow as tf


def make_strategy(team):
    workers = team.all_gather(team.free_address())
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": team.rank}})
    return tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING))


def reducer(strategy):
    def in_replica(values):
        # Within a graph identity passes its buffer on, and says which device it is on.
        return tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, [tf.identity(value) for value in values])

    return tf.function(lambda values: strategy.run(in_replica, args=(values,)))


def measure(case, arguments, team, placing, strategy):
    arrays = peer_values.inputs_of(case, team.rank)
    calls = peer_rows.calls_per_sample(case, team.num_workers, team.num_hosts)
    reduce = reducer(strategy)
    reduce_token = reducer(strategy)
    inputs = [None] * calls
    outputs = [None] * calls

    def prepare(i):
        outputs[i] = None
        inputs[i] = [tf.identity(tf.constant(array)) for array in arrays]

    def run(i):
        outputs[i] = reduce(inputs[i])

    def line_up(token=tf.zeros(1)):
        for _ in range(peer_rows.REDUCTIONS_PER_LINE_UP):
            reduce_token([token])

    prepare(0)
    run(0)
    results = [strategy.experimental_local_results(output)[0].numpy() for output in outputs[0]]
    wrong = sum(team.all_gather(peer_values.count_wrong(case, team.num_workers, results)))
    samples = peer_rows.time_samples(arguments, calls, prepare, line_up, run)
    return peer_rows.row_of(case, placing, "tensorflow_workers", "ring", False, team.slowest(samples), wrong)


def main():
    arguments = peer_rows.parse_arguments()
    team = peer_team.Team()
    strategy = make_strategy(team)
    placing = peer_rows.Placing(team.num_workers, team.num_workers, team.num_hosts, arguments.netns, arguments.rate)
    rows = [measure(case, arguments, team, placing, strategy) for case in peer_rows.cases_of(arguments)]
    if team.rank == 0:
        peer_rows.write_rows(arguments.json, rows)
    team.all_gather("done")


if __name__ == "__main__":
    main()
