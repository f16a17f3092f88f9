"""One seed, one scenario with the durable order: the ring's faults, and those of its disks and replica sets.

Random faults alone miss most ways to fork an order. So many things happen at the worst moments: while states
are exchanged, after some have attempted or committed, while members leave one by one, or while one that was
away with records of its own comes back.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from totempole.corel.config import LogConfig
from totempole.corel.quorum import DYNAMIC, MAJORITY
from totempole.groups import GroupConfig
from totempole.sim.fuzz import injectors
from totempole.sim.fuzz.circumstances import SEVERED
from totempole.sim.fuzz.plan import CALM_US, FIRST_FAULT_US, MS, Planner, S
from totempole.sim.fuzz.profiles import ALL, Profile
from totempole.sim.script import (
    Ambush,
    DropNext,
    Heal,
    OnProcessor,
    Partition,
    Scenario,
    Setting,
    When,
)
from totempole.sim.script_faults import Stray
from totempole.sim.script_logs import Append, OnLog, Read, SetReplica
from totempole.types import Fence, ProcessorId

LOGS = ("orders", "stock", "a" * 60)
FOUND_US = 1_500 * MS
"""Most logs are founded by then."""
REQUESTS = (15, 40)
READS = (5, 30)
PACKET_BYTES = (1_500, 4_000, 60_000)
PACKETS_MAX = 40
"""Roughly what one processor appends, in packets: some rings pass on one at a visit."""
ROTATIONS_MAX = 100
"""Roughly how often a token may go round for what all append: some windows let two packets pass."""
DISK_TIMEOUTS_US = (LogConfig().disk_timeout_us, LogConfig().disk_timeout_us, 150 * MS)
"""With the last, a disk that is slow for a while is too slow: its replica steps aside."""
KEYS = 5
FENCES = ("fence", "another")
STEPS_MAX = 8
"""Of one fence."""

WORST_MOMENTS = (
    "log exchanging",
    "log agreeing",
    "log attempting",
    "log attempting",
    "log committing",
    "log committing",
    "log primary",
    "log minority",
    "log looking on",
    "operational>gather",
)


def log_plan(seed: int, profile: Profile = ALL) -> Scenario:
    """The scenario of a seed. Even seeds run the classic ring, odd ones the accelerated."""
    return LogPlanner(seed, profile).scenario()


class LogPlanner(Planner):
    PURPOSE = "logs"
    NAME = "logs"

    def __init__(self, seed: int, profile: Profile = ALL) -> None:
        super().__init__(seed, profile)
        self._life = random = Random(f"{self.PURPOSE}/{seed}/logs")
        self._reads = Random(f"{self.PURPOSE}/{seed}/reads")
        self._races = Random(f"{self.PURPOSE}/{seed}/fences")
        count = min(len(self.everyone), random.choice((1, 2, 3, 3, 3, 3, 4, 5, 5)))
        self._replicas = tuple(sorted(random.sample(self.everyone, count)))
        weighted = random.random() < 0.2
        self._weights = tuple(random.choice((1, 1, 2, 3)) for _ in self._replicas) if weighted else ()
        self._rule = random.choice((MAJORITY, MAJORITY, MAJORITY, DYNAMIC))
        self._damaged: set[ProcessorId] = set()
        self._has_changes = False
        self._packet_bytes = random.choice(PACKET_BYTES)
        self._budget: dict[ProcessorId, int] = {}
        """What each may still append, in bytes."""
        self._last_us = 0
        """When all append and read for the last time: earlier on rings that pass on little."""

    def scenario(self) -> Scenario:
        return replace(super().scenario(), groups=GroupConfig(), log=self._log_config())

    def _settings(self) -> tuple[Setting, ...]:
        settings = super()._settings()
        window = next(int(each.value) for each in settings if each.field == "window_packets")
        packets = min(PACKETS_MAX, ROTATIONS_MAX * window // len(self.everyone))
        self._budget = dict.fromkeys(self.everyone, packets * self._packet_bytes)
        self._last_us = self._end_us - (S if packets == PACKETS_MAX else 2 * S)
        return (*settings, Setting("packet_bytes_max", self._packet_bytes))

    def _log_config(self) -> LogConfig:
        random = self._life
        return LogConfig(
            replicas=self._replicas,
            weights=self._weights,
            rule=self._rule,
            floor=random.choice((1, min(2, len(self._replicas)))),
            acknowledgements=random.choice(("quorum", "quorum", "all")),
            recent_bytes=random.choice((65_536, 65_536, 8 * 1024 * 1024)),
            segment_bytes=random.choice((65_536, 65_536, 64 * 1024 * 1024)),
            retention_bytes=random.choice((0, 0, 100_000)),
            disk_timeout_us=Random(f"{self.PURPOSE}/{self._seed}/disks").choice(DISK_TIMEOUTS_US),
        )

    # What is appended

    def _plan_traffic(self) -> None:
        """Instead of raw traffic."""
        random = self._life
        for _ in range(random.randint(*REQUESTS)):
            self.at(random.randint(FIRST_FAULT_US // 2, CALM_US), self._append())
        for me in self.everyone:
            self.at(self._last_us, self._append(me))
            if self.around.shape == SEVERED:  # a dead link shows only while something is sent on it
                for at_us in range(CALM_US + S, self._last_us, S):
                    self.at(at_us, Append(me, LOGS[0]))
        for _ in range(random.randint(1, 5)):
            self._plan_ambush(random.randint(FIRST_FAULT_US, CALM_US - S))
        for act in random.sample(ACTS, random.randint(0, 3)):
            act(self, random.randint(FOUND_US, CALM_US - S))
        self._plan_reads()
        for name in self._races.sample(FENCES, self._races.choice((0, 1, 1, 2))):
            self._plan_race(name)
        self._plan_hints()

    def _plan_hints(self) -> None:
        """Acknowledgements past the order are lost, and recordings of them come later or at a wrong place."""
        random = Random(f"{self.PURPOSE}/{self._seed}/hints")
        for _ in range(random.choice((0, 1, 1, 2, 4))):
            me, other = random.choice(self.everyone), random.choice((None, random.choice(self.everyone)))
            count, after_us = random.choice((1, 2, 20)), random.randint(1, 2_000) * MS
            act: DropNext | Stray = random.choice(
                (
                    DropNext("unordered", random.choice((me, None)), other, count),
                    Stray("replay", "unordered", me, None, count, after_us),
                    Stray("replay", "unordered", None, other, count, after_us),
                    Stray("reflect", "unordered", me, None, count),
                )
            )
            self.at(random.randint(FIRST_FAULT_US, CALM_US - S), act)

    def _plan_race(self, name: str) -> None:
        """Rivals with the same fences, step after step. Some try again later, there or elsewhere; some are
        ahead of the others, or behind. At the end all try the same step once more."""
        random = self._races
        times = sorted(
            random.randint(FIRST_FAULT_US // 2, CALM_US) for _ in range(random.randint(2, STEPS_MAX))
        )
        is_exact = random.random() < 0.5
        for number, at_us in enumerate(times, 1):
            fence = Fence(name, number, number - 1 if is_exact else 0, number - 1)
            for _ in range(random.choice((1, 2, 2, 3))):
                me = random.choice(self.everyone)
                race = Append(me, random.choice(LOGS), random.choice((1, 1, 2)), random.choice((1, 2, 3)))
                race = replace(race, fence=fence, key=f"k{random.randrange(KEYS)}" * (random.random() < 0.2))
                self.at(max(0, at_us + random.choice((0, 0, random.randint(-200 * MS, 200 * MS)))), race)
                if random.random() < 0.4:
                    again = replace(race, processor=random.choice((me, random.choice(self.everyone))))
                    self.at(min(CALM_US, at_us + random.randint(10 * MS, S)), again)
        last = Fence(name, STEPS_MAX + 1, 0, STEPS_MAX)
        for me in self.everyone:
            self.at(self._last_us, Append(me, LOGS[0], fence=last))

    def _plan_reads(self) -> None:
        """Barriers at any time, at the worst moments, and after a pause."""
        random = self._reads
        for _ in range(random.randint(*READS)):
            self.at(random.randint(FIRST_FAULT_US // 2, CALM_US), self._read())
        for _ in range(random.randint(0, 3)):
            moment, after = random.choice(WORST_MOMENTS), random.choice((0, 0, 1, 2, 3, 5))
            self.at(random.randint(FIRST_FAULT_US, CALM_US - S), When(moment, self._read(), None, after))
        for _ in range(random.choice((0, 0, 1, 2))):
            self.read_after_a_pause(random.randint(FOUND_US, CALM_US - S))
        for me in self.everyone:
            self.at(self._last_us, Read(me))

    def _read(self) -> Read:
        return Read(self._reads.choice(self.everyone), self._reads.choice((1, 1, 1, 3)))

    def read_after_a_pause(self, at_us: int) -> None:
        """One stands still with the token in hand, and reads before it hears of those who went on without
        it."""
        random = self._reads
        me = random.choice(self.everyone)
        again_us = at_us + random.randint(200 * MS, 900 * MS)
        self.at(at_us, OnProcessor("pause", me))
        self.at(at_us + random.randint(1 * MS, 20 * MS), Partition(((me,),)))
        for other in self.everyone:
            if other != me and random.random() < 0.5:
                self.at(random.randint(at_us, again_us), Append(other, LOGS[0]))
        self.at(again_us, OnProcessor("resume", me))
        self.at(again_us, Read(me))
        self.at(min(CALM_US, again_us + random.randint(1 * MS, 200 * MS)), Heal())

    def _append(self, me: ProcessorId | None = None) -> Append:
        random = self._life
        who = random.choice(self.everyone) if me is None else me
        size, count = random.choice((0, 10, 100, 100, 1_000, 8_000, 30_000)), random.choice((1, 1, 3, 10))
        units = random.choice((1, 1, 2, 5))
        while units * max(self._packet_bytes // 4, size * count) > self._budget[who] and (units, count) != (
            1,
            1,
        ):
            units = count = 1
            size = min(size, 100)
        self._budget[who] -= units * max(self._packet_bytes // 4, size * count)
        key = f"k{random.randrange(KEYS)}" if random.random() < 0.2 else ""
        return Append(who, random.choice(LOGS), units, count, size, key)

    def _plan_numbers(self) -> None:
        """A number that two nodes use has two logs: what becomes of these is not for a search to say."""
        random = Random(f"{self.PURPOSE}/{self._seed}/numbers")
        if random.random() < 0.1:
            injectors.move(self, random, random.randint(FIRST_FAULT_US, CALM_US - S))

    # What befalls logs

    def away(self, at_us: int) -> None:
        """One appends on its own, and comes back when the others have gone on without it."""
        random = self._life
        me = random.choice(self.everyone)
        self.at(at_us, Partition(((me,),)))
        for _ in range(random.randint(1, 4)):
            self.at(at_us + random.randint(50 * MS, 400 * MS), self._append(me))
            self.at(at_us + random.randint(50 * MS, 400 * MS), self._append())
        self.at(min(CALM_US, at_us + random.randint(400 * MS, 900 * MS)), Heal())

    def one_by_one(self, at_us: int) -> None:
        """Members leave one after the other, as fast as views change, and come back in another order."""
        random = self._life
        for me in random.sample(self.everyone, len(self.everyone)):
            at_us += random.randint(20 * MS, 250 * MS)
            if at_us < CALM_US - 500 * MS:
                self.at(at_us, OnProcessor("crash", me))
                self.at(min(CALM_US, at_us + random.randint(200 * MS, S)), OnProcessor("restart", me))

    def all_at_once(self, at_us: int) -> None:
        """Every processor crashes, and starts again."""
        for me in self.everyone:
            self.at(at_us + self._life.randint(0, 3 * MS), OnProcessor("crash", me))
            self.at(at_us + self._life.randint(100 * MS, 500 * MS), OnProcessor("restart", me))

    def lose_log(self, at_us: int) -> None:
        """One replica's log is emptied, old or damaged when it starts again. What the others have must be a
        majority: green survives nothing else. With dynamic voting one disk may be a quorum."""
        random = self._life
        if self._rule == DYNAMIC:
            return
        me = random.choice(self._replicas)
        founding = LogConfig(replicas=self._replicas, weights=self._weights).founding
        assert founding is not None, "there are replicas"
        others = {who: 0 for who in self._replicas if who not in (me, *self._damaged)}
        if self._has_changes or not founding.is_majority(others):
            return
        self._damaged.add(me)
        verb = random.choice(("empty", "rollback", "rollback", "damage"))
        self.at(at_us, OnProcessor("crash", me))
        self.at(at_us, OnLog(verb, me, frames=random.choice((1, 2, 5, 50)) if verb == "rollback" else 0))
        self.at(at_us + random.randint(10 * MS, S), OnProcessor("restart", me))

    def fill_disk(self, at_us: int) -> None:
        me = self._life.choice(self.everyone)
        self.at(at_us, OnLog("fill", me))
        self.at(min(CALM_US, at_us + self._life.randint(50 * MS, S)), OnLog("mend", me))

    def slow_disk(self, at_us: int) -> None:
        random = self._life
        me = random.choice(self.everyone)
        if random.random() < 0.5:
            self.at(at_us, OnLog("stick", me))
        else:
            self.at(at_us, OnLog("slow", me, latency_us=(10 * MS, 200 * MS)))
        self.at(min(CALM_US, at_us + random.randint(50 * MS, S)), OnLog("mend", me))

    def change_set(self, at_us: int) -> None:
        """A replica more or less, and a partition at about that time."""
        random = self._life
        if self._damaged:
            return
        self._has_changes = True
        me, other = random.choice(self.everyone), random.choice(self.everyone)
        weight = 0 if other in self._replicas and random.random() < 0.6 else random.choice((1, 1, 2))
        self.at(at_us, SetReplica(me, other, weight))
        if random.random() < 0.5:
            self.at(at_us + random.randint(0, 20 * MS), self.parts())
            self.at(min(CALM_US, at_us + random.randint(200 * MS, S)), Heal())

    def _plan_ambush(self, at_us: int) -> None:
        random = self._life
        who = random.choice(self.everyone)
        actions: tuple[Ambush, ...] = (
            self.parts(),
            self.parts(),
            Partition(((who,),)),
            Heal(),
            OnProcessor("crash", who),
            OnProcessor("crash", who),
            OnProcessor("leave", who),
            OnLog("stick", who),
        )
        action = random.choice(actions)
        by = random.choice((None, None, who))
        self.at(at_us, When(random.choice(WORST_MOMENTS), action, by, random.choice((0, 0, 1, 2, 3, 5))))
        if isinstance(action, OnProcessor):
            self.at(min(CALM_US, at_us + random.randint(300 * MS, 2 * S)), OnProcessor("restart", who))
        if isinstance(action, OnLog):
            self.at(CALM_US, OnLog("mend", who))


ACTS = (
    LogPlanner.away,
    LogPlanner.away,
    LogPlanner.one_by_one,
    LogPlanner.one_by_one,
    LogPlanner.all_at_once,
    LogPlanner.lose_log,
    LogPlanner.lose_log,
    LogPlanner.fill_disk,
    LogPlanner.slow_disk,
    LogPlanner.change_set,
    LogPlanner.change_set,
)
