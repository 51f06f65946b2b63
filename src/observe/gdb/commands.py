# Green threads in gdb: the commands, and the preemption signal.

import itertools
import re
import struct

import gdb

def wanted_address(expression):
    """The addresses that an expression means: of the thing that it points to, or just a number."""
    value = gdb.parse_and_eval(expression)
    kind, size = value.type.strip_typedefs(), 1
    if kind.code in (gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_REF) and kind.target().sizeof:
        size = kind.target().sizeof
    elif kind.code == gdb.TYPE_CODE_STRUCT and value.address is not None:
        value, size = value.address, kind.sizeof
    start = int(value) & NEVER
    return range(start, start + size)


def check_state(word):
    if word not in STATES:
        raise Failure(f"{word}: not a state of green threads; accepted are {', '.join(STATES)}")
    return word


class InfoGreenthreads(gdb.Command):
    """The green threads of the program: info greenthreads [STATE] [-l ADDRESS] [-n NAME]

STATE is new, ready, running or parked.
-l ADDRESS: those that wait for the lock, channel ... at an address; an expression is accepted.
-n NAME: those whose name contains NAME.
The columns: number; name; state; since when it has been so; what it waits for, and who holds that; where it was
spawned; the innermost function of the program's own."""

    def __init__(self):
        super().__init__("info greenthreads", gdb.COMMAND_STATUS)

    def complete(self, _, word):
        return [state for state in STATES if state.startswith(word)]

    def invoke(self, argument, _):
        state = address = name = None
        words = iter(gdb.string_to_argv(argument))
        for word in words:
            if word in ("-l", "-n"):
                value = next(words, None)
                if value is None:
                    raise Failure(f"{word} what?")
                address, name = (wanted_address(value), name) if word == "-l" else (address, value)
            else:
                state = check_state(word)
        print_threads(state, address, name)


def print_threads(state=None, address=None, name=None):
    threads = list(all_threads())
    waits = Waits(threads)

    def fits(thread):
        if state is not None and thread.state != state:
            return False
        if address is not None:
            wait = waits.of(thread)
            if wait is None or wait[0] not in address:
                return False
        return name is None or name in (thread.name() or "")

    chosen = [thread for thread in threads if fits(thread)]
    with Kept():
        shown = view.thread
        rows = list(rows_of(chosen, waits, shown.address if shown else None))
    heads = ("", "N", "Name", "State", "Since", "Waits for", "Spawned at", "Function")
    if rows:
        widths = [min(48, max(len(row[i]) for row in [heads, *rows])) for i in range(len(heads) - 1)]
        for row in [heads, *rows]:
            line = " ".join(cell.ljust(width) for cell, width in zip(row, widths))
            gdb.write(f"{line} {row[-1]}".rstrip() + "\n")
    counts = {state: sum(thread.state == state for thread in threads) for state in STATES}
    summary = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    shown = "" if len(chosen) == len(threads) else f"{len(chosen)} of "
    gdb.write(f"{shown}{len(threads)} green threads{': ' if summary else ''}{summary}\n")


def rows_of(threads, waits, shown):
    callers, places = Callers(), {}
    nows = {}
    for thread in threads:
        now = nows.setdefault(id(thread.table), None)
        if now is None:
            now = nows[id(thread.table)] = now_of(thread.table)
        spawned = word(thread.identity + thread.table.identity_place)
        if spawned not in places:
            places[spawned] = thread.place()
        since = (now - thread.at) & 0xFFFF_FFFF
        yield (
            "*" if thread.address == shown else "",
            str(thread.number),
            thread.name() or "-",
            thread.state,
            # Times that differ by a tick of two clocks.
            span(since if since < 1 << 31 else 0),
            waits.text(thread, now),
            places[spawned],
            callers.of(thread),
        )


class Greenthread(gdb.Command):
    """Shows a green thread, or does a command of gdb's for it: greenthread N [COMMAND]

N is a number, or the name of one thread.
greenthread N                                  bt, up, info locals ... are about thread N until the program goes on
greenthread N COMMAND                          the command is about thread N
greenthread apply all|STATE|N... COMMAND       for several threads
greenthread find NAME                          the threads whose name contains NAME
greenthread none                               kernel threads are shown again
The registers of a suspended thread are not written: `continue`, `step` and calls of functions concern the kernel
thread that gdb has selected. Say `greenthread none` before you step."""

    def __init__(self):
        super().__init__("greenthread", gdb.COMMAND_STACK, prefix=True)

    def invoke(self, argument, from_tty):
        first, _, rest = argument.strip().partition(" ")
        if not first:
            gdb.write(f"green thread {view.thread.title()} is shown\n" if view.thread else "none is shown\n")
            return
        thread = thread_of(first)
        if rest.strip():
            with Kept():
                view.show(thread)
                gdb.execute(rest.strip())
        else:
            view.show(thread)
            Callers().walk()[0].select()
            gdb.write(f"[green thread {thread.title()}, {thread.state}]\n")
            gdb.execute("frame")


