"""What a replica keeps of the others' clocks, for its node to compare."""

from __future__ import annotations

from typing import Any

import pytest
from corel_stage import Stage

from totempole.corel.commands import SetHold

YEAR_US = 365 * 86_400 * 1_000_000


def test_the_last_records_of_a_host_tell_its_clock() -> None:
    """A correction counts, though an earlier run had a later time."""
    stage = Stage()
    for time_us in (7, YEAR_US, 9):
        stage.append(2, "a", time_us=time_us)
    stage.run()
    assert [stage.world.replica(me).take_times() for me in (1, 2, 3)] == [{2: 9}] * 3


def hold(stage: Stage) -> None:
    stage.world.feed(2, SetHold(1, 99, "reader", 0))


def change(stage: Stage) -> None:
    stage.change_set(2, 3, 2)


def new_primary(stage: Stage) -> None:
    stage.world.change((1, 2))
    stage.run()
    stage.world.change((1, 2, 3))


@pytest.mark.parametrize("own", [hold, change, new_primary])
def test_the_logs_own_runs_tell_nothing_of_a_clock(own: Any) -> None:
    """They have no time. A hold after each record would pass for a clock that is corrected each time, and be
    an alarm each time, or hide the clock altogether."""
    stage = Stage()
    stage.append(2, "a", time_us=YEAR_US)
    stage.run()
    own(stage)
    stage.run()
    assert [stage.world.replica(me).take_times() for me in (1, 2, 3)] == [{2: YEAR_US}] * 3
