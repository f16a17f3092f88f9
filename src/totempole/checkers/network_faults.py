"""What faults of networks may do to a ring, and what must be told of them. The simulator knows when what
failed (`Terms.shared`, `Terms.lossless`, `Terms.alarmed`); of nodes nobody does.
"""

from __future__ import annotations

from totempole.checkers.network_history import NetworkHistory
from totempole.checkers.terms import Alarmed, Calm, Terms
from totempole.checkers.verdict import Findings
from totempole.trace.lives import Life

FAILED = ("sick", "faulty")


def no_configuration(networks: NetworkHistory, terms: Terms, found: Findings) -> None:
    """RRP §3: as long as every two processors share a network, the membership does not change."""
    for calm in terms.shared:
        for life in networks.history.lives:
            for stay in life.stays:
                row = stay.change
                if calm.settled_us < row.at_us <= calm.to_us:
                    found.violated(
                        f"Node {life.node} installed {stay.name} at {row.at_us} us, and since "
                        f"{calm.from_us} us every two processors shared a network.",
                        row,
                    )


def no_needless_retransmission(networks: NetworkHistory, terms: Terms, found: Findings) -> None:
    """A2, P1: where nothing is lost nothing is sent again, in whatever order it comes."""
    for row in networks.retransmissions:
        calm = _within(row.at_us, terms.lossless)
        if calm is not None:
            found.violated(
                f"Node {row.node} sent {row.ring} {row.seq} again at {row.at_us} us, and nothing was lost "
                f"since {calm.from_us} us.",
                row,
            )


def no_false_alarm(networks: NetworkHistory, terms: Terms, found: Findings) -> None:
    """A6, P5: where nothing is lost no network fails."""
    for rows in networks.changes.values():
        for row in rows:
            calm = _within(row.at_us, terms.lossless)
            if calm is not None and row.new_state in FAILED and row.new_state != row.old_state:
                found.violated(
                    f"Node {row.node} was told that network {row.network} is {row.new_state} at {row.at_us} "
                    f"us, and nothing was lost since {calm.from_us} us.",
                    row,
                )


def _within(at_us: int, stretches: tuple[Calm, ...]) -> Calm | None:
    return next((calm for calm in stretches if calm.settled_us < at_us <= calm.to_us), None)


def alarms(networks: NetworkHistory, terms: Terms, found: Findings) -> None:
    """A5, P4: a fault that stays is told of, in time, and named rightly when all is known."""
    for fault in terms.alarmed:
        for life in networks.history.lives:
            if not life.ended and life.stays:
                _check_alarm(networks, life, fault, found)


def _check_alarm(networks: NetworkHistory, life: Life, fault: Alarmed, found: Findings) -> None:
    rows = [row for row in networks.of(life) if row.network == fault.network and row.at_us >= fault.from_us]
    told = [row for row in rows if row.reason]
    if not told or told[0].at_us > fault.told_us:
        when = f"at {told[0].at_us} us" if told else "never"
        found.violated(
            f"Node {life.node} was told {when} that network {fault.network} fails, which it does since "
            f"{fault.from_us} us.",
            *told[:1],
            nodes=(life.node,),
        )
    if told and rows[-1].reason != fault.why:
        found.violated(
            f"Node {life.node} was told of network {fault.network} at last: {rows[-1].reason!r}; it is "
            f"{fault.why!r}.",
            rows[-1],
        )
