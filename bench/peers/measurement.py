# SPDX-License-Identifier: Apache-2.0
"""What was measured of each scene, and when, as a folder of results keeps it: rows.jsonl has the rows, scenes.json all else. A scene that is
measured again replaces what there was of it; the others stay as they are."""
import dataclasses
import json
import os
import sys

import link_speed
import scenes


@dataclasses.dataclass
class Measurement:
    """Of one scene."""

    scene: scenes.Scene
    rows: list = dataclasses.field(default_factory=list)
    failures: list = dataclasses.field(default_factory=list)  # names of contenders, or of what else could not be measured
    absent: dict = dataclasses.field(default_factory=dict)  # {reason: [name of a contender]}
    remarks: list = dataclasses.field(default_factory=list)  # what a reader must know; sentences without their full stops
    warnings: list = dataclasses.field(default_factory=list)  # why the figures may be wrong
    facts: dict = dataclasses.field(default_factory=dict)  # of the machine and all versions, then; empty: nobody has noted them
    busy_share: float | None = None  # of all cores, by others, before
    links: list = dataclasses.field(default_factory=list)  # the Link of each round
    link_bytes_per_second: float | None = None  # each way; of older states, which measured it once, before the rounds
    plain_all_reduce_us: float | None = None  # theirs of 8 bytes among the workers, by plain sockets: the median of single calls

    def link_of(self, turn):
        """The Link that a round is held against; None: there is none."""
        if turn < len(self.links):
            return self.links[turn]
        return link_speed.Link(self.link_bytes_per_second, self.plain_all_reduce_us) if self.link_bytes_per_second else None


def facts_of_most(measurements):
    """Those that more of the Measurements have in common than any others; of equally many the latest; none where nobody has noted any."""
    noted = [found.facts for found in measurements if found.facts]
    return max(noted, key=lambda facts: (noted.count(facts), facts.get("Date", "")), default={})


KEPT = ("failures", "absent", "remarks", "warnings", "facts", "busy_share", "links", "link_bytes_per_second", "plain_all_reduce_us")


def write_text(path, text):
    """All of it or, where this is interrupted, nothing."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def read(folder, known):
    """{name: Measurement} of the scenes that are known, in their order. Rows that an older state wrote without scenes.json are taken too; what it
    noted that nobody reads any more is not (spinning_exchange_us: of 8 bytes between two workers with a core each, however many shared the cores)."""
    known = list(known)
    rows = {}
    if (folder / "rows.jsonl").exists():
        for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            rows.setdefault(row["scene"], []).append(row)
    path = folder / "scenes.json"
    circumstances = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name in rows.keys() - {scene.name for scene in known}:
        print(f"{folder}: {name} is left out: there is no such scene any more", file=sys.stderr)
    known_circumstances = {name: {field: value for field, value in noted.items() if field in KEPT} for name, noted in circumstances.items()}
    for noted in known_circumstances.values():
        noted["links"] = [link_speed.Link(**link) for link in noted.get("links", [])]
    return {scene.name: Measurement(scene, rows.get(scene.name, []), **known_circumstances.get(scene.name, {}))
            for scene in known if scene.name in rows or scene.name in circumstances}


def write(folder, measurements):
    """measurements: as read() gives them."""
    folder.mkdir(parents=True, exist_ok=True)
    circumstances = {name: {field: getattr(found, field) for field in KEPT} for name, found in measurements.items()}
    write_text(folder / "scenes.json", json.dumps(circumstances, indent=1, default=dataclasses.asdict) + "\n")
    lines = []
    for found in measurements.values():
        for row in found.rows:
            lines.append(json.dumps({name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}) + "\n")
    write_text(folder / "rows.jsonl", "".join(lines))
