# SPDX-License-Identifier: Apache-2.0
"""Tests of bench/compare: what it makes of rows (medians, ratios, limits, verdicts, charts), of programs that fail, and of a folder that has
results already. compare_test.py BENCH_DIRECTORY CROSSDEVICE_BENCH"""
import contextlib
import dataclasses
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree

PROGRAM = sys.argv.pop(2)
BENCH = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(BENCH / "peers"))
sys.dont_write_bytecode = True

import charts  # noqa: E402
import contenders  # noqa: E402
import drawings  # noqa: E402
import link_speed  # noqa: E402
import machine  # noqa: E402
import measurement  # noqa: E402
import page  # noqa: E402
import peer_rows  # noqa: E402
import scenes  # noqa: E402
import summary  # noqa: E402
import turns  # noqa: E402

TOOLS = contenders.Tools(pathlib.Path("/bin"), pathlib.Path("/venv/bin/python"), 2)
FACTS = {"cpu": "a < b", "cores": 2, "Date": "today"}
SCENE = scenes.Scene("s", "some scene", (scenes.Sizes("8", "8", 2),), workers=2)


def load_program():
    loader = importlib.machinery.SourceFileLoader("compare", str(BENCH / "compare"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
    loader.exec_module(module)
    return module


def row(contender, turn, time_us, **more):
    fields = {"op": "all_reduce", "ops": "some_ops", "algorithm": "some", "size_bytes": 1000, "in_place": True, "workers": 4, "limit": None,
              "limit_gbs": None, "traffic_gbs": 1.0, "percent_of_limit": None}
    return fields | {"scene": "s", "contender": contender, "round": turn, "time_us_median": time_us} | more


def rounds(contender, *times_us, **more):
    return [row(contender, turn, time_us, **more) for turn, time_us in enumerate(times_us)]


def link_of(bytes_per_second, all_reduce_us=None):
    """The same in every round."""
    return lambda turn: link_speed.Link(bytes_per_second, all_reduce_us)


KEY = summary.Key("all_reduce", 1000, True)


class SummaryTest(unittest.TestCase):
    def test_medians_over_rounds_and_ratios_within_them(self):
        cells = summary.summarise(rounds("crossdevice", 10, 20, 40) + rounds("mpich", 30, 40, 20))[KEY]
        self.assertEqual(cells["crossdevice"].time_us, summary.Spread(20, 10, 40))
        self.assertEqual(cells["mpich"].time_us, summary.Spread(30, 20, 40))
        self.assertEqual(cells["mpich"].ratios, {"crossdevice": summary.Spread(2, 0.5, 3)})
        self.assertIsNone(cells["mpich"].percent)

    def test_a_contender_without_ours_in_its_round_has_no_ratio(self):
        self.assertEqual(summary.summarise([row("mpich", 0, 5)])[KEY]["mpich"].ratios, {})

    def test_the_limit_of_ours_is_everybodys(self):
        limit = {"limit": "in_place_scale", "limit_gbs": 2.0, "traffic_gbs": 1.0}
        cells = summary.summarise([row("crossdevice", 0, 10, **limit), row("gloo", 0, 50, limit="in_place_scale", limit_gbs=9.0)])[KEY]
        self.assertEqual(cells["crossdevice"].percent, 50)
        self.assertEqual(cells["gloo"].percent, 10)

    def test_what_lies_in_the_caches_is_not_held_against_the_memory(self):
        limit = {"limit": "in_place_scale", "limit_gbs": 2.0, "traffic_gbs": 1.0}
        shown = {size: "\n".join(page.scene_table(summary.summarise([row("crossdevice", 0, 10, size_bytes=size, **limit)])))
                 for size in (32 << 10, 64 << 10)}
        self.assertNotIn("%", shown[32 << 10])
        self.assertIn("50 %", shown[64 << 10])

    def test_a_batch_is_held_against_the_limit_of_the_flat_buffer(self):
        limit = {"limit": "in_place_scale", "limit_gbs": 2.0, "traffic_gbs": 1.0}
        batch = {"op": "batch_reduce", "limit": "flat_buffer", "limit_gbs": 1.0, "percent_of_limit": 90.0}
        table = summary.summarise([row("crossdevice", 0, 10, **limit), row("crossdevice", 0, 20, **batch)])
        self.assertEqual(table[summary.Key("batch_reduce", 1000, True)]["crossdevice"].percent, 25)

    def test_across_links_the_bound_is_the_link(self):
        # 2 * 3/4 * 10000 bytes at 1.5e8 bytes per second: 100 us.
        table = summary.summarise([row("crossdevice", 0, 200, size_bytes=10000)], link_of(1.5e8, 7.0))
        self.assertAlmostEqual(table[dataclasses.replace(KEY, size_bytes=10000)]["crossdevice"].percent, 50)

    def test_of_small_values_across_links_the_bound_is_what_plain_sockets_take(self):
        rows = [row("crossdevice", 0, 200)]
        self.assertAlmostEqual(summary.summarise(rows, link_of(1.5e8, 50.0))[KEY]["crossdevice"].percent, 25)
        self.assertIsNone(summary.summarise(rows, link_of(1.5e8))[KEY]["crossdevice"].percent)
        table = summary.summarise([row("crossdevice", 0, 200)], link_of(1.5e8))
        self.assertIn("200 us (-)", "\n".join(page.scene_table(table, has_links=True)))
        self.assertNotIn("(-)", "\n".join(page.scene_table(table)))

    def test_across_links_a_round_is_held_against_what_was_seen_of_them_in_it(self):
        links = [link_speed.Link(1e8, 50.0), link_speed.Link(2e8, 90.0)]
        cells = summary.summarise(rounds("crossdevice", 100, 100, 100), dict(enumerate(links)).get)[KEY]
        self.assertEqual(cells["crossdevice"].percents.rounds, (50, 90))

    def test_rounds_that_disagree_decide_nothing(self):
        def verdict(*ratios):
            return summary.spread_of(ratios).verdict()
        self.assertIs(verdict(0.7, 0.99), summary.Verdict.CONTENDER)
        self.assertIs(verdict(0.7, 1.0), summary.Verdict.UNDECIDED)
        self.assertIs(verdict(1.0, 1.3), summary.Verdict.UNDECIDED)
        self.assertIs(verdict(1.01, 1.3), summary.Verdict.REFERENCE)

    def test_a_single_round_decides_nothing(self):
        for ratio in (0.5, 1.5):
            self.assertIs(summary.spread_of([ratio]).verdict(), summary.Verdict.UNDECIDED)

    def test_of_many_rounds_a_few_may_disagree(self):
        def verdict(below, above):
            return summary.spread_of([0.8] * below + [1.3] * above).verdict()
        self.assertIs(verdict(15, 5), summary.Verdict.CONTENDER)
        self.assertIs(verdict(14, 6), summary.Verdict.UNDECIDED)
        self.assertIs(verdict(6, 14), summary.Verdict.UNDECIDED)
        self.assertIs(verdict(5, 15), summary.Verdict.REFERENCE)
        self.assertIs(verdict(4, 1), summary.Verdict.UNDECIDED)
        self.assertIs(verdict(5, 0), summary.Verdict.CONTENDER)


class VerdictTest(unittest.TestCase):
    def verdict(self, *parts, failures=()):
        return "\n".join(page.scene_verdict(summary.summarise([r for part in parts for r in part]), failures))

    def test_a_peer_that_is_ahead_in_every_round_is_told_and_bold(self):
        parts = (rounds("crossdevice", 10, 10), rounds("openmpi", 8, 9), rounds("mpich", 12, 12))
        text = self.verdict(*parts)
        self.assertIn("A peer is ahead here (its time in how many times ours):\n\n"
                      "- Open MPI, all_reduce in place, 1000: 0.85x (0.80-0.90)", text)
        self.assertNotIn("MPICH", text)
        self.assertIn("**0.85x (0.80-0.90)**", "\n".join(page.scene_table(summary.summarise([r for part in parts for r in part]))))

    def test_where_rounds_disagree_no_one_is_said_to_be_ahead_nor_not_to_be(self):
        for times in ((8, 12), (8, 13), (12, 9)):
            parts = (rounds("crossdevice", 10, 10), rounds("openmpi", *times))
            text = self.verdict(*parts)
            self.assertNotIn("ahead", text)
            self.assertIn("Undecided, as the rounds disagree:\n\n- Open MPI, all_reduce in place, 1000: ", text)
            self.assertRegex("\n".join(page.scene_table(summary.summarise([r for part in parts for r in part]))), r"[^*]\*[01]\.\d\dx \(.*\)\*[^*]")

    def test_where_there_was_one_round_it_is_said(self):
        self.assertIn("Undecided, as the rounds disagree or there was one only:\n\n- PyTorch (Gloo), all_reduce in place, 1000: 0.50x",
                      self.verdict(rounds("crossdevice", 10, 10), rounds("torch", 5)))

    def test_no_peer_is_ahead_and_the_closest(self):
        text = self.verdict(rounds("crossdevice", 10, 10), rounds("mpich", 12, 14), rounds("gloo", 30, 30))
        self.assertEqual(text, "No peer is ahead in any round: the closest is MPICH, 1000 in place, with 1.30x (1.20-1.40).")

    def test_peers_are_held_against_ours_in_foreign_memory_too_and_ours_are_no_peers(self):
        text = self.verdict(rounds("crossdevice", 10, 10), rounds("crossdevice-foreign", 20, 20), rounds("openmpi", 15, 15))
        self.assertIn("No peer is ahead in any round: the closest is Open MPI", text)
        self.assertIn("A peer is ahead of crossdevice, memory not from its pool here (its", text)
        self.assertIn("- Open MPI, all_reduce in place, 1000: 0.75x", text)
        text = self.verdict(rounds("crossdevice", 10, 10), rounds("crossdevice-foreign", 5, 5), rounds("openmpi", 15, 15))
        self.assertIn("No peer is ahead of crossdevice, memory not from its pool in any round", text)

    def test_where_ours_failed_it_is_said(self):
        self.assertIn("**crossdevice failed here**", self.verdict(rounds("openmpi", 8), failures=["crossdevice"]))
        self.assertIn("Nothing can be said of who is ahead", self.verdict(rounds("openmpi", 8), failures=["crossdevice"]))
        self.assertEqual(self.verdict(rounds("crossdevice", 8)), "No peer was measured.")

    def test_texts(self):
        self.assertEqual(page.ratio_text(summary.Spread(427.48, 95.34, 1234.5)), "427x (95.3-1234)")
        self.assertEqual(page.ratio_text(summary.Spread(2, 2, 2)), "2.00x")
        self.assertEqual([charts.size_text(size) for size in (8, 512, 1000, 2 << 10, 8 << 20)], ["8 B", "512 B", "1000 B", "2 KiB", "8 MiB"])
        self.assertEqual(page.span_text(summary.Spread(900, 800, 1100)), "800-1100")
        self.assertEqual(page.span_text(summary.Spread(2e6, 1.421e6, 2.5e6)), "1421-2500")
        cell = summary.Cell(summary.Spread(10, 9, 12), {}, summary.Spread(50, 40, 60))
        self.assertEqual(page.cell_text("crossdevice", cell), "10 us (9-12; 50 %)")
        rows = rounds("crossdevice", 1, 1, 1) + rounds("torch", 1) + rounds("gloo-reno", 1)
        self.assertEqual(page.rounds_text(rows), "3 rounds, 1 of Gloo, TCP reno; PyTorch (Gloo)")


def some_measurement(scene, **more):
    rows = [row(name, 0, 10.0 * size, size_bytes=size, in_place=in_place, workers=max(1, scene.workers), op=op, scene=scene.name)
            for name in ("crossdevice", "openmpi") for size in (8, 1 << 10, 8 << 20) for in_place in (True, False)
            for op in ("all_reduce", "batch_reduce")]
    return measurement.Measurement(scene, rows, facts=FACTS, **more)


class PageTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.folder = pathlib.Path(self.directory.name) / "machine"

    def write(self, *measurements):
        page.write(self.folder, {found.scene.name: found for found in measurements})
        return (self.folder / "README.md").read_text()

    def test_writes_a_page_and_charts_that_are_xml(self):
        every = list(scenes.scenes(2))
        text = self.write(*(some_measurement(scene, failures=["gloo", turns.SPEED_OF_LINK], busy_share=0.25, warnings=["It was loud."],
                                             absent={"no reason": ["mpich"]}, links=[link_speed.Link(1e8, 50.0)] if scene.rate else []) for scene in every))
        for scene in every:
            self.assertIn(scene.title[1:], text)
        for part in ("- **Failed**, so not shown in full: Gloo; the speed of the link.", "- 25 % of the cores were busy before.", "- **It was loud.**",
                     "- Not here: MPICH (no reason)."):
            self.assertEqual(text.count(part), len(every), part)
        pictures = list(self.folder.glob("*.svg"))
        self.assertGreater(len(pictures), 8)
        for picture in pictures:
            xml.etree.ElementTree.parse(picture)
            self.assertIn(f"({picture.name})", text)

    def test_drawings_of_scenes_that_are_no_more_go_and_others_stay(self):
        self.folder.mkdir()
        for name in ("gone-time.svg", "workers-4-bandwidth.svg", "gradients.svg", "workers-8.svg", "somebodys.svg"):
            (self.folder / name).write_text("<svg/>")
        self.write(measurement.Measurement(SCENE, rounds("crossdevice", 1), facts=FACTS))
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"README.md", "somebodys.svg"})

    def test_each_chart_has_one_placement_and_says_which(self):
        two_placements = rounds("crossdevice", 1, in_place=True) + rounds("crossdevice", 2, in_place=False)
        rows = [{**r, "size_bytes": size} for r in two_placements + rounds("tensorflow-workers", 9, in_place=False) for size in (8, 16, 32)]
        for workers, drawn in ((2, "in place"), (0, "out of place")):
            scene = dataclasses.replace(SCENE, workers=workers, devices=2)
            picture = drawings.size_charts(scene, summary.summarise(rows))["s-time.svg"]
            self.assertIn(f"All-reduce {drawn}, some scene", picture)
            self.assertEqual("TensorFlow" in picture, workers == 0)
            text = self.write(measurement.Measurement(scene, rows, facts=FACTS))
            self.assertIn(f"Drawn {drawn}" + ("; only out of place, so only in the table: TensorFlow workers." if workers else "."), text)

    def test_notes_that_people_wrote_stand_below_the_verdict(self):
        self.folder.mkdir()
        (self.folder / "notes.md").write_text("Not for the page.\n\n## s\n\nIt is so because.\n\n## other\n\nNever.\n")
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            for _ in range(2):
                text = self.write(measurement.Measurement(SCENE, rounds("crossdevice", 10) + rounds("openmpi", 5), facts=FACTS))
        self.assertIn("all_reduce in place, 1000: 0.50x\n\nIt is so because.\n", text)
        self.assertNotIn("Never", text)
        self.assertIn("no scene other", errors.getvalue())

    def test_notes_of_results_that_are_kept_are_of_their_scenes(self):
        for path in (BENCH / "results").glob("*/notes.md"):
            with self.subTest(path.parent.name), contextlib.redirect_stderr(io.StringIO()) as errors:
                measured = measurement.read(path.parent, scenes.scenes(2))
                self.assertTrue(page.read_notes(path.parent, measured), "no part has a heading")
                self.assertEqual(errors.getvalue(), "")

    def test_it_says_who_reduces_gradients_how_and_with_which_ops(self):
        names = ("crossdevice", "openmpi", "gloo", "gloo-packed", "mpich-packed", "torch")
        rows = [r for name in names for r in rounds(name, 10, op="batch_reduce")]
        text = self.write(measurement.Measurement(SCENE, rows, facts=FACTS))
        for part in ("in one call for the list: crossdevice.", "in one call for each tensor, after the end of the one before: Open MPI; Gloo.",
                     "which is that of the list alone: MPICH, packed by hand; Gloo, packed by hand.", "in DDP's buckets"):
            self.assertRegex(text, f"- Gradients [^\n]*{part}")
        self.assertNotIn("The ops of", text)
        rows = [r for op in ("ring", "reduction_to_one_device") for r in rounds(f"tensorflow, {op}", 9, op="batch_reduce", algorithm=op)]
        rows += rounds("crossdevice", 9, ops="reduction_to_one_device", algorithm="direct")
        text = self.write(measurement.Measurement(dataclasses.replace(SCENE, workers=0), rows, facts=FACTS))
        self.assertIn("- The ops of crossdevice: reduction_to_one_device (direct).", text)
        self.assertIn("- Gradients in one graph with a reduction of each tensor: TensorFlow, reduction_to_one_device.", text)
        self.assertIn("makes one tensor and splits it again: TensorFlow, ring.", text)
        self.assertNotIn("Gradients", self.write(measurement.Measurement(SCENE, rounds("crossdevice", 10), facts=FACTS)))

    def test_charts_of_scenes_that_were_measured_apart_say_so(self):
        def some(name, workers, day):
            rows = [{**r, "size_bytes": size} for r in rounds("crossdevice", 1, scene=name) for size in drawings.SIZES_OVER_WORKERS]
            return measurement.Measurement(scenes.Scene(name, f"{workers} workers", (), workers=workers), rows, facts=FACTS | {"Date": day} if day else {})

        self.assertIn("measured in one run, one after the other, not in turns.", self.write(some("a", 2, "today"), some("b", 4, "today")))
        text = self.write(some("a", 2, "today"), some("b", 4, "yesterday"), some("c", 8, ""), some("again", 2, "never"))
        self.assertIn("measured apart**", text)
        self.assertIn("today: 2 workers. yesterday: 4 workers. not noted when: 8 workers.", text)
        self.assertNotIn("never: ", text)

    def test_of_each_number_of_workers_one_scene_is_drawn(self):
        def some(name, workers, *sizes, **more):
            rows = [{**r, "size_bytes": size} for r in rounds("crossdevice", 1) for size in sizes]
            return scenes.Scene(name, name, (), workers=workers, **more), summary.summarise(rows)

        every = [some("gradients", 2, 100), some("first", 2, 8, 8 << 20), some("small", 2, 8), some("links", 3, 8, rate="1gbit"), some("one", 0, 8),
                 some("four", 4, 8, 8 << 20)]
        self.assertEqual([scene.name for scene, _ in drawings.by_workers(every)], ["first", "four"])
        self.assertEqual(drawings.worker_charts(drawings.by_workers(every)[:1]), {})
        for size, picture in zip(("8 B", "8 MiB"), drawings.worker_charts(drawings.by_workers(every)).values(), strict=True):
            self.assertIn(f"All-reduce of {size} in place, one host", picture)

    def test_what_plain_sockets_take_is_told(self):
        scene = dataclasses.replace(SCENE, rate="1gbit", workers=4)
        found = measurement.Measurement(scene, rounds("crossdevice", 40, 40, 40, size_bytes=8), facts=FACTS)

        def text_with(**links):
            return self.write(dataclasses.replace(found, **links))

        text = text_with(links=[link_speed.Link(1.25e8, us) for us in (19.28, 18, 22)])
        self.assertIn("- The link carries 1000 Mbit/s each way, and plain sockets all-reduce 8 bytes in 19.3 us (18.0-22.0 in 3 rounds).", text)
        self.assertIn("40 us (48 %)", text)
        self.assertIn("in 19.3 us.", text_with(links=[link_speed.Link(1.25e8, 19.28)]))
        text = text_with(link_bytes_per_second=1.25e8, plain_all_reduce_us=19.28)
        self.assertIn("in 19.3 us: measured once, before the rounds, and each call timed by itself.", text)
        self.assertIn("40 us (48 %)", text)
        self.assertIn("- The link carries 1000 Mbit/s each way: measured once, before the rounds.", text_with(link_bytes_per_second=1.25e8))
        self.assertNotIn("The link carries", text_with())

    def test_a_scene_that_was_measured_apart_says_when(self):
        def some(name, **facts):
            return measurement.Measurement(dataclasses.replace(SCENE, name=name), rounds("crossdevice", 1), facts=facts)

        first, second = some("a", **FACTS), some("b", **FACTS)
        self.assertNotIn("apart", self.write(first, second))
        apart = some("c", **FACTS | {"Date": "yesterday", "cpu": "another"})
        for every in ((first, second, apart), (apart, first, second)):  # whichever was measured last
            text = self.write(*every)
            self.assertIn("# Side by side with the peers: a < b, 2 cores\n\nDate: today  \n", text)
            self.assertEqual(text.count("Measured apart"), 1)
            self.assertIn("- Measured apart from the rest. cpu: another, Date: yesterday.", text)
        self.assertIn("Date: yesterday  \n", self.write(first, apart), "of equally many the latest")
        unknown = some("d")
        text = self.write(first, unknown)
        self.assertIn("is not noted.", text)
        self.assertIn("Date: today  \n", text)
        self.assertIn("unknown processor", self.write(unknown))

    def test_charts_of_nothing_one_point_and_strange_names_are_xml(self):
        axes = charts.Axes("a & b", "x", "y", True)
        for points in ([], [(8, 1.0)], [(8, 0.001), (16, 1e9)]):
            for logarithmic in (True, False):
                axes.y_is_logarithmic = logarithmic
                xml.etree.ElementTree.fromstring(charts.line_chart(axes, [charts.Series("<&>", points)] if points else []))
        xml.etree.ElementTree.fromstring(charts.bar_chart("t", "ms", {}))


