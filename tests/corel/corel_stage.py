"""The model as hand-made scenarios use it: replicas in a primary, then one deed after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from corel_model import World
from corel_properties import Properties, watched

from totempole.corel.commands import AppendRecords, ChangeReplicas
from totempole.corel.config import LogConfig
from totempole.corel.events import Accepted, Placed
from totempole.corel.layer import Replica
from totempole.corel.run import RunId, RunKind, records_of
from totempole.groups import pack

TINY = ("recent_bytes", "segment_bytes", "queue_bytes_max")


class Stage:
    """`replicas` found the log. `spares` are processors with an empty log that nobody has added yet."""

    def __init__(
        self,
        replicas: int = 3,
        spares: int = 0,
        base: type[Replica] = Replica,
        founded: bool = True,
        tiny: dict[str, int] | None = None,
        **settings: Any,
    ) -> None:
        self.properties = Properties()
        names = tuple(range(1, replicas + 1))
        configs = {}
        for me in range(1, replicas + spares + 1):
            if me <= replicas:
                configs[me] = LogConfig(replicas=names, **settings)
            else:
                configs[me] = LogConfig(acknowledgements=settings.get("acknowledgements", "quorum"))
            for name, value in (tiny or {}).items():
                assert name in TINY
                object.__setattr__(configs[me], name, value)
        self.events: list[tuple[int, Any]] = []
        self.world = World(configs, 1, watched(self.properties, base), self._told)
        self.properties.world = self.world
        self._requests = 0
        for me in configs:
            self.world.start(me)
        if founded:
            self.world.change(configs)
            self.world.run()

    def _told(self, me: int, event: Any) -> None:
        self.events.append((me, event))
        self.properties.told(me, event)

    def told(self, kind: type) -> list[Any]:
        return [event for _, event in self.events if isinstance(event, kind)]

    # What programs do

    def append(self, me: int, text: str, key: str = "", time_us: int = 0) -> RunId:
        self._requests += 1
        keys = (key,) if key else ()
        batch = pack([text.encode()])
        self.world.feed(me, AppendRecords(1, self._requests, "log", batch, keys, time_us))
        run: RunId = next(e.run for e in self.told(Accepted) if e.request == self._requests)
        return run

    def change_set(self, me: int, processor: int, weight: int) -> None:
        self._requests += 1
        self.world.feed(me, ChangeReplicas(1, self._requests, processor, weight))

    def positions(self) -> list[int]:
        return [event.position for event in self.told(Placed)]

    # What is seen

    def phase(self, me: int) -> str:
        return str(self.world.replica(me).phase.value)

    def phases(self) -> dict[int, str]:
        return {me: self.phase(me) for me in self.world.up}

    @property
    def order(self) -> list[str]:
        """The texts that are green somewhere."""
        return [
            bytes(payload).decode()
            for green in self.properties.order
            if green.run.kind == RunKind.RECORDS
            for payload in records_of(green.run).payloads
        ]

    def yellow(self, me: int) -> list[RunId]:
        return [run.id for run in self.world.replica(me).zones.yellow]

    def red(self, me: int) -> list[RunId]:
        return [run.id for run in self.world.replica(me).zones.red]

    # Deeds

    def send(self, me: int) -> None:
        """All that it has to send gets its place on the ring, what could wait for a timer too. Nobody else
        has received it."""
        self.world.expire(me)
        self.world.originate(me, 1_000)

    def deliver(self, *who: int) -> None:
        for me in who:
            self.world.deliver(me, 1_000_000)

    def sync(self, *who: int) -> None:
        for me in who:
            self.world.sync(me)

    def run(self, *who: int, timers: bool = False) -> None:
        """These go on, with each other, until nothing is to be done. The others stand still."""
        others = [me for me in self.world.up if me not in who] if who else []
        for me in others:
            self.world.processors[me].is_up = False
        try:
            self.world.run(timers=timers)
        finally:
            for me in others:
                self.world.processors[me].is_up = True

    def until(self, condition: Callable[[], bool], who: Iterable[int] = (), steps: int = 2_000) -> None:
        """Small steps, each replica one after the other, until it holds."""
        members = tuple(who) or tuple(self.world.up)
        for _ in range(steps):
            for me in members:
                self.world.originate(me, 1_000)
                self.world.hint_all()
                for act in (self.world.sync, self.world.deliver):
                    act(me)
                    if condition():
                        return
                if self.world.processors[me].disk.recalls:
                    self.world.recall(me)
        raise RuntimeError(f"it never happens: {self.phases()}")

    def calm(self) -> None:
        """All are up and connected: everything becomes green, everywhere."""
        world = self.world
        for me, each in world.processors.items():
            if not each.is_up:
                world.start(me)
            elif not each.replica.is_open:
                world.open(me)
        world.change(world.processors)
        world.run(steps=600)
        self.properties.all_is_green({(me, world.replica(me).outbox._life) for me in world.up})
