"""Seeds of rings on several networks: the faults of `plan`, and those of RRP §3 on single networks.

On a network a processor cannot send, or cannot receive; some do not hear some others; nobody hears anybody;
one way, now and then, in part, or late. Two networks fail by halves. People drain and restore networks, or
wire two of them together. Recorded packets come on the wrong network.

`only_networks`: nothing but networks fails, and every two processors share one at any time. Then no
configuration changes; and the last fault, which stays, is named (`Alarmed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from totempole.errors import TotemError
from totempole.rrp.config import RedundancyConfig
from totempole.sim.conditions import Buffers, Condition, Lan
from totempole.sim.fuzz.circumstances import PLAIN, Circumstances
from totempole.sim.fuzz.plan import CALM_US, END_US, FIRST_FAULT_US, MS, SETTLE_US, Planner, S
from totempole.sim.fuzz.profiles import ALL, Profile
from totempole.sim.script import (
    Action,
    ExpectAlarm,
    ExpectSettled,
    Heal,
    OnInterface,
    OnLink,
    OnService,
    Partition,
    Scenario,
    ScenarioNetwork,
    SetCondition,
    Setting,
    Step,
    Traffic,
    Wire,
)
from totempole.sim.script_faults import Stray
from totempole.types import ProcessorId

ANY = "any"
STYLES = ("active", "passive", "active-passive", ANY)
NAMES = "abcdefg"

HELLO_US = 100 * MS
PROBATION_US = 300 * MS
"""Short, so that networks come back, and fail again, within seconds."""

UNBROKEN_FROM_US = 2 * S
"""By then all are on one ring, if nothing goes wrong."""
LAST_FAULT_US = 8 * S
LAST_END_US = 14 * S
"""The last fault stays for so long that even an idle ring must have named it."""
ALARM_US = 1_400 * MS
"""Within so long: a node's hellos are 3.5 times slower, and it has 5 s."""

DELAYS_US = ((100, 150), (200, 350), (300, 500), (400, 800))
"""A message comes before a token that takes two hops."""

SPEEDS = (Lan(), Lan(), Lan(), Lan(12_500_000), Lan(12_500_000, shared=True), Lan(40_000_000, shared=True))


@dataclass(frozen=True, slots=True)
class Ways:
    """What kind of ring is searched. 0 networks: two or three."""

    style: str = ANY
    networks: int = 0
    only_networks: bool = False

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise TotemError(f"style {self.style!r}: give one of {', '.join(STYLES)}")
        if not (self.networks == 0 or 2 <= self.networks <= 4):
            raise TotemError(f"{self.networks} networks: give 2, 3 or 4")
        if self.style == "active-passive" and self.networks == 2:
            raise TotemError("active-passive needs 3 networks or more")

    @property
    def name(self) -> str:
        """Of the search, in files that it resumes from."""
        kind = "only-networks" if self.only_networks else "networks"
        return (
            kind if self == Ways(only_networks=self.only_networks) else f"{kind}:{self.style}:{self.networks}"
        )

    @property
    def option(self) -> str:
        """What asks for it on the command line."""
        only = " --only-networks" if self.only_networks else ""
        return f" --networks {self.networks or ANY} --style {self.style}{only}"


def named(name: str) -> Ways | None:
    """The ways of that name."""
    kind, _, rest = name.partition(":")
    if kind not in ("networks", "only-networks"):
        return None
    style, _, count = rest.partition(":")
    return Ways(style or ANY, int(count or 0), kind == "only-networks")


def network_plan(ways: Ways, seed: int, profile: Profile = ALL) -> Scenario:
    planner = OnlyNetworks if ways.only_networks else NetworkPlanner
    return planner(seed, ways, profile).scenario()


