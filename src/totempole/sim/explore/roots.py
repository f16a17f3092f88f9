"""Where a search starts: from nothing, or from a ring that exists and has work to do."""

from __future__ import annotations

from collections.abc import Callable

from totempole.sim.explore.explorer import Prologue, Saying
from totempole.sim.explore.processor import Cabinet, Processor
from totempole.sim.explore.rehearsal import Rehearsal
from totempole.srp.config import RingConfig
from totempole.srp.packets import RegularMessage
from totempole.types import Service


def small_config() -> RingConfig:
    """Windows and intervals so small that a few messages reach their ends."""
    return RingConfig(
        each_time_packets=1,
        window_packets=4,
        timestamp_interval=3,
        fail_to_receive_rounds=4,
        idle_hold_us=20_000,
        timeout_stretch_max_percent=100,
    )


def cold(_rehearsal: Rehearsal) -> None:
    """All start at once, and nothing has been written yet."""


def ring(rehearsal: Rehearsal) -> None:
    """One ring of all of them, idle."""
    if not rehearsal.settle():
        raise AssertionError("no ring came about")


def busy(rehearsal: Rehearsal) -> None:
    """One ring, and everyone has just submitted a message: safe ones, and the last one's agreed."""
    ring(rehearsal)
    last = len(rehearsal.processors)
    for processor in rehearsal.processors:
        service = Service.AGREED if processor.me == last else Service.SAFE
        rehearsal.submit(processor.me, 100 + processor.me, service)


def laden(rehearsal: Rehearsal) -> None:
    """As `busy`, and everyone has another message after that one."""
    busy(rehearsal)
    for processor in rehearsal.processors:
        rehearsal.submit(processor.me, 200 + processor.me, Service.AGREED)


def gap(rehearsal: Rehearsal) -> None:
    """The others lack a message of the first and have safe ones after it; the first is gone, with the token.

    What they may deliver past the gap depends on what they promise each other while they recover (Totem
    §4.3).
    """
    ring(rehearsal)
    rehearsal.lost = lambda packet: isinstance(packet, RegularMessage) and packet.sender == 1
    for processor in rehearsal.processors:
        rehearsal.submit(processor.me, 100 + processor.me, Service.SAFE)
    others = rehearsal.processors[1:]
    theirs = {other.me: f"{other.me}.1.1" for other in others}
    rehearsal.run(
        lambda: (
            all(
                message in other.received or me == other.me
                for other in others
                for me, message in theirs.items()
            )
            and not any(other.queued for other in others)
        )
    )
    rehearsal.crash(1)
    rehearsal.lost = lambda _packet: False


ROOTS: dict[str, Callable[[Rehearsal], None]] = {
    "cold": cold,
    "ring": ring,
    "busy": busy,
    "laden": laden,
    "gap": gap,
}


def root(name: str, cabinet: Cabinet, count: int) -> Prologue:
    told: list[Saying] = []
    processors = [Processor(me) for me in range(1, count + 1)]
    rehearsal = Rehearsal(cabinet, processors, lambda me, more: told.append(Saying(me, tuple(more))))
    rehearsal.start_all()
    ROOTS[name](rehearsal)
    return Prologue(rehearsal.state(), tuple(told))
