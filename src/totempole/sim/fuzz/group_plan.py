"""One seed, one scenario with process groups: the ring's faults, and programs that come, go, crash and stall.

Every program has a life of its own drawn from the seed; some of what they do waits for the worst moments of
the group layer, while processors exchange their tables. Once the faults have stopped, all programs that run
take events again and show that they can still send and join.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from totempole.groups import GroupConfig
from totempole.groups.body import HEAD_BYTES, RUN_BYTES
from totempole.groups.packing import OVERHEAD_MAX, pack_names
from totempole.sim.fuzz.circumstances import SLOW_LAN
from totempole.sim.fuzz.plan import CALM_US, FIRST_FAULT_US, MS, Planner, S
from totempole.sim.fuzz.profiles import ALL, Profile
from totempole.sim.script import (
    Ambush,
    Heal,
    JoinGroup,
    Multicast,
    OnProcess,
    OnProcessor,
    Partition,
    ProcessAction,
    QuitGroup,
    Scenario,
    Setting,
    When,
)
from totempole.types import ProcessorId, Service

GROUPS = ("orders", "stock", "prices", "büro", "a" * 60)
PACKET_BYTES = (512, 600, 1_000, 1_500, 4_000, 60_000)
WHOLE_PACKET_BYTES = 440_000
"""Seven bursts: what a ring sends by default, and here on a slow LAN."""
LARGE_BYTES_MAX = 300_000
LARGE_BYTES_MAX_ON_LAN = 1_000_000
LARGE_PACKETS_MAX = 40
MESSAGE_BYTES_LEAST = 20_000
"""Four of the small ones together have less."""
PROGRAMS_MAX = 7
PACKETS_MAX = 50
"""Roughly what one processor's programs send before the calm, in packets, at one a visit."""

WORST_MOMENTS = (
    "exchange begins",
    "exchange begins",
    "exchange ends",
    "exchange abandoned",
    "sent again",
    "recover>operational",
    "operational>gather",
)


def group_plan(seed: int, profile: Profile = ALL) -> Scenario:
    """The scenario of a seed. Even seeds run the classic ring, odd ones the accelerated."""
    return GroupPlanner(seed, profile).scenario()


