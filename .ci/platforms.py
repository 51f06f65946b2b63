#!/usr/bin/env python3
"""docs/platforms.md: what was run where, and what came of it.

    .ci/platforms.py                     writes docs/platforms.md, from target/platforms
    .ci/platforms.py keep FILE < ROWS    keeps a script's rows in target/platforms/FILE.json, instead of those before

A script keeps its rows in files of its own in target/platforms: .ci/matrix in one for each glibc. A row has the
columns below; nothing in the table is written by hand. For `keep` a row is a line, and a tab stands between
two columns: platform, libc, system, mode, what was run, result, and the compiler, if it is not this machine's rustc.
"""

import datetime
import json
import pathlib
import subprocess
import sys

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

What was run where, and what came of it. This file is written by `.ci/platforms.py`, from what `.ci/matrix`,
`.ci/elsewhere`, `.ci/aarch64` and `.ci/aarch64-kernel` have counted.
*Green* is green-thread mode.

"""


def result(passed, failed):
    names = ", ".join(dict.fromkeys(failed))
    return f"{passed} tests passed" + (f"; FAILED: {names}" if failed else "")


def keep(file, rows):
    """Keeps the rows of one script, instead of those that it kept before. A row may have a compiler of its own."""
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


def keep_lines(file, lines):
    """The same, for rows that are lines with tabs."""
    needed = ("platform", "libc", "system", "mode", "ran", "result")
    rows = []
    for line in lines:
        cells = line.rstrip("\n").split("\t")
        if len(cells) not in (len(needed), len(needed) + 1):
            sys.exit(f"not a row: {line!r}")
        rows.append(dict(zip((*needed, "compiler"), cells)))
    keep(file, rows)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["keep", file]:
            keep_lines(file, sys.stdin)
        case _:
            sys.exit(__doc__)
