"""Random runs of an ideal ring, written down by one who sees everything: all properties hold on them."""

from __future__ import annotations

import random
from itertools import chain

from tracebuilder import TraceBuilder


class IdealRun:
    """A component is a set of nodes on one ring; parts split off, merge, crash and return."""

    def __init__(self, seed: int, nodes: int) -> None:
        self.random = random.Random(seed)
        self.trace = TraceBuilder()
        self.seq = 4
        self.trace.start(*range(1, nodes + 1))
        self.components: list[list[int]] = [[node] for node in range(1, nodes + 1)]
        self.down: list[int] = []

    def rows_of(self, changes: int, messages: int) -> TraceBuilder:
        self._regroup()
        for _ in range(changes):
            for component in self.components:
                self._traffic(component, self.random.randrange(messages))
            self._crash_and_restart()
            self._regroup()
        self._install([self._alive()])
        self._traffic(self.components[0], messages)
        return self.trace

    def _traffic(self, component: list[int], messages: int) -> None:
        for _ in range(messages):
            node = self.random.choice(component)
            others = [other for other in component if other != node]
            self.trace.send(node, *others, service=self.random.choice(["agreed", "safe"]))

    def _crash_and_restart(self) -> None:
        for node in self.down:
            self.seq += 4
            self.trace.start(node, seq=self.seq)
            self.components.append([node])
        victims = [c[0] for c in self.components if len(c) > 2 and self.random.random() < 0.2]
        self.trace.crash(*victims)
        self.down = victims
        self.components = [[n for n in c if n not in victims] for c in self.components]

    def _alive(self) -> list[int]:
        return sorted(chain.from_iterable(self.components))

    def _regroup(self) -> None:
        alive = self._alive()
        self.random.shuffle(alive)
        cut = self.random.randrange(len(alive))
        self._install([sorted(part) for part in (alive[:cut], alive[cut:]) if part])

    def _install(self, parts: list[list[int]]) -> None:
        """Each part of the old components moves to its new ring, with some messages in doubt on the way."""
        self.seq += 4
        for part in parts:
            for old in self.components:
                staying = [node for node in old if node in part]
                if staying:
                    self._transition(staying)
            self.trace.regular(f"{self.seq}@{part[0]}", part)
        self.components = parts

    def _transition(self, staying: list[int]) -> None:
        """The last messages reach only those who stay together: they follow a gap for all others."""
        late = [self.trace.originate(node, "safe") for node in staying if self.random.random() < 0.5]
        for message in late:
            self.trace.receive(message, *(n for n in staying if n != int(message.split(".")[0])))
        self.trace.transitional(f"{self.seq - 2}@{staying[0]}", staying)
        for message in late:
            self.trace.deliver(message, *staying)
