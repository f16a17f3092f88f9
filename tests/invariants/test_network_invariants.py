"""Each assertion of `rrp` and `networks` fails when what it says is broken."""

from __future__ import annotations

import pytest

from invariants_seen import Breakage, assertions_in, failed_at
from totempole.networks.reports import Row
from totempole.networks.service import Service
from totempole.rrp import RedundancyConfig, Replicator
from totempole.rrp.gate import TokenGate
from totempole.rrp.paths import Finding, Leak
from totempole.rrp.route import stripes
from totempole.sim.conditions import Lan
from totempole.sim.stacks import RealStack
from totempole.sim.world import World
from totempole.stack import NetworkSpec, ProcessorStack
from totempole.types import RingId

KEY = (RingId(4, 1), 7)
ALL_FINE = Row(0, 0, (), (), 2)


def a_replicator() -> Replicator:
    redundancy = RedundancyConfig(style="active")
    networks = (NetworkSpec(name="a"), NetworkSpec(name="b"))
    world = World(1, 2, stack=RealStack(networks=networks, redundancy=redundancy), lans=(Lan(), Lan()))
    world.start()
    world.run_until(1_000)
    stack = world.hosts[1].stack
    assert isinstance(stack, ProcessorStack)
    return stack.replicators[0]


# rrp


def a_token_that_begins_twice(patch: pytest.MonkeyPatch) -> None:
    gate = TokenGate()
    gate.begin(KEY, 1, 3, 0, 0)
    gate.begin(KEY, 1, 3, 1, 0)


def a_release_of_nothing(patch: pytest.MonkeyPatch) -> None:
    TokenGate().release()


def no_network_in_service(patch: pytest.MonkeyPatch) -> None:
    a_replicator().serve(0, 0, False)


def a_drained_network_in_service(patch: pytest.MonkeyPatch) -> None:
    a_replicator().serve(3, 1, False)


def more_lost_than_was_sent(patch: pytest.MonkeyPatch) -> None:
    Leak().note(1.5)


def a_stripe_on_every_network(patch: pytest.MonkeyPatch) -> None:
    stripes(1_000, 0b11, (1, 1), 2)


# networks


def every_network_marked(patch: pytest.MonkeyPatch) -> None:
    service = Service(("a", "b"))
    patch.setattr(service, "_in_service", list)
    service.install((1, 2))
    service.take_row(1, ALL_FINE)
    service.take_row(2, ALL_FINE._replace(findings=(Finding(0, 1, True, 1),)))


BREAKAGES: dict[str, tuple[Breakage, ...]] = {
    "rrp": (
        a_token_that_begins_twice,
        a_release_of_nothing,
        no_network_in_service,
        a_drained_network_in_service,
        more_lost_than_was_sent,
        a_stripe_on_every_network,
    ),
    "networks": (every_network_marked,),
}


@pytest.mark.parametrize("package", BREAKAGES)
def test_every_assertion_was_seen_to_fail(package: str) -> None:
    assert {failed_at(breakage) for breakage in BREAKAGES[package]} == assertions_in(package)
