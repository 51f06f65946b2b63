# Green threads in gdb: their stacks.
#
# A suspended green thread is shown by an unwinder: it says that the innermost frame of the selected kernel thread was
# called by the frame that the green thread has left. The kernel thread's frame is #0, and is left out of backtraces. So
# no register is written, and core files, which have none to be written, are no different.

import itertools

import gdb
import gdb.unwinder

class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class View(gdb.unwinder.Unwinder):
    """Shows a suspended green thread below the innermost frame of the selected kernel thread."""

    def __init__(self):
        super().__init__("greenthread")
        self.enabled = False
        self.thread = self.host = self.registers = None

    def __call__(self, pending):
        # gdb switches an unwinder off that fails, and says so.
        here = machine()
        host = here.place(pending)
        if host != self.host:
            return None
        # gdb rejects a caller that lies deeper in the stack, so this frame says that it is the deepest.
        sp = self.registers[here.sp] - here.length
        info = pending.create_unwind_info(FrameId(*(self.value(pending, here.sp, n) for n in (sp, host[1]))))
        for name, number in self.registers.items():
            info.add_saved_register(name, self.value(pending, name, number))
        return info

    @staticmethod
    def value(pending, name, number):
        return gdb.Value(number).cast(pending.read_register(name).type)

    def show(self, thread):
        self.hide()
        if thread.state == "running":
            return self.show_kernel_thread(thread)
        registers = thread.registers()
        if registers is None:
            what = "has not run yet, so it has no stack" if thread.state == "new" else "has a stack that cannot be read"
            raise Failure(f"green thread {thread.title()} {what}; it was spawned at {thread.place()}")
        if gdb.selected_thread() is None:
            raise Failure("there is no kernel thread to show a green thread on")
        frame = gdb.newest_frame()
        self.host = machine().place(frame)
        self.thread, self.registers = thread, registers
        self.enabled = hider.enabled = True
        gdb.invalidate_cached_frames()
        frame = next((frame for frame in frames() if self.is_its(frame)), None)
        if frame is None:
            self.hide()
            raise Failure("gdb does not unwind its stack")
        frame.select()

    @staticmethod
    def show_kernel_thread(thread):
        for kernel in gdb.selected_inferior().threads():
            if kernel.ptid[1] == thread.kernel_thread:
                kernel.switch()
                return gdb.newest_frame().select()
        raise Failure(f"kernel thread {thread.kernel_thread}, which runs green thread {thread.title()}, is not there")

    def hide(self):
        if self.enabled:
            self.enabled = hider.enabled = False
            self.thread = self.host = self.registers = None
            gdb.invalidate_cached_frames()

    def is_its(self, frame):
        """Whether this is the green thread's innermost frame, or one inlined in it."""
        here = machine()
        return here.place(frame)[0] == self.registers[here.sp]


class Hider:
    """Leaves the frames of the kernel thread out of a backtrace."""

    def __init__(self):
        self.name, self.priority, self.enabled = "greenthread", 1000, False
        gdb.frame_filters[self.name] = self

    def filter(self, iterator):
        return itertools.dropwhile(lambda frame: not view.is_its(frame.inferior_frame()), iterator)


def frames():
    frame = gdb.newest_frame()
    while frame is not None:
        yield frame
        frame = frame.older()


class Kept:
    """Puts back what was selected, and shown, before."""

    def __enter__(self):
        self.kernel = gdb.selected_thread()
        self.shown = view.thread
        try:
            self.level = gdb.selected_frame().level()
        except gdb.error:
            self.level = 0

    def __exit__(self, *_):
        view.hide()
        if self.kernel is None or not self.kernel.is_valid():
            return
        self.kernel.switch()
        if self.shown is not None:
            view.show(self.shown)
        for frame in frames():
            if frame.level() == self.level:
                frame.select()
                break


