"""A whole simulated cluster from one seed: scheduler, medium, hosts, trace; and the hand that breaks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from totempole.core.inputs import Narrowed
from totempole.networks.commands import Drain, Restore
from totempole.sim.clock import Scheduler
from totempole.sim.conditions import Buffers, Condition, Costs, DiskSpeed, Lan, Range
from totempole.sim.contract import SansIo, StackFactory
from totempole.sim.disk import WIPED, Damage, Disk, Fate
from totempole.sim.drift import LocalClock
from totempole.sim.host import Host, Surroundings
from totempole.sim.log_disk import LogDisk
from totempole.sim.medium import Medium
from totempole.sim.packet_filter import STRAY_FATES, DropRule, StrayRule
from totempole.sim.rollback import Rollback
from totempole.sim.stacks import Keys, RealStack, keyring
from totempole.srp.commands import Rekey
from totempole.srp.config import RingConfig
from totempole.stack import ProcessorStack
from totempole.trace.layers.node import DROPPED
from totempole.trace.recorder import Recorder
from totempole.trace.schema import LEVELS, Row
from totempole.trace.told import told
from totempole.types import ProcessorId, Service

Components = Iterable[Iterable[ProcessorId]]


@dataclass(slots=True)
class Ambush:
    """Something to do, once, at the next state or branch of the trace that says so."""

    says: str
    strike: Callable[[], None]
    by: ProcessorId | None = None
    skip: int = 0

    def meets(self, row: Row) -> bool:
        if self.says not in told(row) or self.by not in (None, row.node):
            return False
        self.skip -= 1
        return self.skip < 0


class World:
    """Hosts do not run before `start`. Everything random comes from `seed`."""

    def __init__(
        self,
        seed: int,
        processors: int | Iterable[ProcessorId],
        config: RingConfig | Mapping[ProcessorId, RingConfig] | None = None,
        *,
        condition: Condition | None = None,
        lans: Sequence[Lan] = (Lan(),),
        conditions: Sequence[Condition | None] = (),
        networks: Sequence[str] = (),
        costs: Costs | None = None,
        buffers: Buffers | None = None,
        disk: DiskSpeed | None = None,
        drift_ppm_max: int = 0,
        clock_offset_us_max: int = 0,
        level: str = "delivery",
        run: str = "",
        names: Mapping[ProcessorId, str] | None = None,
        record_inputs: bool = False,
        stack: StackFactory | None = None,
        keys: Keys | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        """`conditions`: of networks that have another than `condition`; `networks`: their names; `scheduler`:
        that of others with whom the world shares its time."""
        ids = range(1, processors + 1) if isinstance(processors, int) else sorted(processors)
        self.seed = seed
        self.run = run or f"seed-{seed}"
        self.rows: list[Row] = []
        self.faults: Counter[str] = Counter()
        self.scheduler = Scheduler() if scheduler is None else scheduler
        self.names = dict(names or {})
        self.networks = tuple(networks)
        self.resumed_with_token: Callable[[ProcessorId], None] = lambda _me: None
        """Told when a processor goes on for which a token has come while it was paused."""
        self._keys = keys
        """Those that `stack` uses, where it has a seal."""
        self._level = level
        self._ambushes: list[Ambush] = []
        self.recorder = Recorder(self.run, 0, level, self._keep)
        """For what no processor does."""
        self.medium = Medium(
            self.scheduler,
            self.random("medium"),
            condition=condition,
            lans=lans,
            conditions=conditions,
            report=self._report,
        )
        self.around = Surroundings(
            seed,
            self.scheduler,
            self.medium,
            stack or RealStack(),
            costs or Costs(),
            buffers or Buffers(),
            LEVELS[level],
            record_inputs,
            {me: name for me, name in self.names.items() if name != str(me)},
        )
        clocks = self.random("clocks")
        self.hosts: dict[ProcessorId, Host] = {}
        self.doubles: dict[ProcessorId, Host] = {}
        """The other hosts of numbers that two have used."""
        self._last_address = 0
        self._rolled_back: set[ProcessorId] = set()
        """Whose start has just found an old copy of the disk."""
        self._rollbacks: list[tuple[Row, Host, int, dict[ProcessorId, int]]] = []
        for me in ids:
            clock = LocalClock(
                clocks.randint(0, clock_offset_us_max), clocks.randint(-drift_ppm_max, drift_ppm_max)
            )
            self._add(me, _config_of(config, me), disk or DiskSpeed(), clock)

    def _add(self, me: ProcessorId, config: RingConfig, speed: DiskSpeed, clock: LocalClock) -> None:
        recorder = Recorder(self.run, me, self._level, self._keep)
        disk = Disk(self.scheduler, self.random(f"disk {me}"), speed)
        disk.report = lambda damage: self._on_damage(me, damage)
        self.hosts[me] = host = Host(me, config, self.around, recorder, disk, clock)
        host.report_cut = lambda after: self._fault("crash-within", f"{self._name(me)} after={after}", me)
        self.medium.attach(me, host)
        if isinstance(self.around.stack, RealStack) and self.around.stack.log is not None:
            host.log_disk = LogDisk(self.scheduler, self.random(f"log disk {me}"), speed)
            host.log_disk.failed = host.close_log
            host.log_disk.report = lambda fate: self._fault("log disk", f"{self._name(me)} {fate}", me)

    def log_fault(self, me: ProcessorId, verb: str) -> None:
        """Of the disk that a log is on."""
        self._fault("log disk " + verb, self._name(me), me)

    def random(self, purpose: str) -> Random:
        """A generator of its own for each purpose, so that one does not disturb another."""
        return Random(f"{self.seed}/{purpose}")

    # Time

    @property
    def now_us(self) -> int:
        return self.scheduler.now_us

    def run_until(self, until_us: int) -> None:
        self.scheduler.run_until(until_us)

    def run_for(self, duration_us: int) -> None:
        self.scheduler.run_until(self.scheduler.now_us + duration_us)

    # What has happened

    @property
    def packet_events(self) -> int:
        """Datagram receptions processed by all processors."""
        return sum(host.packet_events for host in self.hosts.values())

    @property
    def counters(self) -> Counter[str]:
        """The fates of datagrams: sent, delivered, lost, cut, duplicated, reordered, delayed, overflowed…"""
        counters = self.medium.counters.copy()
        counters["delivered"] = self.packet_events
        counters["torn_writes"] = sum(host.disk.torn_writes for host in self.hosts.values())
        return counters

    # Processors

    def start(self, processors: Iterable[ProcessorId] | None = None, spread_us: int = 1_000) -> None:
        """First start of all, or of some, each at an instant of its own within `spread_us`."""
        random = self.random("start")
        for me in sorted(self.hosts if processors is None else processors):
            self.scheduler.at(self.now_us + random.randint(0, spread_us), self._start, me)

    def _start(self, me: ProcessorId) -> None:
        if not self.hosts[me].alive:
            self.hosts[me].start()
            if me in self._rolled_back:
                self._note_rollback(me)

    def crash(self, me: ProcessorId, fate: Fate | None = None) -> None:
        if self.hosts[me].alive:
            self._fault("crash", self._name(me), me)
            self.hosts[me].crash(fate)

    def restart(self, me: ProcessorId) -> None:
        if not self.hosts[me].alive:
            self._fault("restart", self._name(me), me)
            self._start(me)

    def pause(self, me: ProcessorId) -> None:
        self._fault("pause", self._name(me), me)
        self.hosts[me].pause()

    def resume(self, me: ProcessorId) -> None:
        self._fault("resume", self._name(me), me)
        if self.hosts[me].paused and self.hosts[me].has_token_waiting:
            self.resumed_with_token(me)
        self.hosts[me].resume()

    def slow(self, me: ProcessorId, factor: float) -> None:
        """Everything takes `factor` times as long; 1 is normal again."""
        self._fault("slow", f"{self._name(me)} {factor:g}", me)
        self.hosts[me].slow = factor

    def submit(self, me: ProcessorId, payload: bytes, service: Service = Service.AGREED) -> bool:
        """False when the processor is down, frozen or pushing back."""
        return self.hosts[me].submit(payload, service)

    def leave(self, me: ProcessorId) -> None:
        self._fault("leave", self._name(me), me)
        self.hosts[me].leave()

    def retire(self, me: ProcessorId) -> None:
        """A graceful leave as the runtime does it: programs' messages go first."""
        if self.hosts[me].alive:
            self._fault("retire", self._name(me), me)
            self.hosts[me].retire()

    def crash_within(self, me: ProcessorId, after: int) -> None:
        """The fault is noted when it strikes."""
        self.hosts[me].crash_within(after)

    def limit_segments(self, me: ProcessorId, segment_bytes: int, network: int | None = None) -> None:
        self._fault("segments", f"{self._name(me)} {segment_bytes}", me, network)
        for number in range(self.medium.networks) if network is None else (network,):
            self.hosts[me].adjust(Narrowed(number, segment_bytes))

    def set_keys(self, me: ProcessorId, keys: tuple[int, ...]) -> None:
        assert self._keys is not None, "a world without a seal has no keys"
        self._fault("keys", f"{self._name(me)} {' '.join(map(str, keys))}", me)
        self._keys.changed[me] = keys
        for host in self.nodes(me):
            host.adjust(Rekey(keyring(keys)))

    # Addresses and numbers

    def move(self, me: ProcessorId) -> None:
        """It has another address from now on; whether it is up or not."""
        self._fault("move", self._name(me), me)
        host = self.hosts[me]
        old, host.address = host.address, self._new_address()
        self.medium.move(old, host.address)

    def _new_address(self) -> int:
        """Below all that processors have as their numbers."""
        self._last_address -= 1
        return self._last_address

    def double(self, me: ProcessorId) -> None:
        """Another node is started with this number, on a new disk, at another address."""
        double = self.doubles.get(me) or self._add_double(me)
        if not double.alive:
            self._fault("double", self._name(me), me)
            double.disk.damage(WIPED)
            double.start(listen_us=double.config.null_us * 6 // 5)

    def single(self, me: ProcessorId) -> None:
        """The double is switched off, if it is still up."""
        double = self.doubles.get(me)
        if double is not None and double.alive:
            self._fault("single", self._name(me), me)
            double.crash()

    def _add_double(self, me: ProcessorId) -> Host:
        first = self.hosts[me]
        steps = first.recorder

        def keep(row: Row) -> None:
            # A step is the number's own, whoever of the two makes it.
            steps.step += 1
            self._keep(row._replace(step=steps.step))

        random = self.random(f"double {me}")
        # Faults of the first disk are not faults of this one, and nothing would mend it.
        disk = Disk(self.scheduler, random, first.disk.healthy_speed)
        recorder = Recorder(self.run, me, self._level, keep)
        double = Host(me, first.config, self.around, recorder, disk, first.clock)
        double.address = self._new_address()
        double.gave_way = first.gave_way = self.settle_doubles
        self.doubles[me] = double
        self.medium.attach(me, double, double.address)
        return double

    def nodes(self, me: ProcessorId) -> list[Host]:
        """All who have this number, up or not."""
        double = self.doubles.get(me)
        return [self.hosts[me]] if double is None else [self.hosts[me], double]

    def settle_doubles(self) -> None:
        """Where only the double of a processor is left, it is the processor from now on."""
        for me, double in self.doubles.items():
            if double.alive and not self.hosts[me].alive:
                self.hosts[me], self.doubles[me] = double, self.hosts[me]

    # Disks

    def damage_disk(self, me: ProcessorId, damage: Damage) -> None:
        """The fault is noted when a start finds it."""
        self.hosts[me].disk.damage(damage)

    def slow_disk(self, me: ProcessorId, latency_us: Range) -> None:
        self._on_disk(me, "slow")
        self.hosts[me].disk.slow(latency_us)

    def stick_disk(self, me: ProcessorId) -> None:
        self._on_disk(me, "stick")
        self.hosts[me].disk.stick()

    def mend_disk(self, me: ProcessorId) -> None:
        self._on_disk(me, "mend")
        self.hosts[me].disk.mend()

    def _on_damage(self, me: ProcessorId, damage: Damage) -> None:
        self._on_disk(me, *_damage_text(damage))
        if damage.records:
            self._rolled_back.add(me)

    def _note_rollback(self, me: ProcessorId) -> None:
        """Who remembers better now is known from the protocol objects alone."""
        self._rolled_back.discard(me)
        host = self.hosts[me]
        start = next(row for row in reversed(self.rows) if row.node == me and row.kind == "restart")
        witnesses = {
            other: there.recorder.incarnation
            for other, there in sorted(self.hosts.items())
            if other != me and _remembered(there.stack, me) > start.incarnation
        }
        self._rollbacks.append((start, host, host.life, witnesses))

    @property
    def rollbacks(self) -> list[Rollback]:
        """Starts from old copies of disks, as they look now."""
        return [
            Rollback(start, witnesses, host.alive and host.life == life)
            for start, host, life, witnesses in self._rollbacks
        ]

    def _on_disk(self, me: ProcessorId, *words: str) -> None:
        self._fault("disk", " ".join((self._name(me), *words)), me)
        self.faults[f"disk {words[0]}"] += 1

    # The networks: all of them, or the one whose number is given

    def partition(self, components: Components, network: int | None = None, sharp: bool = False) -> None:
        """Part these components; processors not named form one more component together. A sharp partition
        loses what is under way too."""
        parts = [sorted(members) for members in components]
        shown = [*(f"({self._list(members)})" for members in parts), *(["sharp"] if sharp else [])]
        self._fault("partition", " ".join(shown), network=network)
        self.medium.partition(parts, network, sharp)

    def heal(self, network: int | None = None) -> None:
        """End all partitions and cuts; what was still to be dropped or to go astray, every ambush and every
        crash between effects is called off. Of one network: its partitions and cuts, and what was meant for
        it alone."""
        self._fault("heal", network=network)
        if network is None:
            self._ambushes.clear()
            for host in self.hosts.values():
                host.crash_within(None)
        self.medium.heal(network)

    def cut(self, source: ProcessorId, target: ProcessorId, network: int | None = None) -> None:
        self._fault("cut", self._list((source, target)), network=network)
        self.medium.cut(source, target, network)

    def sever(self, source: ProcessorId, target: ProcessorId, network: int | None = None) -> None:
        """A cut that `heal` does not end."""
        self._fault("sever", self._list((source, target)), network=network)
        self.medium.sever(source, target, network)

    def mend(self, source: ProcessorId, target: ProcessorId, network: int | None = None) -> None:
        self._fault("mend", self._list((source, target)), network=network)
        self.medium.mend(source, target, network)

    def mute(self, me: ProcessorId, network: int | None = None) -> None:
        """Nobody hears it."""
        self._fault("mute", self._name(me), me, network)
        for other in self._others(me):
            self.medium.cut(me, other, network)

    def deafen(self, me: ProcessorId, network: int | None = None) -> None:
        """It hears nobody."""
        self._fault("deafen", self._name(me), me, network)
        for other in self._others(me):
            self.medium.cut(other, me, network)

    def cure(self, me: ProcessorId, network: int | None = None) -> None:
        """It can send and receive again."""
        self._fault("cure", self._name(me), me, network)
        for other in self._others(me):
            self.medium.mend(me, other, network)
            self.medium.mend(other, me, network)

    def wire(self, one: int, other: int) -> None:
        """Two networks are joined by mistake: what is sent on one comes on both, until `heal`."""
        self._fault("wire", f"{self._network_name(one)} {self._network_name(other)}", network=one)
        self.medium.wire(one, other)

    def drain(self, me: ProcessorId, network: int) -> None:
        """Somebody asks it to take a network out of service; it may refuse."""
        self._fault("drain", f"{self._network_name(network)} by {self._name(me)}", me, network)
        self.hosts[me].adjust(Drain(network))

    def restore(self, me: ProcessorId, network: int) -> None:
        self._fault("restore", f"{self._network_name(network)} by {self._name(me)}", me, network)
        self.hosts[me].adjust(Restore(network))

    def set_condition(
        self,
        condition: Condition,
        source: ProcessorId | None = None,
        target: ProcessorId | None = None,
        network: int | None = None,
    ) -> None:
        shown = [f"{name}={_shown(getattr(condition, name))}" for name in _changed(condition)]
        ends = [self._name(end) if end else "all" for end in (source, target)]
        self._fault("condition", " ".join([*shown, f"from {ends[0]} to {ends[1]}"]), network=network)
        self.medium.set_condition(condition, source, target, network)

    def drop_next(self, rule: DropRule) -> None:
        source = "all" if rule.source is None else self._name(rule.source)
        to = "" if rule.to is None else f" to {self._name(rule.to)}"
        detail = f"{rule.kind} from {source}{to} count={rule.count}"
        self._fault("drop-next", detail, network=rule.network)
        self.medium.drop_next(rule)

    def lead_astray(self, rule: StrayRule) -> None:
        """The fault is noted when such a packet has come."""
        self.medium.lead_astray(rule)

    def _others(self, me: ProcessorId) -> list[ProcessorId]:
        return [other for other in self.hosts if other != me]

    def _network_name(self, network: int) -> str:
        return self.networks[network] if self.networks else str(network + 1)

    # Ambushes

    def ambush(self, ambush: Ambush, again: bool = False) -> None:
        """`again`: another ambush has led to it."""
        self._fault("ambush", f"at {ambush.says!r}")
        self.faults["ambush after an ambush"] += again
        self._ambushes.append(ambush)

    def _keep(self, row: Row) -> None:
        self.rows.append(row)
        if self._ambushes and row.kind in ("state", "branch", "phase"):
            for ambush in [each for each in self._ambushes if each.meets(row)]:
                self._ambushes.remove(ambush)
                # Not now: the processor is in the middle of an input.
                self.scheduler.at(self.now_us, ambush.strike)

    def _report(self, source: ProcessorId, rule: DropRule | StrayRule) -> None:
        to = "" if rule.to is None else f" to {self._name(rule.to)}"
        fate = DROPPED if isinstance(rule, DropRule) else STRAY_FATES[rule.fate]
        detail = f"{rule.kind} from {self._name(source)}{to}"
        on = 0 if rule.network is None else rule.network + 1
        self.recorder.record(self.now_us, "fault", reason=fate, detail=detail, network=on)

    def _fault(self, name: str, detail: str = "", node: ProcessorId = 0, network: int | None = None) -> None:
        self.faults[name] += 1
        recorder = self.hosts[node].recorder if node else self.recorder
        on = 0 if network is None else network + 1
        recorder.record(self.now_us, "fault", reason=name, detail=detail.rstrip(), network=on)

    def _name(self, me: ProcessorId) -> str:
        return self.names.get(me) or str(me)

    def _list(self, members: Iterable[ProcessorId]) -> str:
        return " ".join(self._name(member) for member in members)


def _remembered(stack: SansIo | None, processor: ProcessorId) -> int:
    """The latest life of the processor that a protocol object remembers."""
    return stack.ring.life_of(processor) if isinstance(stack, ProcessorStack) else 0


def _config_of(config: RingConfig | Mapping[ProcessorId, RingConfig] | None, me: ProcessorId) -> RingConfig:
    if config is None:
        return RingConfig()
    return config if isinstance(config, RingConfig) else config[me]


def _damage_text(damage: Damage) -> tuple[str, ...]:
    if damage == WIPED:
        return ("wipe",)
    return ("rollback", str(damage.records)) if damage.records else ("lose", *damage.lost)


def _changed(condition: Condition) -> list[str]:
    plain = Condition()
    return [name for name in Condition.__slots__ if getattr(condition, name) != getattr(plain, name)]


def _shown(value: object) -> str:
    return f"{value[0]}..{value[1]}" if isinstance(value, tuple) else f"{value:g}"
