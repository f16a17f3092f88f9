"""A program that has a replicated object and does without asyncio, for benchmarks, led by lines of text.

`python -m totempole.bench.object_blocking_worker SOCKET` connects to the daemon and opens the object "bench".
It prints a line of JSON when it is ready, and takes commands on standard input, one a line; each ends with a
report:

    call SIZE SECONDS         one `call` of the blocking replica after the other
    call_many SIZE SECONDS BATCH
                              one `call_many` after the other

It ends with its standard input.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from totempole.bench.led_program import say
from totempole.bench.object_classes import KEY, Store
from totempole.bench.object_worker import OBJECT
from totempole.client.blocking import connect
from totempole.objects.blocking import Replica


def repeat(seconds: float, calls: int, calling: Callable[[], object]) -> None:
    latencies_us: list[float] = []
    begun_ns, cpu_s = time.monotonic_ns(), time.process_time()
    start_ns, end_ns = begun_ns, begun_ns + int(seconds * 1e9)
    while start_ns < end_ns:
        calling()
        now_ns = time.monotonic_ns()
        latencies_us.append((now_ns - start_ns) / 1000)
        start_ns = now_ns
    say(
        event="report",
        seconds=(start_ns - begun_ns) / 1e9,
        cpu_s=time.process_time() - cpu_s,
        done=len(latencies_us) * calls,
        latencies_us=latencies_us,
        error="",
    )


def call(replica: Replica[Store], size: str, seconds: str) -> None:
    value = os.urandom(int(size))
    repeat(float(seconds), 1, lambda: replica.call(Store.put_if, KEY, value))


def call_many(replica: Replica[Store], size: str, seconds: str, batch: str) -> None:
    arguments = [(KEY, os.urandom(int(size)))] * int(batch)
    repeat(float(seconds), len(arguments), lambda: replica.call_many(Store.put_if, arguments))


COMMANDS: dict[str, Callable[..., None]] = {"call": call, "call_many": call_many}


def main() -> None:
    with (
        connect(sys.argv[1], name="bench", reconnect=False) as session,
        session.replica(Store, OBJECT) as replica,
    ):
        replica.call(Store.put, KEY, b"first")
        say(event="ready")
        for line in sys.stdin:
            verb, *words = line.split()
            COMMANDS[verb](replica, *words)
        os._exit(0)


if __name__ == "__main__":
    main()
