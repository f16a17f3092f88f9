"""Mutants that no checker can notice in a simulated run (`BY_HAND`). Each has a test here.

Either no fault of the simulator makes the packet that the mutant needs, or the mutant raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from totempole.sim.contract import SansIo, SimulationError, StackFactory
from totempole.sim.fuzz.mutants import BY_HAND, mutated_stack
from totempole.sim.scenario import parse, run
from totempole.sim.stacks import RealStack
from totempole.srp.config import RingConfig
from totempole.srp.packets import RegularMessage
from totempole.types import ProcessorId

STAGED = Path(__file__).parent / "staged"
MUTANTS = {mutant.name: mutant for mutant in BY_HAND}
TESTED = {"a Commit token of another life taken", "a damaged old message counted as received"}


def test_there_is_a_test_for_each() -> None:
    assert set(MUTANTS) == TESTED


def test_a_commit_token_of_another_life_would_raise() -> None:
    """No entry of the token is of a ring that this life was on. `test_staged_mutants` runs the same
    scenario with the true protocol, which refuses the token and forms a ring with a higher number."""
    text = (STAGED / "the-same-number-in-two-lives.scenario").read_text()
    broken = mutated_stack(MUTANTS["a Commit token of another life taken"])
    with pytest.raises(SimulationError, match=r"processor 1 .* Written.*: ValueError"):
        run(parse(text, "two lives"), level="checked", stack=broken)


LACKS_ONE = """
# 2 lacks a message of 1 when 3 crashes, and gets it in recovery.
processors 1 2 3
set token_loss_us 100000
at 1s drop-next message from 1 to 2
at 1s send 1 1 safe
at 1s crash 3
end 3s
expect settled 2s
"""


class DamagesOneInside:
    """Damages the inside of the first old message that processor 2 gets in recovery. The checksum is right,
    as if the sender's memory had flipped a bit before the checksum was computed."""

    def __init__(self, make: StackFactory) -> None:
        self._make = make
        self.damaged = 0

    def __call__(
        self, me: ProcessorId, config: RingConfig, stable: Mapping[str, int], trace_kinds: frozenset[str], /
    ) -> SansIo:
        stack: Any = self._make(me, config, stable, trace_kinds)
        if me == 2:
            self._intercept(stack.layers[0])
        return stack  # type: ignore[no-any-return]

    def _intercept(self, link: Any) -> None:
        receive, codec = link._arrived_packet, link._codec

        def receive_damaged(name: Any, data: bytes) -> None:
            packet = codec.decode(data)
            if isinstance(packet, RegularMessage) and packet.recovered and not self.damaged:
                self.damaged += 1
                inside = bytearray(packet.contents)
                inside[-1] ^= 1
                data = codec.encode(packet._replace(contents=bytes(inside)))
            receive(name, data)

        link._arrived_packet = receive_damaged


def test_an_old_message_that_is_damaged_inside_is_asked_for_again() -> None:
    damaging = DamagesOneInside(RealStack())
    assert run(parse(LACKS_ONE, "one damaged"), level="checked", stack=damaging).failures == []
    assert damaging.damaged == 1


def test_an_old_message_that_is_damaged_inside_would_be_lost() -> None:
    damaging = DamagesOneInside(mutated_stack(MUTANTS["a damaged old message counted as received"]))
    failures = run(parse(LACKS_ONE, "one damaged"), level="checked", stack=damaging).failures
    assert damaging.damaged == 1
    assert any("same-messages-in-consecutive-configurations: violated" in failure for failure in failures)
