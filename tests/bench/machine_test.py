# SPDX-License-Identifier: Apache-2.0
"""Tests of what bench/compare says of the machine. machine_test.py BENCH_DIRECTORY CROSSDEVICE_BENCH"""
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

PROGRAM = sys.argv.pop(2)
BENCH = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(BENCH / "peers"))
sys.dont_write_bytecode = True

import machine  # noqa: E402

PROCESSOR = """processor	: 0
vendor_id	: AuthenticAMD
cpu family	: 25
model		: {model}
model name	: AMD EPYC
flags		: fpu sse2 {flags}

processor	: 1
cpu family	: 99
model name	: another
"""


class ProcessorTest(unittest.TestCase):
    def names(self, text):
        """The title, and the folder on two cores."""
        with tempfile.TemporaryDirectory() as directory, unittest.mock.patch.object(machine, "CPU_INFO", pathlib.Path(directory) / "cpuinfo"), \
             unittest.mock.patch.object(machine, "num_cores", return_value=2):
            machine.CPU_INFO.write_text(text)
            return machine.cpu_title(), machine.folder_name()

    def test_processors_of_one_name_are_told_apart(self):
        self.assertEqual(self.names(PROCESSOR.format(model=1, flags="avx avx2")),
                         ("AMD EPYC (family 25, model 1, AVX2)", "amd-epyc-family-25-model-1-2-cores"))
        self.assertEqual(self.names(PROCESSOR.format(model=17, flags="avx avx2 avx512f avx512vl")),
                         ("AMD EPYC (family 25, model 17, AVX-512)", "amd-epyc-family-25-model-17-2-cores"))
        self.assertEqual(self.names(PROCESSOR.format(model=1, flags="avx"))[0], "AMD EPYC (family 25, model 1, no AVX2)")

    def test_what_is_not_known_is_left_out(self):
        with unittest.mock.patch("platform.processor", return_value=""):
            self.assertEqual(self.names("processor: 0\n"), ("unknown processor", "unknown-processor-2-cores"))

    def test_the_program_prints_the_title(self):
        done = subprocess.run([sys.executable, "-B", machine.__file__], check=True, capture_output=True, text=True)
        self.assertEqual(done.stdout, machine.cpu_title() + "\n")


class LoadTest(unittest.TestCase):
    def test_load_is_warned_of_per_core(self):
        with unittest.mock.patch.object(machine, "num_cores", return_value=2):
            self.assertIsNone(machine.load_warning(0.9))
            self.assertIn("1.4, 0.7 per core", machine.load_warning(1.4))

    def test_a_run_waits_until_the_load_has_settled_but_not_for_ever(self):
        for loads, waits in (([0.9], 0), ([3.0, 1.0, 0.9], 2), ([3.0] * 99, 24)):
            clock = [0.0]
            with unittest.mock.patch.object(machine, "load_average", side_effect=loads), \
                 unittest.mock.patch("time.monotonic", side_effect=lambda: clock[0]), \
                 unittest.mock.patch("time.sleep", side_effect=lambda s: clock.__setitem__(0, clock[0] + s)) as sleep:
                self.assertEqual(machine.settled_load_average(), loads[waits])
            self.assertEqual(sleep.call_count, waits)

    def test_busy_share_is_that_of_the_quietest_second(self):
        # Ticks of /proc/stat: (busy, all) before and after each second.
        for ticks, share, waits in (([(0, 0), (2, 200)], 0.01, 1), ([(0, 0), (100, 200), (100, 200), (110, 400)], 0.05, 2),
                                    ([(0, 0), (100, 200)] * machine.MAX_IDLE_WAITS, 0.5, machine.MAX_IDLE_WAITS)):
            with unittest.mock.patch.object(machine, "processor_times", side_effect=ticks), unittest.mock.patch("time.sleep") as sleep:
                self.assertEqual(machine.busy_share(), share)
            self.assertEqual(sleep.call_count, waits)
        busy, every = machine.processor_times()
        self.assertLess(0, busy)
        self.assertLess(busy, every)


class StateTest(unittest.TestCase):
    def test_whether_the_pool_has_huge_pages_is_what_the_bench_says(self):
        tools = unittest.mock.Mock()
        tools.program.return_value = PROGRAM
        self.assertRegex(machine._pool_huge_pages(tools), "which asks for them: (yes|no)$")  # noqa: SLF001
        with self.assertRaisesRegex(ValueError, "does not say whether the pool has huge pages: 'nothing'"):
            machine.pool_huge_pages_in("nothing")

    def test_results_do_not_make_a_commit_dirty(self):
        with tempfile.TemporaryDirectory() as directory, unittest.mock.patch.object(machine, "ROOT", pathlib.Path(directory)):
            root = pathlib.Path(directory)
            self.assertEqual(machine.commit(), "unknown")
            results = root / "bench" / "results"
            results.mkdir(parents=True)
            for path in (results / "rows", root / "program"):
                path.write_text("before")
            identity = ("-c", "user.name=n", "-c", "user.email=e")
            for words in (("init",), ("add", "."), (*identity, "commit", "--message", "some")):
                subprocess.run(["git", "-C", directory, *words], check=True, capture_output=True)
            clean = machine.commit()
            self.assertRegex(clean, "^[0-9a-f]{12}$")
            (results / "rows").write_text("after")
            (results / "more").write_text("new")
            self.assertEqual(machine.commit(), clean)
            (root / "program").write_text("after")
            self.assertEqual(machine.commit(), f"{clean}-dirty")


if __name__ == "__main__":
    unittest.main()
