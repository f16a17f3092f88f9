"""One seed, one scenario: who takes part, what is sent, and everything that goes wrong.

The last quarter of a run is calm: the network is whole, everyone still up runs at full speed. What the
protocol promises once faults stop must have come true by the end.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from totempole.sim.conditions import Buffers, Condition, Costs, DiskSpeed
from totempole.sim.fuzz.profiles import ALL, Profile
from totempole.sim.script import (
    Action,
    Ambush,
    DropNext,
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

SIZES = ((70, 1, 900), (22, 900, 8_000), (8, 8_000, 40_000))
"""Weight, least and greatest size in bytes: most messages are small, some span many segments."""


def plan(seed: int, profile: Profile = ALL) -> Scenario:
    """The scenario of a seed. Even seeds run the classic ring, odd ones the accelerated."""
    return Planner(seed, profile).scenario()


class Planner:
    PURPOSE = "fuzz"
    """Names the generators that a seed starts."""
    NAME = "seed"

    def __init__(self, seed: int, profile: Profile = ALL) -> None:
        self._seed = seed
        self._profile = profile
        self._random = random = Random(f"{self.PURPOSE}/{seed}")
        self._pace = Random(f"{self.PURPOSE}/{seed}/pace")
        """For what was added later, so that the rest of a seed stays as it was."""
        count = random.choice((1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 7, 8, 9))
        self._all: tuple[ProcessorId, ...] = tuple(range(1, count + 1))
        self._delay_us = random.choice(((100, 300), (200, 600), (300, 900), (300, 1_500)))
        self._token_loss_us = random.choice((60, 100, 150)) * MS
        self._steps: list[Step] = []
        self._down: set[ProcessorId] = set()
        """Who crashes without being restarted before the calm."""

    def scenario(self) -> Scenario:
        random = self._random
        settings = self._settings()
        self._plan_traffic()
        self._plan_faults()
        self._plan_lag()
        self._plan_calm()
        return Scenario(
            name=self._name(),
            processors=tuple((str(me), me) for me in self._all),
            end_us=END_US,
            seed=self._seed,
            settings=settings,
            drift_ppm=random.choice((0, 50, 500, 5_000)),
            condition=self._clean(),
            costs=Costs(),
            buffers=Buffers(data_bytes=random.choice((16_000, 64_000, 212_992))),
            disk=DiskSpeed(latency_us=random.choice(((100, 300), (200, 2_000), (1_000, 20_000)))),
            steps=tuple(sorted(self._steps, key=lambda step: step.at_us)),
        )

    def _name(self) -> str:
        name = f"{self.NAME}-{self._seed}"
        return name if self._profile.whole else f"{name}-{self._profile.name}"

    # What is set

    def _settings(self) -> tuple[Setting, ...]:
        random = self._random
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
        return tuple(Setting(field, value) for field, value in values.items())

    def _clean(self) -> Condition:
        return Condition(delay_us=self._delay_us)

    # What is sent

    def _plan_traffic(self) -> None:
        random = self._random
        messages_left = random.randint(250, 500)
        while messages_left > 0:
            count = min(messages_left, random.randint(5, 60))
            messages_left -= count
            at_us = random.randint(FIRST_FAULT_US // 2, CALM_US)
            me = random.choice(self._all)
            size = self._size()
            if random.random() < 0.3:
                service = random.choice((Service.AGREED, Service.SAFE))
                self._at(at_us, Send(me, min(count, 20), size, service))
            else:
                until_us = at_us + random.randint(50 * MS, 2 * S)
                rate = count * S / (until_us - at_us)
                self._at(at_us, Traffic(me, round(rate, 1), size, random.choice((0.0, 0.3, 1.0)), until_us))
        for me in self._all:
            self._at(END_US - S, Send(me, 3, self._size(), random.choice((Service.AGREED, Service.SAFE))))

    def _size(self) -> int:
        weights = [weight for weight, _, _ in SIZES]
        _, least, greatest = self._random.choices(SIZES, weights)[0]
        return self._random.randint(least, greatest)

    # What goes wrong

    def _plan_faults(self) -> None:
        random = self._random
        faults, cascades = self._profile.drawn(FAULTS), self._profile.drawn(CASCADES)
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
        if len(self._all) < 3 or random.random() > 0.2:
            return
        laggard = random.choice(self._all)
        at_us = random.randint(FIRST_FAULT_US, CALM_US - S)
        until_us = at_us + random.randint(200 * MS, 400 * MS)
        deaf = Condition(loss=random.choice((0.4, 0.6)), token_loss=0.0, delay_us=self._delay_us)
        self._at(at_us, SetCondition(deaf, target=laggard))
        for me in self._all:
            if me != laggard:
                self._at(at_us, Traffic(me, 2_000.0 / len(self._all), 20, 0.3, until_us))
        self._at(until_us, SetCondition(self._clean(), target=laggard))

    def _plan_calm(self) -> None:
        """Everything is put right at one instant; a processor that is down may stay so."""
        self._at(CALM_US, Heal())
        self._at(CALM_US, SetCondition(self._clean()))
        for me in self._all:
            self._at(CALM_US, OnProcessor("resume", me))
            self._at(CALM_US, Slow(me, 1.0))
        for me in sorted(self._down):
            if self._random.random() < 0.8 or len(self._down) == len(self._all):
                self._at(CALM_US, OnProcessor("restart", me))
        self._at(END_US, ExpectSettled(SETTLE_US))

    def _at(self, at_us: int, action: Action) -> None:
        if self._profile.whole or self._profile.permits(action, self._clean()):
            self._steps.append(Step(at_us, action))

    def _later(self, at_us: int, least_us: int, greatest_us: int) -> int:
        """Some time after, but before the calm."""
        return min(at_us + self._random.randint(least_us, greatest_us), CALM_US)

    def _someone(self) -> ProcessorId:
        return self._random.choice(self._all)

    def _parts(self) -> Partition:
        parts: list[list[ProcessorId]] = [[] for _ in range(self._random.choice((2, 2, 3)))]
        for me in self._all:
            self._random.choice(parts).append(me)
        return Partition(tuple(tuple(part) for part in parts if part))

    def partition(self, at_us: int) -> None:
        self._at(at_us, self._parts())

    def heal(self, at_us: int) -> None:
        self._at(at_us, Heal())

    def part_and_meet(self, at_us: int) -> None:
        self.partition(at_us)
        self._at(self._later(at_us, 50 * MS, 1_500 * MS), Heal())

    def crash(self, at_us: int) -> None:
        me = self._someone()
        if self._random.random() < 0.75:
            self._at(at_us, OnProcessor("crash", me))
            self._at(self._later(at_us, MS, 1_500 * MS), OnProcessor("restart", me))
        else:
            self._down.add(me)
            self._at(at_us, OnProcessor("crash", me))

    def leave(self, at_us: int) -> None:
        me = self._someone()
        self._at(at_us, OnProcessor("leave", me))
        self._at(self._later(at_us, 10 * MS, 3 * S), OnProcessor("restart", me))

    def pause(self, at_us: int) -> None:
        me = self._someone()
        self._at(at_us, OnProcessor("pause", me))
        self._at(self._later(at_us, 5 * MS, 600 * MS), OnProcessor("resume", me))

    def slow(self, at_us: int) -> None:
        me = self._someone()
        self._at(at_us, Slow(me, self._random.choice((10.0, 50.0, 300.0))))
        self._at(self._later(at_us, 50 * MS, 1_500 * MS), Slow(me, 1.0))

    def cut(self, at_us: int) -> None:
        if len(self._all) < 2:
            self.pause(at_us)
            return
        source, target = self._random.sample(self._all, 2)
        self._at(at_us, OnLink("cut", source, target))
        self._at(self._later(at_us, 20 * MS, 1_000 * MS), OnLink("mend", source, target))

    def noise(self, at_us: int) -> None:
        random = self._random
        condition = Condition(
            loss=random.choice((0.0, 0.01, 0.05, 0.2)),
            duplicate=random.choice((0.0, 0.02, 0.2)),
            reorder=random.choice((0.0, 0.05, 0.3)),
            late=random.choice((0.0, 0.0, 0.01)),
            late_us=(self._token_loss_us, 5 * self._token_loss_us),
            corrupt=random.choice((0.0, 0.0, 0.01)),
            delay_us=self._delay_us,
        )
        self._at(at_us, SetCondition(condition))
        self._at(self._later(at_us, 100 * MS, 2 * S), SetCondition(self._clean()))

    def deafen(self, at_us: int) -> None:
        """The token comes through but no data: a failure to receive."""
        me = self._someone()
        self._at(at_us, SetCondition(Condition(loss=1.0, token_loss=0.0, delay_us=self._delay_us), target=me))
        self._at(self._later(at_us, 50 * MS, 1_500 * MS), SetCondition(self._clean(), target=me))

    def sluggish(self, at_us: int) -> None:
        """Delays beyond the timeouts on all links from one processor, with much under way."""
        me = self._someone()
        self._at(at_us, Send(me, 20, 50, Service.AGREED))
        delay_us = (self._token_loss_us // 4, 2 * self._token_loss_us)
        self._at(at_us, SetCondition(Condition(delay_us=delay_us), source=me))
        self._at(self._later(at_us, 50 * MS, 1_000 * MS), SetCondition(self._clean(), source=me))

    def pick_off(self, at_us: int) -> None:
        """Exactly the packets that hurt: a few tokens, Joins or messages of one processor."""
        kind = self._random.choice(
            ("token", "commit-token", "commit-token", "join", "message", "leave", "wake")
        )
        to = self._someone() if self._random.random() < 0.3 else None
        self._at(at_us, DropNext(kind, self._someone(), to, self._random.choice((1, 2, 8))))

    def stillborn(self, at_us: int) -> None:
        """Crash again before the first write of the new life is done."""
        me = self._someone()
        self._at(at_us, OnProcessor("crash", me))
        again_us = at_us + self._random.randint(MS, 100 * MS)
        self._at(again_us, OnProcessor("restart", me))
        self._at(again_us + self._random.randint(10, 300), OnProcessor("crash", me))
        self._at(self._later(again_us, 10 * MS, 1_000 * MS), OnProcessor("restart", me))

    def ambush(self, at_us: int) -> None:
        """Something goes wrong at the worst moment of a membership change."""
        random = self._random
        who = self._someone()
        action: Ambush = random.choice(
            (
                self._parts(),
                self._parts(),
                OnProcessor("crash", who),
                OnProcessor("leave", who),
                DropNext("token", None, None, 9),
                DropNext("commit-token", None, None, 9),
            )
        )
        self._at(at_us, When(random.choice(WORST_MOMENTS), action, None, random.choice((0, 0, 1, 2, 3))))
        if isinstance(action, OnProcessor):
            self._at(self._later(at_us, 300 * MS, 2 * S), OnProcessor("restart", who))

    def gap(self, at_us: int) -> None:
        """Messages that only their sender has, others after them, and then the sender is gone.

        What is left of the ring recovers around the gap, and is interrupted while it does.
        """
        random = self._random
        lost = self._someone()
        unheard = Condition(loss=1.0, token_loss=0.0, delay_us=self._delay_us)
        self._at(at_us, SetCondition(unheard, source=lost))
        for me in self._all:
            self._at(
                at_us, Send(me, random.randint(2, 10), 20, random.choice((Service.AGREED, Service.SAFE)))
            )
        gone_us = at_us + random.randint(2, 30) * self._delay_us[1]
        self._at(gone_us, OnProcessor("crash", lost))
        self._at(
            gone_us,
            When(
                random.choice(("recover>operational", "promise given")),
                self._parts(),
                None,
                random.choice((0, 0, 1, 2)),
            ),
        )
        back_us = self._later(gone_us, 300 * MS, 2 * S)
        self._at(back_us, SetCondition(self._clean(), source=lost))
        self._at(back_us, OnProcessor("restart", lost))
        self._at(self._later(back_us, 0, S), Heal())

    def lose_the_token(self, at_us: int) -> None:
        """Until the ring gives up: every copy that one processor sends."""
        self._at(at_us, DropNext("token", self._someone(), None, 9))


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
)
