# SPDX-License-Identifier: Apache-2.0
"""What bench/compare measures: each scene is one arrangement of replicas, and the sizes or gradients that they reduce."""
import dataclasses
import pathlib

ROUNDS = 5
ONCE_CALLS = ("-n", "2", "-w", "0", "--rounds", "1")
HERE = pathlib.Path(__file__).resolve().parent
WORKLOADS = HERE.parent / "workloads"


@dataclasses.dataclass(frozen=True)
class Sizes:
    minimum: str
    maximum: str
    factor: int

    def flags(self):
        return ["-b", self.minimum, "-e", self.maximum, "-f", str(self.factor)]


@dataclasses.dataclass(frozen=True)
class Gradients:
    model: str
    folder: pathlib.Path = WORKLOADS

    def flags(self):
        return ["--gradients", str(self.folder / f"{self.model}.csv")]


@dataclasses.dataclass(frozen=True)
class Scene:
    name: str
    title: str
    work: tuple  # of Sizes and Gradients: each is one run of a program
    slow_work: tuple = ()  # for contenders whose calls take long here; empty: the same
    workers: int = 0  # 0: one process
    devices: int = 1  # of each process
    rate: str = ""  # of the link of each worker, which is in a namespace of its own; empty: one host
    iterations: int = 5
    warmup: int = 2
    rounds: int = ROUNDS
    too_slow: tuple = ()  # names of contenders that would take minutes a round
    once: tuple = ()  # names of contenders for which there is time for one round of few calls
    once_work: tuple = ()  # theirs; empty: as for other contenders

    @property
    def replicas(self):
        return max(1, self.workers) * self.devices

    @property
    def has_lists(self):
        """Whether lists of tensors are reduced, and not single ones alone."""
        return any(isinstance(work, Gradients) for work in self.work)

    def work_for(self, name, is_slow):
        if name in self.once and self.once_work:
            return self.once_work
        return self.slow_work if is_slow and self.slow_work else self.work

    def calls_for(self, name):
        """The flags."""
        return list(ONCE_CALLS) if name in self.once else ["-n", str(self.iterations), "-w", str(self.warmup)]


ALL_SIZES = (Sizes("8", "64M", 2),)
LARGE = Sizes("64M", "64M", 2)
SOME_SIZES = (Sizes("8", "8M", 32), LARGE)
SMALLEST = (Sizes("8", "512", 2),)
SMALLEST_ACROSS = (Sizes("8", "512", 8),)
FEW_SIZES = (Sizes("8", "8M", 1024),)
ONE_SIZE = (Sizes("8M", "8M", 2),)
PYTHON = ("torch", "tensorflow-workers")


def scenes(num_cores):
    def on_cores(workers):
        return f"{workers} workers on {num_cores} cores" + (" (oversubscribed)" if workers > num_cores else "")

    yield Scene("workers-2", on_cores(2), ALL_SIZES, SOME_SIZES, workers=2)
    yield Scene("workers-2-small", f"{on_cores(2)}, the smallest values, more rounds", SMALLEST, workers=2, rounds=4 * ROUNDS, iterations=500, warmup=50,
                too_slow=("gloo", "gloo-reno", *PYTHON))
    yield Scene("workers-4", on_cores(4), ALL_SIZES, (*FEW_SIZES, LARGE), workers=4, warmup=1)
    for model, too_slow, once in (("resnet50", (), ()), ("bert_base", ("mpich", "mpich-kept", "gloo", "gloo-reno"), ("tensorflow-workers",))):
        yield Scene(f"gradients-{model}", f"{on_cores(2)}, gradients of {model}", (Gradients(model),), workers=2, warmup=0, too_slow=too_slow, once=once)
    for devices in (2, 4, 8):
        yield Scene(f"devices-{devices}", f"one process, {devices} host devices", SOME_SIZES, devices=devices)
    yield Scene("devices-2-resnet50", "one process, 2 host devices, gradients of resnet50", (Gradients("resnet50"),), devices=2)
    for workers in (3, 5, 8):
        yield Scene(f"workers-{workers}", on_cores(workers), FEW_SIZES, workers=workers, warmup=1, once=PYTHON, once_work=ONE_SIZE)
    yield from network_scenes()


def network_scenes():
    """A call takes up to some seconds here, of which warming up saves nothing: values were checked in an untimed call before. Small ones take microseconds, and
    workers that share cores fall into a rhythm only after some thousands of them: that scene has as many samples as the plain sockets that bound it."""
    title = "4 workers in 4 network namespaces with links of"
    for rate, largest, ends in (("1gbit", "64M", 1 << 23), ("200mbit", "4M", 1 << 19)):
        yield Scene(f"network-{rate}", f"{title} {rate}", (Sizes("8", "512K", 256), Sizes(largest, largest, 2)), (Sizes("8", largest, ends),),
                    workers=4, rate=rate, warmup=0, too_slow=("mpich-kept",))
    yield Scene("network-1gbit-small", f"{title} 1gbit, the smallest values, more calls", SMALLEST_ACROSS, workers=4, rate="1gbit", iterations=150, warmup=0,
                rounds=2 * ROUNDS, too_slow=("mpich", "mpich-kept", "gloo", "gloo-reno", *PYTHON))
    yield Scene("network-1gbit-resnet50", f"{title} 1gbit, gradients of resnet50", (Gradients("resnet50"),), workers=4, rate="1gbit", warmup=0,
                too_slow=("openmpi-kept-packed", "mpich", "mpich-kept"), once=PYTHON)


def quick_scenes():
    """Whether everything runs, in seconds; their figures mean nothing."""
    little = (Sizes("8", "32K", 64),)
    yield Scene("workers-2", "2 workers", little, workers=2, warmup=0, rounds=2)
    yield Scene("gradients-resnet50", "2 workers, a list of few and small tensors", (Gradients("quick_list", HERE),), workers=2, warmup=0, rounds=1)
    yield Scene("devices-2", "one process, 2 host devices", little, devices=2, warmup=0, rounds=1)
    yield Scene("network-1gbit", "2 workers in 2 network namespaces with links of 1gbit", little, workers=2, rate="1gbit", warmup=0, rounds=1)