class GreenthreadApply(gdb.Command):
    """Does a command of gdb's for several green threads: greenthread apply all|STATE|N... COMMAND"""

    def __init__(self):
        super().__init__("greenthread apply", gdb.COMMAND_STACK)

    def invoke(self, argument, _):
        words = argument.split()
        which = list(itertools.takewhile(str.isdigit, words)) or words[:1]
        command = " ".join(words[len(which) :])
        if not command:
            raise Failure("greenthread apply all|STATE|N... COMMAND")
        if which[0].isdigit():
            threads = [thread_of(number) for number in which]
        else:
            state = None if which[0] == "all" else check_state(which[0])
            threads = [thread for thread in all_threads() if state in (None, thread.state)]
        with Kept():
            for thread in threads:
                gdb.write(f"\nGreen thread {thread.title()}, {thread.state}:\n")
                try:
                    view.show(thread)
                    gdb.execute(command)
                except (gdb.error, gdb.GdbError) as error:
                    gdb.write(f"{error}\n")


class GreenthreadFind(gdb.Command):
    """The green threads whose name contains a text: greenthread find NAME"""

    def __init__(self):
        super().__init__("greenthread find", gdb.COMMAND_STACK)

    def invoke(self, argument, _):
        print_threads(name=argument.strip())


class GreenthreadNone(gdb.Command):
    """Shows kernel threads again: greenthread none"""

    def __init__(self):
        super().__init__("greenthread none", gdb.COMMAND_STACK)

    def invoke(self, _, __):
        view.hide()


class GreenthreadCore(gdb.Command):
    """Writes a core file that has all stacks: greenthread core FILE

gcore of gdb before version 17 stops reading a mapping at the first page that it cannot read. A mapping with
stacks of green threads has such pages: their guards. This command calls gcore and adds what is missing. (Core
files that the kernel writes are complete.)"""

    PAGE = 4096
    PIECE = 16 * PAGE

    def __init__(self):
        super().__init__("greenthread core", gdb.COMMAND_STACK)

    def invoke(self, argument, _):
        files = gdb.string_to_argv(argument)
        if len(files) != 1:
            raise Failure("greenthread core FILE")
        with Kept():
            view.hide()
            answer = gdb.execute(f"gcore {files[0]}", to_string=True)
        added = 0
        with open(files[0], "r+b") as core:
            missing = [int(at, 16) for at in re.findall(r"bytes at (0x[0-9a-f]+)", answer)]
            for address in missing:
                added += self.add(core, address)
        gdb.write(f"Saved corefile {files[0]}" + (f", with {added} bytes that gcore had left out\n" if added else "\n"))

    def add(self, core, missing):
        """Writes what can be read from an address on to the end of its part of the file."""
        core.seek(0)
        header = core.read(64)
        (start,), (size, count) = struct.unpack_from("<Q", header, 32), struct.unpack_from("<2H", header, 54)
        for i in range(count):
            core.seek(start + i * size)
            kind, _, offset, address, _, length = struct.unpack_from("<2I4Q", core.read(size))
            if kind == 1 and address <= missing < address + length:
                pieces = range(missing, address + length, self.PIECE)
                ends = address + length
                return sum(self.copy(core, offset - address, at, min(self.PIECE, ends - at)) for at in pieces)
        return 0

    def copy(self, core, shift, address, length):
        try:
            memory = read(address, length)
        except gdb.MemoryError:
            if length <= self.PAGE:
                return 0
            pages = range(address, address + length, self.PAGE)
            return sum(self.copy(core, shift, page, min(self.PAGE, address + length - page)) for page in pages)
        if not any(memory):
            return 0
        core.seek(shift + address)
        return core.write(memory)


class GreenthreadStacks(gdb.Command):
    """Writes which stack is which green thread's now, for greenthread-perf.py: greenthread stacks FILE"""

    def __init__(self):
        super().__init__("greenthread stacks", gdb.COMMAND_STACK)

    def invoke(self, argument, _):
        files = gdb.string_to_argv(argument)
        if len(files) != 1:
            raise Failure("greenthread stacks FILE")
        count = 0
        with open(files[0], "w", encoding="utf-8") as out:
            for thread in all_threads():
                bottom, top = thread.stack()
                if bottom:
                    count += 1
                    out.write(f"{bottom:x} {top:x} {thread.number} {thread.name() or ''}\n")
        gdb.write(f"Saved {count} stacks to {files[0]}\n")


# --- The preemption signal: gdb would stop at each.

# The one that the crate takes if it may choose.
USUAL = 64
passed = set()


def pass_on(signal):
    passed.add(signal)
    gdb.execute(f"handle SIG{signal} nostop noprint pass", to_string=True)


def on_stop(event):
    known["stopped"] = monotonic()
    try:
        bits = 0
        for table in tables():
            bits |= table.signals
    except (gdb.error, gdb.GdbError):
        return
    for signal in range(1, 65):
        if bits >> (signal - 1) & 1 and signal not in passed:
            pass_on(signal)
            if getattr(event, "stop_signal", None) == f"SIG{signal}":
                gdb.write(f"(SIG{signal} preempts green threads. gdb passes it on from now on: `continue`)\n")


def on_continue(_):
    known.pop("stopped", None)
    view.hide()


if "greenthread" in gdb.frame_filters:
    # The script again, from another program or library: its commands are there.
    hider, view = gdb.frame_filters["greenthread"], gdb.frame_filters["greenthread"].view
else:
    hider, view = Hider(), View()
    hider.view = view
    gdb.unwinder.register_unwinder(None, view, replace=True)
    for command in (InfoGreenthreads, Greenthread, GreenthreadApply, GreenthreadFind, GreenthreadNone, GreenthreadCore, GreenthreadStacks):
        command()
    gdb.events.stop.connect(on_stop)
    gdb.events.cont.connect(on_continue)
    pass_on(USUAL)
