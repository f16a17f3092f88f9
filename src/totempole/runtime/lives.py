"""The lives of this node's processor: what stable storage holds of them, and what begins the next one.

A life begins with the numbers in stable storage, and ends with the node's run, or when another node uses this
processor's number: then `identity` decides whether the node stays, gives way, or begins a life above the
other's. Writes to stable storage are done by a thread of their own, so that a slow disk never stops the ring.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from random import randrange
from typing import Any, Protocol

from totempole.core.effects import Write
from totempole.core.inputs import Input, Written
from totempole.errors import ConfigurationError, NumberInUseError, StorageError, TotemError
from totempole.identity import LEAP_MAX, PROBATION_US, Answer, Identity
from totempole.runtime.config import NodeConfig
from totempole.runtime.reports import Reports
from totempole.runtime.storage import Storage, StorageWriter
from totempole.stack import ProcessorStack
from totempole.wire.layout import INCARNATION_MAX

TICKETS_MAX = 2**32
"""Writes of one life; what is left of a ticket's number says which life's it is."""


class Host(Protocol):
    """What the lives need of the driver."""

    stack: ProcessorStack

    def feed(self, given: Input) -> None: ...

    def fail(self, error: TotemError) -> None: ...

    def live_again(self) -> None:
        """Ends the present life and begins the next one."""
        ...

    def now_us(self) -> int: ...

    def call(self, function: Callable[[], None]) -> None:
        """For any thread."""
        ...


class Lives:
    def __init__(self, config: NodeConfig, host: Host, reports: Reports) -> None:
        """Opens stable storage."""
        self._number = config.processor
        self._host = host
        self._reports = reports
        self._storage = Storage.open(config.directory, config.processor, config.ring.cluster_id)
        self.values: dict[str, Any] = dict(self._storage.values)
        """What stable storage holds when all writes are done."""
        self.was_lost = self._storage.lost
        self._life = 0
        self._identity = Identity(PROBATION_US)

    def start(self) -> None:
        self._writer = StorageWriter(self._storage, self._on_written, self._on_failure)

    def begin(self) -> dict[str, Any]:
        """Counts another life. Returns the values that it begins with."""
        self._life += 1
        return dict(self.values)

    def stop(self) -> None:
        """Waits for the writes under way."""
        self._writer.close()

    def close(self) -> None:
        self._storage.close()

    # Writes

    def write(self, write: Write) -> None:
        self._submit(self._life * TICKETS_MAX + write.ticket, write.records)

    def _submit(self, ticket: int, values: Mapping[str, Any]) -> None:
        self.values.update(values)
        try:
            self._writer.submit(ticket, values)
        except StorageError as error:
            self._host.fail(error)

    def _on_written(self, ticket: int) -> None:
        """On the writer's thread."""
        life, own_ticket = divmod(ticket, TICKETS_MAX)
        self._host.call(lambda: self._host.feed(Written(own_ticket)) if life == self._life else None)

    def _on_failure(self, error: StorageError) -> None:
        """On the writer's thread."""
        self._host.call(lambda: self._host.fail(error))

    # Another node with this processor's number

    def meet(self, incarnation: int, where: str, age_us: int, has_spoken: bool) -> None:
        """Another node speaks in this number. `age_us`: since this node's start."""
        self._reports.log(
            logging.ERROR, "another node uses this processor's number", number=self._number, where=where
        )
        own = self._host.stack.incarnation
        answer = self._identity.meet(incarnation, own, self._host.now_us(), age_us, has_spoken)
        if answer is Answer.GIVE_WAY:
            if incarnation < own:
                # Counted, because a recording of a former life must not keep the node away for ever.
                self._submit(0, {"gave_way": self.values.get("gave_way", 0) + 1})
            self._host.fail(self._in_use(where))
        elif answer is Answer.OUTLIVE:
            # Not in the midst of effects, which are those of the life that ends.
            self._host.call(lambda: self.outlive(incarnation))

    def outlive(self, above: int) -> None:
        """The others take the impostor for a later life of this processor, and this node for a ghost: begins
        a life above the other's."""
        if above < self._host.stack.incarnation:
            return  # that has been done since
        try:
            incarnation = self._next_incarnation(above)
        except TotemError as error:
            self._host.fail(error)
            return
        self._reports.log(logging.WARNING, "starting a new life", incarnation=incarnation + 1)
        self.values["incarnation"] = incarnation
        self._host.live_again()

    def _next_incarnation(self, above: int) -> int:
        """What stable storage is to hold as the last incarnation, so that the next one is above the other's.
        Raises ConfigurationError if there is none left."""
        self._identity.begin_life(self._host.now_us())
        incarnation = above + randrange(LEAP_MAX)
        if incarnation >= INCARNATION_MAX:
            raise ConfigurationError(
                f"processor = {self._number} has no incarnations left: give the node another number, or "
                "restart the whole cluster with empty directories"
            )
        return incarnation

    def _in_use(self, where: str) -> NumberInUseError:
        return NumberInUseError(
            f"processor = {self._number}: the node at {where} has this number already, or repeats what one "
            "has said; give each node a number of its own, then start this one again"
        )
