"""What people ask of a running node: one request and one answer for each connection to a Unix socket.

The socket, `control.sock` in the directory of a node on several networks, with a log or in a lab, is open to
the node's own user and to root. Both are JSON in one line:

    {"ask": "drain" or "restore", "network": name or number, "wait_s": seconds}
    {"outcome": "done", "network", "processor", "state", "why", "already", "ring", "seq"}
    {"outcome": "refused", "network", "processor", "why"}
    {"outcome": "unknown", "network", "processor", "why" if it is known}
    {"ask": "add", "remove", "replace" or "trim", "processor", "other", "weight", "position", "wait_s"}
    {"outcome": "done", "processor", "replicas" and "already", or "segments" (how many were trimmed)}
    {"outcome": "refused" or "unknown", "processor", "why", "steps_done"}
    {"ask": "filter", "cut": [addresses], "wait_s"}, of a node in a lab (packet_filter.py)
    {"outcome": "done"}

    {"error": what is wrong with the request}

`processor` is who was asked. `ring` and `seq` are the place in the total order at which all members did it;
they are missing where it was `already` so. `unknown`: it was not done in time, and may be done later.
Requests are answered one after the other.
"""

from __future__ import annotations

import json
import logging
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from totempole.errors import TotemError
from totempole.runtime.status import ANSWER_S, LocalServer, StatusError, exchange, parse

if TYPE_CHECKING:
    from totempole.runtime.packet_filter import PacketFilter

SOCKET_NAME = "control.sock"
REQUEST_BYTES_MAX = 4_096
DRAIN, RESTORE = "drain", "restore"
WAIT_S = 10.0
WAIT_S_MAX = 600.0
"""How long a ring may take to carry a request out: if nothing else is said, and at most."""

ONE_NETWORK = "the ring is on one network, which cannot be taken out of service"


NO_LOG = "this node keeps no log: set enabled = true in [log]"
NO_FILTER = "this node has no packet filter: only `totem dev` and tests start nodes with one"
ADD, REMOVE, REPLACE, TRIM = LOG_ASKS = ("add", "remove", "replace", "trim")


class LogRequest(NamedTuple):
    ask: str
    processor: int = 0
    """That is added or removed."""
    other: int = 0
    """Of `replace`: that comes in its place."""
    weight: int = 1
    position: int = 0
    wait_s: float = WAIT_S


FILTER = "filter"


class FilterRequest(NamedTuple):
    cut: tuple[str, ...]
    """Addresses that are not heard from here on; all others are."""
    ask: str = FILTER
    wait_s: float = WAIT_S


Asked = TypeVar("Asked", contravariant=True)


class Request(NamedTuple):
    ask: str
    network: str
    wait_s: float = WAIT_S


class Requests(Protocol[Asked]):
    """Who carries out what is asked."""

    def carry_out(self, request: Asked) -> dict[str, Any]: ...

    def give_up(self) -> None:
        """Ends a `carry_out` that waits."""
        ...


class ControlServer(LocalServer):
    def __init__(
        self,
        directory: Path,
        networks: Requests[Request] | None,
        log: Requests[LogRequest] | None,
        packet_filter: PacketFilter | None,
        logger: logging.Logger,
    ) -> None:
        self._networks = networks
        self._log = log
        self._filter = packet_filter
        super().__init__(directory, SOCKET_NAME, logger)

    def close(self) -> None:
        for requests in (self._networks, self._log):
            if requests is not None:
                requests.give_up()
        super().close()

    def answer(self, connection: socket.socket) -> None:
        with suppress(OSError):  # whoever asked is gone
            answer = self._answer_to(_read_line(connection))
            connection.sendall(json.dumps(answer, ensure_ascii=False).encode())

    def _answer_to(self, line: bytes) -> dict[str, Any]:
        try:
            request = _request(line)
            if isinstance(request, FilterRequest):
                return self._set_filter(request)
            if isinstance(request, LogRequest):
                if self._log is None:
                    raise StatusError(NO_LOG)
                return self._log.carry_out(request)
            if self._networks is None:
                raise StatusError(ONE_NETWORK)
            return self._networks.carry_out(request)
        except TotemError as error:
            return {"error": str(error)}
        except Exception as error:  # a node goes on ordering messages whatever is asked of it
            self.logger.exception("a request could not be carried out")
            return {"error": f"{type(error).__name__}: {error}"}

    def _set_filter(self, request: FilterRequest) -> dict[str, Any]:
        if self._filter is None:
            raise StatusError(NO_FILTER)
        self._filter.cut = frozenset(request.cut)
        return {"outcome": "done"}


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) <= REQUEST_BYTES_MAX:
        more = connection.recv(REQUEST_BYTES_MAX)
        if not more:
            break
        line += more
    return line


def _request(line: bytes) -> Request | LogRequest | FilterRequest:
    try:
        read = json.loads(line)
        if read["ask"] in LOG_ASKS:
            return _log_request(read)
        if read["ask"] == FILTER:
            return FilterRequest(tuple(map(str, read["cut"])))
        ask, network, wait_s = str(read["ask"]), str(read["network"]), float(read["wait_s"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StatusError("a request that this node does not understand") from None
    if ask not in (DRAIN, RESTORE) or not 0 < wait_s <= WAIT_S_MAX:
        raise StatusError("a request that this node does not understand")
    return Request(ask, network, wait_s)


def _log_request(read: dict[str, Any]) -> LogRequest:
    numbers = {name: int(read[name]) for name in ("processor", "other", "weight", "position")}
    request = LogRequest(str(read["ask"]), wait_s=float(read["wait_s"]), **numbers)
    if min(numbers.values()) < 0 or not 0 < request.wait_s <= WAIT_S_MAX:
        raise StatusError("a request that this node does not understand")
    return request


def ask_node(directory: Path, request: Request | LogRequest | FilterRequest) -> dict[str, Any]:
    """Its answer. Raises StatusError if there is none, or none that can be carried out."""
    path = directory / SOCKET_NAME
    line = json.dumps(request._asdict()).encode() + b"\n"
    answer = parse(exchange(directory, SOCKET_NAME, request.wait_s + 2 * ANSWER_S, line), path)
    if "error" in answer:
        raise StatusError(str(answer["error"]))
    return answer
