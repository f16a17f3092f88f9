"""A random walk of the model from a seed: all that can happen to replicas, then calm, then liveness."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from unittest.mock import patch

from corel_model import World
from corel_properties import Properties, Violation, part_of, watched

from totempole.corel import fences, zones
from totempole.corel.commands import AppendRecords, ChangeReplicas, Forget, ReadBarrier, SetHold
from totempole.corel.config import LogConfig
from totempole.corel.layer import Replica
from totempole.errors import SessionError
from totempole.groups import pack
from totempole.types import Fence

DISTURBED = ("exchanging", "agreeing", "attempting", "committing", "primary", "minority", "looking on")

HINTS = 0.2
"""How often something comes past the order, by step."""

OTHER = {"quorum": "all", "all": "quorum"}

CALM_STEPS = 600
"""Of all replicas, until nothing is left to do; beside those in which runs are caught up."""


@dataclass(frozen=True, slots=True)
class Weather:
    """What a walk is like. All of it follows from the seed."""

    replicas: int
    spares: int
    steps: int
    rule: str
    floor: int
    weights: tuple[int, ...]
    acknowledgements: str
    recent_bytes: int
    segment_bytes: int
    queue_bytes_max: int
    window_bytes: int
    piece_bytes: int
    """Of what is fetched, of priority messages, and of what waits below; 0: as in a node."""
    progress: float
    """How often all do what there is to do, against single deeds of one."""
    change: float
    """How often rings change, crashes happen, logs close, disks are emptied: by step."""
    crash: float
    close: float
    empty: float
    trim: float
    sets: float
    submit: float
    slow_disks: frozenset[int]
    ambush: float
    """How often somebody who enters a phase is disturbed."""
    ambushed: str
    keys_max: int
    reads: float = 0.0
    pauses: float = 0.0
    """How often a replica stands still while the others go on, and reads then."""
    mixed: frozenset[int] = frozenset()
    """Replicas whose `acknowledgements` differ from those of the others: a setting is being changed."""
    fences: float = 0.0
    """How often records have a fence."""
    fences_max: int = 4_096


def weather_of(seed: int) -> Weather:
    rng = Random(f"weather {seed}")
    replicas = rng.choice((2, 3, 3, 3, 4, 5, 5))
    is_dynamic = rng.random() < 0.3
    is_tiny = rng.random() < 0.6
    calm = rng.choice((0.2, 1.0, 1.0, 2.0))
    empty = rng.choice((0.0, 0.0, 0.003)) * calm
    return Weather(
        replicas=replicas,
        spares=rng.choice((0, 0, 1, 2)),
        steps=rng.choice((200, 400, 800)),
        rule="dynamic" if is_dynamic else "majority",
        floor=rng.randint(1, 2),
        weights=tuple(rng.randint(1, 3) for _ in range(replicas)) if rng.random() < 0.3 else (),
        acknowledgements=rng.choice(("quorum", "quorum", "all")),
        recent_bytes=rng.choice((400, 1000)) if is_tiny else 1 << 20,
        segment_bytes=rng.choice((200, 1000, 3000)) if rng.random() < 0.6 else 1 << 20,
        queue_bytes_max=rng.choice((600, 2000)) if rng.random() < 0.15 else 1 << 20,
        progress=rng.choice((1.0, 4.0, 10.0)),
        change=0.04 * calm * rng.random() * 2,
        crash=0.01 * calm * rng.random() * 2,
        close=rng.choice((0.0, 0.002)) * calm,
        empty=empty,
        trim=rng.choice((0.0, 0.01, 0.05)),
        sets=0.0 if empty else rng.choice((0.0, 0.01)),
        submit=rng.choice((0.02, 0.1, 0.3)),
        slow_disks=frozenset(me for me in range(1, replicas + 1) if rng.random() < 0.2),
        ambush=rng.choice((0.0, 0.1, 0.3, 0.6)),
        ambushed=rng.choice(DISTURBED),
        keys_max=rng.choice((4, 1000)),
        window_bytes=rng.choice((200, 1 << 20, 1 << 20)),
        piece_bytes=rng.choice((0, 0, 300)),
    )


def weather_with_reads(seed: int) -> Weather:
    """The same weather, and programs that read."""
    rng = Random(f"reads {seed}")
    weather = weather_of(seed)
    everyone = range(1, weather.replicas + weather.spares + 1)
    return replace(
        weather,
        reads=rng.choice((0.02, 0.1, 0.3)),
        pauses=rng.choice((0.0, 0.005, 0.02)),
        mixed=frozenset(me for me in everyone if rng.random() < 0.5) if rng.random() < 0.4 else frozenset(),
    )


def weather_with_fences(seed: int) -> Weather:
    """The same weather, and programs that race with the same fences."""
    rng = Random(f"fences {seed}")
    weather = weather_of(seed)
    return replace(
        weather,
        fences=rng.choice((0.3, 0.8)),
        fences_max=rng.choice((2, 3, 4_096)),
        submit=max(weather.submit, 0.1),
    )


def config_of(weather: Weather, me: int) -> LogConfig:
    is_replica = me <= weather.replicas
    config = LogConfig(
        replicas=tuple(range(1, weather.replicas + 1)) if is_replica else (),
        weights=weather.weights if is_replica else (),
        rule=weather.rule if is_replica else "majority",
        floor=weather.floor,
        acknowledgements=OTHER[weather.acknowledgements] if me in weather.mixed else weather.acknowledgements,
    )
    # Far below what a setting may be: what is rare in a node is common here.
    for name in ("recent_bytes", "segment_bytes", "queue_bytes_max", "window_bytes"):
        object.__setattr__(config, name, getattr(weather, name))
    return config


class Walk:
    def __init__(self, seed: int, base: type[Replica] = Replica, weather: Weather | None = None) -> None:
        self.weather = weather or weather_of(seed)
        self._base = base
        self.rng = Random(f"walk {seed}")
        self.hint_rng = Random(f"hints {seed}")
        self.properties = Properties(self.weather.keys_max, self.weather.fences_max)
        total = self.weather.replicas + self.weather.spares
        configs = {me: config_of(self.weather, me) for me in range(1, total + 1)}
        self.world = World(configs, seed, watched(self.properties, base), self.properties.told)
        self.properties.world = self.world
        self.closed: set[int] = set()
        self.requests = 0
        self.turns: dict[str, int] = {}
        """Of fences."""
        self.steps = 0
        self._actions: list[tuple[float, Callable[[], None]]] = [
            (self.weather.progress, self._progress),
            (6.0, self._deliver),
            (3.0, self._originate),
            (1.0, self._receive_ahead),
            (2.0, self._sync),
            (1.0, self._answer),
            (0.5, self._recall),
            (0.2, self._expire),
            (0.6, self._install),
            (20 * self.weather.submit, self._submit),
            (20 * self.weather.change, self._change),
            (20 * self.weather.crash, self._crash),
            (12 * self.weather.crash + 0.1, self._restart),
            (20 * self.weather.close, self._close),
            (8 * self.weather.close + 0.05, self._open),
            (20 * self.weather.empty, self._empty),
            (20 * self.weather.empty, self._roll_back),
            (20 * self.weather.trim, self._trim),
            (20 * self.weather.sets, self._change_set),
            (20 * self.weather.reads, self._read),
            (4 * self.weather.reads, self._forget),
            (20 * self.weather.pauses, self._read_after_a_pause),
        ]
        self._weights = [weight for weight, _ in self._actions]
        self._acts = [act for _, act in self._actions]

    def run(self) -> None:
        with small(self.weather, self._base):
            for me in self.world.processors:
                self.world.start(me)
            self.world.change(tuple(self.world.processors))
            for act in self.rng.choices(self._acts, self._weights, k=self.weather.steps):
                self.steps += 1
                act()
                if self.hint_rng.random() < HINTS:
                    self._hint()
                self._ambush()
            self.calm()

    def _ambush(self) -> None:
        entered, self.properties.entered = self.properties.entered, []
        weather = self.weather
        for _, phase in entered:
            if phase.value == weather.ambushed and self.rng.random() < weather.ambush:
                self.rng.choice((self._crash, self._change, self._change_and_install))()

    # What happens

    def _up(self) -> int | None:
        up = self.world.up
        return self.rng.choice(up) if up else None

    def _progress(self) -> None:
        """Nearly everybody does nearly everything."""
        rng, world = self.rng, self.world
        up = world.up
        rng.shuffle(up)
        for me in up:
            each = world.processors[me]
            if each.move is not None and rng.random() < 0.7:
                world.install(me)
            if rng.random() < self.weather.submit:
                self._submit_at(me)
            if rng.random() < 0.9:
                world.originate(me, 9)
        for me in up:
            each = world.processors[me]
            if rng.random() < 0.8:
                world.deliver(me, rng.choice((1, 5, 99)))
            if rng.random() < (0.05 if me in self.weather.slow_disks else 0.8):
                world.sync(me)
            if each.disk.recalls and rng.random() < 0.8:
                world.recall(me)
        if self.hint_rng.random() < 0.5:
            world.hint_all()
        else:
            world.lose_hints()

    def _deliver(self) -> None:
        me = self._up()
        if me is not None:
            self.world.deliver(me, self.rng.choice((1, 1, 2, 5, 20)))

    def _originate(self) -> None:
        me = self._up()
        if me is not None:
            self.world.originate(me, self.rng.choice((1, 2, 9)))

    def _receive_ahead(self) -> None:
        me = self._up()
        if me is not None and self.world.undelivered(me):
            ring = self.world.processors[me].ring
            self.world.receive(me, self.rng.randint(ring.delivered[me] + 1, len(ring.log)))

    def _disk(self) -> int | None:
        me = self._up()
        return None if me in self.weather.slow_disks and self.rng.random() < 0.9 else me

    def _sync(self) -> None:
        me = self._disk()
        if me is not None:
            disk = self.world.processors[me].disk
            for _ in range(self.rng.randint(0, len(disk.waiting))):
                disk.sync()

    def _answer(self) -> None:
        me = self._up()
        if me is not None:
            self.world.answer(me)

    def _recall(self) -> None:
        me = self._disk()
        if me is not None and self.world.processors[me].disk.recalls:
            self.world.recall(me)

    def _hint(self) -> None:
        """Something that was said outside of the order, lately or long ago, comes to somebody, perhaps again.
        All the rest is lost."""
        world, rng = self.world, self.hint_rng
        if world.up and world.hints:
            world.hint(rng.choice(world.up), rng.choice((world.hints[-1], rng.choice(world.hints))))

    def _expire(self) -> None:
        me = self._up()
        if me is not None:
            self.world.expire(me)

    def _install(self) -> None:
        moving = [me for me in self.world.up if self.world.processors[me].move is not None]
        if moving:
            self.world.install(self.rng.choice(moving))

    def _ask(self, me: int, command: Any) -> None:
        with suppress(SessionError):
            self.world.feed(me, command)

    def _submit(self) -> None:
        me = self._up()
        if me is not None:
            self._submit_at(me)

    def _submit_at(self, me: int) -> None:
        if me in self.closed:
            return
        self.requests += 1
        rng = self.rng
        if rng.random() < 0.05:
            self._ask(me, SetHold(1, self.requests, f"reader {rng.randint(1, 3)}", rng.randint(-1, 20)))
            return
        count = rng.choice((1, 1, 2, 3))
        keys = tuple(rng.choice(("", *"abcdefgh")) for _ in range(count)) if rng.random() < 0.4 else ()
        batch = pack([str(self.requests).encode() * rng.choice((1, 10)) for _ in range(count)])
        log, time_us = rng.choice("xy"), rng.randint(0, 1000)
        self._ask(me, AppendRecords(1, self.requests, log, batch, keys, time_us, self._fence()))

    def _fence(self) -> Fence | None:
        """Steps of a few names. Most are that of a name's turn, some are behind it or ahead."""
        rng, weather = self.rng, self.weather
        if not weather.fences or rng.random() >= weather.fences:
            return None
        name = rng.choice("efghi")
        number = self.turns[name] = self.turns.get(name, 1) + rng.choice((0, 0, 0, 1))
        number = max(1, number + rng.choice((-1, 0, 0, 0, 1)))
        return Fence(name, number, rng.choice((0, number - 1)), number - 1)

    def _change(self) -> None:
        """Rings form of some of the processors, as chance divides them."""
        up = self.world.up
        if not up:
            return
        rng = self.rng
        for me in up:
            self._receive_some(me, rng.choice((0.0, 0.3, 0.7)))
        kind = rng.random()
        if kind < 0.45:
            self.world.form(up)
        elif kind < 0.65:  # one leaves the rest
            one = rng.choice(up)
            rest = [me for me in up if me != one]
            self.world.form(*[part for part in ([one], rest) if part])
        else:
            parts: list[list[int]] = [[], [], []]
            for me in up:
                parts[rng.randrange(rng.choice((2, 3)))].append(me)
            self.world.form(*[part for part in parts if part and rng.random() < 0.9])

    def _receive_some(self, me: int, share: float) -> None:
        """So that gaps are left when the ring breaks."""
        ring = self.world.processors[me].ring
        if share and self.world.undelivered(me):
            for seq in range(ring.delivered[me] + 1, len(ring.log) + 1):
                if self.rng.random() < share:
                    self.world.receive(me, seq)

    def _change_and_install(self) -> None:
        self._change()
        self.world.install_all()

    def _crash(self) -> None:
        me = self._up()
        if me is not None:
            self.world.crash(me)
            self.properties.crashes(me)
            self.closed.discard(me)

    def _restart(self) -> None:
        down = [me for me in self.world.processors if me not in self.world.up]
        if down:
            self.world.start(self.rng.choice(down))

    def _close(self) -> None:
        me = self._up()
        if me is not None and me not in self.closed:
            self.world.close(me)
            self.closed.add(me)

    def _open(self) -> None:
        if self.closed:
            me = self.rng.choice(sorted(self.closed))
            self.closed.discard(me)
            self.world.open(me)

    def _empty(self) -> None:
        """A disk is emptied, if no other's loss is still to be made good."""
        down = [me for me in self.world.processors if me not in self.world.up]
        if not down:
            return
        me = self.rng.choice(down)
        if self._can_do_without(me):
            self.properties.unsafe.add(me)
            self.world.processors[me].disk.empty()
            if self.rng.random() < 0.5:  # its numbers, too: the whole machine was replaced
                self.world.processors[me].incarnation = 0

    def _roll_back(self) -> None:
        """A disk loses what it had synced, when nothing is under way that it has acknowledged."""
        world = self.world
        down = [me for me in world.processors if me not in world.up]
        if not down or any(world.replica(me).zones.yellow for me in world.up):
            return
        me = self.rng.choice(down)
        disk = world.processors[me].disk
        if self._can_do_without(me) and disk.frames and not disk.zones.yellow:
            self.properties.unsafe.add(me)
            disk.roll_back(len(disk.frames) - self.rng.randint(1, min(20, len(disk.frames))))

    def _can_do_without(self, lost: int) -> bool:
        """Whether every voter's disk is the one that the set names, has all that is green and knows of every
        primary that was committed, and those of the others suffice."""
        green = len(self.properties.order)
        last = max(self.properties.formations, default=0)
        replicas = self.properties.replicas
        for me, voter in replicas.voters.items():
            zones = self.world.processors[me].disk.zones
            if zones.disk != voter.disk or zones.green_runs + len(zones.yellow) < green:
                return False
            if zones.replicas != replicas or zones.committed.number < last:
                return False
        rest = {me: voter.disk for me, voter in replicas.voters.items() if me != lost}
        committed = [self.world.processors[me].disk.zones.committed.members for me in replicas.voters]
        if len(rest) < replicas.floor or not replicas.is_majority(rest):
            return False
        return all(replicas.is_durable(rest, members) for members in committed)

    def _trim(self) -> None:
        disk = self.world.processors[self.rng.choice(list(self.world.processors))].disk
        if len(disk.segments) > 1:
            disk.trim(self.rng.randint(1, len(disk.segments) - 1))

    def _change_set(self) -> None:
        me = self._up()
        if me is None or me in self.closed:
            return
        processor = self.rng.choice(list(self.world.processors))
        self.requests += 1
        self._ask(me, ChangeReplicas(1, self.requests, processor, self.rng.choice((0, 1, 1, 2))))

    # Reads

    def _read(self) -> None:
        me = self._up()
        if me is not None:
            self._read_at(me)

    def _read_at(self, me: int) -> None:
        self.requests += 1
        process = self.rng.randint(1, 3)
        self.properties.reads_at(me, process, self.requests)
        self.world.feed(me, ReadBarrier(process, self.requests))

    def _forget(self) -> None:
        me = self._up()
        if me is not None:
            process = self.rng.randint(1, 3)
            self.world.feed(me, Forget(process))
            self.properties.forgets(me, process)

    def _read_after_a_pause(self) -> None:
        """The others take it for dead. It comes back with its ring's token in hand, so that what it sends
        has a place there, and reads before it hears of anything."""
        rng, world = self.rng, self.world
        up = world.up
        if len(up) < 2:
            return
        part = up
        if rng.random() < 0.7:  # mostly out of a primary component, of all or of some
            part = up if rng.random() < 0.5 else rng.sample(up, rng.randint(len(up) // 2 + 1, len(up)))
            world.change(part)
            for _ in range(rng.choice((5, 40))):
                world.step_all(timers=False)
            self._submit_at(rng.choice(part))
        paused = sorted(rng.sample(part, rng.randint(1, len(part) - 1)))
        rest = [me for me in up if me not in paused]
        for me in paused:
            self._receive_some(me, rng.choice((0.5, 1.0, 1.0)))
        if rng.random() < 0.5:
            self._read_at(rng.choice(paused))
        world.form(rest)
        world.install_all()
        for _ in range(rng.choice((3, 10, 30))):
            self._submit_at(rng.choice(rest))
            for me in rest:
                world.originate(me, 9)
            for me in rest:
                world.deliver(me, 99)
                world.sync(me)
        for _ in range(rng.randint(1, 3)):
            self._read_at(rng.choice(paused))
            for _ in range(rng.choice((1, 3))):
                for me in paused:
                    world.originate(me, 9)
                for me in paused:
                    world.deliver(me, 99)

    # The end

    def calm(self) -> None:
        world = self.world
        while self.closed:
            self._open()
        for me in world.processors:
            if me not in world.up:
                world.start(me)
        world.change(tuple(world.processors))
        ordered = len(self.properties.order)
        behind = sum(max(0, ordered - world.replica(me).zones.green_runs) for me in world.up)
        # A piece of what a replica has missed may hold a single run.
        for _ in range(CALM_STEPS + behind):
            if not world.step_all():
                break
        else:
            raise Violation("liveness: never calm")
        lives = {(me, world.replica(me).outbox._life) for me in world.up}
        self.properties.all_is_green(lives)


@contextmanager
def small(weather: Weather, base: type[Replica]) -> Iterator[None]:
    """Few keys are remembered, and pieces are small: by disks, and by replicas of this class, which may be
    broken ones."""
    of_zones = part_of(base, "Zones").apply.__globals__
    pieces = {
        "PRIORITY_BYTES": part_of(base, "ViewHandler").begin_view.__globals__,
        "LANE_BYTES": part_of(base, "Ordering").pump.__globals__,
        "FETCH_BYTES": part_of(base, "CatchUp").answer.__globals__,
    }
    with (
        ExitStack() as small_pieces,
        patch.object(zones, "KEYS_MAX", weather.keys_max),
        patch.object(fences, "FENCES_MAX", weather.fences_max),
        patch.dict(of_zones, KEYS_MAX=weather.keys_max),
        patch.dict(of_zones["Fences"].move.__globals__, FENCES_MAX=weather.fences_max),
    ):
        if weather.piece_bytes:
            for name, module in pieces.items():
                assert name in module
                small_pieces.enter_context(patch.dict(module, {name: weather.piece_bytes}))
        yield
