# SPDX-License-Identifier: Apache-2.0
"""Who can be measured in a scene, and by which command."""
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# What keeps the C library from giving memory back to the system, so that the next call need not fetch it, zeroed, again; and has it ask for huge pages, as
# our pool does.
KEPT_ALLOCATIONS = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(64 << 30), "MALLOC_TOP_PAD_": str(64 << 20),
                    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
CONGESTION_CONTROL = "reno"  # of all namespaces: kernels have it without a module
PYTHON_ROUNDS = 3  # their programs take many seconds to start
BETWEEN_PROCESSES = "between processes only"
NOTHING_TO_PACK = "packs lists of gradients, and there is none"
# How the gradients of a list are reduced.
IN_ONE_CALL = "in one call for the list"
ONE_BY_ONE = "in one call for each tensor, after the end of the one before"
PACKED = ("packed by hand: copied to one buffer, which keeps its memory, reduced there in one call and copied back, all in the time that is shown, "
          "which is that of the list alone")
IN_BUCKETS = "in DDP's buckets, where they lie from the beginning, a call for each bucket, all under way at once"
CONCATENATED = "in one call for the list, of which TensorFlow makes one tensor and splits it again"
NODE_BY_NODE = "in one graph with a reduction of each tensor"


@dataclasses.dataclass(frozen=True)
class Tools:
    """Where the programs are."""

    programs: pathlib.Path  # a build's bin
    python: pathlib.Path | None  # of bench/peers/make-environment; None: no peers in Python
    num_cores: int

    def program(self, name):
        return str(self.programs / name)


@dataclasses.dataclass(frozen=True)
class Contender:
    name: str
    title: str
    is_ours: bool = False
    is_python: bool = False
    packs: bool = False  # a list of tensors, by hand; measures nothing else

    def missing(self, tools):
        """Why it cannot run; None: it can."""
        raise NotImplementedError

    def absence(self, scene, tools):
        """Why it is not in a scene, for the page; None: it is."""
        raise NotImplementedError

    def command(self, scene, tools, arguments):
        raise NotImplementedError

    def environment(self):
        return {}

    def is_slow(self, scene, tools):
        """Whether a call takes so long there that only few sizes are affordable."""
        return False

    def has_own_cores(self):
        """Whether each worker is bound to cores of its own where there are enough of them."""
        return False

    def max_rounds(self):
        """How many turns are affordable."""
        return sys.maxsize

    def packing_flags(self):
        return ["--packed"] if self.packs else []

    def remark(self, scene, tools):
        """What a reader of the page must know of how it was measured there; None: nothing."""
        return None

    def how_lists(self, algorithm):
        """How it reduces the gradients of a list with that algorithm of a row."""
        return PACKED if self.packs else ONE_BY_ONE

    def version(self, tools):
        return None


def in_namespaces(scene, tools, command, control=CONGESTION_CONTROL):
    return [tools.program("crossdevice-run"), "--plain", "-n", str(scene.workers), "--netns", str(scene.workers), "--rate", scene.rate,
            "--", str(HERE / "in-namespace"), control, *command]


def namespace_flags(scene):
    return ["--netns", str(scene.workers), "--rate", scene.rate] if scene.rate else []


def can_make_namespaces():
    return os.geteuid() == 0 and shutil.which("ip") is not None and shutil.which("tc") is not None


def package_version(package):
    if shutil.which("dpkg-query") is None:
        return None
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


@dataclasses.dataclass(frozen=True)
class Ours(Contender):
    is_ours: bool = True
    foreign: bool = False

    def missing(self, tools):
        return None if os.path.exists(tools.program("crossdevice-bench")) else "not built (ninja crossdevice-bench crossdevice-run)"

    def absence(self, scene, tools):
        if self.foreign and (scene.workers == 0 or scene.rate):
            return "where memory is from matters only between processes of one host"
        return None

    def how_lists(self, algorithm):
        return IN_ONE_CALL

    def command(self, scene, tools, arguments):
        command = [tools.program("crossdevice-bench"), *arguments, *(["--foreign"] if self.foreign else [])]
        if scene.workers == 0:
            return [*command, "-g", str(scene.devices)]  # and the ops that the library takes by itself
        command += ["--workers", str(scene.workers), *namespace_flags(scene)]
        return in_namespaces(scene, tools, command) if scene.rate else command

    def has_own_cores(self):
        return True


