// SPDX-License-Identifier: Apache-2.0
/// What crossdevice-bench --help says around its list of flags: how to read the table.
#pragma once

#include <string_view>

namespace crossdevice::bench {

inline constexpr std::string_view kHelpHead =
    "Measures reduce, broadcast and gather across the devices of this process, or all-reduce among "
    "several workers: the flags and the table of nccl-tests, every result checked, and each time "
    "held against what this machine's memory can do.";

inline constexpr std::string_view kHelpFooter = R"(
The table, one line per size; each half of it is one way to call:
  out-of-place  results go to other buffers than the inputs
  in-place      results overwrite the inputs (for reduce: those of the root)
  size          bytes of one device's input; for gather bytes of the whole result
  count         elements of that
  type, redop   element type and reduction
  root          position of the device that alone receives or sends; -1: all do
  time          median of the timed samples in microseconds, on the host's clock, until the results are complete (on GPUs: until
                the streams of all of them are idle again, which were idle before); -I adds the 10th
                and the 99th percentile
  algbw         size / time (1 GB = 1e9 bytes)
  busbw         algbw times 2(n-1)/n for all_reduce and batch_reduce, (n-1)/n for gather, 1 for reduce and broadcast: nccl-tests'
                measure, to be held against the speed of a link
  %lim          bytes that must be read and written at least, per second, in percent of the limit: how fast this machine reads and
                writes the same buffers with the same threads, measured in the same run, in turns with the operation
  raw NCCL      on GPUs, for an all_reduce of one tensor: the median of ncclAllReduce called directly on the same buffers, in turns with
                the operation (of avg the sum); - where NCCL cannot
  #wrong        elements that differ from a slow reference, in one call before the timed ones; N/A with -c 0

The limits, each the faster of two plain loops, which walk through memory in one place and in four:
  in_place_scale     every input multiplied by a constant where it lies (for in-place)
  non_temporal_copy  every input copied past the caches to memory of the same size (for out-of-place). Small buffers, which stay in the
                     caches, may well be faster than this.
  flat_buffer        with --gradients, for the batch: one all_reduce of one buffer with the same number of bytes
  flat_device_copy   on GPUs: every input copied to other memory of its own GPU, all GPUs at once
With --workers all workers run the loops at once, each over its own buffers, and the slowest counts. Workers on several hosts have no limit: -.

Before each timed call the inputs are rewritten, each device's by a thread of its own (a single one's by the caller), as gradients are: nothing is measured on buffers that
the reducing cores have left in their caches. So calls on small buffers show how long data takes to come from other cores' caches.

GPUs: --devices GPU:0,GPU:1 or -g 2, not together with host devices; several devices on one GPU (CROSSDEVICE_LOGICAL_GPUS) too, without NCCL.
A process for each GPU: --workers N --devices GPU, where the worker with local rank r takes every GPU whose index is r modulo N. "raw NCCL" is
ncclAllReduce on the same buffers, with communicators of its own; for a batch's tensors a call each in one group.

Workers: --workers N starts this program N times as crossdevice-run --bind does; under crossdevice-run, mpirun, srun and others it measures among the
workers they have started (CROSSDEVICE_LAUNCHER=none: it does not). A time is the slowest worker's. The workers line up before each sample;
where a call is short a sample is the mean of many in a row, each on buffers of its own. Rank 0 alone prints, and writes the file.

JSON: an array with one object per row and placement: op, ops, algorithm, devices (of all workers), workers (processes), hosts, namespaces
(0: none were made), rate (of each namespace's link, null: not limited), memory (pool or foreign), size_bytes, dtype, redop, in_place,
time_us_median, time_us_p10, time_us_p99, algbw_gbs, busbw_gbs, wrong (null with -c 0), traffic_gbs, limit, limit_gbs, percent_of_limit
(null where there is no limit), raw_nccl_us_median (null where there is none).

With --gradients the batch's ratio to the flat buffer is printed; in the file it is 100 / percent_of_limit of the batch's rows.
)";

}  // namespace crossdevice::bench
