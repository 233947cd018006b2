# SPDX-License-Identifier: Apache-2.0
"""What crossdevice-bench does around a call, for peers in Python: its flags, its statistics and its rows."""
import argparse
import csv
import dataclasses
import json
import statistics
import time

SAMPLE_BYTES = 256 << 10
SAMPLE_BYTES_ACROSS_HOSTS = 4 << 20
MAX_CALLS_PER_SAMPLE = 64
REDUCTIONS_PER_LINE_UP = 3
FLOAT_BYTES = 4


def byte_size(text):
    """"64K", "8M" and "1G" are binary."""
    factors = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    suffix = text[-1:].upper()
    return int(text[:-1]) * factors[suffix] if suffix in factors else int(text)


def parse_arguments(argv=None, extend=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-b", "--minbytes", type=byte_size, default=8)
    parser.add_argument("-e", "--maxbytes", type=byte_size, default=64 << 20)
    parser.add_argument("-f", "--stepfactor", type=float, default=2)
    parser.add_argument("-n", "--iters", type=int, default=20)
    parser.add_argument("-w", "--warmup_iters", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gradients", help="a CSV file name,shape,numel")
    parser.add_argument("--netns", type=int, default=0)
    parser.add_argument("--rate")
    parser.add_argument("-J", "--json", required=True)
    if extend:
        extend(parser)
    return parser.parse_args(argv)


def read_gradients(path):
    """The numbers of elements."""
    with open(path, newline="", encoding="utf-8") as file:
        return [int(line["numel"]) for line in csv.DictReader(file)]


@dataclasses.dataclass
class Case:
    op: str  # "all_reduce" or "batch_reduce"
    counts: list  # elements of each tensor

    @property
    def size_bytes(self):
        return sum(self.counts) * FLOAT_BYTES


def cases_of(arguments):
    if arguments.gradients:
        counts = read_gradients(arguments.gradients)
        return [Case("all_reduce", [sum(counts)]), Case("batch_reduce", counts)]
    cases = []
    size = arguments.minbytes
    while size <= arguments.maxbytes:
        cases.append(Case("all_reduce", [size // FLOAT_BYTES]))
        size = int(size * arguments.stepfactor)
    return cases


def calls_per_sample(case, num_workers, num_hosts):
    if num_workers == 1:
        return 1
    room = SAMPLE_BYTES if num_hosts == 1 else SAMPLE_BYTES_ACROSS_HOSTS
    return min(MAX_CALLS_PER_SAMPLE, max(1, room // max(1, 2 * case.size_bytes)))


def time_samples(arguments, calls, prepare, line_up, run):
    """Microseconds per call. prepare(i) rewrites the buffers of call i, untimed; run(i) is the call."""
    rounds = max(1, arguments.rounds)
    iterations = rounds * max(1, -(-arguments.iters // rounds))
    samples = []
    for i in range(arguments.warmup_iters + iterations):
        for call in range(calls):
            prepare(call)
        line_up()
        begin = time.perf_counter()
        for call in range(calls):
            run(call)
        taken = time.perf_counter() - begin
        if i >= arguments.warmup_iters:
            samples.append(taken * 1e6 / calls)
    return samples


@dataclasses.dataclass
class Placing:
    """Where the replicas of a row were."""

    replicas: int
    workers: int = 1
    hosts: int = 1
    namespaces: int = 0
    rate: str | None = None


def row_of(case, placing, ops, algorithm, in_place, samples_us, wrong):
    """The fields of crossdevice-bench's rows, in their order."""
    percentiles = statistics.quantiles(samples_us, n=100, method="inclusive")
    median, p10, p99 = statistics.median(samples_us), percentiles[9], percentiles[98]
    bandwidth = case.size_bytes / median / 1e3
    n = placing.replicas
    return {
        "op": case.op,
        "ops": ops,
        "algorithm": algorithm,
        "devices": n,
        "workers": placing.workers,
        "hosts": placing.hosts,
        "namespaces": placing.namespaces,
        "rate": placing.rate,
        "memory": "foreign",
        "size_bytes": case.size_bytes,
        "dtype": "float32",
        "redop": "SUM",
        "in_place": in_place,
        "time_us_median": median,
        "time_us_p10": p10,
        "time_us_p99": p99,
        "algbw_gbs": bandwidth,
        "busbw_gbs": bandwidth * 2 * (n - 1) / n,
        "wrong": wrong,
        "traffic_gbs": 2 * n * bandwidth,
        "raw_nccl_us_median": None,
        "limit": None,
        "limit_gbs": None,
        "percent_of_limit": None,
    }


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=2)
        file.write("\n")