class NetworkPlanner(Planner):
    PURPOSE = "networks"
    NAME = "networks"

    def __init__(self, seed: int, ways: Ways, profile: Profile = ALL) -> None:
        super().__init__(seed, profile)
        self.nets = random = Random(f"{self.PURPOSE}/{seed}/networks")
        style = random.choice(STYLES[:-1]) if ways.style == ANY else ways.style
        least = 3 if style == "active-passive" else 2
        count = ways.networks or random.choice((2, 2, 3))
        self.names = tuple(NAMES[: max(count, least)])
        self.redundancy = RedundancyConfig(
            style=style,
            copies=random.randint(2, len(self.names) - 1) if style == "active-passive" else 0,
            tokens=random.choice(("all", "all", "all", "one")),
            hello_us=HELLO_US,
            probation_us=PROBATION_US,
        )
        self._ways = ways

    def scenario(self) -> Scenario:
        planned = super().scenario()
        return Scenario(
            **{field: getattr(planned, field) for field in Scenario.__dataclass_fields__ if field not in OWN},
            networks=self._networks(planned),
            redundancy=self.redundancy,
        )

    def _name(self) -> str:
        return f"{self._ways.name.replace(':', '-')}-{self._seed}" + (
            "" if self._profile.whole else f"-{self._profile.name}"
        )

    def _networks(self, planned: Scenario) -> tuple[ScenarioNetwork, ...]:
        """Some are slower than others, or take smaller datagrams."""
        random = self.nets
        lans = [planned.lan if planned.lan != Lan() else random.choice(SPEEDS) for _ in self.names]
        found = []
        for name, lan in zip(self.names, lans, strict=True):
            later_us = random.choice((0, 0, 0, 200, 800))
            least_us, most_us = self._delay_us
            condition = Condition(delay_us=(least_us + later_us, most_us + later_us)) if later_us else None
            segment_bytes = random.choice((0, 0, 0, 600, 1_400, 9_000))
            found.append(ScenarioNetwork(name, lan, condition, segment_bytes, random.choice((1, 1, 1, 3))))
        return tuple(found)

    # What goes wrong

    def _plan_faults(self) -> None:
        super()._plan_faults()
        if not self._profile.whole:
            return
        at_us = FIRST_FAULT_US
        for _ in range(self.nets.randint(3, 9)):
            at_us += self.nets.randint(10 * MS, 1_200 * MS)
            if at_us >= CALM_US - 200 * MS:
                break
            self.nets.choice(NETWORK_FAULTS)(self, at_us, self.nets.choice(self.names))

    def on_network(self, at_us: int, action: Action) -> None:
        """Whatever else may go wrong."""
        self._steps.append(Step(min(at_us, CALM_US), action))

    def heal_later(self, at_us: int, network: str) -> None:
        lasts_us = self.nets.choice((50, 200, 600, 1_500, 3_000)) * MS
        self.on_network(at_us + self.nets.randint(lasts_us // 2, lasts_us), Heal(network))

    def one(self) -> ProcessorId:
        return self.nets.choice(self.everyone)

    def some(self) -> list[ProcessorId]:
        return self.nets.sample(self.everyone, self.nets.randint(1, len(self.everyone)))

    def condition_later(self, at_us: int, network: str) -> None:
        ends_us = min(CALM_US, at_us + self.nets.randint(100 * MS, 2 * S))
        self.on_network(ends_us, SetCondition(self._clean(), network=network))

    def rough(self) -> Condition:
        random = self.nets
        return Condition(
            loss=random.choice((0.05, 0.2, 0.5, 1.0)),
            duplicate=random.choice((0.0, 0.2)),
            reorder=random.choice((0.0, 0.3)),
            corrupt=random.choice((0.0, 0.01)),
            delay_us=self._delay_us,
        )


def cannot_send(plan: NetworkPlanner, at_us: int, network: str) -> None:
    plan.on_network(at_us, OnInterface("mute", plan.one(), network))
    plan.heal_later(at_us, network)


def cannot_receive(plan: NetworkPlanner, at_us: int, network: str) -> None:
    plan.on_network(at_us, OnInterface("deafen", plan.one(), network))
    plan.heal_later(at_us, network)


def some_to_some(plan: NetworkPlanner, at_us: int, network: str) -> None:
    """RRP §3: from a subset to a subset, which may overlap."""
    sources, targets = plan.some(), plan.some()
    for source in sources:
        for target in targets:
            if source != target:
                plan.on_network(at_us, OnLink("cut", source, target, network))
    plan.heal_later(at_us, network)


def split(plan: NetworkPlanner, at_us: int, network: str) -> None:
    side = tuple(sorted(plan.some()))
    plan.on_network(at_us, Partition((side,), plan.nets.random() < 0.3, network))
    plan.heal_later(at_us, network)


def all_of_it(plan: NetworkPlanner, at_us: int, network: str) -> None:
    plan.on_network(at_us, Partition(tuple((me,) for me in plan.everyone), False, network))
    plan.heal_later(at_us, network)


def now_and_then(plan: NetworkPlanner, at_us: int, network: str) -> None:
    for _ in range(plan.nets.randint(2, 8)):
        plan.on_network(at_us, Partition(tuple((me,) for me in plan.everyone), False, network))
        at_us += plan.nets.randint(5 * MS, 200 * MS)
        plan.on_network(at_us, Heal(network))
        at_us += plan.nets.randint(5 * MS, 200 * MS)


def in_part(plan: NetworkPlanner, at_us: int, network: str) -> None:
    random = plan.nets
    source = plan.one() if random.random() < 0.3 else None
    target = plan.one() if random.random() < 0.3 else None
    plan.on_network(at_us, SetCondition(plan.rough(), source, target, network))
    plan.condition_later(at_us, network)


def late(plan: NetworkPlanner, at_us: int, network: str) -> None:
    delay_us = plan.nets.choice(((1 * MS, 2 * MS), (4 * MS, 6 * MS), (20 * MS, 60 * MS)))
    plan.on_network(at_us, SetCondition(Condition(delay_us=delay_us), network=network))
    plan.condition_later(at_us, network)


def by_halves(plan: NetworkPlanner, at_us: int, network: str) -> None:
    """Two networks lose different pairs."""
    other = next(name for name in plan.names if name != network)
    pairs = [(one, two) for one in plan.everyone for two in plan.everyone if one < two]
    for pair in pairs:
        chosen = plan.nets.choice((network, other, ""))
        if chosen:
            for source, target in (pair, pair[::-1]):
                plan.on_network(at_us, OnLink("cut", source, target, chosen))
    plan.heal_later(at_us, network)
    plan.heal_later(at_us, other)


def drained(plan: NetworkPlanner, at_us: int, network: str) -> None:
    plan.on_network(at_us, OnService("drain", network, plan.one()))
    plan.on_network(at_us + plan.nets.randint(1, 1_500) * MS, OnService("restore", network, plan.one()))


def wired(plan: NetworkPlanner, at_us: int, network: str) -> None:
    other = plan.nets.choice([name for name in plan.names if name != network])
    plan.on_network(at_us, Wire(network, other))
    plan.heal_later(at_us, network)


def recorded(plan: NetworkPlanner, at_us: int, network: str) -> None:
    """Copies that come again, later, on this network, wherever they went first."""
    random = plan.nets
    kind = random.choice(("token", "message", "hello", "hello", "join"))
    source = random.choice((None, plan.one()))
    after_us = random.choice((0, random.randint(1, 50), random.randint(50, 2_000))) * MS
    plan.on_network(at_us, Stray("replay", kind, source, None, random.choice((1, 5, 20)), after_us, network))


Injector = Callable[[NetworkPlanner, int, str], None]

NETWORK_FAULTS: tuple[Injector, ...] = (
    cannot_send,
    cannot_receive,
    some_to_some,
    split,
    all_of_it,
    all_of_it,
    now_and_then,
    in_part,
    in_part,
    late,
    by_halves,
    drained,
    wired,
    recorded,
    recorded,
)

HARMLESS: tuple[Injector, ...] = (
    cannot_send,
    cannot_receive,
    some_to_some,
    split,
    all_of_it,
    now_and_then,
    in_part,
    late,
    by_halves,
    recorded,
)
"""After which every two processors still share a network, if one fault is over before the next begins."""


class OnlyNetworks(NetworkPlanner):
    """One fault after the other, each on one network or by halves; the last one stays."""

    PURPOSE = "only-networks"

    def __init__(self, seed: int, ways: Ways, profile: Profile = ALL) -> None:
        super().__init__(seed, ways, profile)
        sealed = self.around.sealed
        self.around = Circumstances(PLAIN, sealed, False, Profile("none", "nothing else", frozenset()))
        self._delay_us = Random(f"{self.PURPOSE}/{seed}/delay").choice(DELAYS_US)
        count = self.nets.choice((2, 3, 3, 4, 4, 5, 6))
        self.everyone = tuple(range(1, count + 1))
        self._end_us = END_US
        self._idle_us = 0

    def scenario(self) -> Scenario:
        # What overflows in a processor is no network's fault.
        return replace(super().scenario(), buffers=Buffers(), end_us=LAST_END_US)

    def _settings(self) -> tuple[Setting, ...]:
        """Ordinary ones: rings with hardly any room for a delay may break for other reasons."""
        kept = ("ring_kind", "each_time_packets", "window_packets", "accelerated_window", "segment_bytes")
        settings = [setting for setting in super()._settings() if setting.field in kept]
        return (*settings, Setting("null_us", 250 * MS))

    def _plan_faults(self) -> None:
        random = self.nets
        at_us = UNBROKEN_FROM_US if self._profile.whole else CALM_US
        while at_us < CALM_US - 500 * MS:
            random.choice(HARMLESS)(self, at_us, random.choice(self.names))
            last_us = max(step.at_us for step in self._steps)
            mended_us = min(CALM_US, max(at_us, last_us) + random.randint(0, 50) * MS)
            for name in self.names:
                self.on_network(mended_us, Heal(name))
                self.on_network(mended_us, SetCondition(self._clean(), network=name))
            at_us = mended_us + random.randint(50 * MS, 1_500 * MS)

    def _plan_lag(self) -> None: ...

    def _plan_adjustments(self) -> None: ...

    def _plan_numbers(self) -> None: ...

    def _plan_calm(self) -> None:
        """A last fault, which stays, on a ring that works or rests."""
        if not self._profile.whole:
            self._steps.append(Step(LAST_END_US, ExpectSettled(SETTLE_US)))
            return
        network = self.nets.choice(self.names)
        actions, says = self._lasting(network)
        self._steps += [Step(LAST_FAULT_US, action) for action in actions]
        if self.nets.random() < 0.5:
            for me in self.everyone:
                until_us = LAST_END_US - S
                self._steps.append(Step(LAST_FAULT_US - S, Traffic(me, 50.0, 300, 0.3, until_us)))
        alarm = ExpectAlarm(network, says, LAST_FAULT_US, ALARM_US)
        self._steps += [Step(LAST_END_US, alarm), Step(LAST_END_US, ExpectSettled(SETTLE_US))]

    def _lasting(self, network: str) -> tuple[list[Action], str]:
        """A fault of RRP §3, and what must be said of it."""
        random, everyone = self.nets, self.everyone
        one, other = random.sample(everyone, 2)
        kinds = ["all", "path"] if len(everyone) == 2 else ["all", "send", "receive", "path", "split"]
        match random.choice(kinds):
            case "send":
                return [OnInterface("mute", one, network)], f"{one} cannot send"
            case "receive":
                return [OnInterface("deafen", one, network)], f"{one} cannot receive"
            case "path":
                return [OnLink("cut", one, other, network)], f"{other} does not hear {one}"
            case "split":
                side = sorted(random.sample(everyone, random.randint(1, len(everyone) // 2)))
                rest = [me for me in everyone if me not in side]
                parted = Partition((tuple(side),), False, network)
                if len(side) == 1:
                    return [parted], f"{side[0]} cannot send or receive"
                sides = sorted((side, rest))
                return [parted], "split into " + " and ".join(", ".join(map(str, each)) for each in sides)
            case _:
                nobody = Partition(tuple((me,) for me in everyone), False, network)
                return [nobody], "nobody hears anybody"


OWN = frozenset({"networks", "redundancy"})
