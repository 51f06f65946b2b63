# Green threads in gdb:
#
#     info greenthreads [STATE] [-l ADDRESS] [-n NAME]    a table of them
#     greenthread N                                       shows thread N (or the one of that name): bt, up, info locals ... are about it
#     greenthread N COMMAND                               does a command of gdb's for thread N, such as bt
#     greenthread apply all|STATE|N... COMMAND            does it for several
#     greenthread find NAME                               the threads whose name contains NAME
#     greenthread none                                    shows kernel threads again
#     greenthread core FILE                               writes a core file with all stacks, as gcore does not
#     greenthread stacks FILE                             writes which stack is whose, for greenthread-perf.py
#
# It reads memory by the addresses and offsets in `greenthread_debugger` (src/observe/gdb.rs), so it
# needs the program's symbols and no debug information, and works for processes and for core files. It writes
# nothing to the program.
#
# This file is for loading the script by hand: `source .../greenthread-gdb.py`. gdb loads the same parts out of the
# program by itself. They run in a module of their own, since all scripts of gdb's share one namespace.

import os
import types

greenthread_gdb = types.ModuleType("greenthread_gdb")
for part in ("threads.py", "stacks.py", "commands.py"):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), part)
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), greenthread_gdb.__dict__)
