"""Drain and restore: what people ask of a node's ring, and what becomes of it.

A request goes through the total order like any message, and is carried out or refused at its place by all
members alike. It is done when this node is told so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from totempole.errors import ConfigurationError, TotemError
from totempole.networks.commands import Drain, Restore
from totempole.networks.events import NetworkChanged, NetworkRefused, NetworkState
from totempole.runtime.control import DRAIN, ONE_NETWORK, Request
from totempole.runtime.driver import Driver

AGAIN_US = 50_000
STOPPED = "the node has stopped before it was done"


class NetworkRequests:
    """For one thread, which waits; `give_up` is for another."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._waiting: _Waiting | None = None
        self._over = False

    def carry_out(self, request: Request) -> dict[str, Any]:
        """The answer (control.py). Raises ConfigurationError for what cannot be asked."""
        layers = self._driver.stack.networks
        if not layers:
            raise ConfigurationError(ONE_NETWORK)
        names = layers[0].service.names
        number = number_of(request.network, names)
        waiting = self._waiting = _Waiting(number, request.ask == DRAIN)
        if self._over:
            waiting.answer("unknown", why=STOPPED)
        else:
            self._driver.call(lambda: self._begin(waiting))
        waiting.answered.wait(request.wait_s)
        self._driver.call(lambda: self._end(waiting))
        who = {"network": names[number], "processor": self._driver.config.processor}
        return {**who, "outcome": "unknown", **waiting.told}

    def give_up(self) -> None:
        """The node is about to end."""
        self._over = True
        if self._waiting is not None:
            self._waiting.answer("unknown", why=STOPPED)

    # On the driver's thread

    def _begin(self, waiting: _Waiting) -> None:
        waiting.listener = partial(self._hear, waiting)
        waiting.ask = partial(self._ask, waiting)
        self._driver.network_listeners.append(waiting.listener)
        waiting.ask()

    def _ask(self, waiting: _Waiting) -> None:
        service = self._driver.stack.networks[0].service
        state = service.state_of(waiting.network)
        if not service.is_agreed:
            self._ask_later(waiting)
        elif state is (NetworkState.DRAINED if waiting.drains else NetworkState.IN_SERVICE):
            waiting.answer(
                "done", already=True, state=state.name.lower(), why=service.why_of(waiting.network)
            )
        else:
            try:
                self._driver.feed((Drain if waiting.drains else Restore)(waiting.network))
            except TotemError as error:
                waiting.answer("refused", why=str(error))

    def _ask_later(self, waiting: _Waiting) -> None:
        """The ring has just changed, and its members compare what they know: until then all is refused."""
        self._driver.at(self._driver.now_us() + AGAIN_US, waiting.ask)

    def _hear(self, waiting: _Waiting, told: NetworkChanged | NetworkRefused) -> None:
        if told.network != waiting.network or waiting.answered.is_set():
            return
        if isinstance(told, NetworkRefused):
            if self._driver.stack.networks[0].service.is_agreed:
                waiting.answer("refused", why=told.why)
            else:
                self._ask_later(waiting)
        elif (told.new if waiting.drains else told.old) is NetworkState.DRAINED and told.new is not told.old:
            place = {"ring": str(told.key.ring_id), "seq": told.key.seq}
            waiting.answer("done", already=False, state=told.new.name.lower(), why=told.why, **place)

    def _end(self, waiting: _Waiting) -> None:
        self._driver.timers.pop(waiting.ask, None)
        if waiting.listener in self._driver.network_listeners:
            self._driver.network_listeners.remove(waiting.listener)


class _Waiting:
    def __init__(self, network: int, drains: bool) -> None:
        self.network = network
        self.drains = drains
        self.answered = threading.Event()
        self.told: dict[str, Any] = {}
        self.listener: Callable[[NetworkChanged | NetworkRefused], None] = lambda _told: None
        self.ask: Callable[[], None] = lambda: None

    def answer(self, outcome: str, **fields: Any) -> None:
        if not self.answered.is_set():
            self.told = {"outcome": outcome, **fields}
            self.answered.set()


def number_of(word: str, names: Sequence[str]) -> int:
    """The network with this name, or else with this number, counted from 1."""
    if names.count(word) == 1:
        return names.index(word)
    if word not in names and word.isdecimal() and 1 <= int(word) <= len(names):
        return int(word) - 1
    raise ConfigurationError(f"network {word!r}: the ring has {', '.join(names)}; give one of these")
