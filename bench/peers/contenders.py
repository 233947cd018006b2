# SPDX-License-Identifier: Apache-2.0
"""Who can be measured in a scene, and by which command."""
import dataclasses
import os
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
# What keeps the C library from giving memory back to the system, so that the next call need not fetch it, zeroed, again.
KEPT_ALLOCATIONS = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(64 << 30), "MALLOC_TOP_PAD_": str(64 << 20)}
CONGESTION_CONTROL = "reno"  # of all namespaces: kernels have it without a module
SLOW_ROUNDS = 2


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

    def missing(self, tools):
        """Why it cannot run; None: it can."""
        raise NotImplementedError

    def fits(self, scene, tools):
        raise NotImplementedError

    def command(self, scene, tools, arguments):
        raise NotImplementedError

    def environment(self):
        return {}

    def is_slow(self, scene, tools):
        """Whether a call takes so long there that only few sizes and rounds are affordable."""
        return False

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

    def fits(self, scene, tools):
        return not self.foreign or (scene.workers > 0 and not scene.rate)

    def command(self, scene, tools, arguments):
        command = [tools.program("crossdevice-bench"), *arguments, *(["--foreign"] if self.foreign else [])]
        if scene.workers == 0:
            return [*command, "-g", str(scene.devices), "--ops", "hierarchical_copy"]
        command += ["--workers", str(scene.workers), *namespace_flags(scene)]
        return in_namespaces(scene, tools, command) if scene.rate else command


@dataclasses.dataclass(frozen=True)
class Mpi(Contender):
    flavour: str = "openmpi"
    keeps_allocations: bool = False

    def missing(self, tools):
        if not os.path.exists(tools.program(f"peer-{self.flavour}")):
            return "not built (cmake/install-dependencies --with-peers, then ninja peers)"
        return None if self._mpirun() else f"no mpirun of {self.flavour}"

    def fits(self, scene, tools):
        if scene.workers == 0 or (scene.rate and self.keeps_allocations):
            return False
        if self.flavour == "mpich":  # spins without letting others run
            return not scene.rate and scene.workers <= 2 * tools.num_cores
        return True

    def command(self, scene, tools, arguments):
        command = [tools.program(f"peer-{self.flavour}"), *arguments]
        if scene.rate:
            flags = ["--workers", str(scene.workers), *namespace_flags(scene)]
            return in_namespaces(scene, tools, [str(HERE / "openmpi-in-namespaces"), *command, *flags])
        is_crowded = scene.workers > tools.num_cores
        oversubscribe = ["--oversubscribe"] if self.flavour == "openmpi" and is_crowded else []
        return [self._mpirun(), *oversubscribe, "-n", str(scene.workers), *command]

    def environment(self):
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if mpirun := self._mpirun():
            allowed["OPENMPI_MPIRUN"] = mpirun
        return allowed | (KEPT_ALLOCATIONS if self.keeps_allocations else {})

    def is_slow(self, scene, tools):
        return self.flavour == "mpich" and scene.workers > tools.num_cores

    def version(self, tools):
        return package_version({"openmpi": "libopenmpi3", "mpich": "libmpich12"}[self.flavour])

    def _mpirun(self):
        return shutil.which(f"mpirun.{self.flavour}")


@dataclasses.dataclass(frozen=True)
class Gloo(Contender):
    control: str = ""  # congestion control; empty: the machine's

    def missing(self, tools):
        if not os.path.exists(tools.program("peer-gloo")):
            return "not built (cmake/install-dependencies --with-peers, then ninja peers)"
        return "a congestion control of its own needs root" if self.control and not can_make_namespaces() else None

    def fits(self, scene, tools):
        return scene.workers > 0 and not (scene.rate and self.control)

    def command(self, scene, tools, arguments):
        command = [tools.program("peer-gloo"), *arguments, "--workers", str(scene.workers), *namespace_flags(scene)]
        if scene.rate:
            return in_namespaces(scene, tools, command)
        run = [tools.program("crossdevice-run"), "--plain", "-n", str(scene.workers)]
        if self.control:
            return [*run, "--netns", "1", "--", str(HERE / "in-namespace"), self.control, *command]
        return [*run, "--", *command]

    def version(self, tools):
        return package_version("libgloo0")


@dataclasses.dataclass(frozen=True)
class Python(Contender):
    is_python: bool = True
    script: str = ""
    module: str = ""
    has_workers: bool = True

    def missing(self, tools):
        if tools.python is None:
            return "no --environment (bench/peers/make-environment makes one)"
        return None if self.version(tools) else f"{tools.python} has no {self.module}"

    def fits(self, scene, tools):
        return (scene.workers > 0) == self.has_workers and scene.workers <= 4

    def command(self, scene, tools, arguments):
        command = [str(tools.python), str(HERE / self.script), *arguments, *namespace_flags(scene)]
        if scene.rate:
            return in_namespaces(scene, tools, command)
        if scene.workers == 0:
            return [*command, "-g", str(scene.devices)]
        return [tools.program("crossdevice-run"), "--plain", "-n", str(scene.workers), "--", *command]

    def is_slow(self, scene, tools):
        return True

    def version(self, tools):
        code = f"import importlib.metadata as m; print(m.version('{self.module}'))"
        done = subprocess.run([str(tools.python), "-c", code], capture_output=True, text=True, check=False)
        return done.stdout.strip() or None


CONTENDERS = (
    Ours("crossdevice", "crossdevice"),
    Ours("crossdevice-foreign", "crossdevice, memory not from its pool", foreign=True),
    Mpi("openmpi", "Open MPI"),
    Mpi("openmpi-kept", "Open MPI, allocations kept", keeps_allocations=True),
    Mpi("mpich", "MPICH", flavour="mpich"),
    Gloo("gloo", "Gloo"),
    Gloo("gloo-reno", "Gloo, TCP reno", control="reno"),
    Python("torch", "PyTorch (Gloo)", script="torch_peer.py", module="torch"),
    Python("tensorflow", "TensorFlow", script="tensorflow_peer.py", module="tensorflow-cpu", has_workers=False),
    Python("tensorflow-workers", "TensorFlow workers", script="tensorflow_workers_peer.py", module="tensorflow-cpu"),
)
