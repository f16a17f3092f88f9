"""Carries reports on networks in the total order, and tells the replicator below what all have agreed on."""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Protocol

from totempole.core.io import Scope
from totempole.core.order import Between, Deliver, InstallConfiguration, Order
from totempole.core.stack import Commands
from totempole.errors import ConfigurationError
from totempole.networks.commands import Drain, Restore
from totempole.networks.events import NetworkChanged, NetworkRefused, NetworkState
from totempole.networks.reports import (
    RELAPSES_MAX,
    Relapses,
    ReportKind,
    Request,
    Row,
    is_report,
    pack_relapses,
    pack_request,
    pack_row,
    unpack,
)
from totempole.networks.service import Change, Service
from totempole.rrp.commands import AddNetwork, RemoveNetwork
from totempole.rrp.config import NETWORKS_MAX
from totempole.rrp.layer import Replicator
from totempole.rrp.paths import Finding
from totempole.types import OrderKey, ProcessorId
from totempole.types import Service as Quality

LAYER = "networks"

RANK_US = 250_000
"""The member of the lowest number ends a probation. Each further one waits so much longer, in case that one
is gone."""

LASTING = 20
"""In service for so many probations, a network has no relapses any more."""

REQUESTS_MAX = 16
"""What people have asked for and is not sent yet."""


ROW_GAP_US = 300_000
"""Between two rows of one processor that tell of the same networks."""


class Timer(IntEnum):
    """The probation of each network, and the next row."""

    FIRST = 0
    SECOND = 1
    THIRD = 2
    FOURTH = 3
    FIFTH = 4
    SIXTH = 5
    SEVENTH = 6
    ROW = 7


class RingBelow(Order, Protocol):
    """The ring, which lets reports go before all that waits."""

    def report(self, payload: bytes) -> bool: ...


