#!/usr/bin/env python3
"""docs/platforms.md: what was run where, and what came of it.

    .ci/platforms.py    writes docs/platforms.md, from target/platforms

A script keeps its rows in a file of its own in target/platforms: .ci/matrix those of glibc. A row has these
columns; nothing in the table is written by hand.
"""

import datetime
import json
import pathlib
import subprocess

TREE = pathlib.Path(__file__).resolve().parent.parent
FOLDER = TREE / "target" / "platforms"
COLUMNS = {
    "platform": "platform",
    "libc": "libc",
    "system": "system",
    "mode": "mode",
    "ran": "what was run",
    "result": "result",
    "date": "date",
    "compiler": "compiler",
}
HEAD = """\
# Platforms

What was run where, and what came of it. This file is written by `.ci/platforms.py`, from what `.ci/matrix` has counted.
*Green* is green-thread mode.

"""


def result(passed, failed):
    names = ", ".join(dict.fromkeys(failed))
    return f"{passed} tests passed" + (f"; FAILED: {names}" if failed else "")


def keep(file, rows):
    """Keeps the rows of one script, instead of those that it kept before."""
    rustc = subprocess.check_output(["rustc", "--version"], text=True).split()[1]
    today = datetime.date.today().isoformat()
    rows = [{"date": today, "compiler": f"rustc {rustc}", **row} for row in rows]
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{file}.json").write_text(json.dumps(rows, indent=1) + "\n")


def main():
    lines = [list(COLUMNS.values()), ["---"] * len(COLUMNS)]
    for path in sorted(FOLDER.glob("*.json")):
        lines += [[row[column] for column in COLUMNS] for row in json.loads(path.read_text())]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    (TREE / "docs/platforms.md").write_text(HEAD + table)


if __name__ == "__main__":
    main()
