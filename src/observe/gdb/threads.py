# Green threads in gdb: reading them out of the program's memory. (greenthread-gdb.py says how the parts go together.)

import re
import struct
import time

import gdb

STATES = ("new", "ready", "running", "parked")
SYMBOL = "greenthread_debugger"
VERSION = 1
NEVER = (1 << 64) - 1
WORD = 8
# Functions of these paths are not the user's own; nor are those in these files, and in the crate's (`Folders`).
NOT_THEIRS = ("greenthread::", "core::", "alloc::", "std::", "preempt_trampoline")
NOT_THEIR_FILES = ("/library/core/src/", "/library/alloc/src/", "/library/std/src/")
# The function that calls the user's closure.
BOTTOM = "__rust_begin_short_backtrace"
OWN_FILE = "src/observe/gdb.rs"


class Failure(gdb.GdbError):
    pass


class Machine:
    """An architecture's names of registers, and the words that a switch saves, from the stack pointer up."""

    def __init__(self, pc, sp, thread_pointer, saved, length):
        self.pc, self.sp, self.thread_pointer = pc, sp, thread_pointer
        self.saved, self.length = saved, length * WORD

    def place(self, frame):
        """The stack pointer and the program counter of a frame."""
        return tuple(int(frame.read_register(name)) & NEVER for name in (self.sp, self.pc))


MACHINES = {
    "i386:x86-64": Machine("rip", "rsp", "fs_base", ("rip", "rbx", "rbp"), 3),
    "aarch64": Machine("pc", "sp", "tpidr", ("x19", "x29", "pc"), 4),
}


def machine():
    name = gdb.selected_inferior().architecture().name()
    return MACHINES.get(name) or MACHINES["i386:x86-64"]


# --- The program's memory.


def read(address, length):
    return bytes(gdb.selected_inferior().read_memory(address, length))


def word_in(memory, offset):
    return struct.unpack_from("<Q", memory, offset)[0]


def word(address):
    return word_in(read(address, WORD), 0)


def short(address):
    return struct.unpack("<I", read(address, 4))[0]


def text(address, length):
    return read(address, min(length, 1 << 12)).rstrip(b"\0").decode("utf-8", "replace")


class Table:
    """The words of `greenthread_debugger`, by name."""

    def __init__(self, address):
        version, count, names, length = struct.unpack("<4Q", read(address, 4 * WORD))
        if version != VERSION:
            raise Failure(f"this script is for version {VERSION} of {SYMBOL}; the program has version {version}")
        words = struct.unpack(f"<{count}Q", read(address, count * WORD))
        self.__dict__.update(zip(read(names, length).decode().split(), words))


def addresses():
    """Where the program and its libraries have tables."""
    found = set()
    for question in (f"info address {SYMBOL}", f"info variables ^{SYMBOL}$"):
        try:
            answer = gdb.execute(question, to_string=True)
        except gdb.error:
            continue
        found.update(int(number, 16) for number in re.findall(r"\b0x[0-9a-f]+\b", answer))
    return sorted(found)


known = {}


def tables():
    # Libraries that were loaded since, or a program that was started since, have other addresses.
    inferior = gdb.selected_inferior()
    now = (inferior.num, inferior.pid, tuple(objfile.filename for objfile in gdb.objfiles()))
    if known.get("for") != now:
        known.update({"for": now, "addresses": addresses()})
    if not known["addresses"]:
        raise Failure(
            "there are no green threads to be seen: "
            f"the symbol {SYMBOL} is not there (not a program of greenthread's, or its symbols were stripped)"
        )
    try:
        return [Table(address) for address in known["addresses"]]
    except gdb.MemoryError:
        raise Failure("there is no process, or its memory cannot be read") from None


# --- The threads.


class Thread:
    """A green thread at one moment."""

    def __init__(self, table, number, address, record):
        self.table, self.number, self.address = table, number, address
        self.identity = word_in(record, table.green_identity)
        self.mark = word_in(record, table.green_thread_pointer)
        self.at = struct.unpack_from("<I", record, table.green_since)[0]
        self.kernel_thread = None
        self.parking = None
        self.room = 0
        self.stack_pointer = 0
        is_new = struct.unpack_from("<I", record, table.green_flags)[0] & table.flag_new
        machine = word_in(record, table.green_worker)
        parking = word_in(record, table.green_parking)
        if is_new:
            # The word is that of the thread that had the record before.
            self.mark = 0
        else:
            self.room = word_in(record, table.green_stack)
            self.stack_pointer = word_in(record, table.green_stack_pointer)
        if parking:
            self.parking = read(parking, 4 * WORD)
        if not is_new and machine and word(machine + table.worker_current) == address:
            self.state = "running"
            self.kernel_thread = short(machine + table.worker_kernel_thread)
        elif is_new:
            self.state = "new"
        elif self.parking and self.is_parked():
            self.state = "parked"
        else:
            self.state = "ready"

    def is_parked(self):
        table = self.table
        waiter = word_in(self.parking, table.parking_waiter)
        return not waiter or short(waiter + table.waiter_state) == table.state_parked

    def name(self):
        box = word(self.identity + self.table.identity_name)
        return text(word(box), word(box + WORD)) if box else None

    def title(self):
        name = self.name()
        return f'{self.number} "{name}"' if name is not None else f"{self.number}"

    def place(self):
        """Where it was spawned."""
        table = self.table
        place = word(self.identity + table.identity_place)
        if not place or not table.place_file or not table.place_line:
            return "-"
        file = text(word(place + table.place_file - 1), word(place + table.place_file - 1 + WORD))
        return f"{file}:{short(place + table.place_line - 1)}"

    def stack(self):
        """Its stack's lowest address, and the address behind its highest; 0 and 0 if it has none."""
        bounds = self.room + self.table.stack_bounds
        if not self.room:
            return 0, 0
        return word(bounds + self.table.stack_bottom), word(bounds + self.table.stack_top)

    def registers(self):
        """Those with which it goes on: those that a switch saves, and the stack pointer."""
        bottom, top = self.stack()
        saved, here = self.stack_pointer, machine()
        if self.state in ("new", "running") or not bottom <= saved <= top - here.length:
            return None
        registers = {name: word(saved + i * WORD) for i, name in enumerate(here.saved)}
        if not registers[here.pc]:
            raise Failure(f"the stack of green thread {self.number} is missing (see `help greenthread core`)")
        return {**registers, here.sp: saved + here.length, here.thread_pointer: self.mark}


