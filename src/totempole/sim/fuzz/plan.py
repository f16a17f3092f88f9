"""One seed, one scenario: who takes part, what is sent, and everything that goes wrong.

The last quarter of a run is calm: the network is whole, everyone still up runs at full speed. What the
protocol promises once faults stop must have come true by the end. Where a link stays severed (circumstances),
the run is longer, and what is promised is less (sim/settling.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from totempole.sim.conditions import Buffers, Condition, Costs, DiskSpeed, Lan
from totempole.sim.fuzz import circumstances, injectors
from totempole.sim.fuzz.circumstances import CROWD, CROWDS, FULL, IDLE, PLAIN, SEVERED, SLOW_LAN
from totempole.sim.fuzz.profiles import ALL, Profile
from totempole.sim.script import (
    Action,
    Ambush,
    DropNext,
    ExpectRollbacks,
    ExpectSettled,
    Heal,
    OnLink,
    OnProcessor,
    Partition,
    Scenario,
    Send,
    SetCondition,
    Setting,
    Slow,
    Step,
    Traffic,
    When,
)
from totempole.sim.script_faults import LimitSegments, OnDisk, SetKeys
from totempole.types import ProcessorId, RingKind, Service
from totempole.wire.layout import PACKET_BYTES_MAX

MS = 1_000
S = 1_000_000

CALM_US = 6_500 * MS
"""When the faults stop."""
END_US = 10 * S
SETTLE_US = 2_500 * MS
"""How long the ring may take to come together once they have."""
STRETCHED_US = 600 * MS
"""A token loss timeout that is stretched further could not settle the ring in that time."""
FIRST_FAULT_US = 300 * MS
LONG_END_US = 20 * S
"""With a link that stays dead, or with full rings, a run lasts longer."""
FULL_SETTLE_US = 10 * S
"""Those who find no place in a full ring meet by trial and error."""
SEVERED_READMISSION_US = S
"""For so long, and a quarter, those who failed before wait before they try again."""
SEVERED_SETTLE_US = 9 * S
"""Several such waits: whom a ring takes in, and whom it leaves out, is found by trial and error."""
IDLE_US = (30 * S, 40 * S, 70 * S)
"""How long an idle ring is left alone before one of its members crashes."""
MOVE, DOUBLE = 0.1, 0.05
"""How many seeds have a processor that moves, and a number that two use."""
SLOW_BUFFER_BYTES = 4_000_000
"""What large packets need."""

SIZES = ((70, 1, 900), (22, 900, 8_000), (8, 8_000, 40_000))
"""Weight, least and greatest size in bytes: most messages are small, some span many segments."""


def plan(seed: int, profile: Profile = ALL) -> Scenario:
    """The scenario of a seed. Even seeds run the classic ring, odd ones the accelerated."""
    return Planner(seed, profile).scenario()


class Planner:
    PURPOSE = "fuzz"
    """Names the generators that a seed starts."""
    NAME = "seed"
    SHAPES_LEFT_OUT: frozenset[str] = frozenset()
    """Circumstances that have nothing to do with what is searched, and cost much time."""
    PROCESSORS_MIN = PROCESSORS_MAX = 0
    """0: as many as there may be."""

    def __init__(self, seed: int, profile: Profile = ALL) -> None:
        self._seed = seed
        self._profile = profile
        self.around = circumstances.draw(Random(f"{self.PURPOSE}/{seed}/circumstances"), profile)
        if self.around.shape in self.SHAPES_LEFT_OUT:
            self.around = replace(self.around, shape=PLAIN)
        self._extra = Random(f"{self.PURPOSE}/{seed}/extra")
        """For what the circumstances need."""
        self.random = random = Random(f"{self.PURPOSE}/{seed}")
        self._pace = Random(f"{self.PURPOSE}/{seed}/pace")
        """For what was added later, so that the rest of a seed stays as it was."""
        count = random.choice((1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 7, 8, 9))
        if self.around.shape == CROWD:
            count = self._extra.choice(CROWDS)
        elif self.around.shape in (FULL, SEVERED):
            count = min(7, max(3, count))
        elif self.around.shape == IDLE:
            # A token that goes round for minutes costs time, and more with more members.
            count = min(3, max(2, count))
        count = max(self.PROCESSORS_MIN, min(count, self.PROCESSORS_MAX or count))
        self.everyone: tuple[ProcessorId, ...] = tuple(range(1, count + 1))
        self._delay_us = random.choice(((100, 300), (200, 600), (300, 900), (300, 1_500)))
        self._token_loss_us = random.choice((60, 100, 150)) * MS
        if self.around.shape == SLOW_LAN:
            self._token_loss_us = 150 * MS
        self._end_us = LONG_END_US if self.around.shape in (SEVERED, FULL) else END_US
        self._idle_us = self._extra.choice(IDLE_US) if self.around.shape == IDLE else 0
        self._end_us += self._idle_us
        self._steps: list[Step] = []
        self._down: set[ProcessorId] = set()
        """Who crashes without being restarted before the calm."""

    def scenario(self) -> Scenario:
        random = self.random
        settings = self._settings()
        self._plan_traffic()
        self._plan_faults()
        self._plan_lag()
        self._plan_adjustments()
        self._plan_numbers()
        self._plan_calm()
        slow = self.around.shape == SLOW_LAN
        buffer_bytes = random.choice((16_000, 64_000, 212_992))
        return Scenario(
            name=self._name(),
            processors=tuple((str(me), me) for me in self.everyone),
            end_us=self._end_us,
            seed=self._seed,
            settings=settings,
            drift_ppm=random.choice((0, 50, 500, 5_000)),
            condition=self._clean(),
            lan=circumstances.lan(self._extra) if slow else Lan(),
            costs=Costs(),
            buffers=Buffers(data_bytes=SLOW_BUFFER_BYTES if slow else buffer_bytes),
            disk=DiskSpeed(latency_us=random.choice(((100, 300), (200, 2_000), (1_000, 20_000)))),
            sealed=self.around.sealed,
            steps=tuple(sorted(self._steps, key=lambda step: step.at_us)),
        )

    def _name(self) -> str:
        name = f"{self.NAME}-{self._seed}"
        return name if self._profile.whole else f"{name}-{self._profile.name}"

    # What is set

    def _settings(self) -> tuple[Setting, ...]:
        random = self.random
        pace = self._pace
        loss_us = self._token_loss_us
        kind = RingKind.ACCELERATED if self._seed % 2 else RingKind.CLASSIC
        each_time = random.choice((1, 3, 10, 20))
        values: dict[str, int | RingKind] = {
            "ring_kind": kind,
            "token_loss_us": loss_us,
            "token_retransmission_us": loss_us // random.choice((3, 4, 6)),
            "idle_hold_us": loss_us // random.choice((7, 10)),
            "idle_rounds": random.choice((1, 2, 8)),
            "join_us": loss_us // random.choice((4, 8)),
            "consensus_us": loss_us // random.choice((1, 2)),
            "timeout_stretch_max_percent": pace.choice((100, 200, STRETCHED_US * 100 // loss_us)),
            "leave_us": random.choice((30, 300, 2_000)) * MS,
            "null_us": random.choice((100, 250)) * MS,
            "fail_to_receive_rounds": random.choice((10, 30)),
            "laggard_us": pace.choice((30, 100, 2_000)) * MS,
            "readmission_us": pace.choice((0, 100, 400)) * MS,
            "each_time_packets": each_time,
            "window_packets": each_time * random.choice((2, 5)),
            "outstanding_packets_max": random.choice((20, 100, 400)),
            "accelerated_window": random.choice((0, 1, 5, 15)),
            "requests_max": random.choice((3, 20, 90)),
            "send_queue_max": random.choice((5, 50, 300)),
            "send_queue_ready": 3,
            "segment_bytes": random.choice((500, 1_400, 9_000)),
            "reassembly_bytes_max": random.choice((PACKET_BYTES_MAX, 8_000_000)),
            "timestamp_interval": random.choice((10 * each_time, 40 * each_time, 10_000)),
        }
        if self.around.shape == IDLE:
            values["timeout_stretch_max_percent"] = STRETCHED_US * 100 // loss_us
        if self.around.shape == SEVERED:
            values["readmission_us"] = SEVERED_READMISSION_US
        if self.around.shape == FULL:
            values["members_max"] = self._extra.randint(2, len(self.everyone) - 1)
        settings = [Setting(field, value) for field, value in values.items()]
        if self.around.unequal:
            numbers = {name: int(value) for name, value in values.items()}
            settings += circumstances.unequal_settings(self._extra, self.everyone, numbers)
        return tuple(settings)

    def _clean(self) -> Condition:
        return Condition(delay_us=self._delay_us)

    # What is sent

    def _plan_traffic(self) -> None:
        random = self.random
        messages_left = random.randint(250, 500)
        while messages_left > 0:
            count = min(messages_left, random.randint(5, 60))
            messages_left -= count
            at_us = random.randint(FIRST_FAULT_US // 2, CALM_US)
            me = random.choice(self.everyone)
            size = self._size()
            if random.random() < 0.3:
                service = random.choice((Service.AGREED, Service.SAFE))
                self.at(at_us, Send(me, min(count, 20), size, service))
            else:
                until_us = at_us + random.randint(50 * MS, 2 * S)
                rate = count * S / (until_us - at_us)
                self.at(at_us, Traffic(me, round(rate, 1), size, random.choice((0.0, 0.3, 1.0)), until_us))
        for me in self.everyone:
            self.at(
                self._end_us - S, Send(me, 3, self._size(), random.choice((Service.AGREED, Service.SAFE)))
            )

    def _size(self) -> int:
        weights = [weight for weight, _, _ in SIZES]
        _, least, greatest = self.random.choices(SIZES, weights)[0]
        return self.random.randint(least, greatest)

    # What goes wrong

    def _plan_faults(self) -> None:
        random = self.random
        faults, cascades = self.around.harms.drawn(FAULTS), self.around.harms.drawn(CASCADES)
        if not faults:
            return
        at_us = FIRST_FAULT_US
        for _ in range(random.randint(3, 9)):
            at_us += random.randint(10 * MS, 1_200 * MS)
            if at_us >= CALM_US - 200 * MS:
                break
            random.choice(faults)(self, at_us)
            if cascades and random.random() < 0.5:
                # While the membership algorithm is still busy with the first one.
                delay_us = random.choice((0, self._token_loss_us)) + random.randint(0, 40 * MS)
                random.choice(cascades)(self, at_us + delay_us)

    def _plan_lag(self) -> None:
        """Now and then one processor misses most of what the others send as fast as they can."""
        random = self._pace
        if len(self.everyone) < 3 or random.random() > 0.2:
            return
        laggard = random.choice(self.everyone)
        at_us = random.randint(FIRST_FAULT_US, CALM_US - S)
        until_us = at_us + random.randint(200 * MS, 400 * MS)
        deaf = Condition(loss=random.choice((0.4, 0.6)), token_loss=0.0, delay_us=self._delay_us)
        self.at(at_us, SetCondition(deaf, target=laggard))
        for me in self.everyone:
            if me != laggard:
                self.at(at_us, Traffic(me, 2_000.0 / len(self.everyone), 20, 0.3, until_us))
        self.at(until_us, SetCondition(self._clean(), target=laggard))

    def _plan_adjustments(self) -> None:
        """What the runtime tells a protocol that runs: new keys, in three rounds, and smaller datagrams."""
        random = self._extra
        if self.around.sealed:
            at_us = random.randint(FIRST_FAULT_US, 3 * S)
            for keys in ((1, 2), (2, 1), (2,)):
                for me in self.everyone:
                    self.at(at_us + random.randint(0, 100 * MS), SetKeys(me, keys))
                at_us += random.randint(200 * MS, S)
        if random.random() < 0.15:
            at_us = random.randint(FIRST_FAULT_US, CALM_US)
            self.at(at_us, LimitSegments(random.choice(self.everyone), random.choice((200, 450, 900))))
        if self.around.shape == SEVERED:
            source, target = random.sample(self.everyone, 2)
            self.at(random.randint(FIRST_FAULT_US, CALM_US), OnLink("sever", source, target))

    def _plan_numbers(self) -> None:
        """Now and then a processor moves to another address, or another node is given its number."""
        random = Random(f"{self.PURPOSE}/{self._seed}/numbers")
        harms = self._profile.harms
        always = not self._profile.whole
        if "move" in harms and (random.random() < MOVE or always):
            injectors.move(self, random, random.randint(FIRST_FAULT_US, CALM_US - S))
        if "double" in harms and len(self.everyone) > 1 and (random.random() < DOUBLE or always):
            injectors.double(self, random, random.randint(FIRST_FAULT_US, CALM_US - 2 * S))

    def _plan_calm(self) -> None:
        """Everything but a severed link is put right at one instant; a processor that is down may stay so."""
        self.at(CALM_US, Heal())
        self.at(CALM_US, SetCondition(self._clean()))
        for me in self.everyone:
            self.at(CALM_US, OnProcessor("resume", me))
            self.at(CALM_US, Slow(me, 1.0))
        for me in sorted(self._down):
            if self.random.random() < 0.8 or len(self._down) == len(self.everyone):
                self.at(CALM_US, OnProcessor("restart", me))
        for me in sorted({step.action.processor for step in self._steps if isinstance(step.action, OnDisk)}):
            self.at(CALM_US, OnDisk("mend", me))
        if self.around.shape == IDLE:
            self._plan_late_crash()
        elif "rollback" not in self._profile.harms:
            bounds_us = {FULL: FULL_SETTLE_US, SEVERED: SEVERED_SETTLE_US}
            self.at(self._end_us, ExpectSettled(bounds_us.get(self.around.shape, SETTLE_US)))
        else:
            # With old numbers used again nothing is promised but that no processor breaks, and that those
            # who remember better notice.
            self.at(self._end_us, ExpectRollbacks())

    def _plan_late_crash(self) -> None:
        """A short stop stretches the timeouts of a busy ring. After a long rest it notices a crash as fast as
        ever (decision 0007), and before it as fast as stretched timeouts allow."""
        stopped_us = CALM_US + 200 * MS
        for me in self.everyone:
            self.at(CALM_US, Traffic(me, 400.0, 50, 0.0, stopped_us + self._token_loss_us))
        me = self._extra.choice(self.everyone)
        self.at(stopped_us, OnProcessor("pause", me))
        self.at(stopped_us + self._token_loss_us * 3 // 4, OnProcessor("resume", me))
        self.at(CALM_US + S + self._idle_us, OnProcessor("crash", self._extra.choice(self.everyone)))
        self.at(self._end_us, ExpectSettled(3 * self._token_loss_us + 300 * MS, SETTLE_US))

    def at(self, at_us: int, action: Action) -> None:
        if self.around.harms.permits(action, self._clean()):
            self._steps.append(Step(at_us, action))

    def later(self, at_us: int, least_us: int, greatest_us: int) -> int:
        """Some time after, but before the calm."""
        return min(at_us + self.random.randint(least_us, greatest_us), CALM_US)

    def someone(self) -> ProcessorId:
        return self.random.choice(self.everyone)

    def parts(self) -> Partition:
        parts: list[list[ProcessorId]] = [[] for _ in range(self.random.choice((2, 2, 3)))]
        for me in self.everyone:
            self.random.choice(parts).append(me)
        sharp = self._extra.random() < 0.3
        return Partition(tuple(tuple(part) for part in parts if part), sharp)

    def worst_moment(self) -> str:
        return self.random.choice(WORST_MOMENTS)

    def partition(self, at_us: int) -> None:
        self.at(at_us, self.parts())

    def heal(self, at_us: int) -> None:
        self.at(at_us, Heal())

    def part_and_meet(self, at_us: int) -> None:
        self.partition(at_us)
        self.at(self.later(at_us, 50 * MS, 1_500 * MS), Heal())

    def crash(self, at_us: int) -> None:
        me = self.someone()
        if self.random.random() < 0.75:
            self.at(at_us, OnProcessor("crash", me))
            self.at(self.later(at_us, MS, 1_500 * MS), OnProcessor("restart", me))
        else:
            self._down.add(me)
            self.at(at_us, OnProcessor("crash", me))

    def leave(self, at_us: int) -> None:
        me = self.someone()
        self.at(at_us, OnProcessor(self._extra.choice(("leave", "retire")), me))
        self.at(self.later(at_us, 10 * MS, 3 * S), OnProcessor("restart", me))

    def pause(self, at_us: int) -> None:
        me = self.someone()
        self.at(at_us, OnProcessor("pause", me))
        self.at(self.later(at_us, 5 * MS, 600 * MS), OnProcessor("resume", me))

    def slow(self, at_us: int) -> None:
        me = self.someone()
        self.at(at_us, Slow(me, self.random.choice((10.0, 50.0, 300.0))))
        self.at(self.later(at_us, 50 * MS, 1_500 * MS), Slow(me, 1.0))

    def cut(self, at_us: int) -> None:
        if len(self.everyone) < 2:
            self.pause(at_us)
            return
        source, target = self.random.sample(self.everyone, 2)
        self.at(at_us, OnLink("cut", source, target))
        self.at(self.later(at_us, 20 * MS, 1_000 * MS), OnLink("mend", source, target))

    def noise(self, at_us: int) -> None:
        random = self.random
        condition = Condition(
            loss=random.choice((0.0, 0.01, 0.05, 0.2)),
            duplicate=random.choice((0.0, 0.02, 0.2)),
            reorder=random.choice((0.0, 0.05, 0.3)),
            late=random.choice((0.0, 0.0, 0.01)),
            late_us=(self._token_loss_us, 5 * self._token_loss_us),
            corrupt=random.choice((0.0, 0.0, 0.01)),
            delay_us=self._delay_us,
        )
        self.at(at_us, SetCondition(condition))
        self.at(self.later(at_us, 100 * MS, 2 * S), SetCondition(self._clean()))

    def deafen(self, at_us: int) -> None:
        """The token comes through but no data: a failure to receive."""
        me = self.someone()
        self.at(at_us, SetCondition(Condition(loss=1.0, token_loss=0.0, delay_us=self._delay_us), target=me))
        self.at(self.later(at_us, 50 * MS, 1_500 * MS), SetCondition(self._clean(), target=me))

    def sluggish(self, at_us: int) -> None:
        """Delays beyond the timeouts on all links from one processor, with much under way."""
        me = self.someone()
        self.at(at_us, Send(me, 20, 50, Service.AGREED))
        delay_us = (self._token_loss_us // 4, 2 * self._token_loss_us)
        self.at(at_us, SetCondition(Condition(delay_us=delay_us), source=me))
        self.at(self.later(at_us, 50 * MS, 1_000 * MS), SetCondition(self._clean(), source=me))

    def pick_off(self, at_us: int) -> None:
        """Exactly the packets that hurt: a few tokens, Joins or messages of one processor."""
        kind = self.random.choice(
            ("token", "commit-token", "commit-token", "join", "message", "leave", "wake")
        )
        to = self.someone() if self.random.random() < 0.3 else None
        self.at(at_us, DropNext(kind, self.someone(), to, self.random.choice((1, 2, 8))))

    def stillborn(self, at_us: int) -> None:
        """Crash again before the first write of the new life is done."""
        me = self.someone()
        self.at(at_us, OnProcessor("crash", me))
        again_us = at_us + self.random.randint(MS, 100 * MS)
        self.at(again_us, OnProcessor("restart", me))
        self.at(again_us + self.random.randint(10, 300), OnProcessor("crash", me))
        self.at(self.later(again_us, 10 * MS, 1_000 * MS), OnProcessor("restart", me))

    def ambush(self, at_us: int) -> None:
        """Something goes wrong at the worst moment of a membership change."""
        random = self.random
        who = self.someone()
        action: Ambush = random.choice(
            (
                self.parts(),
                self.parts(),
                OnProcessor("crash", who),
                OnProcessor("leave", who),
                DropNext("token", None, None, 9),
                DropNext("commit-token", None, None, 9),
            )
        )
        self.at(at_us, When(random.choice(WORST_MOMENTS), action, None, random.choice((0, 0, 1, 2, 3))))
        if isinstance(action, OnProcessor):
            self.at(self.later(at_us, 300 * MS, 2 * S), OnProcessor("restart", who))

    def gap(self, at_us: int) -> None:
        """Messages that only their sender has, others after them, and then the sender is gone.

        What is left of the ring recovers around the gap, and is interrupted while it does.
        """
        random = self.random
        lost = self.someone()
        unheard = Condition(loss=1.0, token_loss=0.0, delay_us=self._delay_us)
        self.at(at_us, SetCondition(unheard, source=lost))
        for me in self.everyone:
            self.at(at_us, Send(me, random.randint(2, 10), 20, random.choice((Service.AGREED, Service.SAFE))))
        gone_us = at_us + random.randint(2, 30) * self._delay_us[1]
        self.at(gone_us, OnProcessor("crash", lost))
        self.at(
            gone_us,
            When(
                random.choice(("recover>operational", "promise given")),
                self.parts(),
                None,
                random.choice((0, 0, 1, 2)),
            ),
        )
        back_us = self.later(gone_us, 300 * MS, 2 * S)
        self.at(back_us, SetCondition(self._clean(), source=lost))
        self.at(back_us, OnProcessor("restart", lost))
        self.at(self.later(back_us, 0, S), Heal())

    def lose_the_token(self, at_us: int) -> None:
        """Until the ring gives up: every copy that one processor sends."""
        self.at(at_us, DropNext("token", self.someone(), None, 9))


WORST_MOMENTS = (
    "gather>commit",
    "commit>recover",
    "promise given",
    "recover>operational",
    "recovery failed",
    "operational>gather",
)

Injector = Callable[[Planner, int], None]

FAULTS: tuple[Injector, ...] = (
    Planner.partition,
    Planner.part_and_meet,
    Planner.part_and_meet,
    Planner.heal,
    Planner.crash,
    Planner.crash,
    Planner.leave,
    Planner.pause,
    Planner.slow,
    Planner.cut,
    Planner.noise,
    Planner.noise,
    Planner.deafen,
    Planner.sluggish,
    Planner.pick_off,
    Planner.lose_the_token,
    Planner.stillborn,
    Planner.ambush,
    Planner.ambush,
    Planner.gap,
    Planner.gap,
    injectors.lose_disk,
    injectors.lose_disk,
    injectors.trouble_disk,
    injectors.trouble_disk,
    injectors.crash_within,
    injectors.crash_within,
    injectors.lead_astray,
    injectors.lead_astray,
    injectors.ambush_again,
    injectors.ambush_again,
    injectors.roll_back_disk,
)

CASCADES: tuple[Injector, ...] = (
    Planner.ambush,
    Planner.partition,
    Planner.heal,
    Planner.crash,
    Planner.pause,
    Planner.cut,
    Planner.pick_off,
    Planner.lose_the_token,
    injectors.crash_within,
    injectors.lead_astray,
)
