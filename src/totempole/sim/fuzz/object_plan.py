"""One seed, one scenario with a replicated object: all that befalls the durable order, and programs that
crash, stall, move to another node, open the object again from a snapshot or from the log, and retry.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from totempole.corel.config import LogConfig
from totempole.sim.fuzz.circumstances import CROWD, FULL, IDLE
from totempole.sim.fuzz.log_plan import ACTS, LogPlanner
from totempole.sim.fuzz.plan import CALM_US, FIRST_FAULT_US, MS, S
from totempole.sim.fuzz.profiles import ALL, Profile
from totempole.sim.objects.own import OWN
from totempole.sim.script import Heal, OnProcessor, Partition, Scenario
from totempole.sim.script_objects import OnHost, Work
from totempole.types import ProcessorId

PAUSES_US = (0, 2 * MS, 10 * MS, 60 * MS)
PROGRAMS = (2, 3, 3, 4)
READ_AFTER_US = (300 * MS, 1_000 * MS)
"""How long a processor is paused while the others go on without it."""


def object_plan(seed: int, profile: Profile = ALL) -> Scenario:
    """The scenario of a seed. Even seeds run the classic ring, odd ones the accelerated."""
    return ObjectPlanner(seed, profile).scenario()


class ObjectPlanner(LogPlanner):
    PURPOSE = "objects"
    NAME = "objects"
    SHAPES_LEFT_OUT = frozenset({CROWD, FULL, IDLE})
    PROCESSORS_MAX = 5

    def __init__(self, seed: int, profile: Profile = ALL) -> None:
        super().__init__(seed, profile)
        self._play = random = Random(f"{self.PURPOSE}/{seed}/programs")
        self._object = random.choice(tuple(OWN))
        nodes = random.sample(self.everyone, min(len(self.everyone), random.choice(PROGRAMS)))
        self._programs = [(me, "a") for me in nodes]
        if random.random() < 0.3:
            self._programs.append((nodes[0], "b"))

    def scenario(self) -> Scenario:
        return replace(super().scenario(), objects=self._object)

    def _log_config(self) -> LogConfig:
        """Nothing is trimmed: programs that were away read it all."""
        return replace(super()._log_config(), segment_bytes=64 * 1024 * 1024, retention_bytes=0)

    def _plan_traffic(self) -> None:
        random = self._play
        for me, name in self._programs:
            self._plan_program(me, name)
        for _ in range(random.randint(1, 4)):
            self._plan_ambush(random.randint(FIRST_FAULT_US, CALM_US - S))
        for act in random.sample(ACTS, random.randint(0, 2)):
            act(self, random.randint(1_500 * MS, CALM_US - S))
        if random.random() < 0.6:
            self.read_after_a_pause(random.randint(S, CALM_US - S))
        for _ in range(random.randint(0, 3)):
            self.at(random.randint(FIRST_FAULT_US, CALM_US), self._append())
        for me, name in self._programs:
            self.at(CALM_US, OnHost("wake", me, name))
            self.at(CALM_US + S, OnHost("open", me, name))
            self.at(self._end_us - 800 * MS, Work(me, name, 4, 2, 1_000))

    def _plan_program(self, me: ProcessorId, name: str) -> None:
        random = self._play
        open_us = random.randint(100 * MS, 1_500 * MS)
        self.at(open_us, OnHost("open", me, name))
        for _ in range(random.randint(2, 5)):
            work = Work(
                me, name, random.randint(3, 14), random.choice((1, 1, 2, 4)), random.choice(PAUSES_US)
            )
            self.at(random.randint(open_us, CALM_US), work)
        for _ in range(random.randint(0, 4)):
            self.at(random.randint(open_us, CALM_US), OnHost("snapshot", me, name))
        for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
            at_us = random.randint(open_us, CALM_US - S)
            self.at(at_us, OnHost("crash", me, name))
            again_us = at_us + random.randint(0, 600 * MS)
            self.at(again_us, OnHost("open", me, name))
            self.at(again_us, Work(me, name, random.randint(3, 10), random.choice((1, 2)), 5 * MS))
        if random.random() < 0.3:
            at_us = random.randint(open_us, CALM_US - S)
            self.at(at_us, OnHost("stall", me, name))
            self.at(at_us + random.randint(10 * MS, 800 * MS), OnHost("wake", me, name))
        if random.random() < 0.25:
            self.at(random.randint(open_us, CALM_US), OnHost("move", me, name))

    def read_after_a_pause(self, at_us: int) -> None:
        """A processor stops, the token comes to it and waits there. The others go on without it, and write.
        It goes on with the old token in hand, and its programs read: they must not see the past."""
        random = self._play
        me = self._programs[0][0]
        until_us = min(CALM_US - 200 * MS, at_us + random.randint(*READ_AFTER_US))
        others = [(who, name) for who, name in self._programs if who != me]
        self.at(at_us - 100 * MS, Heal())
        self.at(at_us, OnProcessor("pause", me))
        for who, name in others:
            self.at(random.randint(at_us, until_us), Work(who, name, random.randint(4, 10), 2, 10 * MS))
        if random.random() < 0.3:
            self.at(random.randint(at_us, until_us), Partition(((me,),)))
            self.at(min(CALM_US, until_us + random.randint(0, 300 * MS)), Heal())
        for who, name in self._programs:
            if who == me:
                self.at(until_us - MS, Work(me, name, 6, 3, 0))
        self.at(until_us, OnProcessor("resume", me))
