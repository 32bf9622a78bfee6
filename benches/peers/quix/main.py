"""Runs one of the benchmark's jobs with Quix Streams until SIGTERM, which leaves the group in good order.

A Quix Streams application works on one core; its documentation says to run several of them in one consumer group. So
this process starts BENCH_THREADS workers, each an application, and only watches them. It prints `ready` when each of
them has met a record, that is: when their states are restored and they work. Its children's memory and CPU are the
contender's.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

JOBS = ("ids", "large", "versions", "envelopes")


def main():
    part = required("BENCH_PART")
    if part not in JOBS:
        sys.exit(f"error: BENCH_PART: no such job: {part}")
    # Two workers that find no folder would both make it, and one of them fail.
    os.makedirs(os.path.join(required("BENCH_STATE_DIR"), required("BENCH_GROUP")), exist_ok=True)
    workers, readers = {}, []
    for number in range(int(os.environ.get("BENCH_THREADS", "2"))):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            run_worker(part, number, writer)
        os.close(writer)
        workers[child] = number
        readers.append(reader)
    signal.signal(signal.SIGTERM, lambda *_: stop(workers))
    tell_when_ready(readers)
    watch(workers)


def run_worker(part, number, writer):
    """Ends the process."""
    status = 1
    # A killed contender takes its workers with it: PR_SET_PDEATHSIG, which only Linux has.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    try:
        import application

        application.run(part, number, lambda: os.write(writer, b"."))
        status = 0
    except BaseException as error:  # last resort: it is printed, and the watcher sees the status
        print(f"worker {number}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def tell_when_ready(readers):
    """A worker that ends early closes its pipe, and `watch` notices that."""
    if all([os.read(reader, 1) for reader in readers]):
        print("ready", flush=True)


def watch(workers):
    """Waits for all; the first failure ends all."""
    failed = False
    while workers:
        child, status = os.wait()
        number = workers.pop(child, None)
        # A worker may get the signal before it handles signals.
        if status not in (0, signal.SIGTERM) and not failed:
            failed = True
            print(f"error: worker {number} ended with status {status}", file=sys.stderr, flush=True)
            stop(workers)
    # While Python ends, an alarm would kill it.
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"{time.time_ns() // 1_000_000} stopped", flush=True)
    sys.exit(1 if failed else 0)


def stop(workers):
    """Asks now, and every second: an application that is asked while it starts forgets it."""
    tell_to_stop(workers)
    signal.signal(signal.SIGALRM, lambda *_: tell_to_stop(workers))
    signal.setitimer(signal.ITIMER_REAL, 1, 1)


def tell_to_stop(workers):
    for child in list(workers):
        # It may have ended just now.
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)


def required(name):
    value = os.environ.get(name)
    if not value:
        sys.exit(f"error: {name} is not set")
    return value


if __name__ == "__main__":
    main()
