"""One processor's layers as one object: an input in, the list of its effects out.

The stack knows which layer an input is for, and no more. Layers call each other directly; when all of them
are done with an input, each may act on what it has been told (`settle`), the lowest first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from totempole.core.effects import Effect, LayerName
from totempole.core.inputs import (
    Appended,
    Arrived,
    Command,
    Expired,
    Input,
    Narrowed,
    Recalled,
    Start,
    Written,
)
from totempole.core.io import Io
from totempole.types import ProcessorId

Commands = Mapping[type[Command], Callable[[Any], None]]


class Layer(Protocol):
    """What the stack asks of a layer. `BaseLayer` has an answer to all of it."""

    @property
    def name(self) -> LayerName: ...

    @property
    def commands(self) -> Commands:
        """What it can be asked for."""
        ...

    def start(self) -> None: ...

    def expired(self, timer: int) -> None: ...

    def written(self, ticket: int) -> None: ...

    def appended(self, ticket: int) -> None: ...

    def recalled(self, answer: Recalled) -> None: ...

    def settle(self) -> None: ...


class BaseLayer:
    """A layer without timers, writes and commands of its own."""

    name: LayerName = ("", 0)

    @property
    def commands(self) -> Commands:
        return {}

    def start(self) -> None: ...

    def expired(self, timer: int) -> None:
        raise AssertionError(f"layer {self.name} has no timer {timer}")

    def written(self, ticket: int) -> None:
        raise AssertionError(f"layer {self.name} has written nothing: ticket {ticket}")

    def appended(self, ticket: int) -> None:
        raise AssertionError(f"layer {self.name} has no log: ticket {ticket}")

    def recalled(self, answer: Recalled) -> None:
        raise AssertionError(f"layer {self.name} has no log: ticket {answer.ticket}")

    def settle(self) -> None: ...


class Receiver(Protocol):
    """What takes a network's datagrams: a link."""

    def arrived(self, datagrams: Sequence[bytes], segment_bytes: int) -> None: ...

    def narrowed(self, segment_bytes: int) -> None: ...


class Stack:
    def __init__(
        self,
        me: ProcessorId,
        incarnation: int,
        io: Io,
        layers: Sequence[Layer],
        receivers: Mapping[int, Receiver],
    ) -> None:
        """`layers` from the lowest to the highest; `receivers` by the number of the network, which may come
        and go."""
        self.me = me
        self.incarnation = incarnation
        self.layers = list(layers)
        self._io = io
        self._by_name = {layer.name: layer for layer in layers}
        assert len(self._by_name) == len(self.layers), "two layers of one name"
        self._receivers = receivers
        self._commands: dict[type, list[Callable[[Any], None]]] = {}
        for layer in layers:
            for kind, do in layer.commands.items():
                self._commands.setdefault(kind, []).append(do)
        self._settling = [layer.settle for layer in layers if type(layer).settle is not BaseLayer.settle]

    def feed(self, now_us: int, given: Input) -> list[Effect]:
        """Takes one input. A command that a layer refuses raises, and has no effect."""
        io = self._io
        io.now_us = now_us
        if type(given) is Arrived:
            io.network, _, datagrams, segment_bytes, io.source = given
            receiver = self._receivers.get(io.network)
            if receiver is not None:  # else it is of a network that the processor is on no more
                receiver.arrived(datagrams, segment_bytes)
        elif type(given) is Expired:
            layer, instance, timer = given.timer
            self._by_name[layer, instance].expired(timer)
        elif (asked := self._commands.get(type(given))) is not None:
            for do in asked:
                do(given)
        elif type(given) is Written:
            self._by_name[io.writers.pop(given.ticket)].written(given.ticket)
        elif type(given) is Appended:
            self._by_name[io.writers.pop(given.ticket)].appended(given.ticket)
        elif type(given) is Recalled:
            self._by_name[io.writers.pop(given.ticket)].recalled(given)
        elif type(given) is Start:
            for each in self.layers:
                each.start()
        elif type(given) is Narrowed:
            self._receivers[given.network].narrowed(given.segment_bytes)
        else:
            raise KeyError(f"no layer takes {type(given).__name__}")
        for settle in self._settling:
            settle()
        return io.take()
