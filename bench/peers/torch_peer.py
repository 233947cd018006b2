# SPDX-License-Identifier: Apache-2.0
"""Measures torch.distributed's all_reduce with the Gloo back-end; gradient lists in DDP's buckets, which lie in memory as its gradients do
(gradient_as_bucket_view), all at once. Started by crossdevice-run; PEER_STORE names an empty directory."""
import os

import peer_rows
import peer_team
import peer_values
import torch
import torch.distributed as dist

# DDP's: the bucket that is ready first is small.
FIRST_BUCKET_BYTES = dist._DEFAULT_FIRST_BUCKET_BYTES
BUCKET_BYTES = 25 << 20


class Buffers:
    """One call's: each tensor a part of the flat buffer of its bucket."""

    def __init__(self, case, replica):
        self.inputs = [torch.from_numpy(array) for array in peer_values.inputs_of(case, replica)]
        reverse = list(reversed(range(len(case.counts))))  # the order in which back-propagation makes gradients
        if len(reverse) > 1:
            buckets, _ = dist._compute_bucket_assignment_by_size(
                [self.inputs[t] for t in reverse], [FIRST_BUCKET_BYTES, BUCKET_BYTES])
            buckets = [[reverse[i] for i in bucket] for bucket in buckets]
        else:
            buckets = [[0]]
        self.flats = []
        self.tensors = [None] * len(case.counts)
        for bucket in buckets:
            flat = torch.empty(sum(case.counts[t] for t in bucket), dtype=torch.float32)
            self.flats.append(flat)
            for t, piece in zip(bucket, flat.split([case.counts[t] for t in bucket]), strict=True):
                self.tensors[t] = piece

    def rewrite(self):
        for tensor, values in zip(self.tensors, self.inputs, strict=True):
            tensor.copy_(values)

    def reduce(self):
        if len(self.flats) == 1:
            dist.all_reduce(self.flats[0])
            return
        for work in [dist.all_reduce(flat, async_op=True) for flat in self.flats]:
            work.wait()


def line_up(token=torch.zeros(1)):
    for _ in range(peer_rows.REDUCTIONS_PER_LINE_UP):
        dist.all_reduce(token, dist.ReduceOp.MAX)


def measure(case, arguments, team, placing):
    calls = peer_rows.calls_per_sample(case, team.num_workers, team.num_hosts)
    sets = [Buffers(case, team.rank) for _ in range(calls)]
    sets[0].rewrite()
    sets[0].reduce()
    wrong = sum(team.all_gather(peer_values.count_wrong(case, team.num_workers, sets[0].tensors)))
    samples = peer_rows.time_samples(
        arguments, calls, lambda i: sets[i].rewrite(), line_up, lambda i: sets[i].reduce())
    algorithm = "gloo" if case.op == "all_reduce" else "gloo, DDP's buckets"
    return peer_rows.row_of(case, placing, "torch", algorithm, True, team.slowest(samples), wrong)


def main():
    arguments = peer_rows.parse_arguments()
    team = peer_team.Team()
    os.environ["GLOO_SOCKET_IFNAME"] = team.interface
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{team.chief_address}", rank=team.rank, world_size=team.num_workers)
    placing = peer_rows.Placing(team.num_workers, team.num_workers, team.num_hosts, arguments.netns, arguments.rate)
    rows = [measure(case, arguments, team, placing) for case in peer_rows.cases_of(arguments)]
    if team.rank == 0:
        peer_rows.write_rows(arguments.json, rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
