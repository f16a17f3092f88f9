"""A replica set that has shrunk below the floor of dynamic voting goes on with all that are left."""

from __future__ import annotations

from totempole.sim.script_parser import parse
from totempole.sim.script_runner import run

SHRUNK = """
processors 1 2
seed 1
groups
log 1 2 rule=dynamic floor=2

at 1s append 1 orders
at 2s replica 1 remove 2
at 3s crash 2
at 4s append 1 orders
at 5s restart 2
at 9s expect settled 2500ms
end 9s
"""


def test_the_last_replica_goes_on_alone() -> None:
    outcome = run(parse(SHRUNK), level="checked")
    assert not outcome.failures
    assert any(row.kind == "primary" and row.members == (1,) for row in outcome.rows)
