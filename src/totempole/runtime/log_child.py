"""The process of a node's log service (`log_serving.py` starts it).

`python -m totempole.runtime.log_child`: settings are the first line of standard input. When that ends the
node is gone, and so is the service. Standard output is for the node: damage of the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from totempole.daemon.descriptors import SPARE, allow_descriptors
from totempole.errors import LogDamagedError, TotemError
from totempole.log_service.server import LogService
from totempole.log_service.settings import decode_settings, encode_report
from totempole.runtime.logs import event, start_logging
from totempole.runtime.memory import prepare_for_packets

EXIT_ENDED, EXIT_FAILED = 0, 3
NICE = 5


def main() -> int:
    _give_way()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # they are the node's: it says what becomes of its service
    line = _first_line()
    if not line:
        return EXIT_ENDED
    settings = decode_settings(line)
    logger = start_logging(settings.log_level, settings.log_format)
    allow_descriptors(settings.readers_max + SPARE)
    prepare_for_packets()  # runs are as large, and it reads as many
    try:
        with _runner() as runner:
            runner.run(LogService(settings, logger, damaged=_report).run(_end_of_input))
    except (TotemError, OSError) as error:
        if isinstance(error, LogDamagedError):
            _report(str(error))
        event(logger, logging.ERROR, "log service has failed", reason=str(error))
        return EXIT_FAILED
    return EXIT_ENDED


def _report(damage: str) -> None:
    with suppress(OSError):  # the node is gone
        os.write(sys.stdout.fileno(), encode_report(damage))


def _give_way() -> None:
    """The ring comes first. A node may run in real time: its service never does."""
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(NICE)


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n") and (more := os.read(0, 65_536)):
        line += more
    return line


def _runner() -> asyncio.Runner:
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        from uvloop import new_event_loop as factory
    return asyncio.Runner(loop_factory=factory)


async def _end_of_input() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(4096):
        pass


if __name__ == "__main__":
    sys.exit(main())
