# SPDX-License-Identifier: Apache-2.0
"""Tests of the bars on a comparison's page: which rows meet, miss or leave undecided which of them. bars_test.py BENCH_DIRECTORY"""
import pathlib
import sys
import unittest

BENCH = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(BENCH / "peers"))
sys.dont_write_bytecode = True

import bars  # noqa: E402
import contenders  # noqa: E402
import link_speed  # noqa: E402
import page  # noqa: E402
import scenes  # noqa: E402
import summary  # noqa: E402

MIB = 1 << 20


def rows(contender, *times_us, size_bytes=8, in_place=True, **more):
    """One of each round."""
    fields = {"op": "all_reduce", "size_bytes": size_bytes, "in_place": in_place, "workers": 4, "limit": None, "limit_gbs": None, "traffic_gbs": 1.0}
    return [fields | {"contender": contender, "round": turn, "time_us_median": time_us} | more for turn, time_us in enumerate(times_us)]


def measured(links=(), **rows_of):
    """workers_2: [rows of one contender, of another, ...]. links: of each round."""
    found = {}
    for name, parts in rows_of.items():
        every = [row for part in parts for row in part]
        table = summary.summarise(every, dict(enumerate(links)).get)
        found[name.replace("_", "-")] = bars.Measured(table, every)
    return found


class RatioTest(unittest.TestCase):
    def judge(self, *parts, bound=2.0, names=("openmpi", "mpich"), **more):
        return bars.peers_take(bars.at_least(bound), ("workers-2",), names, **more)(measured(workers_2=[rows("crossdevice", 10, 10, 10), *parts]))

    def test_all_rounds_of_all_peers_meet_it(self):
        found = self.judge(rows("openmpi", 21, 30, 40), rows("mpich", 50, 50, 50))
        self.assertIs(found.state, bars.State.MET)
        self.assertEqual([(figure.scene, figure.contender, figure.value) for figure in found.deciding], [("workers-2", "openmpi", summary.Spread(3, 2.1, 4))])
        self.assertEqual(found.lacking, [])

    def test_where_rounds_disagree_it_is_undecided(self):
        found = self.judge(rows("openmpi", 19, 30, 40), rows("mpich", 50, 50, 50))
        self.assertIs(found.state, bars.State.UNDECIDED)
        self.assertEqual([figure.contender for figure in found.deciding], ["openmpi"])

    def test_one_figure_that_misses_it_is_enough(self):
        found = self.judge(rows("openmpi", 19, 30, 40), rows("mpich", 18, 19, 19))
        self.assertIs(found.state, bars.State.MISSED)
        self.assertEqual([figure.contender for figure in found.deciding], ["mpich"])

    def test_a_single_round_decides_nothing(self):
        self.assertIs(self.judge(rows("openmpi", 50)).state, bars.State.UNDECIDED)

    def test_who_was_not_measured_is_named(self):
        self.assertEqual(self.judge(rows("openmpi", 50, 50)).lacking, ["MPICH"])
        found = bars.peers_take(bars.at_least(1), ("workers-2", "workers-4"), ("openmpi",))({})
        self.assertIs(found.state, bars.State.NOT_MEASURED)
        self.assertEqual((found.figures, found.lacking), ([], ["workers-2", "workers-4", "Open MPI"]))

    def test_only_the_sizes_and_the_reference_that_it_names(self):
        parts = (rows("openmpi", 5, 5), rows("crossdevice", 10, 10, size_bytes=64), rows("openmpi", 50, 50, size_bytes=64),
                 rows("crossdevice-foreign", 40, 40, size_bytes=64))
        self.assertEqual([figure.value.median for figure in self.judge(*parts, sizes=(16, 64)).figures], [5])
        self.assertEqual([figure.value.median for figure in self.judge(*parts, reference="crossdevice-foreign").figures], [1.25])

    def test_of_a_size_that_two_scenes_have_the_last_counts(self):
        few, many = ([rows("crossdevice", 10, 10), rows("openmpi", time, time)] for time in (5, 20))
        found = bars.peers_take(bars.at_least(1), ("workers-2", "workers-2-small"), ("openmpi",))(measured(workers_2=few, workers_2_small=many))
        self.assertEqual([(figure.scene, figure.value.median) for figure in found.figures], [("workers-2-small", 2)])
        self.assertIs(found.state, bars.State.MET)
        self.assertEqual(found.lacking, [])


