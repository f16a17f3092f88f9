"""Founding, and every other handler, interrupted at every phase, by every kind of trouble."""

from __future__ import annotations

from typing import Any

import pytest
from corel_stage import Stage

from sweeps import first_of

PHASES = ("exchanging", "agreeing", "attempting", "committing", "primary")


@pytest.mark.parametrize("what", ["crash", "crash all", "leave", "alone", "all alone", "empty"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("who", first_of([1, 2, 3]))
def test_founding_is_interrupted(who: int, phase: str, what: str) -> None:
    stage = Stage(3, founded=False)
    for me in (1, 2, 3):
        stage.append(me, f"before founding {me}")
    stage.world.change((1, 2, 3))
    stage.until(lambda: stage.phase(who) == phase)
    _disturb(stage, who, what)
    stage.calm()
    assert len(stage.order) == len(set(stage.order))


@pytest.mark.parametrize("what", ["crash", "crash all", "leave", "alone", "all alone"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("who", first_of([1, 3, 5]))
@pytest.mark.parametrize("settings", first_of([{}, {"acknowledgements": "all"}, {"rule": "dynamic"}]))
def test_a_handler_is_interrupted(who: int, phase: str, what: str, settings: dict[str, Any]) -> None:
    stage = Stage(5, **settings)
    world = stage.world
    world.change((1, 2), (3, 4, 5))
    stage.append(1, "red")
    stage.append(3, "green")
    stage.append(4, "green, too")
    stage.run()
    world.change((1, 2, 3, 4, 5))
    stage.append(2, "under way")
    stage.until(lambda: stage.phase(who) == phase)
    _disturb(stage, who, what)
    stage.append(3 if 3 in world.up else 4, "afterwards") if world.up else None
    stage.run()
    world.change(world.up) if world.up else None
    stage.run()
    stage.calm()


def _disturb(stage: Stage, who: int, what: str) -> None:
    world = stage.world
    rest = [me for me in world.processors if me != who]
    if what == "crash":
        world.crash(who)
    elif what == "crash all":
        for me in world.processors:
            world.crash(me)
    elif what == "leave":
        world.close(who)
        world.open(who)
    elif what == "alone":
        world.change([who], rest)
    elif what == "all alone":
        world.change(*([me] for me in world.processors))
    else:
        world.crash(who)
        if not stage.properties.order:
            stage.properties.unsafe.add(who)
            world.processors[who].disk.empty()
    stage.run()
