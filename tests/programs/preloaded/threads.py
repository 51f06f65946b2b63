"""Python's threads, that are to be green ones: as many kernel threads as the first argument says, or fewer.

    threads.py MOST [THREADS]
"""

import os
import queue
import subprocess
import sys
import threading
import time


def kernel_threads():
    return len(os.listdir("/proc/self/task"))


def waiting(count):
    """That many wait for an event at once."""
    event, here = threading.Event(), threading.Semaphore(0)
    ended = []

    def wait(number):
        here.release()
        event.wait()
        ended.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for _ in threads:
        here.acquire()
    counted = kernel_threads()
    event.set()
    for thread in threads:
        thread.join()
    assert sorted(ended) == list(range(count)), len(ended)
    return counted


def in_thread(function):
    """Calls it in a thread; returns what it does."""
    returned = []
    thread = threading.Thread(target=lambda: returned.append(function()))
    thread.start()
    thread.join()
    assert returned, function
    return returned[0]


def fork():
    """A child of a thread makes a thread."""

    def child():
        pid = os.fork()
        if pid == 0:
            made = []
            thread = threading.Thread(target=lambda: made.append(7))
            thread.start()
            thread.join()
            os._exit(made[0])
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert in_thread(child) == 7
    assert child() == 7


def children():
    """Programs that threads start."""

    def run():
        done = subprocess.run(["cat"], input=b"text" * 50_000, stdout=subprocess.PIPE, check=True)
        assert len(done.stdout) == 200_000
        failed = subprocess.run(["sh", "-c", "echo wrong >&2; exit 3"], capture_output=True)
        assert (failed.returncode, failed.stderr) == (3, b"wrong\n")
        try:
            subprocess.run(["sleep", "100"], timeout=0.2)
        except subprocess.TimeoutExpired:
            return True

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert in_thread(run)


def local():
    """Data of a thread's own, and its numbers."""
    own, seen, lock = threading.local(), set(), threading.Lock()
    barrier = threading.Barrier(50)

    def use(number):
        own.number = number
        identity, native = threading.get_ident(), threading.get_native_id()
        for _ in range(20):
            time.sleep(0.001)
            assert own.number == number
            assert (identity, native) == (threading.get_ident(), threading.get_native_id())
        barrier.wait()
        with lock:
            seen.add((identity, native))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not hasattr(own, "number")
    assert len(seen) == len({a for a, _ in seen}) == len({b for _, b in seen}) == 50, seen


def queues():
    """Producers and consumers, by way of a queue that is often full."""
    items, sums = queue.Queue(maxsize=8), queue.Queue()

    def produce(first):
        for number in range(first, first + 500):
            items.put(number)

    def consume():
        total = 0
        while (number := items.get()) is not None:
            total += number
        sums.put(total)

    producers = [threading.Thread(target=produce, args=(500 * at,)) for at in range(10)]
    consumers = [threading.Thread(target=consume) for _ in range(10)]
    for thread in producers + consumers:
        thread.start()
    for thread in producers:
        thread.join()
    for _ in consumers:
        items.put(None)
    for thread in consumers:
        thread.join()
    assert sum(sums.get() for _ in consumers) == sum(range(5000))
    try:
        items.get(timeout=0.05)
    except queue.Empty:
        pass


def computing():
    """Threads that compute get their turns: Python's lock is passed on."""
    stop, counts = threading.Event(), [0] * 4

    def count(at):
        while not stop.is_set():
            counts[at] += 1

    threads = [threading.Thread(target=count, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    stop.set()
    for thread in threads:
        thread.join()
    assert all(counts), counts


def daemon():
    """A thread that waits when the interpreter ends."""
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


most, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5000
began = time.monotonic()
counted = waiting(count)
print(f"{count} threads wait: {counted} kernel threads, {time.monotonic() - began:.2f} s", flush=True)
assert counted < most, counted
for part in fork, children, local, queues, computing, daemon:
    began = time.monotonic()
    part()
    print(f"{part.__name__}: {time.monotonic() - began:.2f} s", flush=True)
print("done", flush=True)
