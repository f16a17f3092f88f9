"""The discard limit of appendix A: who has delivered enough halts."""

from __future__ import annotations

import pytest

from totempole.errors import ScenarioError
from totempole.sim.scenario import parse, run

TEXT = """\
processors 1 2 3
discard-limit 40
at 400ms send 1 30
at 600ms send 2 30
at 1s    send 3 5
end 3s
expect settled 1s
"""


def test_each_processor_halts_when_it_has_delivered_so_many() -> None:
    outcome = run(parse(TEXT))
    assert not outcome.failures
    hosts = outcome.world.hosts.values()
    assert all(host.delivered >= 40 and not host.alive for host in hosts)
    assert outcome.world.faults["crash"] == 3
    assert outcome.limit is not None
    assert 600_000 <= outcome.limit.last_halt_us < 3_000_000


def test_below_the_limit_nobody_halts() -> None:
    outcome = run(parse(TEXT.replace("limit 40", "limit 66")))
    assert not outcome.failures
    assert all(host.delivered == 65 and host.alive for host in outcome.world.hosts.values())


def test_it_is_written_as_it_is_read() -> None:
    scenario = parse(TEXT)
    assert scenario.discard_limit == 40
    assert parse(scenario.to_text()).discard_limit == 40


@pytest.mark.parametrize("line", ["discard-limit 0", "discard-limit many", "discard-limit 5\ngroups"])
def test_mistakes_are_named(line: str) -> None:
    with pytest.raises(ScenarioError, match=r"limit|number"):
        parse(TEXT.replace("discard-limit 40", line))
