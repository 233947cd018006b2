# SPDX-License-Identifier: Apache-2.0
"""Measures MirroredStrategy's reduction across the logical CPUs of one process, in a tf.function, with each of TensorFlow's cross-device ops:
what crossdevice-bench -g N does."""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import peer_rows
import peer_values
import tensorflow as tf


def strategies(num_devices):
    """By the names of crossdevice's ops; RING is what MirroredStrategy takes by itself on CPUs."""
    devices = [f"/cpu:{i}" for i in range(num_devices)]
    yield "reduction_to_one_device", tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())
    yield "hierarchical_copy", tf.distribute.MirroredStrategy(devices, tf.distribute.HierarchicalCopyAllReduce())
    yield "ring", tf.distribute.MirroredStrategy(devices)


def measure(case, arguments, algorithm, strategy):
    num_devices = strategy.num_replicas_in_sync
    arrays = [peer_values.inputs_of(case, replica) for replica in range(num_devices)]

    def in_replica(values):
        # Within a graph identity passes its buffer on, and says which device it is on.
        return tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, [tf.identity(value) for value in values])

    reduce = tf.function(lambda values: strategy.run(in_replica, args=(values,)))

    def fresh(context, t):
        replica = context.replica_id_in_sync_group
        with tf.device(f"/cpu:{replica}"):
            return tf.identity(tf.constant(arrays[replica][t]))

    def fresh_inputs():
        return [
            strategy.experimental_distribute_values_from_function(lambda context, t=t: fresh(context, t))
            for t in range(len(case.counts))
        ]

    state = {}

    def prepare(_):
        state["outputs"] = None
        state["inputs"] = fresh_inputs()

    def run(_):
        state["outputs"] = reduce(state["inputs"])

    prepare(0)
    run(0)
    wrong = 0
    for replica in range(num_devices):
        outputs = [strategy.experimental_local_results(output)[replica].numpy() for output in state["outputs"]]
        wrong += peer_values.count_wrong(case, num_devices, outputs)
    samples = peer_rows.time_samples(arguments, 1, prepare, lambda: None, run)
    return peer_rows.row_of(case, peer_rows.Placing(num_devices), "tensorflow", algorithm, False, samples, wrong)


def main():
    arguments = peer_rows.parse_arguments(
        extend=lambda parser: parser.add_argument("-g", "--ngpus", type=int, default=2, help="logical CPUs"))
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * arguments.ngpus)
    rows = []
    for algorithm, strategy in strategies(arguments.ngpus):
        rows += [measure(case, arguments, algorithm, strategy) for case in peer_rows.cases_of(arguments)]
    peer_rows.write_rows(arguments.json, rows)


if __name__ == "__main__":
    main()
