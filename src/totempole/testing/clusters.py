"""A cluster for tests of one's own programs: simulated, and the same for each seed; or real.

    from totempole.testing import cluster, run

    async def test_my_store_survives_a_partition():
        async with cluster(3, seed=7) as c:
            stores = [await c.start(n, Store) for n in c.nodes]
            c.part([1], [2, 3])
            await c.sleep(2)
            c.heal()
            await c.settled()
            ...

The simulated one runs the true ring, the true daemon and the true session; the network, the disks and the
clock are simulated. Programs use `totempole.connect()` as ever: it reaches the daemon of the node that they
were started on. When the block is left, the run's trace is judged by the checkers, and a violation raises.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from totempole.testing.faults import Fault, draw
from totempole.testing.programs import Program
from totempole.testing.real_nodes import RealNodes
from totempole.testing.simulated_nodes import SimulatedNodes
from totempole.testing.trial import this_trial
from totempole.testing.virtual_loop import PLACE, VirtualLoop

P = ParamSpec("P")
T = TypeVar("T")

SETTLED_S_MAX = 30.0
QUIET_S = 0.2
"""So long nothing changes in a cluster that has settled."""
POLL_S = 0.02
ENDING_S_MAX = 15.0
"""So long a program may take to end that was cancelled."""


class Violated(AssertionError):
    """A property of the protocols did not hold: a defect of Totempole, not of the test."""


class Unsettled(AssertionError):
    """The cluster did not come to rest in time."""


class Nodes(Protocol):
    """What a cluster needs of its nodes. Their faults take effect at once."""

    storm_verbs: tuple[str, ...]
    """The faults that a storm may have."""

    async def open(self) -> None: ...

    def host(self, me: int) -> str: ...

    def socket(self, me: int) -> str: ...

    async def opened(self, me: int) -> None: ...

    def is_up(self, me: int) -> bool: ...

    def part(self, components: Sequence[Sequence[int]]) -> None: ...

    def heal(self) -> None: ...

    def crash(self, me: int) -> None: ...

    def leave(self, me: int) -> None: ...

    def restart(self, me: int) -> None: ...

    def pause(self, me: int) -> None: ...

    def resume(self, me: int) -> None: ...

    def loss(self, probability: float) -> None: ...

    def slow(self, me: int, factor: float) -> None: ...

    @property
    def now(self) -> float: ...

    def unsettled(self) -> str: ...

    def violations(self) -> str: ...

    def digest(self) -> str: ...

    def close(self) -> None: ...


class Cluster:
    """Made by `cluster`."""

    def __init__(self, nodes: Nodes, count: int, seed: int) -> None:
        self.seed = seed
        self.nodes = tuple(range(1, count + 1))
        self._nodes = nodes
        self._programs: list[Program[Any]] = []
        self._chores: dict[asyncio.Task[None], None] = {}
        self._told: list[str] = []
        """The faults so far."""

    # Programs

    @overload
    async def start(
        self,
        node: int,
        program: Callable[P, AbstractAsyncContextManager[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Program[T]: ...

    @overload
    async def start(
        self,
        node: int,
        program: Callable[P, Coroutine[Any, Any, Any]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Program[Any]: ...

    async def start(self, node: int, program: Any, /, *args: Any, **kwargs: Any) -> Program[Any]:
        """Starts a program on a node, once the node's daemon lets programs in.

        A program is a coroutine function, or a function that gives an asynchronous context manager: then it
        is entered, and `Program.value` is what that gave. It dies when its host crashes, and is started again
        when that is restarted.
        """
        self._check(node)
        started: Program[Any] = Program(
            node, partial(program, *args, **kwargs), self.host(node), self.socket(node)
        )
        await self._nodes.opened(node)
        self._programs.append(started)
        started.begin()
        await started.ready()
        return started

    def host(self, node: int) -> str:
        """The name of a node's host: a program may serve there, and the test connect to it."""
        self._check(node)
        return self._nodes.host(node)

    def socket(self, node: int) -> str:
        """Of the node's daemon: `totempole.connect(c.socket(1))`, for sessions of the test itself."""
        return self._nodes.socket(node)

    # Faults

    def part(self, *components: Sequence[int]) -> None:
        """Parts the network: `c.part([1], [2, 3])`. Nodes that are not named are together on a side of their
        own."""
        self._note("part", *components)
        self._nodes.part(components)

    def heal(self) -> None:
        """Ends the partition."""
        self._note("heal")
        self._nodes.heal()

    def crash(self, node: int) -> None:
        """The host of a node loses its power: its daemon and its programs are gone. Its disk stays."""
        self._note("crash", node)
        self._nodes.crash(node)
        for program in self._on(node):
            program.end()

    def crash_daemon(self, node: int) -> None:
        """kill -9 of a daemon. The node's programs live on, and come back to it when it is restarted."""
        self._note("crash_daemon", node)
        self._nodes.crash(node)

    def leave(self, node: int) -> None:
        """A daemon is told to end, as by SIGTERM: it sends what it was given, and leaves the ring. The node's
        programs live on, and come back to it when it is restarted."""
        self._note("leave", node)
        if self._nodes.is_up(node):
            self._nodes.leave(node)

    def restart(self, node: int) -> None:
        """Starts a daemon that is down, and then the programs that died with it."""
        self._note("restart", node)
        if not self._nodes.is_up(node):
            self._nodes.restart(node)
            self._do(self._revive(node))

    async def _revive(self, node: int) -> None:
        dead = [program for program in self._on(node) if program.is_dead]
        await self._nodes.opened(node)
        for program in dead:
            if program.is_dead:
                program.begin()

    def pause(self, node: int) -> None:
        """Stops a daemon where it stands, as by SIGSTOP. Its programs go on."""
        self._note("pause", node)
        self._nodes.pause(node)

    def resume(self, node: int) -> None:
        self._note("resume", node)
        self._nodes.resume(node)

    def loss(self, probability: float) -> None:
        """So many of all packets are lost; 0: none."""
        self._note("loss", probability)
        self._nodes.loss(probability)

    def slow(self, node: int, factor: float) -> None:
        """A daemon takes `factor` times as long for everything; 1: no longer than usual."""
        self._note("slow", node, factor)
        self._nodes.slow(node, factor)

    async def storm(self, seconds: float, *, down_max: int | None = None) -> None:
        """Random faults, drawn from the seed, each mended within the storm. At most `down_max` nodes are down
        or paused at a time; not given: a minority."""
        trial = this_trial()
        down_max = (len(self.nodes) - 1) // 2 if down_max is None else down_max
        source = random.Random(f"{self.seed}/storm {trial.storms}")
        drawn = draw(source, self.nodes, seconds, down_max, self._nodes.storm_verbs)
        faults = trial.storm(drawn)
        began = self.now
        await self._perform(faults)
        await self.sleep(max(0.0, began + seconds - self.now))

    async def play(self, *faults: Fault) -> None:
        """These faults, each at its time from now on. Returns when the last is mended."""
        await self._perform(faults)

    async def _perform(self, faults: Sequence[Fault]) -> None:
        began = self.now
        steps = [(fault.at, fault.strike) for fault in faults]
        steps += [(fault.at + fault.lasts, fault.mend) for fault in faults]
        for at, act in sorted(steps, key=lambda step: step[0]):
            await self.sleep(max(0.0, began + at - self.now))
            act(self)

    # Time

    @property
    def now(self) -> float:
        """Seconds since the start of the cluster."""
        return self._nodes.now

    async def sleep(self, seconds: float) -> None:
        """The same as `asyncio.sleep`."""
        await asyncio.sleep(seconds)

    async def settled(self, within: float = SETTLED_S_MAX) -> None:
        """Waits until all nodes that are up and hear each other are in one ring, and have sent what their
        programs gave them. Raises Unsettled."""
        began, quiet_since = self.now, self.now
        while self.now - quiet_since < QUIET_S or self._chores:
            problem = self._nodes.unsettled()
            if problem:
                quiet_since = self.now
            if self.now - began > within:
                raise Unsettled(f"after {within:g} s: {problem or 'programs have not started again'}")
            await asyncio.sleep(POLL_S)

    async def until(self, holds: Callable[[], object], within: float = SETTLED_S_MAX) -> None:
        """Waits until it holds: `await c.until(lambda: len(store.value.notes) == 3)`. Raises Unsettled."""
        began = self.now
        while not holds():
            if self.now - began > within:
                raise Unsettled(f"after {within:g} s it does not hold")
            await asyncio.sleep(POLL_S)

    # Within

    @property
    def digest(self) -> str:
        """Of the trace so far: two runs are the same exactly when their digests are equal."""
        return self._nodes.digest()

    def _check(self, node: int) -> None:
        if node not in self.nodes:
            raise ValueError(f"node {node}: this cluster has nodes 1 to {len(self.nodes)}")

    def _on(self, node: int) -> list[Program[Any]]:
        return [program for program in self._programs if program.node == node]

    def _note(self, verb: str, *arguments: object) -> None:
        for each in arguments:
            if verb != "loss" and isinstance(each, int):
                self._check(each)
                break
        self._told.append(f"{self.now:.3f} {verb}({', '.join(map(repr, arguments))})")

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        chore = asyncio.get_running_loop().create_task(work)
        self._chores[chore] = None
        chore.add_done_callback(lambda done: self._chores.pop(done, None))

    async def open(self) -> None:
        await self._nodes.open()
        await self.settled()  # the log is founded when all its replicas are there

    def judge(self) -> None:
        """Raises what a program has raised, and what the checkers have found."""
        for program in self._programs:
            failure = program.failure
            if failure is not None:
                failure.add_note(f"raised by {program!r}")
                raise failure
        violations = self._nodes.violations()
        if violations:
            raise Violated(violations)

    async def close(self) -> None:
        for chore in list(self._chores):
            chore.cancel()
        for program in self._programs:
            program.end()
        self._nodes.close()
        for program in self._programs:
            await program.ended(ENDING_S_MAX)

    def story(self) -> str:
        faults = "; ".join(self._told) or "none"
        return f"seed {self.seed}, {self.now:.3f} s after the start; faults: {faults}"


