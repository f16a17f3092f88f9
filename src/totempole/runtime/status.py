"""What a running node says about itself: one JSON document for each connection to a Unix socket.

The socket, `status.sock` in the node's directory, is open to the node's own user only. The driver gives the
document as a callable, `snapshot() -> dict`, which any thread may call. Its fields, all optional to readers:

    processor, cluster_id, version, state, ring ("12@1"), ring_kind, members, uptime_s, transport, address,
    addresses {processor: ["10.0.0.1:5400" on each network]}, metrics {address, port},
    expected {count, processors, present, missing (how many), absent [{processor, address, met}], for_s};
    empty where nobody is expected,
    sealed, key_ids, segment_bytes, configuration_changes, last_configuration {kind, id, members, ago_s},
    offload {send, receive, reason}, rotation_us {last, p50, p99, max},
    rotation_histogram {buckets_us, counts (one more than buckets), sum_us, count},
    rates {messages_per_s, packets_per_s, bytes_per_s, tokens_per_s, retransmissions_per_s},
    totals {counter: n}, dropped {reason: n}, kernel_refused {errno: n},
    queue {send, send_max, application (bytes)}, timeouts_us {name: n}, lag {last_ms, max_ms, alarms},
    receive_buffer_bytes {asked, got, window}, trace {level, inputs}, groups {count, ready},
    redundancy {style, copies, agreed}, networks [...],
    clients {clients, clients_max, accepted, refused {reason: n}, disconnected {reason: n}, queued_bytes,
    memory_bytes_max, followers, followers_too_slow, shed_messages, large_bytes, large_bytes_max,
    large_waiting, most_unread [...]}, packet_filter {cut [addresses], dropped} (of a node in a lab)

Of a ring on several networks, each of `networks` is:

    name, number (from 1), state, why (what is wrong), transport, address, interface, absence (why nothing can
    be sent or heard on it here), segment_bytes, capacity,
    loss {sender: share of what it sent to this node and did not come}, bad_paths [{sender, receiver, dead}],
    packets_sent, bytes_sent, share_sent (of this node's bytes), packets_received, bytes_received,
    refused {errno: n}

Of a node that keeps the durable log, `log` is:

    standing, failure (why there is no log now), log and disk (their names), primary (number), members,
    behind [processors that catch up], position, green_runs, yellow_runs, yellow_bytes, red_runs, red_bytes,
    unsent_bytes, unwritten_bytes, missing [processors], holds {reader: position}, alarms {kind: n},
    oldest_hold {reader, position, behind (positions), kept_bytes (more than retention_bytes)},
    retention_bytes, clocks {ahead_us {processor: n} (hosts whose clocks are far ahead of this one's),
    order_ahead_us (the order's time, ahead of this host's clock), ahead_us_max (more is
    worth a warning)},
    fences {count, latest [{name, number, position}], the last moved first},
    last_alarm, replicas [{processor, disk, weight, is_present, unacknowledged_runs}],
    service {pid, restarts, last_exit, socket, listen}

State, `why` and `bad_paths` are those that all members have agreed on; the rest is this node's own.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from totempole.errors import TotemError
from totempole.runtime.logs import event

SOCKET_NAME = "status.sock"
SOCKET_PATH_BYTES_MAX = 107
"""What the kernel takes as the name of a Unix socket."""
WAITING_MAX = 8
"""Connections that may wait for their answer; further ones are refused by the kernel."""
ANSWER_S = 2.0
"""How long a reader may take to fetch the document, and a node to send it."""
DOCUMENT_BYTES_MAX = 1 << 20

OPERATIONAL = "operational"
STATES = ("starting", OPERATIONAL, "gather", "commit", "recover", "left")
"""As srp.states.State has them, in small letters."""

NETWORK_STATES = ("in_service", "sick", "faulty", "drained", "probation")
"""As networks.events.NetworkState has them, in small letters."""

LOG_STANDINGS = ("closed", "forming", "primary", "minority", "behind")
"""As corel.events.Standing has them."""

LOG_ALARMS = (
    "another-log",
    "clock",
    "damaged",
    "failed",
    "forked",
    "founding",
    "malformed",
    "rolled-back",
    "slow-disk",
)
"""Kinds of corel.events.LogAlarm, and `failed`."""

Document = dict[str, Any]
Snapshot = Callable[[], Document]


class StatusError(TotemError):
    """No answer from a node. The text says which, why, and what to look at."""


def is_operational(document: Mapping[str, Any]) -> bool:
    """Whether the node orders messages now: in a ring, be it alone."""
    return document.get("state") == OPERATIONAL


@contextmanager
def socket_address(directory: Path, name: str = SOCKET_NAME) -> Iterator[str]:
    """The name to bind or connect to. One too long for the kernel goes through an open directory."""
    path = directory / name
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        yield str(path)
        return
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


# The node's side


class LocalServer(ABC):
    """A Unix socket in a node's directory, for its own user. Answers on a thread of its own, one connection
    after the other."""

    def __init__(self, directory: Path, name: str, logger: logging.Logger) -> None:
        self.path = directory / name
        self.logger = logger
        self._socket, self._inode = _listen(directory, name)
        self._thread = threading.Thread(target=self._serve, name=f"totempole-{name}", daemon=True)
        self._thread.start()

    @abstractmethod
    def answer(self, connection: socket.socket) -> None: ...

    def close(self) -> None:
        """Ends the thread and removes the socket, unless another node has put its own there since."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(2 * ANSWER_S)
        self._socket.close()
        with suppress(OSError):
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED, errno.ENOMEM):
                    name = f"{self.path.stem} not answered"
                    event(self.logger, logging.WARNING, name, reason=error.strerror)
                    threading.Event().wait(0.1)
                    continue
                return  # closed
            with connection:
                connection.settimeout(ANSWER_S)
                self.answer(connection)