@dataclasses.dataclass(frozen=True)
class Mpi(Contender):
    flavour: str = "openmpi"
    keeps_allocations: bool = False

    def missing(self, tools):
        if not os.path.exists(tools.program(f"peer-{self.flavour}")):
            return "not built (cmake/install-dependencies --with-peers, then ninja peers)"
        return None if self._mpirun() else f"no mpirun of {self.flavour}"

    def absence(self, scene, tools):
        if scene.workers == 0:
            return BETWEEN_PROCESSES
        if self.packs and not scene.has_lists:
            return NOTHING_TO_PACK
        if self.flavour == "mpich" and scene.workers > 2 * tools.num_cores:
            return "spins without letting others run, which more than two workers on a core make unbearable"
        return None

    def command(self, scene, tools, arguments):
        command = [tools.program(f"peer-{self.flavour}"), *arguments, *self.packing_flags()]
        if scene.rate:
            flags = ["--workers", str(scene.workers), *namespace_flags(scene)]
            return in_namespaces(scene, tools, [str(HERE / "mpi-in-namespaces"), self.flavour, *command, *flags])
        return [self._mpirun(), *self._binding(scene.workers, tools.num_cores), "-n", str(scene.workers), *command]

    def _binding(self, num_workers, num_cores):
        """A core for each worker where there are enough, as crossdevice-bench has it. A process of MPI has one thread, which needs no more."""
        is_crowded = num_workers > num_cores
        if self.flavour == "mpich":
            return ["-bind-to", "none" if is_crowded else "core"]
        return ["--oversubscribe", "--bind-to", "none"] if is_crowded else ["--bind-to", "core"]

    def environment(self):
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if mpirun := self._mpirun():
            allowed["PEER_MPIRUN"] = mpirun
        return allowed | (KEPT_ALLOCATIONS if self.keeps_allocations else {})

    def is_slow(self, scene, tools):
        return self.flavour == "mpich" and scene.workers > tools.num_cores

    def has_own_cores(self):
        return True

    def remark(self, scene, tools):
        if self.is_slow(scene, tools):
            return "MPICH spins without letting others run, which costs it much where workers share a core"
        return None

    def version(self, tools):
        return None if self.packs else package_version({"openmpi": "libopenmpi3", "mpich": "libmpich12"}[self.flavour])

    def _mpirun(self):
        return shutil.which(f"mpirun.{self.flavour}")


@dataclasses.dataclass(frozen=True)
class Gloo(Contender):
    control: str = ""  # congestion control; empty: the machine's

    def missing(self, tools):
        if not os.path.exists(tools.program("peer-gloo")):
            return "not built (cmake/install-dependencies --with-peers, then ninja peers)"
        return "a congestion control of its own needs root" if self.control and not can_make_namespaces() else None

    def absence(self, scene, tools):
        if scene.workers == 0:
            return BETWEEN_PROCESSES
        if self.packs and not scene.has_lists:
            return NOTHING_TO_PACK
        return f"all namespaces have {CONGESTION_CONTROL}" if scene.rate and self.control else None

    def command(self, scene, tools, arguments):
        command = [tools.program("peer-gloo"), *arguments, *self.packing_flags(), "--workers", str(scene.workers), *namespace_flags(scene)]
        if scene.rate:
            return in_namespaces(scene, tools, command)
        run = [tools.program("crossdevice-run"), "--plain", "-n", str(scene.workers)]
        if self.control:
            return [*run, "--netns", "1", "--", str(HERE / "in-namespace"), self.control, *command]
        return [*run, "--", *command]

    def is_slow(self, scene, tools):
        return scene.workers > tools.num_cores and not scene.rate

    def version(self, tools):
        version = None if self.packs else package_version("libgloo0")
        return version and f"{version} (Debian's, built without AVX; its ring algorithm, whatever the size)"  # as gloo_peer.cc asks for


