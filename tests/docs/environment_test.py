# SPDX-License-Identifier: Apache-2.0
"""docs/environment.md has every CROSSDEVICE_* variable that the library and its programs read, and no other; core/environment.h declares the same ones.

    environment_test.py ROOT
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
CHAPTER = ROOT / "docs" / "environment.md"
HEADER = ROOT / "include" / "crossdevice" / "core" / "environment.h"
NAME = r"CROSSDEVICE_[A-Z0-9_]*[A-Z0-9]"
NO_VARIABLES = {"CROSSDEVICE_EXPORT"}  # what the header says to the compiler


def sources():
    """The library's and the programs' own text, by path, where it has such names at all."""
    texts = {path: path.read_text(encoding="utf-8") for folder in ("include", "src", "bench") for path in sorted((ROOT / folder).rglob("*"))
             if path.suffix in (".h", ".cc", ".cu", ".cuh", ".py")}
    return {path: text for path, text in texts.items() if re.search(rf"""["']{NAME}["']""", text) or path == HEADER}


def read_in(texts):
    """Names that stand alone in quotes, which is how a variable is asked for, with a file that does; comments ask for nothing."""
    found = {}
    for path, text in texts.items():
        code = text if path.suffix == ".py" else re.sub(r"//[^\n]*", "", text)
        for name in re.findall(rf"""["']({NAME})["']""", code):
            found.setdefault(name, path.relative_to(ROOT))
    return found


def declared_in(header):
    return set(re.findall(NAME, header)) - NO_VARIABLES


def explained_in(chapter):
    """Those that have a row, or a sentence of who reads them. What the text of another one mentions is not explained by that."""
    names = set(re.findall(rf"reads `({NAME})`", chapter))
    for line in chapter.splitlines():
        if line.startswith("| `"):
            names |= set(re.findall(rf"`({NAME})`", line.split("|")[1]))
    return names


def complaints_of(texts, header, chapter):
    read, declared, explained = read_in(texts), declared_in(header), explained_in(chapter)
    wrong = [f"{read[name]} reads {name}, which docs/environment.md does not have" for name in sorted(read.keys() - explained)]
    wrong += [f"docs/environment.md has {name}, which nobody reads" for name in sorted(explained - read.keys())]
    wrong += [f"core/environment.h declares {name}, which docs/environment.md does not have" for name in sorted(declared - explained)]
    wrong += [f"docs/environment.md has {name}, which core/environment.h does not declare" for name in sorted(explained - declared)]
    mentioned = set(re.findall(NAME, chapter))
    return wrong + [f"docs/environment.md speaks of {name}, but does not say what it is" for name in sorted(mentioned - explained)]


def blind_spots(texts, header, chapter):
    """What would not be noticed: whether each name is missed where it is taken away, and a new one seen."""
    wrong = []
    for name in sorted(explained_in(chapter)):
        without = re.sub(rf"\b{name}\b", "another name", chapter)
        if not any(name in each for each in complaints_of(texts, header, without)):
            wrong.append(f"nobody would notice that docs/environment.md has lost {name}")
        others = {path: re.sub(rf"\b{name}\b", "another name", text) for path, text in texts.items()}
        if not any(name in each for each in complaints_of(others, header, chapter)):
            wrong.append(f"nobody would notice that {name} is not read any more")
    new = "CROSSDEVICE_NEW"
    for asks in (f'look_up("{new}");', f'constexpr const char* kNew = "{new}";'):
        if not complaints_of(texts | {ROOT / "src" / "new.cc": asks}, header, chapter):
            wrong.append(f"nobody would notice {asks}")
    if not complaints_of(texts, header, chapter + f"| `{new}` | | |\n"):
        wrong.append(f"nobody would notice that docs/environment.md has {new}")
    return wrong


def main():
    texts = sources()
    header, chapter = texts[HEADER], CHAPTER.read_text(encoding="utf-8")
    wrong = complaints_of(texts, header, chapter) or blind_spots(texts, header, chapter)
    names = explained_in(chapter)
    print("\n".join(wrong) or f"{len(names)} variables are read, declared and explained")
    return 1 if wrong or not names else 0


if __name__ == "__main__":
    sys.exit(main())
