"""The node's side of a process of its own (`separate.py` starts it and has the program's side)."""

from __future__ import annotations

import json
import signal
import socket
import sys
import tomllib
from pathlib import Path
from struct import Struct

from totempole.errors import TotemError
from totempole.groups import Batch
from totempole.runtime.config import NodeConfig, build
from totempole.runtime.driver import Driver
from totempole.runtime.frames import READ_BYTES, Frame, FrameReader, FrameWriter
from totempole.runtime.hosting import Relay
from totempole.runtime.logs import start_logging
from totempole.runtime.memory import prepare_for_packets
from totempole.runtime.ring_events import Event, RingMessages
from totempole.runtime.service import load_keyring, reload_keys
from totempole.runtime.snapshot import snapshot
from totempole.types import Service

MESSAGES_HEAD = Struct(">IBQIQQI")
"""Origin, service, order key: ring, seq, configuration."""
COUNT = Struct(">Q")


class FrameMailbox:
    """Hands the driver's events to the program through the socket."""

    def __init__(self, writer: FrameWriter) -> None:
        self.taken_bytes = 0
        self._writer = writer

    def put(self, event: Event, size: int) -> None:
        key = event.key
        if isinstance(event, RingMessages):
            assert isinstance(event.payloads, Batch)
            head = MESSAGES_HEAD.pack(event.sender, event.service, *key.ring_id, key.seq, *key.conf_id)
            self._writer.write(Frame.MESSAGES, head, bytes(event.payloads.body))
        else:
            view = {"kind": event.kind, "members": event.members, "id": event.id, "key": key}
            self._writer.write(Frame.VIEW, json.dumps(view).encode())

    def accepted(self, size: int) -> None:
        self._writer.write(Frame.ACCEPTED, COUNT.pack(size))

    def ended(self, error: TotemError | None) -> None:
        self._writer.write(Frame.ENDED, str(error or "").encode())


class Child:
    def __init__(
        self,
        sock: socket.socket,
        config: NodeConfig,
        reader: FrameReader,
        client: socket.socket | None = None,
    ) -> None:
        self._socket = sock
        self._reader = reader
        self._writer = FrameWriter(sock)
        self._mailbox = FrameMailbox(self._writer)
        self._relay = Relay(self._mailbox)
        self._config = config
        self._logger = logger = start_logging(config.log.level, config.log.format)
        self._driver = Driver(config, self._relay, logger, load_keyring(config, logger))
        self._relay.driver = self._driver
        self._driver.watch(sock.fileno(), self._on_readable)
        if client is not None:
            self._driver.serve(client)

    def run(self) -> None:
        error: TotemError | None = None
        try:
            self._driver.run()
        except TotemError as caught:
            error = caught
        self._mailbox.ended(error)
        self._writer.close()

    def _on_readable(self, events: int) -> None:
        try:
            data = self._socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._driver.unwatch(self._socket.fileno())
            self._driver.leave()  # the program is gone: nobody is left to take messages
            return
        for kind, body in self._reader.feed(data):
            self._take(kind, body)

    def _take(self, kind: Frame, body: bytes) -> None:
        match kind:
            case Frame.SEND:
                batch = Batch(body[1:])
                self._relay.send(list(batch), Service(body[0]), batch.weight)
            case Frame.TAKEN:
                (self._mailbox.taken_bytes,) = COUNT.unpack(body)
            case Frame.LEAVE:
                self._driver.leave()
            case Frame.STOP:
                self._driver.stop_at_once()
            case Frame.STATUS:
                self._writer.write(Frame.STATUS, body, json.dumps(snapshot(self._driver)).encode())
            case Frame.KEYS:
                problem = self._reload_keys().encode()
                self._driver.call(lambda: self._writer.write(Frame.KEYS, body, problem))  # once they are used
            case _:
                raise AssertionError(f"the program sends no {kind.name}")

    def _reload_keys(self) -> str:
        """What went wrong, or nothing."""
        try:
            reload_keys(self._config, self._driver, self._logger)
        except (TotemError, OSError) as error:
            return str(error)
        return ""


def _first_frame(sock: socket.socket, reader: FrameReader) -> bytes | None:
    while data := sock.recv(READ_BYTES):
        for _, body in reader.feed(data):
            return body
    return None


def main() -> None:
    """`python -m totempole.runtime.child DESCRIPTOR [CLIENT]`: the configuration is the first frame; the
    other descriptor is a session of the program's own."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # they are the program's: it says what becomes of its node
    sock, *clients = [socket.socket(fileno=int(word)) for word in sys.argv[1:]]
    reader = FrameReader()
    first = _first_frame(sock, reader)
    if first is None:
        return
    try:
        config = build(tomllib.loads(first.decode()), Path.cwd())
        child = Child(sock, config, reader, *clients)
    except (TotemError, OSError) as error:
        writer = FrameWriter(sock)
        writer.write(Frame.ENDED, str(error).encode())
        writer.close()
        return
    prepare_for_packets()
    child.run()


if __name__ == "__main__":
    main()
