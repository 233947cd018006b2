# SPDX-License-Identifier: Apache-2.0
"""What a comparison's page says of the machine and of everybody's versions. As a program: prints the processor's title."""
import datetime
import os
import pathlib
import platform
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def _first_line(path, default="unknown"):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").splitlines()[0].strip()
    except (OSError, IndexError):
        return default


CPU_INFO = pathlib.Path("/proc/cpuinfo")
# The widest first: the flag that /proc/cpuinfo has of each.
VECTOR_EXTENSIONS = {"avx512f": "AVX-512", "avx2": "AVX2"}
MAX_LOAD_PER_CORE = 0.5
MAX_BUSY_SHARE = 0.1
IDLE_SECONDS = 1.0
MAX_IDLE_WAITS = 5
SETTLED_LOAD = 1.0
SETTLE_SECONDS = 5.0
MAX_SETTLE_SECONDS = 120.0


def num_cores():
    return len(os.sched_getaffinity(0))


def _processor():
    """{name: value} that /proc/cpuinfo has of the first processor."""
    first = CPU_INFO.read_text(encoding="utf-8").strip().partition("\n\n")[0]
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}


def _name_and_numbers(processor):
    """"AMD EPYC", and "family 25" and "model 1" as far as they are known: hypervisors give one name to processors that differ."""
    name = processor.get("model name") or platform.processor() or "unknown processor"
    return name, [f"{title} {processor[field]}" for title, field in (("family", "cpu family"), ("model", "model")) if field in processor]


def cpu_title():
    """"AMD EPYC (family 25, model 1, AVX2)"."""
    processor = _processor()
    name, numbers = _name_and_numbers(processor)
    about = list(numbers)
    if "flags" in processor:  # what x86 calls them
        flags = processor["flags"].split()
        about.append(next((title for flag, title in VECTOR_EXTENSIONS.items() if flag in flags), "no AVX2"))
    return f"{name} ({', '.join(about)})" if about else name


def folder_name():
    """"amd-epyc-family-25-model-1-2-cores"."""
    name, numbers = _name_and_numbers(_processor())
    words = re.sub(r"[^a-z0-9]+", "-", " ".join([name, *numbers, f"{num_cores()} cores"]).lower())
    return words.strip("-")


def _git(*arguments):
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def commit():
    """"-dirty" where something differs from it that is no result: those a comparison writes itself, scene by scene."""
    name = _git("describe", "--always", "--abbrev=12")
    is_dirty = name and _git("status", "--porcelain", "--", ".", ":!bench/results")
    return (name or "unknown") + ("-dirty" if is_dirty else "")


def load_average():
    return os.getloadavg()[0]


def settled_load_average():
    """The load average, as soon as it is below 1; in any case after MAX_SETTLE_SECONDS."""
    deadline = time.monotonic() + MAX_SETTLE_SECONDS
    while (load := load_average()) >= SETTLED_LOAD and time.monotonic() < deadline:
        time.sleep(SETTLE_SECONDS)
    return load


def load_warning(load):
    """For the beginning of a run: later the run itself is in the average."""
    per_core = load / num_cores()
    if per_core <= MAX_LOAD_PER_CORE:
        return None
    return f"Other programs ran shortly before: the load average was {load:.1f}, {per_core:.1f} per core."


def processor_times():
    """Of all cores: (busy, all), in ticks. Time that the hypervisor gave to others counts as busy."""
    fields = [int(field) for field in _first_line("/proc/stat", "cpu").split()[1:9]]
    return sum(fields) - sum(fields[3:5]), sum(fields)


def busy_share():
    """The share of all cores that others used in a second in which the comparison slept; the quietest of a few, as a scene before leaves work behind."""
    quietest = 1.0
    for _ in range(MAX_IDLE_WAITS):
        busy_before, all_before = processor_times()
        time.sleep(IDLE_SECONDS)
        busy_after, all_after = processor_times()
        quietest = min(quietest, (busy_after - busy_before) / max(1, all_after - all_before))
        if quietest <= MAX_BUSY_SHARE:
            break
    return quietest


def busy_warning(share):
    return f"Other programs ran: {100 * share:.0f} % of the cores were busy before the scene began." if share > MAX_BUSY_SHARE else None


def describe(present, tools, load):
    memory_kib = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text(encoding="utf-8")).group(1))
    huge_pages = "/sys/kernel/mm/transparent_hugepage"
    facts = {
        "cpu": cpu_title(),
        "cores": num_cores(),
        "Memory": f"{memory_kib / (1 << 20):.1f} GiB",
        "Kernel": platform.release(),
        "Huge pages": f"ordinary memory {_first_line(f'{huge_pages}/enabled')}, shared memory by itself {_first_line(f'{huge_pages}/shmem_enabled')}, "
                      f"{_pool_huge_pages(tools)}",
        "TCP congestion control": f"{_first_line('/proc/sys/net/ipv4/tcp_congestion_control')}; in namespaces {_namespaces_control()}",
        "Date": datetime.datetime.now(datetime.timezone.utc).strftime("%F %H:%M UTC"),
        "Commit": commit(),
        "Load average before": f"{load:.1f}",
    }
    for contender in present:
        version = contender.version(tools)
        if version:
            facts[contender.title] = version
    return facts


def _pool_huge_pages(tools):
    """Whether the library's pool gets those that it asks for: the first line of crossdevice-bench says so."""
    done = subprocess.run([tools.program("crossdevice-bench"), "-g", "1", "-b", "8", "-e", "8", "-n", "1", "-w", "0"],
                          stdout=subprocess.PIPE, text=True, check=True)
    return f"the pool's memory, which asks for them: {pool_huge_pages_in(done.stdout)}"


def pool_huge_pages_in(table):
    """"yes" or "no", as the first line of a table of crossdevice-bench has it."""
    found = re.search(r"huge pages for the pool's memory: (yes|no)", table)
    if not found:
        raise ValueError(f"crossdevice-bench does not say whether the pool has huge pages: {table[:200]!r}")
    return found.group(1)


def _namespaces_control():
    import contenders

    return contenders.CONGESTION_CONTROL


if __name__ == "__main__":
    print(cpu_title())