def all_threads(only=None):
    """Every thread that lives, or only the one with a number. The number stays with it: its record's place."""
    number = 0
    for table in tables():
        piece, pieces = word(table.roster), []
        while piece:
            pieces.append(piece)
            piece = word(piece + table.piece_older)
        size = table.green_size
        for piece in reversed(pieces):
            records = read(piece, table.piece_records * size)
            for i in range(table.piece_records):
                number += 1
                if only in (None, number) and word_in(records, i * size + table.green_identity):
                    record = records[i * size : (i + 1) * size]
                    yield Thread(table, number, piece + i * size, record)


def thread_of(word):
    """The thread with this number, or the one with this name."""
    if word.isdigit():
        found = list(all_threads(int(word)))
    else:
        found = [thread for thread in all_threads() if thread.name() == word]
    if not found:
        raise Failure(f"there is no green thread {word}; `info greenthreads` shows those that there are")
    if len(found) > 1:
        numbers = ", ".join(str(thread.number) for thread in found)
        raise Failure(f"several green threads have the name {word}: {numbers}")
    return found[0]


class Waits:
    """What threads wait for, in words."""

    def __init__(self, threads):
        self.kinds = {}
        self.by_mark = {thread.mark: thread for thread in threads if thread.mark}
        self.by_identity = {thread.identity: thread for thread in threads}
        self.kernel_threads = None

    def kind(self, table, address):
        if address not in self.kinds:
            name = address + table.kind_name
            locator = struct.unpack("<4Q", read(address + table.kind_locator, 4 * WORD))
            self.kinds[address] = (text(word(name), word(name + WORD)), locator)
        return self.kinds[address]

    def of(self, thread):
        try:
            return self.wait_of(thread)
        except gdb.MemoryError:
            # In a core file from which memory is missing.
            return None

    def wait_of(self, thread):
        """The thing's address and kind, and the address or the words of who is behind it."""
        table = thread.table
        if thread.parking is None:
            return None
        of = word_in(thread.parking, table.parking_of)
        name, (kind, at, flags_at, flags) = self.kind(table, word_in(thread.parking, table.parking_kind))
        at = (of + at) & NEVER
        behind = ""
        if kind == table.locator_holder and word(of + flags_at) & flags:
            behind = f", held by {self.holder(word(at))}"
        elif kind == table.locator_target:
            target = self.by_identity.get(at)
            behind = f": {target.title()}" if target else ": has ended, or is a kernel thread"
        elif kind == table.locator_descriptor:
            behind = f": {short(at)}"
        return of, name, behind

    def holder(self, mark):
        if mark in self.by_mark:
            return self.by_mark[mark].title()
        if self.kernel_threads is None:
            self.kernel_threads = dict(kernel_threads_by_mark())
        number = self.kernel_threads.get(mark)
        return f"kernel thread {number}" if number else "a thread that has ended"

    def text(self, thread, now):
        wait = self.of(thread)
        if wait is None:
            return "-"
        of, name, behind = wait
        words = name
        if of and not behind.startswith(":"):
            words += f" {of:#x}"
        words += behind
        deadline = word_in(thread.parking, thread.table.parking_deadline)
        if deadline != NEVER:
            words += f", for {span(max(0, deadline // 1_000_000 - now))} more"
        return words


def kernel_threads_by_mark():
    with Kept():
        view.hide()
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            try:
                yield int(gdb.newest_frame().read_register(machine().thread_pointer)) & NEVER, thread.num
            except (gdb.error, ValueError):
                continue


def now_of(table):
    """Milliseconds of the monotonic clock when the program stopped, or, in a core file, when it last read that."""
    coarse = short(table.clock)
    connection = getattr(gdb.selected_inferior(), "connection", None)
    if connection is None or connection.type != "native":
        return coarse
    return known.get("stopped", monotonic())


def monotonic():
    return int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1000)


def span(millis):
    if millis < 10_000:
        return f"{millis} ms"
    seconds = millis / 1000
    if seconds < 600:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 36_000 else f"{seconds / 3600:.0f} h"
