"""Where an embedded node runs: on a thread of the program, or in a process of its own.

A node that shares its thread with the program would lose the token whenever the program is busy. On a thread
of its own it still shares Python's lock: a program that computes for long stretches in Python keeps it
waiting, a few milliseconds at each turn, and wants the process. The lag alarm tells when the node is kept
from running.

Either way the node talks to its program through a `Mailbox`, and the program through a `Hosting`.

The process is in `separate`.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from totempole.core.order import Deliver, InstallConfiguration
from totempole.errors import SessionError, TotemError
from totempole.groups import Batch
from totempole.runtime.config import NodeConfig
from totempole.runtime.driver import Driver
from totempole.runtime.ring_events import Event, RingMessages, RingView
from totempole.runtime.service import load_keyring, reload_keys
from totempole.runtime.snapshot import snapshot
from totempole.types import Service

RECEIVED_BYTES_MAX = 64 * 1024 * 1024
"""Messages that the program has not taken yet. A program that falls further behind loses its node: the ring
does not wait for it, and it must not miss a message unawares."""

FELL_BEHIND = (
    f"the program has left more than {RECEIVED_BYTES_MAX} bytes of messages untaken: the node has left the "
    "ring; take messages faster, or send less"
)


ENDED = "the node has left the ring, or had to stop: it answers no more"
VIEW_WEIGHT = 256
KEYS_WAIT_S = 5.0
"""How long a program waits for its node to use the keys that were read."""


class Mailbox(Protocol):
    """What the program's side offers to the node's. Every call may come from another thread."""

    taken_bytes: int
    """Of all messages that were put here, how much the program has taken."""

    def put(self, event: Event, size: int) -> None: ...

    def accepted(self, size: int) -> None:
        """So many bytes that the program sent are on their way."""
        ...

    def ended(self, error: TotemError | None) -> None: ...


class Hosting(Protocol):
    def start(self) -> None: ...

    def send(self, payloads: Sequence[bytes], service: Service, size: int) -> None: ...

    def taken(self) -> None:
        """The program has taken a message."""
        ...

    def leave(self) -> None: ...

    def stop_at_once(self) -> None: ...

    def status(self) -> dict[str, Any]:
        """May wait: not for the thread of an event loop. So may the next."""
        ...

    def reload_keys(self) -> None:
        """Raises if the key file cannot be used."""
        ...


class Relay:
    """The application above an embedded driver: hands events to the mailbox, feeds the driver what waits."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.driver: Driver | None = None
        self._mailbox = mailbox
        self._waiting: deque[tuple[Sequence[bytes], Service, int]] = deque()
        self._put_bytes = 0
        self._fell_behind = False

    def delivered(self, packet: Deliver, messages: Batch) -> None:
        if self._fell_behind:
            return
        self._put_bytes += messages.weight
        if self._put_bytes - self._mailbox.taken_bytes > RECEIVED_BYTES_MAX:
            assert self.driver is not None
            self._fell_behind = True
            self.driver.fail(SessionError(FELL_BEHIND))
            return
        self._mailbox.put(RingMessages(packet.origin, messages, packet.service, packet.key), messages.weight)

    def installed(self, installed: InstallConfiguration) -> None:
        configuration = installed.configuration
        self._put_bytes += VIEW_WEIGHT
        view = RingView(configuration.kind.value, configuration.members, configuration.id, installed.key)
        self._mailbox.put(view, VIEW_WEIGHT)

    def ready(self) -> None:
        assert self.driver is not None
        while self._waiting and self.driver.send(*self._waiting[0][:2]):
            self._mailbox.accepted(self._waiting.popleft()[2])

    def send(self, payloads: Sequence[bytes], service: Service, size: int) -> None:
        self._waiting.append((payloads, service, size))
        if len(self._waiting) == 1:
            self.ready()


class ThreadHosting:
    def __init__(
        self,
        config: NodeConfig,
        logger: logging.Logger,
        mailbox: Mailbox,
        client: socket.socket | None = None,
    ) -> None:
        """`client`: the far end of a session of the program's own."""
        self._config = config
        self._mailbox = mailbox
        self._logger = logger
        self._relay = Relay(mailbox)
        self._driver = Driver(config, self._relay, logger, load_keyring(config, logger))
        self._relay.driver = self._driver
        if client is not None:
            self._driver.serve(client)
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"totempole-{config.processor}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        error: TotemError | None = None
        try:
            self._driver.run()
        except TotemError as caught:
            error = caught
        except Exception as caught:
            self._logger.exception("the node broke")
            error = SessionError(f"the node broke: {type(caught).__name__}: {caught}")
        finally:
            self._ended = True
            self._mailbox.ended(error)

    def send(self, payloads: Sequence[bytes], service: Service, size: int) -> None:
        self._driver.call(lambda: self._relay.send(payloads, service, size))

    def leave(self) -> None:
        self._driver.leave()

    def stop_at_once(self) -> None:
        self._driver.stop_at_once()

    def close(self) -> None:
        """For a node that is not started after all."""
        self._driver.close()

    def taken(self) -> None: ...

    def reload_keys(self) -> None:
        if self._ended:
            raise SessionError(ENDED)
        reload_keys(self._config, self._driver, self._logger)
        taken = threading.Event()
        self._driver.call(taken.set)
        if not taken.wait(KEYS_WAIT_S):
            raise SessionError(f"the node has not taken its keys for {KEYS_WAIT_S} s")

    def status(self) -> dict[str, Any]:
        if self._ended:
            raise SessionError(ENDED)
        return snapshot(self._driver)