class Networks(Between):
    def __init__(
        self, scope: Scope, below: RingBelow, me: ProcessorId, replicator: Replicator, probation_us: int
    ) -> None:
        super().__init__(scope, below)
        self._ring = below
        self.service = Service(replicator.names)
        self._me = me
        self._replicator = replicator
        self._probation_us = probation_us
        self._members: tuple[ProcessorId, ...] = ()
        self._told: Row | None = None
        """The row that this processor has told last in this configuration."""
        self._told_us = 0
        self._row_timer_set = False
        self._underway = False
        """Whether it is not delivered yet."""
        self._requests: deque[Request] = deque()
        self._is_due = False
        """Whether there may be something to tell, besides what the layer below finds."""
        self._findings = replicator.watch.findings
        self._crossed = replicator.watch.crossed
        """As this layer has last looked at them."""
        self._relapses = [0] * NETWORKS_MAX
        """How often each network has come back from probation, since it last stayed in service for long. All
        members count the same, or the shortest probation of all would be everybody's."""
        self._relapses_told = False
        """In this configuration."""
        self._since_us = [0] * NETWORKS_MAX
        """When each network last came into service, as far as this processor knows."""

    @property
    def commands(self) -> Commands:
        return {
            Drain: self._drain,
            Restore: self._restore,
            AddNetwork: self._follow_replicator,
            RemoveNetwork: self._follow_replicator,
        }

    def _follow_replicator(self, _command: AddNetwork | RemoveNetwork) -> None:
        """The layer below has taken the command. The others learn of it by the next row: until then the
        network is as it was for all."""
        self.service.names = self._replicator.names
        self._is_due = True
        self._serve()

    # What people ask for

    def _drain(self, command: Drain) -> None:
        self._ask(ReportKind.DRAIN, command.network)

    def _restore(self, command: Restore) -> None:
        self._ask(ReportKind.RESTORE, command.network)

    def _ask(self, kind: ReportKind, network: int) -> None:
        if not 0 <= network < len(self.service.names):
            raise ConfigurationError(f"network {network}: there are {len(self.service.names)}, from 0")
        if len(self._requests) >= REQUESTS_MAX:
            raise ConfigurationError("too many requests wait already: ask again")
        self._requests.append(Request(kind, network))
        self._is_due = True

    # What this processor reports

    def settle(self) -> None:
        """After each input, so it looks first whether anything can have changed."""
        watch = self._replicator.watch
        if self._is_due or watch.findings is not self._findings or watch.crossed is not self._crossed:
            self._findings, self._crossed = watch.findings, watch.crossed
            self._is_due = False  # first, for what is delivered at once may set it again
            if self._members and not (self._tell_relapses() and self._tell_row() and self._send_requests()):
                self._is_due = True

    # Each of these is false if the ring does not take it yet.

    def _send_requests(self) -> bool:
        while self._requests:
            if not self._ring.report(pack_request(self._requests[0])):
                return False
            self._requests.popleft()
        return True

    def _tell_relapses(self) -> bool:
        """Before the row, so that all know them when they agree on what follows from the rows."""
        if not self._relapses_told:
            self._relapses_told = True  # first, as in `_tell_row`
            if any(self._relapses):
                self._relapses_told = self._ring.report(pack_relapses(Relapses(tuple(self._relapses))))
        return self._relapses_told

    def _tell_row(self) -> bool:
        """One at a time: what changes while it is under way is in the next. What is learned of a network that
        is known to have failed may wait a little, so that there is more to tell."""
        replicator, told = self._replicator, self._told
        if self._underway or not self._has_news(told):
            return True
        networks = len(self.service.names)
        is_less = told is not None and _networks_of(replicator.findings) <= _networks_of(told.findings)
        if told is not None and is_less and told.networks == networks:
            wait_us = self._told_us + ROW_GAP_US - self.scope.now_us
            if wait_us > 0:
                if not self._row_timer_set:
                    self._row_timer_set = True
                    self.scope.set_timer(Timer.ROW, wait_us)
                return True
        service = self.service
        mine = (1 << networks) - 1
        row = Row(
            service.out & mine, service.drained & mine, replicator.crossed, replicator.findings, networks
        )
        before = told, self._told_us
        # First, for a resting token may bring it back before `submit` returns.
        self._told, self._told_us, self._underway = row, self.scope.now_us, True
        if not self._ring.report(pack_row(row)):
            self._told, self._told_us = before
            self._underway = False
            return False
        return True

    def _has_news(self, told: Row | None) -> bool:
        watch = self._replicator.watch
        if told is None or told.networks != len(self.service.names):
            return True
        return told.crossed != watch.crossed or told.findings != watch.findings

    # The total order

    def submit(
        self, payload: bytes, service: Quality, groups: tuple[int, ...] = (), at_rest: bool = False
    ) -> bool:
        if is_report(payload):
            raise ConfigurationError("a payload that begins as a report on networks does: begin it otherwise")
        return super().submit(payload, service, groups, at_rest)

    def install(self, installed: InstallConfiguration) -> None:
        configuration = installed.configuration
        if configuration.kind == "regular":
            self._members = configuration.members
            self.service.install(configuration.members)
            self._told = None
            self._relapses_told = False
            self._underway = False
            self._is_due = True
        super().install(installed)

    def deliver(self, packet: Deliver) -> None:
        if not is_report(packet.payload):
            self.above.deliver(packet)
            return
        report = unpack(packet.payload)
        if isinstance(report, Row):
            if packet.origin == self._me:
                self._underway = False
                self._is_due = True
            self._changed(self.service.take_row(packet.origin, report), packet.key)
        elif isinstance(report, Request):
            self._carry_out(packet.origin, report, packet.key)
        elif isinstance(report, Relapses):
            self._learn_relapses(report)

    def _carry_out(self, origin: ProcessorId, request: Request, key: OrderKey) -> None:
        network, service = request.network, self.service
        answer: list[Change] | str
        if network >= service.known:
            answer = "the ring has just changed: ask again"
        elif request.kind is ReportKind.DRAIN:
            answer = service.drain(network)
        elif request.kind is ReportKind.RESTORE:
            answer = service.restore(network)
        else:
            answer = service.reinstate(network)
        if isinstance(answer, str):
            if origin == self._me:
                self.scope.tell(NetworkRefused(network, service.name_of(network), answer))
        else:
            self._changed(answer, key)

    def _changed(self, changes: list[Change], key: OrderKey) -> None:
        service = self.service
        for change in changes:
            self._follow(change)
            if self.scope.traces("network"):
                self.scope.trace(
                    "network",
                    {
                        "network": change.network + 1,
                        "ring": key.ring_id,
                        "seq": key.seq,
                        "old_state": change.old.name.lower(),
                        "new_state": change.new.name.lower(),
                        "reason": change.why,
                    },
                )
            if change.network < len(service.names):
                name = service.names[change.network]
                self.scope.tell(NetworkChanged(change.network, name, change.old, change.new, change.why, key))
        self._serve()

    def _serve(self) -> None:
        """Between a removal and its row, the networks in service may be none that this processor has."""
        service = self.service
        if service.is_agreed:
            mine = (1 << len(service.names)) - 1
            carrying = service.carrying & mine or mine
            self._replicator.serve(carrying, service.drained & mine & ~carrying, not service.is_whole)

    # Probation

    def _follow(self, change: Change) -> None:
        number, now_us = change.network, self.scope.now_us
        if change.new is change.old:
            return
        if change.old is NetworkState.IN_SERVICE:
            lasted_us = now_us - self._since_us[number]
            if lasted_us > LASTING * self._probation_us << self._relapses[number]:
                self._relapses[number] = 0
        if change.new is NetworkState.IN_SERVICE:
            self._since_us[number] = now_us
            if change.old is NetworkState.PROBATION:
                self._relapses[number] = min(self._relapses[number] + 1, RELAPSES_MAX)
        if change.new is NetworkState.PROBATION:
            rank = sorted(self._members).index(self._me) if self._me in self._members else 0
            wait_us = (self._probation_us << self._relapses[number]) + rank * RANK_US
            self.scope.set_timer(Timer(number), wait_us)
        else:
            self.scope.cancel_timer(Timer(number))

    def _learn_relapses(self, told: Relapses) -> None:
        """A processor that has started anew knows of none. It counts a network's time in service from now."""
        for number, count in enumerate(told.counts):
            self._relapses[number] = max(self._relapses[number], count)
            if count:
                self._since_us[number] = self._since_us[number] or self.scope.now_us

    def expired(self, timer: int) -> None:
        self.scope.expired(Timer(timer))
        if timer == Timer.ROW:
            self._row_timer_set = False
            self._is_due = True
            return
        if self.service.state_of(timer) is NetworkState.PROBATION and len(self._requests) < REQUESTS_MAX:
            self._requests.append(Request(ReportKind.REINSTATE, timer))
            self._is_due = True


def _networks_of(findings: tuple[Finding, ...]) -> set[int]:
    return {finding.network for finding in findings}