class Callers:
    """The innermost functions of the user's own.

    gdb needs a millisecond and more for a stack, so what it finds is kept in a tree. Threads that have gone
    the same way have their return addresses at the same distances from the stack pointer. (Where frames are
    aligned, the distances depend on the stack pointer's last bits.)
    """

    MOST = 3000

    def __init__(self):
        self.roots = {}
        self.learned = 0
        self.folders = [folder for folder in map(folder_of, tables()) if folder]

    def is_users(self, frame):
        name = frame.name()
        if name is None or gdb.solib_name(frame.pc()):
            return False
        symtab = frame.find_sal().symtab
        if symtab is None:
            return not name.lstrip("<&").startswith(NOT_THEIRS)
        file = symtab.fullname()
        own = any(file.startswith((folder + "src/", folder + "arch/")) for folder in self.folders)
        return not own and not any(part in file for part in NOT_THEIR_FILES)

    def of(self, thread):
        try:
            if thread.state == "running":
                view.show(thread)
                return label(self.walk()[0])
            registers = thread.registers()
            if registers is None:
                return "-"
            here = machine()
            pc, sp = registers[here.pc], registers[here.sp]
            key = (pc, sp % 64)
            return self.look_up(key, sp, thread) or self.learn(key, thread)
        except (gdb.error, gdb.GdbError):
            return "?"

    def look_up(self, key, sp, thread):
        node = self.roots.get(key)
        memory = read(sp, min(1024, thread.stack()[1] - sp)) if node else b""
        while node:
            if node["label"] is not None:
                return node["label"]
            slot = node["slot"]
            back = word_in(memory, slot) if slot + WORD <= len(memory) else word(sp + slot)
            node = node["callers"].get(back)
        return None

    def learn(self, key, thread):
        if self.learned == self.MOST:
            return "?"
        self.learned += 1
        view.show(thread)
        frame, stack = self.walk()
        name, sp = label(frame), stack[0][1]
        node = self.roots.setdefault(key, self.node())
        for (_, callee_sp), (pc, caller_sp) in zip(stack, stack[1:]):
            slots = [at - sp for at in self.slots(callee_sp, caller_sp) if word(at) == pc]
            if not slots or node["slot"] not in (None, slots[0]):
                return name
            node["slot"] = slots[0]
            node = node["callers"].setdefault(pc, self.node())
        node["label"] = name
        return name

    @staticmethod
    def slots(callee_sp, caller_sp):
        """Where the return address may lie."""
        if machine().sp == "rsp":
            # Below an interrupted function it lies under its red zone.
            return caller_sp - WORD, caller_sp - 136
        return range(callee_sp, caller_sp, WORD)

    @staticmethod
    def node():
        return {"slot": None, "callers": {}, "label": None}

    def walk(self):
        """From the selected frame to the first of the user's: that frame, and the frames' places.

        If all of the user's are inlined, and nothing says so: the function of the crate's that they have called."""
        frame, stack, called, is_below = gdb.selected_frame(), [], None, False
        while frame is not None:
            if frame.type() != gdb.INLINE_FRAME or not stack:
                place = (frame.pc(), machine().place(frame)[0])
                if not stack or stack[-1] != place:
                    stack.append(place)
            is_below = is_below or BOTTOM in (frame.name() or "")
            called = frame if called is None or not is_below else called
            if self.is_users(frame):
                return frame, stack
            frame = frame.older()
        return called, stack


def folder_of(table):
    """Where the crate lay when it was compiled, if there is line information."""
    symtab = gdb.find_pc_line(table.code).symtab
    file = symtab.fullname() if symtab else ""
    return file.removesuffix(OWN_FILE) if file.endswith(OWN_FILE) else None


def label(frame):
    if frame.name() is None:
        return "?"
    place = frame.find_sal()
    if place.symtab is None or not place.line:
        # Without debug information the name ends in a hash.
        return re.sub(r"::h[0-9a-f]{16}$", "", frame.name())
    return f"{frame.name()} at {place.symtab.filename}:{place.line}"
