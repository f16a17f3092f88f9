"""What all states have in common, and the two that stand outside the paper's four: Starting and Left.

A state is an object from entering it to leaving it. It owns what exists only in that state, and has one
method for each event that means something to it; the tables in `machine` say which. A state asks for the
next one through `Shifts`; `machine` makes it and records the reason.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from totempole.srp.forming import Forming
from totempole.srp.gathering import Consensus
from totempole.srp.packets import CommitToken, Packet
from totempole.srp.processor import Processor
from totempole.srp.recovery import Recovery
from totempole.srp.ring import Ring
from totempole.srp.states import State, Timer
from totempole.srp.token_holder import TokenHolder
from totempole.types import ConfigurationKind


class Shifts(Protocol):
    """The transitions that there are. `machine` is the one place that makes them."""

    def to_gather(self, reason: str) -> None: ...

    def to_commit(self, token: CommitToken, consensus: Consensus) -> None: ...

    def to_recover(self, forming: Forming, recovery: Recovery, token: CommitToken) -> None: ...

    def to_operational(self, holder: TokenHolder) -> None: ...

    def to_left(self, reason: str) -> None: ...


class Phase:
    """One state's data and what events do to it; `state` is its name."""

    __slots__ = ("output", "processor", "ring", "shift")

    state: ClassVar[State]

    def __init__(self, processor: Processor, shift: Shifts, ring: Ring) -> None:
        """`ring` is the one whose token this processor waits for, or last had."""
        self.processor = processor
        self.output = processor.output
        self.shift = shift
        self.ring = ring

    def drop(self, packet: Packet, _data: bytes) -> None:
        """Dropped: it means nothing in this state."""
        self.output.drop(f"{type(packet).__name__} in {self.state.name.lower()}")

    def idle(self, *_: int) -> None:
        """Nothing: a timer that was cancelled on entering this state, or an input without meaning in it."""

    def on_null_timeout(self) -> None:
        """Set the timer again."""
        self.output.set_timer(Timer.NULL, self.processor.config.null_us)

    def on_leave_timeout(self) -> None:
        """Leave, come what may."""
        self.shift.to_left("leave timeout")


class Starting(Phase):
    """Until stable storage has the first ring number."""

    __slots__ = ("ticket",)

    state = State.STARTING

    def __init__(self, processor: Processor, shift: Shifts) -> None:
        super().__init__(processor, shift, processor.installed)
        self.ticket = 0
        """The write that the start waits for."""

    def on_started(self) -> None:
        """Write the first ring number."""
        # Totem §4.2: on stable storage before it is used.
        self.ticket = self.processor.persist()

    def on_written(self, ticket: int) -> None:
        """Install the ring of oneself alone, then gather."""
        assert self.ticket, "something was written before the first ring number"
        if ticket == self.ticket:
            self.install_alone()

    def install_alone(self) -> None:
        """Looks for others from there."""
        me, ring_id = self.processor.me, self.processor.ring_id
        assert self.ring.ring_id == ring_id, "a ring was agreed on before the start"
        self.output.install(ConfigurationKind.REGULAR, ring_id, (me,), ring_id, 0)
        self.output.set_timer(Timer.NULL, self.processor.config.null_us)
        self.shift.to_gather("start")


class Left(Phase):
    """After a farewell: nothing is said any more."""

    __slots__ = ()

    state = State.LEFT

    def __init__(self, processor: Processor, shift: Shifts) -> None:
        super().__init__(processor, shift, processor.installed)
