"""Who waits for a host to have applied something: a position, or a call of another program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from totempole.errors import SessionError, TotemError
from totempole.objects.machine import ObjectMachine
from totempole.objects.pending import PendingOutcome, PendingPosition, Waiting

FORGOTTEN = "the call is in the order; its result is not kept any more, or it was never applied"


class Waits:
    def __init__(self, settle: Callable[[Waiting], None]) -> None:
        self._settle = settle
        self._positions: list[PendingPosition] = []
        self._outcomes: list[PendingOutcome] = []

    def __iter__(self) -> Any:
        return iter((*self._positions, *self._outcomes))

    def add_position(self, machine: ObjectMachine[Any], position: int, waiter: Any) -> PendingPosition:
        pending = PendingPosition(position, waiter)
        self._positions.append(pending)
        self.check(machine)
        return pending

    def add_outcome(
        self, machine: ObjectMachine[Any], client: str, number: int, waiter: Any
    ) -> PendingOutcome:
        pending = PendingOutcome(client, number, waiter)
        self._outcomes.append(pending)
        self.check(machine)
        return pending

    def give_up(self, pending: PendingPosition | PendingOutcome, error: TotemError | None = None) -> None:
        """Nobody waits any more; or, with an error, it will never come."""
        if pending.is_done:
            return
        if error is None:
            pending.is_done = True
        else:
            self._fail(pending, error)
        self._clean()

    def check(self, machine: ObjectMachine[Any]) -> None:
        """Tells those who need not wait any longer."""
        if not (self._positions or self._outcomes):
            return
        for waiting in self._positions:
            if waiting.position <= machine.applied:
                self._settle(waiting)
        for pending in self._outcomes:
            pending.outcome = machine.outcome_of(pending.client, pending.number)
            if pending.outcome is not None:
                self._settle(pending)
            elif pending.position is not None and machine.applied > pending.position:
                self._fail(pending, SessionError(FORGOTTEN))
        self._clean()

    def _fail(self, pending: Waiting, error: TotemError) -> None:
        pending.error = error
        self._settle(pending)

    def _clean(self) -> None:
        self._positions = [pending for pending in self._positions if not pending.is_done]
        self._outcomes = [pending for pending in self._outcomes if not pending.is_done]
