"""Members of a primary group that lack one rule each."""

from __future__ import annotations

from typing import Any

from primary_world import Journal

from totempole.client.primary_member import (
    PLACE,
    Epoch,
    Formation,
    Phase,
    PrimaryMember,
    Round,
    _rank,
    pack_place,
)
from totempole.types import ProcessId

Member = PrimaryMember[Journal]


class CountsTheForgetful(Member):
    """A majority of nodes suffices, whether they have a state or not."""

    def _formation(self, current: Round) -> Formation | None:
        nodes = frozenset(range(1, self._expected + 1))
        if not self._is_majority(current.hellos, nodes):
            return None
        holders = {member: hello for member, hello in current.hellos.items() if hello.epoch is not None}
        if not holders:
            return Formation(None, nodes, min(current.hellos), True)
        donor = min(holders, key=lambda member: _rank(member, holders))
        return Formation(holders[donor].epoch, nodes, donor, True)


class FoundsWithAMajority(Member):
    """The first state needs no more than a majority."""

    def _founding(self, current: Round) -> Formation | None:
        nodes = frozenset(range(1, self._expected + 1))
        if not self._is_majority(current.hellos, nodes):
            return None
        return Formation(None, nodes, min(current.seats.values()), True)


class AnyView(Member):
    """Messages count in whatever view they are delivered."""

    def message(self, sender: ProcessId, payload: bytes) -> None:
        if self._round is not None:
            payload = payload[:1] + pack_place(self._round.place) + payload[1 + PLACE.size :]
        super().message(sender, payload)


class DoesNotWaitForAMajority(Member):
    """Goes on as soon as there is a base, though others may still lack its state."""

    @property
    def phase(self) -> Phase:
        phase = super().phase
        formed = self._round is not None and self._round.formation is not None
        return Phase.PRIMARY if phase is Phase.EXCHANGING and formed and not self._transitional else phase


class ForgetsTheTransitional(Member):
    """What comes in a transitional view is not applied."""

    def _apply(self, sender: ProcessId, ticket: int, command: bytes) -> None:
        if not self._transitional:
            super()._apply(sender, ticket, command)


class DoneInTransition(Member):
    """What is applied in a transitional view counts as done."""

    def _apply(self, sender: ProcessId, ticket: int, command: bytes) -> None:
        transitional, self._transitional = self._transitional, False
        super()._apply(sender, ticket, command)
        self._transitional = transitional


class AnyBase(Member):
    """The first holder gives its state, however old."""

    def _formation(self, current: Round) -> Formation | None:
        found = super()._formation(current)
        if found is None or found.base is None:
            return found
        donor = min(member for member, hello in current.hellos.items() if hello.epoch is not None)
        return found._replace(donor=donor, base=current.hellos[donor].epoch)


class NoDigest(Member):
    """Members of one epoch are taken to have the same state."""

    def _apply(self, sender: ProcessId, ticket: int, command: bytes) -> None:
        assert self.epoch is not None
        before = self.epoch
        super()._apply(sender, ticket, command)
        self.epoch = Epoch(before.place, before.digest)


class KeepsItsMemory(Member):
    """Whose session was lost goes on with what it has, though it missed messages."""

    def lost(self) -> None:
        kept = self.machine, self.epoch, self._nodes
        super().lost()
        self.machine, self.epoch, self._nodes = kept


class UncertainIsDone(Member):
    """What was applied in a transitional view is done when there is a primary again, whoever is its base."""

    def _settle_uncertain(self, applied: bool) -> None:
        super()._settle_uncertain(applied=True)


class DoneAtFormation(Member):
    """What was applied in a transitional view is done when there is a base, though a majority lacks it."""

    def _form(self, current: Round, formation: Formation) -> None:
        super()._form(current, formation)
        self._settle_uncertain(applied=True)


class GivesUpLate(Member):
    """Keeps commands that its snapshot contains."""

    def _heard_late(self, current: Round, formation: Any, member: ProcessId, hello: Any) -> None:
        self._heard(current, formation, member, hello)


class HoldsNothing(Member):
    """Commands that come before the snapshot are passed over."""

    def _command(self, sender: ProcessId, ticket: int, command: bytes, meant: bool) -> None:
        super()._command(sender, ticket, command, meant)
        if self._round is not None:
            self._round.held.clear()


class SentAgainTooEarly(Member):
    """A command is sent again with every primary, although the first may still come."""

    def _hello(self, current: Round, sender: ProcessId, hello: Any) -> None:
        if current.formation is None:
            for call in self._calls.values():
                call.sent = False
        super()._hello(current, sender, hello)
