"""Seeds of `totem fuzz --logs` that failed once, and are too large to be scenario files."""

from __future__ import annotations

from totempole.sim.fuzz.log_plan import log_plan
from totempole.sim.fuzz.trial import try_scenario


def test_with_a_small_window_one_missing_packet_makes_no_laggard() -> None:
    """A link stays dead one way. Its end was expelled and taken back five times a second (decision 0008)."""
    verdict, _ = try_scenario(log_plan(4861))
    assert verdict.violated == (), verdict.text
