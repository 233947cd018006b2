#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench_gpu_kernels measures, as PyTorch does it: packing a model's gradients with torch.cat or torch._foreach_copy_, unpacking them with
torch._foreach_copy_, summing buffers with a chain of torch.add. Each in turns with a flat copy that reads and writes as many bytes, as there.

    torch_kernels.py [--workloads DIRECTORY] [--rounds N] [--json FILE]

Needs PyTorch and a GPU; exits with 77 where one is missing. The bytes of a row are what our kernel moves for the same work, so that equal percentages
are equal times: a chain of N - 1 additions itself moves 3 (N - 1) buffers where N + 1 would do.
"""
import argparse
import csv
import json
import pathlib
import statistics
import sys
import time

CALLS = 20  # between two looks at the clock
MIB = 1 << 20


def seconds_each(torch, enqueue):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        enqueue()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / CALLS


def compare_with_copy(torch, traffic_bytes, rounds, enqueue):
    """(median seconds, median percent of a copy, the percents' range)"""
    source = torch.zeros(traffic_bytes // 2, dtype=torch.uint8, device="cuda")
    destination = torch.empty_like(source)
    copy = lambda: destination.copy_(source)
    for _ in range(3):
        copy()
        enqueue()
    times, percents = [], []
    for _ in range(rounds):
        limit = seconds_each(torch, copy)
        times.append(seconds_each(torch, enqueue))
        percents.append(100 * limit / times[-1])
    return statistics.median(times), statistics.median(percents), (min(percents), max(percents))


def sizes_of(path):
    with open(path, newline="") as file:
        return [int(row["numel"]) for row in csv.DictReader(file)]


def packing_rows(torch, model, sizes):
    tensors = [torch.zeros(size, device="cuda") for size in sizes]
    flat = torch.empty(sum(sizes), device="cuda")
    views = list(torch.split(flat, sizes))

    def unpack():
        torch._foreach_copy_(tensors, views)
        torch._foreach_div_(tensors, 8)

    def cat():
        torch.cat(tensors, out=flat)
        unpack()

    def foreach_copy():
        torch._foreach_copy_(views, tensors)
        unpack()

    traffic = 4 * 4 * sum(sizes)
    yield f"pack_unpack/{model}/float32/cat", traffic, cat
    yield f"pack_unpack/{model}/float32/foreach_copy", traffic, foreach_copy


def adding_rows(torch):
    for name in ("float32", "bfloat16"):
        dtype = getattr(torch, name)
        for count in (2, 4, 8):
            inputs = [torch.zeros(64 * MIB // dtype.itemsize, dtype=dtype, device="cuda") for _ in range(count)]
            result = torch.empty_like(inputs[0])

            def add(inputs=inputs, result=result):
                torch.add(inputs[0], inputs[1], out=result)
                for each in inputs[2:]:
                    torch.add(result, each, out=result)

            yield f"reduce/SUM/{name}/{count}/{64 * MIB}", (count + 1) * 64 * MIB, add


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=pathlib.Path, default=pathlib.Path(__file__).parents[1] / "workloads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("SKIPPED: no PyTorch in this Python")
        return 77
    if not torch.cuda.is_available():
        print("SKIPPED: no GPU: PyTorch sees none")
        return 77
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    rows = []

    def measure(name, traffic, enqueue):
        seconds, percent, spread = compare_with_copy(torch, traffic, arguments.rounds, enqueue)
        rows.append({"name": name, "us": seconds * 1e6, "percent_of_copy": percent, "percents": spread})
        print(f"{name:45} {seconds * 1e6:9.1f} us {percent:6.1f} % of copy ({spread[0]:.1f} to {spread[1]:.1f})", flush=True)

    for model in ("resnet50", "bert_large", "gpt2_124m"):
        for row in packing_rows(torch, model, sizes_of(arguments.workloads / f"{model}.csv")):
            measure(*row)
    for row in adding_rows(torch):
        measure(*row)
    if arguments.json:
        arguments.json.write_text(json.dumps(
            {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "rounds": arguments.rounds, "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
