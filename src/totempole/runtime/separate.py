"""The program's side of a node in a process of its own (`child.py` has the node's)."""

from __future__ import annotations

import json
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from totempole.errors import ConfigurationError, SessionError
from totempole.groups import Batch, pack
from totempole.groups.packing import MESSAGES_MAX
from totempole.runtime.child import COUNT, MESSAGES_HEAD
from totempole.runtime.config import NodeConfig
from totempole.runtime.config_text import print_config
from totempole.runtime.frames import READ_BYTES, Frame, FrameReader, FrameWriter
from totempole.runtime.hosting import ENDED, VIEW_WEIGHT, Mailbox
from totempole.runtime.ring_events import RingMessages, RingView
from totempole.types import OrderKey, RingId, Service

ANSWER_WAIT_S = 5.0
PART_BYTES_MAX = 1_000_000
TAKEN_STEP_BYTES = 1_000_000
"""How much the program takes before it says so."""


class ProcessHosting:
    def __init__(self, config: NodeConfig, mailbox: Mailbox, client: socket.socket | None = None) -> None:
        """`client`: the far end of a session of the program's own."""
        self._config = config
        self._client = client
        self._mailbox = mailbox
        self._told_taken = 0
        self._questions = count(1)
        self._answers: dict[int, queue.SimpleQueue[bytes]] = {}
        """Where those who have asked wait, by the number of their question."""
        self._ended = False

    def start(self) -> None:
        self._socket, theirs = socket.socketpair()
        ends = [end for end in (theirs, self._client) if end is not None]
        descriptors = [end.fileno() for end in ends]
        command = [sys.executable, "-P", "-m", "totempole.runtime.child", *map(str, descriptors)]
        self._process = subprocess.Popen(command, pass_fds=descriptors, stdin=subprocess.DEVNULL)
        for end in ends:
            end.close()
        self._writer = FrameWriter(self._socket)
        self._writer.write(Frame.CONFIG, print_config(self._config).encode())
        threading.Thread(target=self._read, name="totempole-reader", daemon=True).start()

    def send(self, payloads: Sequence[bytes], service: Service, size: int) -> None:
        for part in _parts(payloads):
            self._writer.write(Frame.SEND, bytes((service,)), pack(part))

    def taken(self) -> None:
        taken = self._mailbox.taken_bytes
        if taken - self._told_taken >= TAKEN_STEP_BYTES:
            self._told_taken = taken
            self._writer.write(Frame.TAKEN, COUNT.pack(taken))

    def leave(self) -> None:
        self._writer.write(Frame.LEAVE)

    def stop_at_once(self) -> None:
        self._writer.write(Frame.STOP)

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._ask(Frame.STATUS))
        return document

    def reload_keys(self) -> None:
        problem = self._ask(Frame.KEYS).decode()
        if problem:
            raise ConfigurationError(problem)

    def _ask(self, what: Frame) -> bytes:
        if self._ended:
            raise SessionError(ENDED)
        number = next(self._questions)
        answer = self._answers[number] = queue.SimpleQueue()
        try:
            self._writer.write(what, COUNT.pack(number))
            return answer.get(timeout=ANSWER_WAIT_S)
        except queue.Empty:
            raise SessionError(f"the node's process has not answered for {ANSWER_WAIT_S} s") from None
        finally:
            self._answers.pop(number, None)

    # The reader's thread

    def _read(self) -> None:
        reader = FrameReader()
        while data := self._receive():
            for kind, body in reader.feed(data):
                self._take(kind, body)
        self._process.wait()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._writer.close()
        self._socket.close()
        if not self._ended:
            code = self._process.returncode
            self._mailbox.ended(SessionError(f"the node's process has ended unexpectedly (exit code {code})"))

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(READ_BYTES)
        except OSError:
            return b""

    def _take(self, kind: Frame, body: bytes) -> None:
        match kind:
            case Frame.MESSAGES:
                self._take_messages(body)
            case Frame.VIEW:
                view = json.loads(body)
                members, id_, key = tuple(view["members"]), RingId(*view["id"]), _key(*view["key"])
                self._mailbox.put(RingView(view["kind"], members, id_, key), VIEW_WEIGHT)
            case Frame.ACCEPTED:
                self._mailbox.accepted(*COUNT.unpack(body))
            case Frame.STATUS | Frame.KEYS:
                (number,) = COUNT.unpack_from(body)
                if answer := self._answers.get(number):
                    answer.put(body[COUNT.size :])
            case Frame.ENDED:
                self._ended = True
                self._mailbox.ended(SessionError(body.decode()) if body else None)
            case _:
                raise AssertionError(f"a node sends no {kind.name}")

    def _take_messages(self, body: bytes) -> None:
        sender, service, *key = MESSAGES_HEAD.unpack_from(body)
        batch = Batch(body[MESSAGES_HEAD.size :])
        order = OrderKey(RingId(key[0], key[1]), key[2], RingId(key[3], key[4]))
        self._mailbox.put(RingMessages(sender, batch, Service(service), order), batch.weight)


def _parts(payloads: Sequence[bytes]) -> Iterator[list[bytes]]:
    """As many at once as a frame takes with ease."""
    part: list[bytes] = []
    size = 0
    for payload in payloads:
        if part and (size + len(payload) > PART_BYTES_MAX or len(part) == MESSAGES_MAX):
            yield part
            part, size = [], 0
        part.append(payload)
        size += len(payload)
    yield part


def _key(ring_id: Sequence[int], seq: int, conf_id: Sequence[int]) -> OrderKey:
    return OrderKey(RingId(*ring_id), seq, RingId(*conf_id))
