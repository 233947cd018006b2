# SPDX-License-Identifier: Apache-2.0
"""What a comparison's page says of the machine and of everybody's versions."""
import datetime
import os
import pathlib
import platform
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def _first_line(path, default="unknown"):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").splitlines()[0].strip()
    except (OSError, IndexError):
        return default


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown processor"


def num_cores():
    return len(os.sched_getaffinity(0))


def folder_name():
    """"amd-epyc-2-cores"."""
    words = re.sub(r"[^a-z0-9]+", "-", f"{cpu_model()} {num_cores()} cores".lower())
    return words.strip("-")


def _commit():
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def describe(present, tools, rounds):
    memory_kib = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text(encoding="utf-8")).group(1))
    facts = {
        "cpu": cpu_model(),
        "cores": num_cores(),
        "Memory": f"{memory_kib / (1 << 20):.1f} GiB",
        "Kernel": platform.release(),
        "Huge pages": f"{_first_line('/sys/kernel/mm/transparent_hugepage/enabled')}, for shared memory {_first_line('/sys/kernel/mm/transparent_hugepage/shmem_enabled')}",
        "TCP congestion control": f"{_first_line('/proc/sys/net/ipv4/tcp_congestion_control')}; in namespaces {_namespaces_control()}",
        "Date": datetime.datetime.now(datetime.timezone.utc).strftime("%F %H:%M UTC"),
        "Commit": _commit(),
        "Rounds": rounds if rounds else "each scene's own",
    }
    for contender in present:
        version = contender.version(tools)
        if version:
            facts[contender.title] = version
    return facts


def _namespaces_control():
    import contenders

    return contenders.CONGESTION_CONTROL