class GroupPlanner(Planner):
    PURPOSE = "groups"
    NAME = "groups"

    def __init__(self, seed: int, profile: Profile = ALL) -> None:
        super().__init__(seed, profile)
        self._life = random = Random(f"{self.PURPOSE}/{seed}/processes")
        self._packet_bytes = random.choice(PACKET_BYTES)
        if self.around.shape == SLOW_LAN:
            self._packet_bytes = WHOLE_PACKET_BYTES
        self._groups = random.sample(GROUPS, random.choice((1, 2, 2, 3, 5)))
        everywhere = [
            (me, name) for me in self.everyone for name in "abcd"[: random.choice((1, 1, 2, 2, 3, 4))]
        ]
        self._programs = sorted(random.sample(everywhere, min(PROGRAMS_MAX, len(everywhere))))
        self._budget = dict.fromkeys(self.everyone, PACKETS_MAX)
        self._large_max = LARGE_BYTES_MAX
        if self.around.shape == SLOW_LAN:
            self._budget = dict.fromkeys(self.everyone, PACKETS_MAX // 8)
            self._large_max = LARGE_BYTES_MAX_ON_LAN

    def scenario(self) -> Scenario:
        return replace(super().scenario(), groups=self._group_config())

    def _settings(self) -> tuple[Setting, ...]:
        return (*super()._settings(), Setting("packet_bytes_max", self._packet_bytes))

    def _group_config(self) -> GroupConfig:
        random = self._life
        largest = min(self._large_max, LARGE_PACKETS_MAX * self._packet_bytes)
        message_bytes_max = max(MESSAGE_BYTES_LEAST, largest)
        return GroupConfig(
            message_bytes_max=message_bytes_max,
            partial_bytes_max=random.choice((message_bytes_max, 80 * 1024 * 1024)),
            lane_bytes_max=random.choice((500, 5_000, 1_000_000)),
        )

    # What processes do

    def _plan_traffic(self) -> None:
        """Instead of raw traffic."""
        random = self._life
        for me, name in self._programs:
            self._plan_arrival(me, name, random.randint(10 * MS, FIRST_FAULT_US))
        for me, name in self._programs:
            at_us = FIRST_FAULT_US
            while (at_us := at_us + self._gap_us()) < CALM_US:
                self._live(at_us, me, name)
        for _ in range(random.randint(1, 5)):
            self._plan_ambush(random.randint(FIRST_FAULT_US, CALM_US - S))
        for me, name in self._programs:
            self._plan_last_acts(me, name)

    def _gap_us(self) -> int:
        """Most of what is done comes close together, and then nothing for a while."""
        random = self._life
        return random.choice((0, 200, 5 * MS, 50 * MS, 300 * MS, 900 * MS)) + random.randint(0, 100 * MS)

    def _plan_arrival(self, me: ProcessorId, name: str, at_us: int) -> None:
        random = self._life
        self.at(at_us, OnProcess("connect", me, name))
        for group in random.sample(self._groups, random.randint(0, len(self._groups))):
            self.at(at_us + random.choice((0, 0, 10 * MS)), self._join(me, name, group))

    def _live(self, at_us: int, me: ProcessorId, name: str) -> None:
        random = self._life
        act = random.choices(ACTS, [weight for weight, _ in ACTS])[0][1]
        act(self, at_us, me, name)

    def _join(self, me: ProcessorId, name: str, group: str) -> JoinGroup:
        random = self._life
        return JoinGroup(me, name, group, random.random() < 0.6, random.random() < 0.6)

    def _multicast(self, me: ProcessorId, name: str, large: bool = False) -> Multicast:
        random = self._life
        count = min(len(self._groups), random.choice((1, 1, 1, 2, 3)))
        groups = tuple(random.sample(self._groups, count))
        size = self._large() if large else self._small(groups)
        units = 1 if size > self._packet_bytes else random.choice((1, 1, 2, 5, 12))
        messages = random.choice((1, 1, 1, 2, 4)) if size * 4 < LARGE_BYTES_MAX and not large else 1
        while self._cost(units, messages, size) > self._budget[me] and (units, messages, size) != (1, 1, 10):
            units, messages, size = 1, 1, max(10, size // 4)
        self._budget[me] -= self._cost(units, messages, size)
        service = random.choice((Service.AGREED, Service.AGREED, Service.SAFE))
        return Multicast(me, name, groups, units, messages, size, service, random.random() < 0.3)

    def _cost(self, units: int, messages: int, size: int) -> int:
        """In packets: what cannot be cut up, because it is alone in its packet, counts as one."""
        return max(1, units * messages * size // (self._packet_bytes // 2))

    def _small(self, groups: tuple[str, ...]) -> int:
        """Often about as much as fits a packet, to the byte."""
        random = self._life
        room = self._packet_bytes - HEAD_BYTES - RUN_BYTES - len(pack_names(groups)) - OVERHEAD_MAX
        fits = max(0, room + random.choice((-60, -1, 0, 1, 40)))
        return random.choice((0, 5, 60, random.randint(1, 400), fits if room < 5_000 else 900))

    def _large(self) -> int:
        packets = self._life.choice((1.5, 2, 3, 6, 15, LARGE_PACKETS_MAX))
        return min(self._large_max, int(packets * self._packet_bytes))

    def send(self, at_us: int, me: ProcessorId, name: str) -> None:
        self.at(at_us, self._multicast(me, name))

    def send_large(self, at_us: int, me: ProcessorId, name: str) -> None:
        self.at(at_us, self._multicast(me, name, large=True))

    def crowd(self, at_us: int, me: ProcessorId, name: str) -> None:
        """All programs of a processor send large messages at once, and then something goes wrong."""
        for there, other in self._programs:
            if there == me:
                self.at(at_us, self._multicast(me, other, large=True))
        if self._life.random() < 0.3 and at_us < CALM_US - S:
            gone_us = at_us + self._life.randint(MS, 60 * MS)
            self.at(gone_us, self.parts())
            self.at(min(CALM_US, gone_us + self._life.randint(50 * MS, 800 * MS)), Heal())

    def part_in_the_act(self, at_us: int, me: ProcessorId, name: str) -> None:
        """It joins and leaves behind messages that wait to be safe, and its processor is cut off: who stays
        delivers that in the transitional configuration."""
        random = self._life
        if at_us > CALM_US - S or len(self.everyone) < 2:
            self.join(at_us, me, name)
            return
        for there, other in random.sample(self._programs, min(3, len(self._programs))):
            self.at(at_us, replace(self._multicast(there, other), units=2, service=Service.SAFE))
        group = random.choice(self._groups)
        then_us = at_us + random.randint(0, 2 * self._delay_us[1])
        self.at(then_us, random.choice((self._join(me, name, group), QuitGroup(me, name, group))))
        self.at(then_us, self._join(me, name, group))
        gone_us = then_us + random.randint(1, 6 * self._delay_us[1])
        self.at(gone_us, Partition(((me,),)))
        self.at(gone_us + random.randint(50 * MS, 600 * MS), Heal())

    def retire_in_the_act(self, at_us: int, me: ProcessorId, name: str) -> None:
        """Its node is told to end with much in its queues, and then the configuration changes."""
        random = self._life
        if at_us > CALM_US - S or len(self.everyone) < 3:
            self.send(at_us, me, name)
            return
        for there, other in self._programs:
            if there == me:
                self.at(at_us, replace(self._multicast(me, other), units=12))
        gone_us = at_us + random.randint(0, 3 * MS)
        self.at(gone_us, OnProcessor("retire", me))
        other_one = random.choice([one for one in self.everyone if one != me])
        verb = random.choice(("crash", "leave", "retire"))
        self.at(gone_us + random.randint(0, 3 * MS), OnProcessor(verb, other_one))
        for one in (me, other_one):
            self.at(min(CALM_US, gone_us + random.randint(300 * MS, 2 * S)), OnProcessor("restart", one))

    def join(self, at_us: int, me: ProcessorId, name: str) -> None:
        self.at(at_us, self._join(me, name, self._life.choice(self._groups)))

    def quit(self, at_us: int, me: ProcessorId, name: str) -> None:
        group = self._life.choice(self._groups)
        self.at(at_us, QuitGroup(me, name, group))
        if self._life.random() < 0.5:
            self.at(at_us + self._life.choice((0, 50 * MS)), self._join(me, name, group))

    def disconnect(self, at_us: int, me: ProcessorId, name: str) -> None:
        """After a last message, which is still sent."""
        self.at(at_us, self._multicast(me, name, large=self._life.random() < 0.3))
        self.at(at_us, OnProcess("disconnect", me, name))
        self._come_again(at_us, me, name)

    def crash_process(self, at_us: int, me: ProcessorId, name: str) -> None:
        self.at(at_us, OnProcess("crash", me, name))
        self._come_again(at_us, me, name)

    def _come_again(self, at_us: int, me: ProcessorId, name: str) -> None:
        if self._life.random() < 0.7:
            self._plan_arrival(me, name, min(CALM_US, at_us + self._life.choice((0, MS, 300 * MS))))

    def stall(self, at_us: int, me: ProcessorId, name: str) -> None:
        self.at(at_us, OnProcess("stall", me, name))
        self.at(min(CALM_US, at_us + self._life.randint(10 * MS, S)), OnProcess("wake", me, name))

    # Worst moments

    def _plan_ambush(self, at_us: int) -> None:
        """Something happens while the tables are exchanged, or as soon as they are."""
        random = self._life
        me, name = random.choice(self._programs)
        who = random.choice(self.everyone)
        process: tuple[ProcessAction, ...] = (
            self._join(me, name, random.choice(self._groups)),
            QuitGroup(me, name, random.choice(self._groups)),
            self._multicast(me, name),
            self._multicast(me, name, large=True),
            OnProcess("crash", me, name),
        )
        faults: tuple[Ambush, ...] = (
            self.parts(),
            self.parts(),
            Heal(),
            OnProcessor("crash", who),
            OnProcessor("leave", who),
            OnProcessor("retire", who),
        )
        action: Ambush = random.choice(process if random.random() < 0.5 else faults)
        self.at(at_us, When(random.choice(WORST_MOMENTS), action, None, random.choice((0, 0, 1, 2, 3, 5))))
        if isinstance(action, OnProcessor):
            self.at(min(CALM_US, at_us + random.randint(300 * MS, 2 * S)), OnProcessor("restart", who))

    # The calm

    def _plan_last_acts(self, me: ProcessorId, name: str) -> None:
        random = self._life
        self.at(CALM_US, OnProcess("wake", me, name))
        at_us = self._end_us - S + random.randint(0, 100 * MS)
        if random.random() < 0.5:
            self.at(at_us - 500 * MS, self._join(me, name, random.choice(self._groups)))
        self.at(at_us, replace(self._multicast(me, name), units=1))


Act = Callable[[GroupPlanner, int, ProcessorId, str], None]

ACTS: tuple[tuple[int, Act], ...] = (
    (45, GroupPlanner.send),
    (10, GroupPlanner.send_large),
    (5, GroupPlanner.crowd),
    (4, GroupPlanner.part_in_the_act),
    (2, GroupPlanner.retire_in_the_act),
    (14, GroupPlanner.join),
    (9, GroupPlanner.quit),
    (5, GroupPlanner.disconnect),
    (5, GroupPlanner.crash_process),
    (6, GroupPlanner.stall),
)
