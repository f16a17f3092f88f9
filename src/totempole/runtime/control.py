"""What people ask of a running node: one request and one answer for each connection to a Unix socket.

The socket, `control.sock` in the directory of a node on several networks, is open to the node's own user and
to root. Both are JSON in one line:

    {"ask": "drain" or "restore", "network": name or number, "wait_s": seconds}
    {"outcome": "done", "network", "processor", "state", "why", "already", "ring", "seq"}
    {"outcome": "refused", "network", "processor", "why"}
    {"outcome": "unknown", "network", "processor", "why" if it is known}
    {"error": what is wrong with the request}

`processor` is who was asked. `ring` and `seq` are the place in the total order at which all members did it;
they are missing where it was `already` so. `unknown`: it was not done in time, and may be done later.
Requests are answered one after the other.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from totempole.errors import TotemError
from totempole.runtime.status import ANSWER_S, LocalServer, StatusError, exchange, parse

SOCKET_NAME = "control.sock"
REQUEST_BYTES_MAX = 4_096
DRAIN, RESTORE = "drain", "restore"
WAIT_S = 10.0
WAIT_S_MAX = 600.0
"""How long a ring may take to carry a request out: if nothing else is said, and at most."""

ONE_NETWORK = "the ring is on one network, which cannot be taken out of service"


class Request(NamedTuple):
    ask: str
    network: str
    wait_s: float = WAIT_S


class ControlServer(LocalServer):
    def __init__(
        self,
        directory: Path,
        carry_out: Callable[[Request], dict[str, Any]],
        give_up: Callable[[], None],
        logger: logging.Logger,
    ) -> None:
        """`give_up` ends a `carry_out` that waits."""
        self._carry_out = carry_out
        self._give_up = give_up
        super().__init__(directory, SOCKET_NAME, logger)

    def close(self) -> None:
        self._give_up()
        super().close()

    def answer(self, connection: socket.socket) -> None:
        with suppress(OSError):  # whoever asked is gone
            answer = self._answer_to(_read_line(connection))
            connection.sendall(json.dumps(answer, ensure_ascii=False).encode())

    def _answer_to(self, line: bytes) -> dict[str, Any]:
        try:
            return self._carry_out(_request(line))
        except TotemError as error:
            return {"error": str(error)}
        except Exception as error:  # a node goes on ordering messages whatever is asked of it
            self.logger.exception("a request could not be carried out")
            return {"error": f"{type(error).__name__}: {error}"}


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) <= REQUEST_BYTES_MAX:
        more = connection.recv(REQUEST_BYTES_MAX)
        if not more:
            break
        line += more
    return line


def _request(line: bytes) -> Request:
    try:
        read = json.loads(line)
        ask, network, wait_s = str(read["ask"]), str(read["network"]), float(read["wait_s"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StatusError("a request that this node does not understand") from None
    if ask not in (DRAIN, RESTORE) or not 0 < wait_s <= WAIT_S_MAX:
        raise StatusError("a request that this node does not understand")
    return Request(ask, network, wait_s)


def ask_node(directory: Path, request: Request) -> dict[str, Any]:
    """Its answer. Raises StatusError if there is none, or none that can be carried out."""
    path = directory / SOCKET_NAME
    line = json.dumps(request._asdict()).encode() + b"\n"
    answer = parse(exchange(directory, SOCKET_NAME, request.wait_s + 2 * ANSWER_S, line), path)
    if "error" in answer:
        raise StatusError(str(answer["error"]))
    return answer