@dataclasses.dataclass(frozen=True)
class Python(Contender):
    is_python: bool = True
    script: str = ""
    module: str = ""
    lists: str = CONCATENATED
    has_workers: bool = True
    own_cores: bool = False

    def missing(self, tools):
        if tools.python is None:
            return "no --environment (bench/peers/make-environment makes one)"
        return None if self.version(tools) else f"{tools.python} has no {self.module}"

    def absence(self, scene, tools):
        if (scene.workers > 0) != self.has_workers:
            return BETWEEN_PROCESSES if self.has_workers else "within a process only"
        return None

    def command(self, scene, tools, arguments):
        command = [str(tools.python), str(HERE / self.script), *arguments, *namespace_flags(scene)]
        if scene.rate:
            return in_namespaces(scene, tools, command)
        if scene.workers == 0:
            return [*command, "-g", str(scene.devices)]
        bind = ["--bind"] if self.own_cores else []
        return [tools.program("crossdevice-run"), "--plain", *bind, "-n", str(scene.workers), "--", *command]

    def is_slow(self, scene, tools):
        return True

    def has_own_cores(self):
        return self.own_cores

    def max_rounds(self):
        return PYTHON_ROUNDS

    def how_lists(self, algorithm):
        return NODE_BY_NODE if algorithm == "reduction_to_one_device" else self.lists

    def version(self, tools):
        code = f"import importlib.metadata as m; print(m.version('{self.module}'))"
        done = subprocess.run([str(tools.python), "-c", code], capture_output=True, text=True, check=False)
        return done.stdout.strip() or None


CONTENDERS = (
    Ours("crossdevice", "crossdevice"),
    Ours("crossdevice-foreign", "crossdevice, memory not from its pool", foreign=True),
    Mpi("openmpi", "Open MPI"),
    Mpi("openmpi-packed", "Open MPI, packed by hand", packs=True),
    Mpi("openmpi-kept", "Open MPI, allocations kept", keeps_allocations=True),
    Mpi("openmpi-kept-packed", "Open MPI, allocations kept, packed by hand", keeps_allocations=True, packs=True),
    Mpi("mpich", "MPICH", flavour="mpich"),
    Mpi("mpich-kept", "MPICH, allocations kept", flavour="mpich", keeps_allocations=True),
    Mpi("mpich-packed", "MPICH, packed by hand", flavour="mpich", packs=True),
    Gloo("gloo", "Gloo"),
    Gloo("gloo-packed", "Gloo, packed by hand", packs=True),
    Gloo("gloo-reno", "Gloo, TCP reno", control="reno"),
    Gloo("gloo-reno-packed", "Gloo, TCP reno, packed by hand", control="reno", packs=True),
    Python("torch", "PyTorch (Gloo)", script="torch_peer.py", module="torch", lists=IN_BUCKETS),
    Python("tensorflow", "TensorFlow", script="tensorflow_peer.py", module="tensorflow-cpu", has_workers=False),
    Python("tensorflow-workers", "TensorFlow workers", script="tensorflow_workers_peer.py", module="tensorflow-cpu", own_cores=True),
)


def listed(titles):
    """Of which some have commas."""
    return "; ".join(titles)


def binding_remark(scene, present, tools):
    """Who is bound to cores."""
    if scene.workers == 0 or scene.rate:
        return "Nobody is bound to cores"
    if scene.workers > tools.num_cores:
        return "Nobody is bound to cores, of which there are fewer than workers"
    bound = [contender.title for contender in present if contender.has_own_cores()]
    free = [contender.title for contender in present if not contender.has_own_cores()]
    text = f"Each worker is bound to cores of its own: {listed(bound)}"
    return text + (f". Not bound, as the threads of a worker stall each other on one core: {listed(free)}" if free else "")


def max_rounds(contender, scene):
    return 1 if contender.name in scene.once else contender.max_rounds()


def remarks(scene, present, tools):
    """What a reader of the page must know of a scene: sentences without their full stops."""
    own = dict.fromkeys(contender.remark(scene, tools) for contender in present)
    few = [contender.title for contender in present if scene.slow_work and contender.is_slow(scene, tools) and contender.name not in scene.once]
    once = [contender.title for contender in present if contender.name in scene.once]
    found = [binding_remark(scene, present, tools), *(text for text in own if text)]
    found += [f"At few sizes, as their calls take long: {listed(few)}"] if few else []
    return found + ([f"One round of two calls, as they take long: {listed(once)}"] if once else [])


def reason_of_absence(contender, scene, tools):
    """Its own, or the time that it would take; None: it is there."""
    own = contender.absence(scene, tools)
    return own or ("left out for the time that a round would take" if contender.name in scene.too_slow else None)


def absences(scene, tools, reasons):
    """{reason: [name]} of all who are not in a scene; reasons: {name: reason} of those who are in none."""
    found = {}
    for contender in CONTENDERS:
        reason = reason_of_absence(contender, scene, tools) or reasons.get(contender.name)
        if reason:
            found.setdefault(reason, []).append(contender.name)
    return found
