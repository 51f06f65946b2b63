#!/usr/bin/env python3
# Names green threads in samples of perf: what `perf script` prints, with the name of the green thread in the place of
# the kernel thread's.
#
#     perf record -g -e cpu-clock --user-regs=sp,ip -p PID                    or --call-graph dwarf
#     gdb -p PID -batch -ex "greenthread stacks stacks.txt"                   while it runs
#     perf script -F comm,tid,time,ip,sym,uregs | greenthread-perf.py stacks.txt
#
# perf knows kernel threads only. But a sample has the stack pointer, and every green thread has a stack of its own.
# The file says which thread had which stack when it was written: a thread that ended before, or began later, is not
# told apart from it.

import bisect
import re
import sys

REGISTERS = re.compile(r"\s*ABI:\d(?:\s+\w+:0x[0-9a-f]+)+\s*$", re.M)
HEAD = re.compile(r"^(\s*)(\S.*?)(?=\s+\d+(?:/\d+)?\s)")


def read_stacks(path):
    stacks = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            bottom, top, number, name = line.rstrip("\n").split(" ", 3)
            # As flame graphs want it, without spaces.
            stacks.append((int(bottom, 16), int(top, 16), f"{number}:{name}".replace(" ", "_")))
    return sorted(stacks)


def owner(stacks, record):
    found = re.search(r"\bSP:(0x[0-9a-f]+)", record)
    if found is None:
        return None
    sp = int(found[1], 16)
    place = bisect.bisect_right(stacks, (sp, sp, "")) - 1
    return stacks[place][2] if place >= 0 and sp < stacks[place][1] else None


def records(lines):
    """A line each, or lines up to an empty one where there are call chains."""
    record = ""
    for line in lines:
        if record and not line.startswith("\t") and line.strip() and not line.lstrip().startswith("ABI:"):
            yield record
            record = ""
        record += line
    yield record


def main(path):
    stacks = read_stacks(path)
    for record in records(sys.stdin):
        name = owner(stacks, record)
        record = REGISTERS.sub("", record)
        sys.stdout.write(HEAD.sub(lambda head: head[1] + name, record, count=1) if name else record)
        if not record.endswith("\n"):
            sys.stdout.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
