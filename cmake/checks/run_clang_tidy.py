# SPDX-License-Identifier: Apache-2.0
"""clang-tidy, as .clang-tidy says, on every source of the library and the headers it includes.

Most of clang-tidy's time goes into the headers that nearly every source includes. So it is shown several sources of a floor as
one, which takes a third of the time; those whose names collide when they are put together are shown in halves, down to one.

With --remember, what it had nothing to say about is not shown again until one of the files changes that were read for it.
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

BATCH = 10
SOURCES = r"^(src/.*|tests/odr/second_unit)\.cc$"  # the latter includes every public header
LAUNCHERS = ("ccache", "sccache", "distcc")
FORGET_AFTER_SECONDS = 30 * 24 * 3600


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, required=True, help="where .clang-tidy, include and src are")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build tree with compile_commands.json")
    parser.add_argument("--clang-tidy", required=True)
    parser.add_argument("--clang", required=True, help="clang++ of the same version")
    parser.add_argument("--version", required=True, help="the one clang-tidy must have")
    parser.add_argument("--remember", type=pathlib.Path, help="a folder for the digests of what is known to be well")
    parser.add_argument("files", nargs="?", default=SOURCES, help="only sources whose path matches this regular expression")
    return parser.parse_args()


def require_tools(arguments):
    for tool in (arguments.clang_tidy, arguments.clang):
        try:
            said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            sys.exit(f"{tool}: version {arguments.version} was not found: cmake/install-dependencies --with-tools installs it")
        if f"version {arguments.version}." not in said:
            sys.exit(f"clang-tidy {arguments.version} is needed, {tool} is {said.splitlines()[0]}")


def flags_of(words, source):
    """The compiler's, but for where the output goes, and for warnings, which are its own business."""
    with_value = {"-o", "-MF", "-MT", "-MQ"}
    flags = []
    skips_next = False
    compiler = next(index for index, word in enumerate(words) if os.path.basename(word) not in LAUNCHERS)
    for word in words[compiler + 1 :]:
        if skips_next or word in with_value:
            skips_next = not skips_next
        elif word not in ("-c", "-MD", "-MMD", source) and not word.startswith("-W"):
            flags.append(word)
    return tuple(flags)


def read_batches(arguments):
    """(flags, sources) of one folder each."""
    commands = arguments.build / "compile_commands.json"
    if not commands.exists():
        sys.exit(f"{commands} is missing: configure with CMAKE_EXPORT_COMPILE_COMMANDS=ON, as the presets do")
    groups = {}
    for entry in json.loads(commands.read_text()):
        if re.search(arguments.files, os.path.relpath(entry["file"], arguments.root)):
            flags = flags_of(shlex.split(entry["command"]), entry["file"])
            groups.setdefault((os.path.dirname(entry["file"]), flags), set()).add(entry["file"])
    for (_, flags), sources in sorted(groups.items()):
        ordered = sorted(sources)
        for begin in range(0, len(ordered), BATCH):
            yield flags, ordered[begin : begin + BATCH]


class Memory:
    """What clang-tidy had nothing to say about: an empty file each, named after everything that it read."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.room = arguments.remember
        if self.room is None:
            return
        self.room.mkdir(parents=True, exist_ok=True)
        config = (arguments.root / ".clang-tidy").read_bytes()
        version = subprocess.run([arguments.clang_tidy, "--version"], capture_output=True, check=True).stdout
        self.common = self.anywhere(config + version + pathlib.Path(__file__).read_bytes())
        for path in self.room.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another run forgets it, too
                if path.stat().st_mtime < time.time() - FORGET_AFTER_SECONDS:
                    path.unlink()

    def anywhere(self, text):
        """The same in another checkout."""
        return text.replace(bytes(self.arguments.root), b".")

    def entry(self, unit, flags):
        """None where nothing is remembered, or the files cannot be told."""
        if self.room is None:
            return None
        asked = subprocess.run([self.arguments.clang, "-M", "-MT", "unit", "-w", *flags, unit], capture_output=True, text=True, check=False)
        if asked.returncode != 0:
            return None
        digest = hashlib.sha256(self.common)
        digest.update(self.anywhere(repr(flags).encode()))
        for path in shlex.split(asked.stdout.replace("\\\n", " ").removeprefix("unit:")):
            text = pathlib.Path(path).read_bytes()
            for part in (os.path.normpath(path).encode(), text):
                part = self.anywhere(part)
                digest.update(len(part).to_bytes(8, "little") + part)
        return self.room / digest.hexdigest()


class Linter:
    def __init__(self, arguments):
        self.arguments = arguments
        self.room = arguments.build / "lint"
        self.room.mkdir(exist_ok=True)
        self.memory = Memory(arguments)

    def unit_of(self, flags, sources):
        if len(sources) == 1:
            return sources[0]
        # Of what a file with this name includes, the analyser looks at the functions, as if they stood in it.
        digest = hashlib.sha256(repr((flags, sources)).replace(str(self.arguments.root), ".").encode()).hexdigest()[:16]
        unit = self.room / f"UnifiedSource_{digest}.cc"
        unit.write_text("".join(f'#include "{source}"  // NOLINT(bugprone-suspicious-include)\n' for source in sources))
        return str(unit)

    def compiles(self, unit, flags):
        command = [self.arguments.clang, "-fsyntax-only", "-w", *flags, unit]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def lint(self, flags, sources):
        """Whether there is nothing to say; says the rest."""
        unit = self.unit_of(flags, sources)
        names = ", ".join(os.path.basename(source) for source in sources)
        known = self.memory.entry(unit, flags)
        if known is not None and known.exists():
            known.touch()
            print(f"ok, as before: {names}", flush=True)
            return True
        if len(sources) > 1 and not self.compiles(unit, flags):
            middle = len(sources) // 2
            halves = [self.lint(flags, half) for half in (sources[:middle], sources[middle:])]
            return all(halves)
        seen = f"--header-filter=^{re.escape(str(self.arguments.root))}/(include|src)/"  # the sources too, where they are put together
        command = [self.arguments.clang_tidy, "-quiet", f"--config-file={self.arguments.root / '.clang-tidy'}", seen, unit, "--", *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0 and known is not None:
            known.touch()
        print(f"{'ok' if done.returncode == 0 else 'FINDINGS'}: {names}", flush=True)
        if done.returncode != 0:
            print(done.stdout + done.stderr, flush=True)
        return done.returncode == 0


def main():
    arguments = parse_arguments()
    require_tools(arguments)
    batches = list(read_batches(arguments))
    if not batches:
        sys.exit(f"no source matches {arguments.files}")
    linter = Linter(arguments)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(lambda batch: linter.lint(*batch), batches))
    if not all(results):
        sys.exit("clang-tidy has findings")


main()