@asynccontextmanager
async def cluster(
    nodes: int = 3, *, seed: int | None = None, log: bool = True, real: bool | None = None
) -> AsyncIterator[Cluster]:
    """A cluster of `nodes` nodes, all up. `seed`: not given, that of the run (`run`, `seeds`); within `seeds`
    it must not be given. `log`: each node has a replica of the durable log, for `session.log` and
    `session.replica`. `real`: of `totem node` processes, in real time; not given: as the run is."""
    trial = this_trial()
    if trial.swept and seed is not None:
        raise ValueError(
            f"cluster(seed={seed}) would give each run of @seeds the same seed: leave seed= out here"
        )
    seed = trial.seed if seed is None else seed
    made = Cluster(_nodes(range(1, nodes + 1), seed, log, trial.real if real is None else real), nodes, seed)
    with _chance_of(seed), _silence_of_the_dead():
        try:
            await made.open()
            yield made
            made.judge()
        except BaseException as error:
            error.add_note(made.story())
            raise
        finally:
            await made.close()


def _nodes(numbers: Sequence[int], seed: int, log: bool, real: bool) -> Nodes:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        if real:
            return RealNodes(numbers)
        raise RuntimeError(
            "a simulated cluster needs an event loop in virtual time: run the test with "
            "`totempole.testing.run(test)`, or with pytest's plugin (docs/testing.md)"
        )
    if real:
        raise RuntimeError("a real cluster needs real time: `totempole.testing.run(test, real=True)`")
    return SimulatedNodes(numbers, seed, loop, log)


@contextmanager
def _chance_of(seed: int) -> Iterator[None]:
    """What programs draw with the module `random` comes from the seed, too."""
    before = random.getstate()
    random.seed(f"{seed}/programs")
    try:
        yield
    finally:
        random.setstate(before)


@contextmanager
def _silence_of_the_dead() -> Iterator[None]:
    """A program that has crashed logs nothing more."""

    def is_alive(_record: logging.LogRecord) -> bool:
        place = PLACE.get()
        return place is None or not place.is_over

    logger = logging.getLogger("totempole.client")
    logger.addFilter(is_alive)
    try:
        yield
    finally:
        logger.removeFilter(is_alive)
