"""What surrounds a node: the status socket, metrics, and, if it is a process of its own, signals and systemd.

SIGTERM and SIGINT leave the ring gracefully; the second one stops at once, the third ends the process where
it is. SIGHUP reads the key file and the settings again. Signals are taken by a thread that Python's own
handler wakes, because a handler that logged could meet a line half written by the thread it interrupted.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Protocol

from totempole.runtime.config import NodeConfig
from totempole.runtime.control import ControlServer
from totempole.runtime.log_requests import LogRequests
from totempole.runtime.logs import event
from totempole.runtime.network_requests import NetworkRequests
from totempole.runtime.packet_filter import PacketFilter
from totempole.runtime.status import Snapshot, StatusServer, is_operational

STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SIGNALS = (*STOPPING_SIGNALS, signal.SIGHUP)
STOPS_MAX = 2
"""Asked to stop more often than this, the process ends where it is."""

WATCH_S = 0.1
"""How often systemd's view of the node is compared with the node."""

log = logging.getLogger("totempole")


class Service(Protocol):
    """A node, as `totempole.runtime.service` has it."""

    def run(self) -> int:
        """Blocks; 0 after a graceful leave."""

    def stop(self) -> None:
        """From any thread: leave gracefully; the second time, stop at once."""

    def reload(self) -> None:
        """From any thread: read the key file and the settings again."""

    def snapshot(self) -> dict[str, Any]: ...

    @property
    def network_requests(self) -> NetworkRequests | None:
        """For a ring on several networks."""

    @property
    def log_requests(self) -> LogRequests | None:
        """For a node with a log."""

    @property
    def packet_filter(self) -> PacketFilter | None:
        """For a node in a lab."""


def run_daemon(service: Service, config: NodeConfig, logger: logging.Logger = log) -> int:
    """Runs the node until it has left, with all that it shows of itself; gives the exit code."""
    with (
        showing(service, config, logger),
        telling_systemd(service.snapshot),
        taking_signals(service, logger),
    ):
        return service.run()


@contextmanager
def showing(service: Service, config: NodeConfig, logger: logging.Logger) -> Iterator[None]:
    """All that a node shows of itself, and is asked by: status, control and metrics."""
    with ExitStack() as open_now:
        status = StatusServer(config.directory, service.snapshot, logger)
        open_now.callback(status.close)
        networks, log, packets = service.network_requests, service.log_requests, service.packet_filter
        if networks is not None or log is not None or packets is not None:
            control = ControlServer(config.directory, networks, log, packets, logger)
            open_now.callback(control.close)
        if config.metrics.port:
            open_now.callback(_start_metrics(config, service.snapshot, logger))
        yield


def _start_metrics(config: NodeConfig, snapshot: Snapshot, logger: logging.Logger) -> Callable[[], None]:
    # Imported where it is used: a node without metrics does not pay for the library.
    from totempole.runtime.metrics import MetricsServer

    server = MetricsServer(config.metrics, snapshot, logger)
    event(logger, logging.INFO, "metrics", address=config.metrics.address, port=server.port)
    return server.close


# Signals


@contextmanager
def taking_signals(service: Service, logger: logging.Logger) -> Iterator[None]:
    """While this lasts, signals reach the service. For the main thread."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    thread = threading.Thread(
        target=_take, args=(reader, service, logger), name="totempole-signals", daemon=True
    )
    # In this order: a signal between the two would be taken by the handler, and nobody would hear of it.
    old_descriptor = signal.set_wakeup_fd(writer.fileno())
    old = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(old_descriptor)
        for number, handler in old.items():
            signal.signal(number, handler)
        writer.close()
        thread.join()
        reader.close()


def _take(reader: socket.socket, service: Service, logger: logging.Logger) -> None:
    """Ends when the other end of the socket pair is closed."""
    stops = 0
    while numbers := reader.recv(64):
        for number in numbers:
            if number == signal.SIGHUP:
                service.reload()
            elif number in STOPPING_SIGNALS:
                stops += 1
                _stop(service, logger, signal.Signals(number), stops)


def _stop(service: Service, logger: logging.Logger, number: signal.Signals, stops: int) -> None:
    how = "gracefully" if stops == 1 else "at once"
    event(logger, logging.INFO, "stopping", signal=number.name, how=how)
    notify("STOPPING=1")
    if stops > STOPS_MAX:
        for handler in logger.handlers:
            handler.flush()
        os._exit(128 + number)
    service.stop()


# systemd


def notify(message: str) -> bool:
    """Tells systemd, where it asked to be told (sd_notify(3)); says whether it could be told."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)  # a supervisor that does not listen must not stop a node
        sock.sendto(message.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
        return True
    return False


@contextmanager
def telling_systemd(snapshot: Snapshot) -> Iterator[None]:
    """Ready when the node is first in a ring, be it alone; from then on a line about the ring it is in."""
    if "NOTIFY_SOCKET" not in os.environ:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_tell, args=(snapshot, done), name="totempole-notify", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        notify("STOPPING=1")


def _tell(snapshot: Snapshot, done: threading.Event) -> None:
    ready, told = False, ""
    while not done.wait(WATCH_S):
        try:
            document = snapshot()
        except OSError:
            continue  # its sockets are closed: it is about to end
        line = _status_line(document)
        if line != told:
            notify(f"STATUS={line}")
            told = line
        if not ready and is_operational(document):
            ready = notify("READY=1")


def _status_line(document: dict[str, Any]) -> str:
    if not is_operational(document):
        return str(document.get("state", "starting"))
    expected = document.get("expected") or {}
    of_expected = f"; {expected['present']} of {expected['count']} expected" if expected else ""
    members = ", ".join(map(str, document.get("members", [])))
    return f"ring {document.get('ring', '?')}, members {members}{of_expected}"
