"""What happens to a run at one replica (COReL §5.2.1), and that a replica says nothing before it is on its
disk (§5.1: the log first, then the acknowledgement)."""

from __future__ import annotations

from totempole.checkers.corel_history import LogHistory
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.layers.corel import (
    ATTEMPTED,
    COMMITTED,
    CUT_OFF,
    GREEN,
    HANDLER,
    LOOKING_ON,
    MINORITY,
    OPENED,
    PRIMARY,
    RED,
    YELLOW,
)
from totempole.trace.schema import Row
from totempole.types import ProcessorId

# corel-colours

_STEPS: dict[str, frozenset[tuple[str, str]]] = {
    OPENED: frozenset({("", RED), ("", YELLOW)}),
    "placed": frozenset({("", RED), ("", YELLOW)}),
    "promoted": frozenset({(RED, YELLOW)}),
    "greened": frozenset({(YELLOW, GREEN)}),
    "agreed": frozenset(
        {("", YELLOW), ("", GREEN), (RED, YELLOW), (RED, GREEN), (YELLOW, GREEN), (YELLOW, RED), (YELLOW, "")}
    ),
    "committed": frozenset({("", YELLOW), (RED, YELLOW)}),
    "fetched": frozenset({("", GREEN), (RED, GREEN), (YELLOW, GREEN), (YELLOW, RED), (YELLOW, "")}),
    "mark": frozenset({(YELLOW, RED), (YELLOW, ""), (RED, "")}),
}
"""By step: the changes of colour that it may bring. Green never changes; yellow falls back only in a handler,
or where a replica fetches what others have ordered without it."""

_FORGETTABLE = frozenset({("agreed", YELLOW), ("fetched", YELLOW)})
"""Where only the record of a primary may be dropped. What a mark makes superfluous is in its green prefix."""

_PHASES: dict[tuple[str, str], frozenset[str]] = {
    ("placed", YELLOW): frozenset({PRIMARY}),
    ("placed", RED): frozenset({CUT_OFF, MINORITY, "agreeing", "leaving"}),
    ("promoted", YELLOW): frozenset({PRIMARY}),
    ("greened", GREEN): frozenset({PRIMARY, "committing"}),
}
"""By step and new colour: the phases in which it may happen. In a primary a run is red only after a
transitional view; before the handler has ended, only what the representative sends is taken."""


def colours(log: LogHistory, terms: Terms, found: Findings) -> None:
    for by_node in log.by_run.values():
        for node, rows in sorted(by_node.items()):
            for opening, mine in log.openings_of(node, rows):
                colour = ""
                for row in mine:
                    _check_step(log, row, found)
                    if opening is not None and row.old_state != colour:
                        found.violated(
                            f"Run {row.message} went from {row.old_state or 'nothing'} to "
                            f"{row.new_state or 'nothing'} at node {node}, and was {colour or 'not there'}.",
                            row,
                        )
                    colour = row.new_state


def _check_step(log: LogHistory, row: Row, found: Findings) -> None:
    change = (row.old_state, row.new_state)
    if change not in _STEPS.get(row.reason, ()) or _is_forgotten(row):
        found.violated(
            f"Run {row.message} went from {change[0] or 'nothing'} to {change[1] or 'nothing'} at node "
            f"{row.node} when it was {row.reason}.",
            row,
        )
        return
    allowed = _PHASES.get((row.reason, row.new_state))
    phase = _phase_before(log, row)
    if row.old_state == YELLOW and row.new_state in (RED, ""):
        allowed = HANDLER | {LOOKING_ON}
    if allowed is not None and phase and phase not in allowed:
        found.violated(
            f"Run {row.message} went from {change[0] or 'nothing'} to {change[1] or 'nothing'} at node "
            f"{row.node}, in phase {phase}.",
            row,
        )


def _phase_before(log: LogHistory, row: Row) -> str:
    """A transitional view that cuts a handler short does not end it."""
    phase = log.phase_before(row)
    if phase is None:
        return ""
    is_unfinished = phase.new_state == CUT_OFF and phase.old_state not in (PRIMARY, MINORITY)
    return f"{phase.old_state}, {CUT_OFF}" if is_unfinished else phase.new_state


def _is_forgotten(row: Row) -> bool:
    is_dropped = not row.new_state and (row.reason, row.old_state) in _FORGETTABLE
    return is_dropped and row.corel.run_kind != "primary"


# corel-durable-before-acknowledged


def durable_before_acknowledged(log: LogHistory, terms: Terms, found: Findings) -> None:
    """Not judged where no acknowledgements were recorded, below the level `checked`."""
    for node, rows in sorted(log.by_node.items()):
        for opening, mine in log.openings_of(node, rows):
            if opening is not None:
                _Disk(node, opening, found).judge(mine)


class _Disk:
    """What one replica has on its disk, and says, in one opening."""

    def __init__(self, node: ProcessorId, opening: Row, found: Findings) -> None:
        self._node = node
        self._found = found
        self._durable = opening.corel.frames
        self._phase = ""
        self._taken: list[Row] = []
        """Runs delivered in the present primary component, which acknowledgements count."""
        self._steps: dict[tuple[str, int], Row] = {}
        """By what was done and the number of the primary."""

    def judge(self, rows: list[Row]) -> None:
        for row in rows:
            match row.kind:
                case "durable":
                    self._durable = max(self._durable, row.corel.frames)
                case "phase":
                    self._phase = row.new_state
                    if row.new_state == PRIMARY:
                        self._taken.clear()
                case "primary":
                    self._steps[row.reason, row.corel.primary] = row
                case "colour":
                    if row.reason == "promoted" or (row.reason == "placed" and row.new_state == YELLOW):
                        self._taken.append(row)
                case "acknowledge":
                    self._check(row)

    def _check(self, row: Row) -> None:
        match row.reason:
            case "runs" if self._phase == PRIMARY:
                self._check_runs(row)
            case "attempt":
                self._check_step(row, ATTEMPTED)
            case "commit":
                self._check_step(row, COMMITTED)
            case _:
                pass
        if row.corel.frames > self._durable:
            self._found.violated(
                f"Node {self._node} said ({row.reason}) what {row.corel.frames} frames hold, and "
                f"{self._durable} were on its disk.",
                row,
            )

    def _check_runs(self, row: Row) -> None:
        if row.count > len(self._taken):
            self._found.violated(
                f"Node {self._node} acknowledged {row.count} runs, and has taken {len(self._taken)}.", row
            )
            return
        last = self._taken[row.count - 1]
        if last.corel.frames > self._durable:
            self._found.violated(
                f"Node {self._node} acknowledged run {last.message}, which is in frame {last.corel.frames}; "
                f"{self._durable} frames were on its disk.",
                last,
                row,
            )

    def _check_step(self, row: Row, what: str) -> None:
        step = self._steps.get((what, row.corel.primary))
        if step is None or step.corel.frames > self._durable:
            self._found.violated(
                f"Node {self._node} said that it has {what} primary {row.corel.primary}, which was not on "
                f"its disk.",
                *([] if step is None else [step]),
                row,
            )
