"""One ring of a paper's machines, formed and ready."""

from __future__ import annotations

from collections.abc import Iterable

from totempole.errors import TotemError
from totempole.sim.conditions import Condition, DiskSpeed
from totempole.sim.load import Arrivals, Saturation
from totempole.sim.paper.machines import CABLE, MS, Machine, S
from totempole.sim.stacks import RealStack
from totempole.sim.world import World
from totempole.srp import RingConfig
from totempole.srp.engine import SingleRing
from totempole.srp.states import State
from totempole.stack import ProcessorStack
from totempole.types import ProcessorId, RingId

FORMING_MAX_US = 10 * S
STEP_US = 10 * MS
DRAIN_MAX_US = 60 * S


class PaperRing:
    """Formed on construction."""

    def __init__(
        self,
        machine: Machine,
        seed: int,
        config: RingConfig | None = None,
        *,
        processors: int | None = None,
        condition: Condition = CABLE,
        level: str = "delivery",
        networks: int = 1,
        stack: RealStack | None = None,
    ) -> None:
        self.machine = machine
        self.world = World(
            seed,
            processors or machine.processors,
            config or machine.config(),
            condition=condition,
            lans=(machine.lan,) * networks,
            stack=stack or RealStack(),
            costs=machine.costs,
            disk=DiskSpeed(latency_us=(machine.disk_us, machine.disk_us)),
            level=level,
        )
        self.world.start()
        self.world.run_for(STEP_US)
        self._run_until_whole()

    def _run_until_whole(self) -> None:
        while not self.is_whole:
            if self.world.now_us > FORMING_MAX_US:
                raise TotemError(f"{self.machine.name}, seed {self.world.seed}: no ring after 10 s")
            self.world.run_for(STEP_US)

    @property
    def rings(self) -> set[RingId]:
        """The rings that the living are on; empty unless each is on one."""
        machines = [self._engine(me).machine for me in self.alive]
        if any(machine.state is not State.OPERATIONAL for machine in machines):
            return set()
        return {machine.installed.ring_id for machine in machines}

    @property
    def is_whole(self) -> bool:
        return len(self.rings) == 1

    @property
    def alive(self) -> list[ProcessorId]:
        return [me for me, host in self.world.hosts.items() if host.alive]

    def _engine(self, me: ProcessorId) -> SingleRing:
        stack = self.world.hosts[me].stack
        assert isinstance(stack, ProcessorStack)
        return stack.ring

    # Traffic

    def saturate(self, size: int, senders: Iterable[ProcessorId] | None = None) -> None:
        """All, or these, send all that they can."""
        for me in self.world.hosts if senders is None else senders:
            Saturation(self.world, me, size=size).start()

    def arrive(self, rate_per_s: float, size: int, *, poisson: bool, safe: bool, until_us: int) -> None:
        """Messages at a rate, of all together.

        Evenly spaced ones begin at an instant of each sender's own, as eight machines would: begun together,
        they would come in bunches of eight.
        """
        world = self.world
        each_per_s = rate_per_s / len(world.hosts)
        phases = world.random("phases")
        for me in world.hosts:
            arrivals = Arrivals(
                world, me, each_per_s, poisson=poisson, size=size, safe=float(safe), until_us=until_us
            )
            phase_us = 0 if poisson else int(phases.random() * S / each_per_s)
            world.scheduler.at(world.now_us + phase_us, arrivals.start)

    def drain(self, count: int) -> None:
        """Until all have delivered so many messages."""
        stop_us = self.world.now_us + DRAIN_MAX_US
        while any(host.delivered < count for host in self.world.hosts.values()):
            if self.world.now_us > stop_us:
                raise TotemError(f"{self.machine.name}, seed {self.world.seed}: undelivered after 60 s")
            self.world.run_for(STEP_US)
