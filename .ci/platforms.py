#!/usr/bin/env python3
"""docs/platforms.md: what was run where, and what came of it.

    .ci/platforms.py                      writes docs/platforms.md, from target/platforms
    .ci/platforms.py add FILE KEY=VALUE...   adds a row to a file there (for scripts of the shell)
    .ci/platforms.py clear FILE

Each of .ci/matrix, .ci/aarch64 and .ci/elsewhere keeps its rows in a file of its own in target/platforms. A row
has these columns; nothing in the table is written by hand.
"""

import datetime
import json
import pathlib
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parent.parent
FOLDER = TREE / "target" / "platforms"
# In the order of the table.
FILES = ["glibc", "aarch64", "musl", "elsewhere"]
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

What was run where, and what came of it. This file is written by `.ci/platforms.py`, from what `.ci/matrix` (several
glibcs), `.ci/aarch64` and `.ci/elsewhere` have counted; `.ci/full` runs them all. *Green* is green-thread mode, *kernel*
is kernel-thread mode; *compiles* means that nothing was run. [HACKING.md](../HACKING.md) says why a platform has the mode that it
has.

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


def kept(file):
    path = FOLDER / f"{file}.json"
    return json.loads(path.read_text()) if path.exists() else []


def write():
    lines = [list(COLUMNS.values()), ["---"] * len(COLUMNS)]
    for file in FILES:
        lines += [[row[column] for column in COLUMNS] for row in kept(file)]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    (TREE / "docs/platforms.md").write_text(HEAD + table)


def main():
    match sys.argv[1:]:
        case []:
            write()
        case ["clear", file] if file in FILES:
            keep(file, [])
        case ["add", file, *pairs] if file in FILES:
            keep(file, kept(file) + [dict(pair.split("=", 1) for pair in pairs)])
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