class FolderTest(unittest.TestCase):
    """What a folder has of other scenes stays."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.folder = pathlib.Path(self.directory.name)
        self.compare = load_program()
        self.known = {scene.name: scene for scene in scenes.scenes(2)}

    def write(self, *measurements):
        self.compare.write(self.folder, {found.scene.name: found for found in measurements}, TOOLS)

    def folder_of(self, *flags, missing=None):
        """Which one is written. missing: {contender: reason}."""
        with unittest.mock.patch.object(sys, "argv", ["compare", *flags]):
            arguments = self.compare.parse_arguments()
        return self.compare.output_folder(arguments, self.compare.chosen_scenes(arguments, TOOLS), TOOLS, missing or {})

    def contenders_by_scene(self):
        return {name: {row["contender"] for row in found.rows} for name, found in measurement.read(self.folder, self.known.values()).items()}

    def test_scenes_measured_now_replace_theirs_and_the_others_stay(self):
        first, second = self.known["workers-2"], self.known["devices-2"]
        kept = measurement.Measurement(second, rounds("gloo", 7, scene=second.name), failures=["mpich"], absent={"why": ["torch"]}, remarks=["so"],
                                       warnings=["loud"], facts=FACTS, busy_share=0.5, links=[link_speed.Link(3.0, 1.0)],
                                       link_bytes_per_second=3.0)
        self.write(kept, measurement.Measurement(first, rounds("openmpi", 1, 2, scene=first.name), facts=FACTS))
        self.write(measurement.Measurement(first, rounds("mpich", 3, scene=first.name), facts=FACTS))
        self.assertEqual(self.contenders_by_scene(), {"workers-2": {"mpich"}, "devices-2": {"gloo"}})
        self.assertEqual(measurement.read(self.folder, self.known.values())["devices-2"], kept)
        self.assertFalse(list(self.folder.glob("*.part")))

    def test_rows_without_circumstances_stay_and_scenes_that_are_no_more_go(self):
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(row("gloo", 0, 1.0, scene=name)) + "\n" for name in ("workers-4", "gone")))
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.write(measurement.Measurement(self.known["workers-2"], rounds("mpich", 3, scene="workers-2"), facts=FACTS))
        self.assertIn("gone is left out", errors.getvalue())
        self.assertEqual(list(self.contenders_by_scene()), ["workers-2", "workers-4"])
        self.assertIn("is not noted", (self.folder / "README.md").read_text())

    def test_what_an_older_state_noted_and_nobody_reads_is_left_out(self):
        (self.folder / "scenes.json").write_text(json.dumps({"workers-4": {"spinning_exchange_us": 33.5, "busy_share": 0.25}}))
        self.assertEqual(measurement.read(self.folder, self.known.values()),
                         {"workers-4": measurement.Measurement(self.known["workers-4"], busy_share=0.25)})

    def test_a_part_of_a_comparison_goes_to_a_folder_of_its_own_unless_told(self):
        results = BENCH / "results"
        self.assertEqual(self.folder_of().parent, results)
        self.assertEqual(self.folder_of("--scenes", "workers", "--rounds", "6").parent, results)
        for flags in (["--quick"], ["--only", "gloo"], ["--rounds", "2"]):
            folder = self.folder_of(*flags)
            self.assertNotIn(results, folder.parents)
            folder.rmdir()
            self.assertEqual(self.folder_of(*flags, "--output", "there"), pathlib.Path("there"))

    def test_a_folder_that_would_lose_a_contender_stays_as_it_is(self):
        folder = self.folder / "bench" / "results" / machine.folder_name()
        names = {"workers-2": ("crossdevice", "torch", "gloo"), "devices-2": ("crossdevice", "tensorflow, ring")}
        self.compare.write(folder, {scene: measurement.Measurement(self.known[scene], [row(name, 0, 1.0, scene=scene) for name in present], facts=FACTS)
                                    for scene, present in names.items()}, TOOLS)

        def is_kept(missing, *flags):
            with contextlib.redirect_stderr(io.StringIO()) as errors, unittest.mock.patch.object(self.compare, "ROOT", self.folder):
                chosen = self.folder_of(*flags, missing=missing)
            self.assertEqual(chosen == folder, not errors.getvalue())
            if chosen != folder:
                self.assertNotIn(folder, chosen.parents)
                chosen.rmdir()
            self.errors = errors.getvalue()
            return chosen != folder

        python = dict.fromkeys(("torch", "tensorflow", "tensorflow-workers"), "no --environment")
        self.assertTrue(is_kept(python))
        self.assertIn(f"{folder} would lose torch in workers-2; tensorflow in devices-2 (no --environment)", self.errors)
        self.assertTrue(is_kept({"gloo": "not built"}))
        self.assertIn("gloo in workers-2 (not built)", self.errors)
        self.assertTrue(is_kept(python, "--scenes", "devices-2"))
        self.assertNotIn("torch", self.errors)
        for missing in ({}, {"mpich": "not built"}, {"tensorflow-workers": "no --environment"}):  # whom the folder has not
            self.assertFalse(is_kept(missing))
        self.assertFalse(is_kept(python, "--scenes", "workers-4"))  # which the folder has not
        self.assertFalse(is_kept({"gloo": "not built"}, "--scenes", "devices-2"))
        self.assertEqual(self.folder_of("--output", "there", missing=python), pathlib.Path("there"))

    def test_whom_a_scene_leaves_out_itself_is_no_loss(self):
        scene = next(scene for scene in self.known.values() if "gloo" in scene.too_slow)
        self.write(measurement.Measurement(scene, [row(name, 0, 1.0, scene=scene.name) for name in ("crossdevice", "gloo")], facts=FACTS))
        self.assertEqual(self.compare.losses(self.folder, [scene], TOOLS, {"gloo": "not built"}), {})


WRITE_ROWS = "import sys, json; open(sys.argv[sys.argv.index('--json') + 1], 'w').write({text!r})"
GOOD_ROW = {"op": "all_reduce", "size_bytes": 8, "in_place": True, "time_us_median": 1.0, "algorithm": "a", "wrong": 0}


@dataclasses.dataclass(frozen=True)
class Fake(contenders.Contender):
    code: str = ""
    most: int = 99

    def absence(self, scene, tools):
        return None

    def command(self, scene, tools, arguments):
        return [sys.executable, "-c", self.code, *arguments] if self.code else ["/no/such/program"]

    def max_rounds(self):
        return self.most


def writer(name, rows, **more):
    return Fake(name, name, code=WRITE_ROWS.format(text=rows if isinstance(rows, str) else json.dumps(rows)), **more)


class TurnsTest(unittest.TestCase):
    def measure(self, *fakes, scene=SCENE, num_rounds=2, busy_share=0.0):
        with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()), \
             unittest.mock.patch.object(machine, "busy_share", return_value=busy_share):
            found = turns.measure(scene, fakes, TOOLS, num_rounds)
        self.errors = errors.getvalue()
        return found

    def test_a_program_that_fails_in_whatever_way_ends_only_its_own_turns(self):
        broken = {"without-rows": Fake("", "", code="0"), "no-json": writer("", "[{"), "not-rows": writer("", "[1]"), "empty": writer("", "[]"),
                  "a-number": writer("", "7"), "lacking": writer("", [{"op": "all_reduce"}]), "wrong": writer("", [GOOD_ROW | {"wrong": 3}]),
                  "no-time": writer("", [GOOD_ROW | {"time_us_median": None}]), "zero": writer("", [GOOD_ROW | {"time_us_median": 0}]),
                  "status": Fake("", "", code="raise SystemExit(3)"), "no-program": Fake("", "")}
        fakes = [dataclasses.replace(fake, name=name) for name, fake in broken.items()]
        found = self.measure(*fakes, writer("good", [GOOD_ROW]))
        self.assertEqual(set(found.failures), set(broken))
        self.assertEqual(len(found.failures), len(broken))
        for name in broken:
            self.assertIn(f"{name}: ", self.errors)
        self.assertEqual([(r["contender"], r["round"], r["scene"]) for r in found.rows], [("good", 0, "s"), ("good", 1, "s")])

    def test_in_each_round_everybody_has_another_place_and_comes_after_everybody_in_time(self):
        for names in ("A", "AB", "ABC", "ABCD", "ABCDE", "ABCDEFGHIJ", "ABCDEFGHIJK"):
            orders = ["".join(turns.order_of(names, turn)) for turn in range(2 * len(names))]
            for half in (orders[:len(names)], orders[len(names):]):
                for place in range(len(names)):
                    self.assertEqual("".join(sorted(order[place] for order in half)), names)
            followed = {pair for order in orders for pair in zip(order, order[1:])}
            self.assertEqual(len(followed), len(names) * (len(names) - 1))
        self.assertEqual(["".join(turns.order_of("ABCDE", turn)) for turn in range(3)], ["ABECD", "BCADE", "CDBEA"])

    def test_turns_are_taken_in_that_order(self):
        with unittest.mock.patch.object(turns, "run_once", return_value=[GOOD_ROW]) as run:
            found = self.measure(writer("a", []), writer("b", []), writer("once", [], most=1), num_rounds=3)
        self.assertEqual([call.args[0].name for call in run.call_args_list], ["a", "b", "once", "b", "a", "a", "b"])
        self.assertIn(turns.ORDER_REMARK, found.remarks)

    def test_rounds_of_each(self):
        found = self.measure(writer("crossdevice", [GOOD_ROW]), writer("torch", [GOOD_ROW], most=3), num_rounds=5)
        self.assertEqual(summary.rounds_of(found.rows), {"crossdevice": 5, "torch": 3})

    def test_for_whom_there_is_time_for_one_round_of_few_calls(self):
        scene = dataclasses.replace(SCENE, once=("torch",), once_work=(scenes.Sizes("16", "16", 2),))
        with unittest.mock.patch.object(turns, "run_once", return_value=[GOOD_ROW]) as run:
            found = self.measure(writer("crossdevice", [GOOD_ROW]), writer("torch", [GOOD_ROW]), scene=scene, num_rounds=3)
        self.assertEqual(summary.rounds_of(found.rows), {"crossdevice": 3, "torch": 1})
        self.assertEqual({(call.args[0].name, call.args[3]) for call in run.call_args_list},
                         {("crossdevice", SCENE.work[0]), ("torch", scene.once_work[0])})
        self.assertEqual(scene.calls_for("crossdevice"), ["-n", "5", "-w", "2"])
        self.assertEqual(peer_rows.parse_arguments([*scene.calls_for("torch"), "--json", "f"]).iters, 2)
        self.assertIn("One round of two calls, as they take long: torch", found.remarks)

    def test_a_link_that_cannot_be_measured_is_a_failure_of_the_scene(self):
        for error in (subprocess.CalledProcessError(3, "run"), subprocess.TimeoutExpired("run", 60), OSError("no"), ValueError("not a number")):
            with unittest.mock.patch.object(link_speed, "measure", side_effect=error):
                found = self.measure(writer("good", [GOOD_ROW]), scene=dataclasses.replace(SCENE, rate="1gbit"))
            self.assertEqual(found.failures, [turns.SPEED_OF_LINK])
            self.assertEqual(found.links, [])
            self.assertEqual(len(found.rows), 2)

    def test_links_are_measured_in_turns_too(self):
        links = [link_speed.Link(1e8, us) for us in (50.0, 40.0, 60.0)]
        calls = unittest.mock.Mock()
        calls.link.side_effect = links
        calls.ours.return_value = [GOOD_ROW]
        with unittest.mock.patch.object(link_speed, "measure", calls.link), unittest.mock.patch.object(turns, "run_once", calls.ours):
            found = self.measure(writer("crossdevice", []), scene=dataclasses.replace(SCENE, rate="1gbit"), num_rounds=3)
        self.assertEqual([call[0] for call in calls.mock_calls], ["ours", "link", "link", "ours", "link", "ours"])
        self.assertEqual([found.link_of(turn) for turn in range(4)], [*links, None])
        self.assertEqual(found.failures, [])

    def test_other_peoples_work_is_warned_of(self):
        self.assertEqual(self.measure().warnings, [])
        self.assertEqual(len(self.measure(busy_share=0.3).warnings), 1)
        self.assertIn("30 % of the cores were busy", self.errors)


class LinkTest(unittest.TestCase):
    """With a program in the place of crossdevice-run that writes what the workers would, as many as there are texts."""

    def measure(self, *texts, num_workers=2):
        with tempfile.TemporaryDirectory() as directory:
            run = pathlib.Path(directory) / "crossdevice-run"
            run.write_text(f"#!{sys.executable}\nimport sys\n"
                           f"num_workers = int(sys.argv[sys.argv.index('-n') + 1])\n"
                           f"for rank, text in enumerate({texts!r}[-num_workers:]): open(f'{{sys.argv[-1]}}.{{rank}}', 'w').write(text)\n")
            run.chmod(0o755)
            return link_speed.measure(dataclasses.replace(TOOLS, programs=pathlib.Path(directory)), "1gbit", num_workers)

    PAIR = ('{"bytes_per_second": 1e8, "all_reduces_us": [9.5, 8, 7]}', '{"bytes_per_second": 9e7, "all_reduces_us": [9.25, 30, 8]}')

    def test_the_slower_worker_counts_in_each_sample(self):
        self.assertEqual(self.measure(*self.PAIR), link_speed.Link(9e7, 9.5))

    def test_small_values_are_those_of_all_workers(self):
        self.assertEqual(self.measure('{"all_reduces_us": [1, 2, 31]}', '{"all_reduces_us": [31, 2, 1]}', *self.PAIR, num_workers=4),
                         link_speed.Link(9e7, 31))

    def test_what_is_no_speed_is_an_error(self):
        good = '{"bytes_per_second": 1e8, "all_reduces_us": [9.5]}'
        for bad in ("", "[]", "7", "{}", '{"bytes_per_second": 1e8}', '{"bytes_per_second": 0, "all_reduces_us": [9.5]}',
                    '{"bytes_per_second": NaN, "all_reduces_us": [9.5]}', '{"bytes_per_second": 1e8, "all_reduces_us": "x"}',
                    '{"bytes_per_second": 1e8, "all_reduces_us": [9.5, 9]}', '{"bytes_per_second": 1e8, "all_reduces_us": []}'):
            with self.subTest(bad), self.assertRaises(link_speed.ERRORS):
                self.measure(bad, good)
        with self.assertRaises(link_speed.ERRORS):
            self.measure(good)


class ScenesTest(unittest.TestCase):
    def test_names_are_single_and_every_scene_has_a_contender_with_a_command(self):
        for every in (list(scenes.scenes(2)), list(scenes.quick_scenes())):
            self.assertEqual(len({scene.name for scene in every}), len(every))
            for scene in every:
                mpi = [c for c in contenders.CONTENDERS if isinstance(c, contenders.Mpi) and c.name not in scene.too_slow]
                here = [c for c in contenders.CONTENDERS if contenders.reason_of_absence(c, scene, TOOLS) is None and not isinstance(c, contenders.Mpi)]
                self.assertGreaterEqual(len(mpi + here), 2)
                for contender in here:
                    self.assertIn("-n", contender.command(scene, TOOLS, ["-n", "5"]))

    def test_five_rounds_and_three_of_peers_in_python(self):
        for scene in scenes.scenes(2):
            self.assertEqual(scene.rounds, {"workers-2-small": 20, "network-1gbit-small": 10}.get(scene.name, 5))
        for contender in contenders.CONTENDERS:
            self.assertEqual(min(5, contender.max_rounds()), 3 if contender.is_python else 5)

    def test_who_is_not_in_a_scene_is_named_with_a_reason(self):
        for scene in scenes.scenes(2):
            self.assertLessEqual({*scene.too_slow, *scene.once}, {c.name for c in contenders.CONTENDERS})
            self.assertFalse({*scene.too_slow} & {*scene.once})
            self.assertTrue(all(c.is_python for c in contenders.CONTENDERS if c.name in scene.once), "the other programs take no fewer than five calls")
            absent = [name for names in contenders.absences(scene, TOOLS, {"torch": "no --environment"}).values() for name in names]
            present = [c.name for c in contenders.CONTENDERS if contenders.reason_of_absence(c, scene, TOOLS) is None and c.name != "torch"]
            self.assertEqual(sorted(absent + present), sorted(c.name for c in contenders.CONTENDERS))

    def test_workers_are_bound_alike_where_there_are_cores_for_them(self):
        mpi = {c.name: c for c in contenders.CONTENDERS if isinstance(c, contenders.Mpi)}
        two, four = (next(s for s in scenes.scenes(2) if s.name == name) for name in ("workers-2", "workers-4"))
        with unittest.mock.patch("shutil.which", return_value="mpirun"):
            for scene, openmpi, mpich in ((two, "--bind-to core", "-bind-to core"), (four, "--oversubscribe --bind-to none", "-bind-to none")):
                self.assertIn(f"mpirun {openmpi} -n", " ".join(mpi["openmpi"].command(scene, TOOLS, [])))
                self.assertIn(f"mpirun {mpich} -n", " ".join(mpi["mpich"].command(scene, TOOLS, [])))
        bound, free = contenders.binding_remark(two, contenders.CONTENDERS, TOOLS).split("Not bound")
        for contender in contenders.CONTENDERS:
            self.assertIn(contender.title, bound if contender.has_own_cores() else free)
        self.assertIn("Nobody", contenders.binding_remark(four, contenders.CONTENDERS, TOOLS))

    def test_who_packs_measures_lists_between_processes_and_nothing_else(self):
        packers = [c for c in contenders.CONTENDERS if c.packs]
        self.assertEqual({type(c) for c in packers}, {contenders.Mpi, contenders.Gloo})
        for scene in scenes.scenes(2):
            has_lists = scene.workers > 0 and any(isinstance(work, scenes.Gradients) for work in scene.work)
            for contender in packers:
                reason = contender.absence(scene, TOOLS)
                if not has_lists or (scene.rate and getattr(contender, "control", "")):
                    self.assertIsNotNone(reason, f"{scene.name}: {contender.name}")
                else:
                    self.assertIsNone(reason, f"{scene.name}: {contender.name}")
        for contender in contenders.CONTENDERS:
            if isinstance(contender, (contenders.Mpi, contenders.Gloo)):
                for scene in (SCENE, dataclasses.replace(SCENE, rate="1gbit")):
                    with unittest.mock.patch("shutil.which", return_value="mpirun"):
                        command = contender.command(scene, TOOLS, ["--json", "f"])
                    self.assertEqual("--packed" in command, contender.packs)

    def test_gloos_version_says_which_of_its_algorithms_is_measured(self):
        with unittest.mock.patch.object(contenders, "package_version", return_value="7.8"):
            versions = {each.name: each.version(None) for each in contenders.CONTENDERS if isinstance(each, contenders.Gloo)}
        self.assertRegex(versions["gloo"], r"^7\.8 \(.*\bring algorithm\b")
        self.assertRegex(versions["gloo-reno"], r"\bring algorithm\b")
        self.assertIn("Algorithm::RING", (BENCH / "peers" / "gloo_peer.cc").read_text(encoding="utf-8"))

    def test_in_one_process_ours_takes_its_own_ops(self):
        ours = contenders.CONTENDERS[0]
        self.assertEqual(ours.command(dataclasses.replace(SCENE, workers=0, devices=2), TOOLS, ["-n", "5"]), ["/bin/crossdevice-bench", "-n", "5", "-g", "2"])

    def test_gradient_lists_are_there(self):
        for scene in (*scenes.scenes(2), *scenes.quick_scenes()):
            for work in scene.work:
                if isinstance(work, scenes.Gradients):
                    self.assertTrue(pathlib.Path(work.flags()[1]).exists())


class PeerRowsTest(unittest.TestCase):
    def test_rows_of_peers_in_python_have_the_fields_of_ours(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "rows.json"
            subprocess.run([PROGRAM, "--devices", "CPU:0,CPU:1", "-b", "8", "-e", "8", "-n", "5", "-w", "0", "--json", str(path)],
                           check=True, capture_output=True, timeout=60)
            ours = json.loads(path.read_text())[0]
        case = peer_rows.Case("all_reduce", [2])
        theirs = peer_rows.row_of(case, peer_rows.Placing(2), "x", "y", True, [1.0, 2.0, 3.0, 4.0, 5.0], 0)
        self.assertEqual(list(theirs), list(ours))
        self.assertEqual([theirs[name] for name in ("time_us_p10", "time_us_median", "time_us_p99")], [1.4, 3.0, 4.96])


if __name__ == "__main__":
    unittest.main()