class OwnFiguresTest(unittest.TestCase):
    def test_a_share_of_the_limit(self):
        limit = {"limit": "in_place_scale", "limit_gbs": 2.0, "size_bytes": 64 * MIB}
        for traffic, state in (((1.9, 1.85), bars.State.MET), ((1.9, 1.7), bars.State.UNDECIDED), ((1.7, 1.7), bars.State.MISSED)):
            parts = [rows("crossdevice", 10, 10, **limit)]
            for row, gbs in zip(parts[0], traffic, strict=True):
                row["traffic_gbs"] = gbs
            judge = bars.share_of_limit(bars.at_least(90, " %"), ("devices-2", "devices-4"), 64 * MIB, True)
            found = judge(measured(devices_2=parts))
            self.assertIs(found.state, state)
            self.assertEqual(found.lacking, ["devices-4"])

    def test_beside_plain_sockets(self):
        judge = bars.beside_plain_sockets(bars.at_most(1.25), ("network-1gbit",))
        for times, plain, state in (((12, 10), (10, 10), bars.State.MET), ((12, 13), (10, 10), bars.State.UNDECIDED), ((13, 14), (10, 10), bars.State.MISSED),
                                    ((12, 24), (10, 20), bars.State.MET), ((12, 24), (20, 10), bars.State.UNDECIDED)):
            found = judge(measured([link_speed.Link(1e8, us) for us in plain], network_1gbit=[rows("crossdevice", *times)]))
            self.assertIs(found.state, state)
        self.assertIs(judge(measured(network_1gbit=[rows("crossdevice", 10, 10)])).state, bars.State.NOT_MEASURED)

    def test_beside_plain_sockets_the_last_scene_counts(self):
        judge = bars.beside_plain_sockets(bars.at_most(1.25), ("network-1gbit", "network-1gbit-small"))
        found = judge(measured([link_speed.Link(1e8, us) for us in (10, 10)], network_1gbit=[rows("crossdevice", 20, 20)],
                               network_1gbit_small=[rows("crossdevice", 11, 12)]))
        self.assertEqual([(figure.scene, round(figure.value.median, 3)) for figure in found.figures], [("network-1gbit-small", 1.15)])
        self.assertIs(found.state, bars.State.MET)

    def test_lists_beside_one_buffer(self):
        judge = bars.lists_beside_one_buffer(bars.at_most(1.10), ("gradients-resnet50",))

        def of(contender, *times):
            found = rows(contender, *times, op="batch_reduce", limit="flat_buffer")
            return [row | {"limit_gbs": row["time_us_median"] / 10} for row in found]
        found = judge(measured(gradients_resnet50=[of("crossdevice", 10, 10.5), of("crossdevice-foreign", 10, 12), of("openmpi", 90, 90)]))
        self.assertIs(found.state, bars.State.UNDECIDED)
        self.assertEqual([(figure.contender, round(figure.value.median, 3)) for figure in found.figures],
                         [("crossdevice-foreign", 1.1), ("crossdevice", 1.025)])


class TableTest(unittest.TestCase):
    def test_bars_speak_of_scenes_and_contenders_that_there_are(self):
        known = {scene.name for scene in scenes.scenes(2)}
        titles = {contender.title for contender in contenders.CONTENDERS}
        for text, judge in bars.BARS:
            lacking = judge({}).lacking
            self.assertTrue(lacking, text)
            self.assertLessEqual(set(lacking), known | titles, text)
        self.assertEqual(len({text for text, _ in bars.BARS}), len(bars.BARS))

    def test_the_page_has_each_with_the_figures_that_decide(self):
        times = {name: rows(name, 30, 30, size_bytes=8 * MIB) for name in bars.MPI_AND_GLOO}
        times["openmpi"] = rows("openmpi", 20, 22, size_bytes=8 * MIB)
        lines = page.bars_part(measured(workers_2=[rows("crossdevice", 10, 10, size_bytes=8 * MIB), *times.values()]))
        self.assertEqual(sum(line.startswith("| ") for line in lines), 1 + len(bars.BARS))
        text = "\n".join(lines)
        self.assertIn("8 MiB from the pool: at least 2.5 times as fast as the best of them | missed (1 of 6) "
                      "| workers-2, 8 MiB in place, Open MPI: 2.10x (2.00-2.20) |", text)
        self.assertIn("at any size from 8 B | met (6 of 6) | workers-2, 8 MiB in place, Open MPI: 2.10x (2.00-2.20); not measured: workers-2-small |", text)
        self.assertIn("faster than each peer | not measured |  |", text)

    def test_of_many_figures_a_few_are_shown(self):
        figures = [bars.Figure("s", summary.Key("all_reduce", 8, True), "mpich", summary.Spread(1, 1, 1, (0.9, 1.1)), bars.at_least(1))] * 8
        self.assertRegex(page.bar_line("text", bars.Judgement(figures, [])),
                         r"^\| text \| undecided \(8 of 8\) \| (s, 8 B in place, MPICH: 1.00x; ){5}and 3 more \|$")
        percent = bars.Figure("s", summary.Key("all_reduce", 8, False), "crossdevice", summary.Spread(95, 91, 99, (91, 99)), bars.at_least(90, " %"))
        self.assertEqual(page.figure_text(percent), "s, 8 B out of place, crossdevice: 95 % (91-99)")


if __name__ == "__main__":
    unittest.main()
