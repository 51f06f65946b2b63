"""Uses the module: from its first thread, from others, in a child process, and while Ctrl-C comes."""

import os
import signal
import sys
import threading
import time

import greenthread_python as module

# Preloaded, it comes before libc, and its threads are green.
green = "LD_PRELOAD" in os.environ
assert module.is_green() == green, "green threads: %s" % module.is_green()
assert module.add_up(lambda i: i * i, 100) == 328350

sums = []
threads = [threading.Thread(target=lambda: sums.append(module.add_up(lambda i: i, 50))) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert sums == [1225] * 4, sums

try:
    module.add_up(lambda i: 1 // (i - 7), 20)
    raise AssertionError("an exception of Python's is lost")
except ZeroDivisionError:
    pass

child = os.fork()
if not child:
    os._exit(0 if module.add_up(lambda i: i, 10) == 45 else 1)
assert os.waitpid(child, 0)[1] == 0

for _ in range(20):
    threading.Thread(target=lambda: (time.sleep(0.02), os.kill(os.getpid(), signal.SIGINT))).start()
    began = time.monotonic()
    try:
        time.sleep(30)
        raise AssertionError("Ctrl-C came to nobody")
    except KeyboardInterrupt:
        assert time.monotonic() - began < 10, "Ctrl-C came late"
print("ends", "green" if green else "kernel", sys.version.split()[0])
