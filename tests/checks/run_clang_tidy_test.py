# SPDX-License-Identifier: Apache-2.0
"""Whether cmake/checks/run_clang_tidy.py sees what clang-tidy sees. run_clang_tidy_test.py SCRIPT CLANG_TIDY CLANG VERSION"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT, CLANG_TIDY, CLANG, VERSION = sys.argv[1:5]
del sys.argv[1:5]
CONFIGURATION = pathlib.Path(SCRIPT).resolve().parents[2] / ".clang-tidy"

CLEAN = "namespace { int value() { return 1; } }\nint %(name)s() { return value(); }\n"
WRONG_PATH = "int %(name)s(bool is_there) {\n  int one = 1;\n  int* pointer = is_there ? &one : nullptr;\n  return *pointer;\n}\n"
WRONG_NAME = "int %(name)s() {\n  const int BadName = 1;\n  return BadName;\n}\n"


class RunClangTidyTest(unittest.TestCase):
    def lint(self, sources, *options):
        with tempfile.TemporaryDirectory(prefix="crossdevice-lint-") as directory:
            root = pathlib.Path(directory).resolve()
            (root / "src" / "core").mkdir(parents=True)
            (root / "build").mkdir()
            (root / ".clang-tidy").write_text(CONFIGURATION.read_text())
            commands = []
            for name, text in sources.items():
                path = root / "src" / "core" / f"{name}.cc"
                path.write_text(text % {"name": name})
                commands.append({"directory": str(root), "file": str(path), "command": f"ccache c++ -std=c++20 -Wall -o x.o -c {path}"})
            (root / "build" / "compile_commands.json").write_text(json.dumps(commands))
            command = [sys.executable, SCRIPT, "--root", str(root), "--build", str(root / "build"), "--clang-tidy", CLANG_TIDY,
                       "--clang", CLANG, "--version", VERSION, *options]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout + done.stderr

    def test_nothing_is_found_where_nothing_is(self):
        status, said = self.lint({"one": CLEAN.replace("value", "first"), "two": CLEAN.replace("value", "second")})
        self.assertEqual(status, 0, said)
        self.assertIn("ok: one.cc, two.cc", said)

    def test_what_only_paths_show_is_found_among_others(self):
        status, said = self.lint({"one": CLEAN, "two": WRONG_PATH, "three": WRONG_NAME.replace("BadName", "good")})
        self.assertNotEqual(status, 0)
        self.assertIn("clang-analyzer-core.NullDereference", said)
        self.assertIn("FINDINGS: one.cc, three.cc, two.cc", said)

    def test_names_are_looked_at_among_others(self):
        status, said = self.lint({"one": CLEAN, "two": WRONG_NAME})
        self.assertNotEqual(status, 0)
        self.assertIn("readability-identifier-naming", said)

    def test_sources_whose_names_collide_are_looked_at_apart(self):
        status, said = self.lint({"one": CLEAN, "two": CLEAN, "three": CLEAN + WRONG_PATH.replace("%(name)s", "more")})
        self.assertNotEqual(status, 0)
        self.assertIn("ok: one.cc\n", said)
        self.assertIn("ok: two.cc\n", said)
        self.assertIn("FINDINGS: three.cc", said)

    def test_what_is_known_to_be_well_is_not_shown_again_until_it_changes(self):
        with tempfile.TemporaryDirectory(prefix="crossdevice-lint-") as memory:
            for expected in ("ok: one.cc\n", "ok, as before: one.cc\n"):  # in another checkout
                status, said = self.lint({"one": CLEAN}, "--remember", memory)
                self.assertEqual(status, 0, said)
                self.assertIn(expected, said)
            for _ in range(2):
                status, said = self.lint({"one": CLEAN + WRONG_PATH.replace("%(name)s", "more")}, "--remember", memory)
                self.assertNotEqual(status, 0)
                self.assertIn("FINDINGS: one.cc", said)

    def test_no_source_is_an_error(self):
        status, said = self.lint({"one": CLEAN}, "^nowhere/")
        self.assertNotEqual(status, 0)
        self.assertIn("no source matches", said)


for tool in (CLANG_TIDY, CLANG):
    if f"version {VERSION}." not in subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout:
        print(f"SKIPPED: {tool} is not version {VERSION}")
        sys.exit(0)
unittest.main()
