# SPDX-License-Identifier: Apache-2.0
"""Tests of what bench/compare makes of rows: medians, ratios, limits, the verdict, charts. compare_test.py BENCH_DIRECTORY"""
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BENCH = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(BENCH / "peers"))
sys.dont_write_bytecode = True

import charts  # noqa: E402
import contenders  # noqa: E402
import page  # noqa: E402
import scenes  # noqa: E402
import summary  # noqa: E402


def row(contender, turn, time_us, **more):
    fields = {"op": "all_reduce", "size_bytes": 1000, "in_place": True, "workers": 4, "limit": None, "limit_gbs": None, "traffic_gbs": 1.0,
              "percent_of_limit": None}
    return fields | {"scene": "s", "contender": contender, "round": turn, "time_us_median": time_us} | more


KEY = summary.Key("all_reduce", 1000, True)


class SummaryTest(unittest.TestCase):
    def test_medians_over_rounds_and_ratios_within_them(self):
        rows = [row("crossdevice", t, us) for t, us in enumerate((10, 20, 40))] + [row("mpich", t, us) for t, us in enumerate((30, 40, 20))]
        cells = summary.summarise(rows)[KEY]
        self.assertEqual(cells["crossdevice"].time_us, 20)
        self.assertEqual(cells["mpich"].time_us, 30)
        self.assertEqual((cells["mpich"].low_ratio, cells["mpich"].ratio, cells["mpich"].high_ratio), (0.5, 2, 3))
        self.assertIsNone(cells["mpich"].percent)

    def test_a_contender_without_ours_in_its_round_has_no_ratio(self):
        self.assertIsNone(summary.summarise([row("mpich", 0, 5)])[KEY]["mpich"].ratio)

    def test_the_limit_of_ours_is_everybodys(self):
        limit = {"limit": "in_place_scale", "limit_gbs": 2.0, "traffic_gbs": 1.0}
        cells = summary.summarise([row("crossdevice", 0, 10, **limit), row("gloo", 0, 50, limit="in_place_scale", limit_gbs=9.0)])[KEY]
        self.assertEqual(cells["crossdevice"].percent, 50)
        self.assertEqual(cells["gloo"].percent, 10)

    def test_a_batch_is_held_against_the_limit_of_the_flat_buffer(self):
        limit = {"limit": "in_place_scale", "limit_gbs": 2.0, "traffic_gbs": 1.0}
        batch = {"op": "batch_reduce", "limit": "flat_buffer", "limit_gbs": 1.0, "percent_of_limit": 90.0}
        table = summary.summarise([row("crossdevice", 0, 10, **limit), row("crossdevice", 0, 20, **batch)])
        self.assertEqual(table[summary.Key("batch_reduce", 1000, True)]["crossdevice"].percent, 25)

    def test_across_links_the_bound_is_the_link(self):
        # 2 * 3/4 * 1000 bytes at 1.5e8 bytes per second: 10 us.
        cell = summary.summarise([row("crossdevice", 0, 20)], 1.5e8)[KEY]["crossdevice"]
        self.assertAlmostEqual(cell.percent, 50)

    def test_peers_that_are_ahead_are_told_and_ours_are_no_peers(self):
        rows = [row("crossdevice", 0, 10), row("crossdevice-foreign", 0, 5), row("openmpi", 0, 8), row("mpich", 0, 12)]
        table = summary.summarise(rows)
        self.assertEqual([name for _, name, _ in summary.peers_ahead(table, page.NAMES_OF_OURS)], ["openmpi"])
        verdict = "\n".join(page.scene_verdict(table))
        self.assertIn("1000 all_reduce in place: Open MPI takes 0.80 times ours, in every round", verdict)
        self.assertIn("**0.80x**", "\n".join(page.scene_table(table)))
        without = summary.summarise([r for r in rows if r["contender"] != "openmpi"])
        self.assertEqual(page.scene_verdict(without), ["No peer is ahead: the closest takes 1.20 times ours."])


class PageTest(unittest.TestCase):
    def test_writes_a_page_charts_that_are_xml_and_rows(self):
        every = list(scenes.scenes(2))
        results = {}
        for scene in every:
            rows = [row(name, 0, 10.0 * size, size_bytes=size, in_place=in_place, workers=max(1, scene.workers), op=op)
                    for name in ("crossdevice", "openmpi") for size in (8, 1 << 10, 8 << 20) for in_place in (True, False)
                    for op in ("all_reduce", "batch_reduce")]
            results[scene] = (rows, ["gloo"], 1e8 if scene.rate else None, 0.5)
        with tempfile.TemporaryDirectory() as directory:
            folder = pathlib.Path(directory) / "machine"
            page.write(folder, {"cpu": "a < b", "cores": 2, "Kernel": "1"}, results)
            text = (folder / "README.md").read_text()
            for scene in every:
                self.assertIn(scene.title[1:], text)
            self.assertIn("Failed, so not shown in full: gloo", text)
            drawings = list(folder.glob("*.svg"))
            self.assertGreater(len(drawings), 8)
            for drawing in drawings:
                xml.etree.ElementTree.parse(drawing)
                self.assertIn(f"({drawing.name})", text)
            lines = (folder / "rows.jsonl").read_text().splitlines()
            self.assertEqual(len(lines), sum(len(rows) for rows, *_ in results.values()))

    def test_charts_of_nothing_one_point_and_strange_names_are_xml(self):
        axes = charts.Axes("a & b", "x", "y", True)
        for points in ([], [(8, 1.0)], [(8, 0.001), (16, 1e9)]):
            for logarithmic in (True, False):
                axes.y_is_logarithmic = logarithmic
                xml.etree.ElementTree.fromstring(charts.line_chart(axes, [charts.Series("<&>", points)] if points else []))
        xml.etree.ElementTree.fromstring(charts.bar_chart("t", "ms", {}))


class ScenesTest(unittest.TestCase):
    def test_names_are_single_and_every_scene_has_a_contender_with_a_command(self):
        tools = contenders.Tools(pathlib.Path("/bin"), pathlib.Path("/venv/bin/python"), 2)
        for every in (list(scenes.scenes(2)), list(scenes.quick_scenes())):
            self.assertEqual(len({scene.name for scene in every}), len(every))
            for scene in every:
                here = [c for c in contenders.CONTENDERS if c.fits(scene, tools) and not isinstance(c, contenders.Mpi)]
                self.assertGreaterEqual(len(here), 2)
                for contender in here:
                    self.assertIn("-n", contender.command(scene, tools, ["-n", "5"]))

    def test_gradient_lists_are_there(self):
        for scene in scenes.scenes(2):
            for work in scene.work:
                if isinstance(work, scenes.Gradients):
                    self.assertTrue(pathlib.Path(work.flags()[1]).exists())


if __name__ == "__main__":
    unittest.main()
