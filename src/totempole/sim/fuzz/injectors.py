"""Harm to what a processor relies on: its disk, the end of an input, the address of a packet; and ambushes in
a row. Each function plans one, at a time or soon after; `plan` has the other injectors.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from totempole.sim.disk import STORED
from totempole.sim.script import Ambush, DropNext, OnProcessor, When
from totempole.sim.script_faults import CrashWithin, OnDisk, Stray

if TYPE_CHECKING:
    from totempole.sim.fuzz.plan import Planner

MS = 1_000

EFFECTS = (0, 1, 1, 2, 3, 4, 6, 9)
"""After so many effects of one input a crash may come."""


def lose_disk(plan: Planner, at_us: int) -> None:
    """All that was stored is gone, or a part of it."""
    random = plan.random
    me = plan.someone()
    some = tuple(random.sample(STORED, random.randint(1, len(STORED) - 1)))
    lost = OnDisk("wipe", me) if random.random() < 0.5 else OnDisk("lose", me, lost=some)
    plan.at(at_us, lost)
    plan.at(at_us, OnProcessor("crash", me))
    plan.at(plan.later(at_us, MS, 1_500 * MS), OnProcessor("restart", me))


def roll_back_disk(plan: Planner, at_us: int) -> None:
    """An old copy is put back: what docs/node.md forbids."""
    me = plan.someone()
    plan.at(at_us, OnDisk("rollback", me, records=plan.random.choice((1, 2, 5, 20))))
    plan.at(at_us, OnProcessor("crash", me))
    plan.at(plan.later(at_us, MS, 1_500 * MS), OnProcessor("restart", me))


def move(plan: Planner, random: Random, at_us: int) -> None:
    """To another address: while it runs, or while it is down."""
    me = random.choice(plan.everyone)
    if random.random() < 0.5:
        plan.at(at_us, OnProcessor("crash", me))
        plan.at(at_us + random.randint(MS, 500 * MS), OnProcessor("restart", me))
    plan.at(at_us, OnProcessor("move", me))


def double(plan: Planner, random: Random, at_us: int) -> None:
    """Another node with a number in use. It begins to speak only if it hears nothing of the first one."""
    me = random.choice(plan.everyone)
    silence, end = random.choice((("pause", "resume"), ("pause", "resume"), ("crash", "restart"), ("", "")))
    if silence:
        plan.at(at_us, OnProcessor(silence, me))
        plan.at(at_us + random.randint(300 * MS, 1_800 * MS), OnProcessor(end, me))
    plan.at(at_us + random.randint(0, 100 * MS), OnProcessor("double", me))


def trouble_disk(plan: Planner, at_us: int) -> None:
    """It writes slowly, or not at all, while something else happens."""
    random = plan.random
    me = plan.someone()
    latency_us = random.choice(((50 * MS, 100 * MS), (50 * MS, 500 * MS), (500 * MS, 500 * MS)))
    slow = OnDisk("slow", me, latency_us=latency_us)
    plan.at(at_us, random.choice((slow, OnDisk("stick", me))))
    if random.random() < 0.5:
        plan.at(at_us + random.randint(0, 50 * MS), plan.parts())
    if random.random() < 0.3:
        gone_us = plan.later(at_us, 0, 500 * MS)
        plan.at(gone_us, OnProcessor("crash", me))
        plan.at(plan.later(gone_us, MS, 500 * MS), OnProcessor("restart", me))
    plan.at(plan.later(at_us, 50 * MS, 1_500 * MS), OnDisk("mend", me))


def crash_within(plan: Planner, at_us: int) -> None:
    """Some effects of an input are executed, the others never."""
    me = plan.someone()
    crash: Ambush = CrashWithin(me, plan.random.choice(EFFECTS))
    if plan.random.random() < 0.5:
        crash = When(plan.worst_moment(), crash)
    plan.at(at_us, crash)
    plan.at(plan.later(at_us, 100 * MS, 1_500 * MS), OnProcessor("restart", me))


def lead_astray(plan: Planner, at_us: int) -> None:
    """True packets at wrong places: shown to another, back at their sender, recorded and sent again."""
    random = plan.random
    source, other = plan.someone(), plan.someone()
    count = random.choice((1, 1, 2, 5))
    any_kind = random.choice(("token", "commit-token", "join", "join", "message", "null", "leave", "wake"))
    plan.at(
        at_us,
        random.choice(
            (
                Stray("show", "token", source, other, count),
                Stray("show", random.choice(("token", "commit-token")), None, other, count),
                Stray("misdirect", random.choice(("token", "commit-token")), source, other, count),
                Stray("reflect", any_kind, source, None, 4 * count),
                Stray("replay", any_kind, source, None, count, random.randint(20, 2_000) * MS),
                Stray("replay", any_kind, None, other, count, random.randint(1, 200) * MS),
            )
        ),
    )


def ambush_again(plan: Planner, at_us: int) -> None:
    """One ambush after another, so that a recovery that has failed fails again."""
    random = plan.random
    who = plan.someone()
    last: Ambush = random.choice(
        (
            OnProcessor("crash", who),
            CrashWithin(who, random.choice(EFFECTS)),
            plan.parts(),
            DropNext("token", None, None, 9),
        )
    )
    first: Ambush = random.choice(
        (plan.parts(), DropNext(random.choice(("token", "commit-token")), None, None, 9))
    )
    moment = plan.worst_moment()
    # Both wait for one moment: the first comes at it, and the other begins to wait then.
    plan.at(at_us, When(moment, first))
    plan.at(at_us, When(moment, When(plan.worst_moment(), last, None, random.choice((0, 0, 1, 2)))))
    plan.at(plan.later(at_us, 300 * MS, 2_000 * MS), OnProcessor("restart", who))
