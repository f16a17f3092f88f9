"""Where an embedded node runs: on a thread of its program, or in a process of its own.

Either way it is the daemon: the same service, with its sockets, status and metrics. Only signals and systemd
are left out on a thread. The program's own session is a pair of sockets, whose far end the node is given at
the start. Why a node could not start, or had to stop, the session tells.

A thread shares Python's lock with the program: a program that computes for long stretches in Python keeps
its node waiting, a few milliseconds at each turn, and wants the process. The lag alarm says when
that happens.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Literal, Protocol

from totempole.daemon.listeners import turn_away
from totempole.errors import ConfigurationError, TotemError
from totempole.runtime.config import LoggingConfig, NodeConfig, build
from totempole.runtime.config_text import print_config
from totempole.runtime.daemon import run_daemon, showing
from totempole.runtime.logs import start_logging, stop_logging
from totempole.runtime.memory import prepare_for_packets
from totempole.runtime.service import EXIT_FAILED, EXIT_LEFT, Service
from totempole.settings import refused

Placement = Literal["thread", "process"]

LENGTH_DIGITS = 10
"""Of the settings on a child's standard input: their length stands before them."""


class Embedding(Protocol):
    """A node within a program. `leave` and `reload` return at once."""

    def start(self, session: socket.socket) -> None:
        """Opens everything and begins, with this far end of the program's session; or raises."""
        ...

    def leave(self) -> None:
        """Leaves the ring gracefully. One that is being started is closed again."""
        ...

    def reload(self) -> None:
        """Reads the key file again, as a daemon does upon SIGHUP."""
        ...

    def wait(self) -> None:
        """Until it has left, or had to stop."""
        ...


def embedding(config: NodeConfig, placement: Placement, logger: logging.Logger | None) -> Embedding:
    if placement == "thread":
        _refuse_logging(config.logging)
        return ThreadNode(config, logger or logging.getLogger("totempole"))
    if placement == "process":
        if logger is not None:
            raise ConfigurationError(
                "logger: a node in a process of its own logs to standard error, as [logging] says: leave it "
                'out, or give placement = "thread"'
            )
        return ProcessNode(config)
    raise ConfigurationError(f"placement = {placement!r}: give thread or process")


def _refuse_logging(config: LoggingConfig) -> None:
    """What is not used is refused."""
    for name in ("level", "format"):
        value = getattr(config, name)
        if value != getattr(LoggingConfig(), name):
            why = "a node on a thread logs to a logger of its program: leave it out and set up that one"
            raise ConfigurationError(f'[logging] {refused(name, value, why)}, or give placement = "process"')


class ThreadNode:
    def __init__(self, config: NodeConfig, logger: logging.Logger) -> None:
        self._config = config
        self._logger = logger
        self._lock = threading.Lock()
        self._given_up = False
        self._service: Service | None = None
        self._thread = threading.Thread(target=self._run, name=f"totempole-{config.processor}", daemon=True)

    def start(self, session: socket.socket) -> None:
        with ExitStack() as opened:
            opened.callback(session.close)
            service = Service(self._config, self._logger)
            opened.callback(service.close)
            opened.enter_context(showing(service, self._config, self._logger))
            with self._lock:
                if self._given_up:
                    return
                self._service = service
            service.serve(session)
            self._shown = opened.pop_all()
            self._thread.start()

    def _run(self) -> None:
        assert self._service is not None
        with self._shown:
            try:
                self._service.run()
            except Exception:
                self._logger.exception("the node broke")

    def leave(self) -> None:
        with self._lock:
            self._given_up = True
            if self._service is not None:
                self._service.stop()

    def reload(self) -> None:
        assert self._service is not None, "a node is started before it is asked anything"
        self._service.reload()

    def wait(self) -> None:
        self._thread.join()


class ProcessNode:
    """The child leaves when its standard input ends: when it is told to, and when its program is gone."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._given_up = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, session: socket.socket) -> None:
        with session, self._lock:
            if self._given_up:
                return
            descriptor = session.fileno()
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(descriptor)],
                pass_fds=[descriptor],
                stdin=subprocess.PIPE,
                process_group=0,  # a Ctrl-C is the program's, which says what becomes of its node
            )
            self._reaper = threading.Thread(target=process.wait, name="totempole-reaper", daemon=True)
            self._reaper.start()
            settings = print_config(self._config).encode()
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended already: the session tells
                process.stdin.write(b"%0*d" % (LENGTH_DIGITS, len(settings)) + settings)
                process.stdin.flush()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def leave(self) -> None:
        with self._lock:
            self._given_up = True
            if self._process is not None and self._process.stdin is not None:
                with suppress(BrokenPipeError):
                    self._process.stdin.close()

    def reload(self) -> None:
        assert self._process is not None, "a node is started before it is asked anything"
        self._process.send_signal(signal.SIGHUP)

    def wait(self) -> None:
        self._reaper.join()


# In the node's own process


def main() -> int:
    """`python -m totempole.runtime.embedding DESCRIPTOR`: the far end of the program's session."""
    session = socket.socket(fileno=int(sys.argv[1]))
    settings = _read(int(_read(LENGTH_DIGITS) or b"0"))
    if not settings:
        return EXIT_LEFT  # the program is gone
    try:
        config = build(tomllib.loads(settings.decode()), Path.cwd())
        logger = start_logging(config.logging.level, config.logging.format)
        with closing(Service(config, logger)) as service:
            service.serve(session)
            threading.Thread(target=_leave_with_program, args=(service,), daemon=True).start()
            prepare_for_packets()
            return run_daemon(service, config, logger)
    except (TotemError, OSError) as error:
        turn_away(session, str(error), for_good=True)
        return EXIT_FAILED
    finally:
        stop_logging()


def _read(size: int) -> bytes:
    """From standard input. Less: it has ended."""
    data = b""
    while len(data) < size and (more := os.read(0, size - len(data))):
        data += more
    return data


def _leave_with_program(service: Service) -> None:
    while os.read(0, 4096):
        pass
    service.stop()


if __name__ == "__main__":
    sys.exit(main())