class StatusServer(LocalServer):
    def __init__(self, directory: Path, snapshot: Snapshot, logger: logging.Logger) -> None:
        self._snapshot = snapshot
        super().__init__(directory, SOCKET_NAME, logger)

    def answer(self, connection: socket.socket) -> None:
        with suppress(OSError):  # the reader is gone, or too slow: its own trouble
            connection.sendall(self._document())

    def _document(self) -> bytes:
        try:
            text = json.dumps(self._snapshot(), ensure_ascii=False).encode()
        except Exception as error:  # a node goes on ordering messages whatever is wrong with its status
            self.logger.exception("status cannot be told")
            text = json.dumps({"error": f"{type(error).__name__}: {error}"}).encode()
        if len(text) > DOCUMENT_BYTES_MAX:
            return json.dumps({"error": f"a status of {len(text)} bytes is too long to tell"}).encode()
        return text


def _listen(directory: Path, name: str) -> tuple[socket.socket, int]:
    """The listening socket and its inode. A socket that a killed node left behind is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_address(directory, name) as address:
            _remove_stale(address, directory / name)
            # The kernel gives the name the mode of the socket: nobody else ever gets in between.
            os.fchmod(listener.fileno(), stat.S_IRUSR | stat.S_IWUSR)
            listener.bind(address)
            listener.listen(WAITING_MAX)
            return listener, os.lstat(address).st_ino
    except OSError as error:
        listener.close()
        raise StatusError(f"{directory / name}: cannot be opened: {error.strerror}") from error
    except StatusError:
        listener.close()
        raise


def _remove_stale(address: str, path: Path) -> None:
    try:
        mode = os.lstat(address).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StatusError(f"{path} is there and is no socket: move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(ANSWER_S)
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            os.unlink(address)
            return
        except (BlockingIOError, TimeoutError):
            pass  # it listens, and is busy
    raise StatusError(f"{path}: another node answers there: give this one a directory of its own")


# The reader's side


def read_status(directory: Path, wait_s: float = ANSWER_S) -> Document:
    """The document of the node that has this directory."""
    path = directory / SOCKET_NAME
    document = parse(exchange(directory, SOCKET_NAME, wait_s), path)
    if "error" in document:
        raise StatusError(f"{path}: the node cannot tell its status: {document['error']}")
    return document


def exchange(directory: Path, name: str, wait_s: float, request: bytes = b"") -> bytes:
    """What the node that has this directory answers. Raises StatusError if it does not."""
    path = directory / name
    try:
        return _fetch(directory, name, wait_s, request)
    except (FileNotFoundError, NotADirectoryError):
        raise StatusError(
            f"{path}: no such socket: no node runs in this directory, or it is still starting"
        ) from None
    except ConnectionRefusedError:
        raise StatusError(
            f"{path}: nobody answers: the node is gone, killed perhaps; look at its log"
        ) from None
    except PermissionError:
        raise StatusError(f"{path}: permission denied: ask as the node's own user, or as root") from None
    except (TimeoutError, BlockingIOError):
        raise StatusError(f"{path}: no answer in {wait_s:g} s: the node is stopped or starved") from None
    except OSError as error:
        raise StatusError(f"{path}: {error.strerror}") from None


def _fetch(directory: Path, name: str, wait_s: float, request: bytes) -> bytes:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
        socket_address(directory, name) as address,
    ):
        connection.settimeout(wait_s)
        connection.connect(address)
        if request:
            connection.sendall(request)
        data = bytearray()
        while len(data) <= DOCUMENT_BYTES_MAX:
            more = connection.recv(65_536)
            if not more:
                break
            data += more
        return bytes(data)


def parse(data: bytes, path: Path) -> Document:
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise StatusError(
            f"{path}: an answer of {len(data)} bytes that is no status: is this a totempole node?"
        )
    return document
