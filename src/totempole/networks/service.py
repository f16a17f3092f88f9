"""Which networks are in service: a state that all members of a ring keep alike.

It changes only by what is delivered, so that it changes everywhere at the same place of the total order. On a
new configuration each member tells what it knows, and the state begins anew from all of that: processors that
come together from two rings agree.

| state | a path is bad | no path is bad | drained by people | restored |
|---|---|---|---|---|
| in service | sick or faulty, unless it is the last | - | drained | - |
| sick, faulty | sick or faulty, as the paths are | on probation | drained | - |
| on probation | sick or faulty | in service, when its time is over | drained | - |
| drained | - | - | - | in service, or as its paths are |

Members may have different numbers of networks while one is added or removed: each has the first ones. A
network that some member does not have is faulty, or drained, and never in service. All members keep the
states of all networks, also of those that they do not have themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from totempole.networks.diagnosis import Bad, diagnose
from totempole.networks.events import NetworkState
from totempole.networks.reports import Row
from totempole.rrp.config import NETWORKS_MAX
from totempole.types import ProcessorId

OUT = (NetworkState.SICK, NetworkState.FAULTY, NetworkState.PROBATION)


class Change(NamedTuple):
    network: int
    old: NetworkState
    new: NetworkState
    why: str


class Service:
    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        """Of the networks that this processor has."""
        self._states = [NetworkState.FAULTY] * NETWORKS_MAX
        for number in range(len(self.names)):
            self._states[number] = NetworkState.IN_SERVICE
        self._why = [""] * NETWORKS_MAX
        self._told: list[frozenset[Bad]] = [frozenset()] * NETWORKS_MAX
        self.rows: dict[ProcessorId, Row] = {}
        self._members: tuple[ProcessorId, ...] = ()
        self._awaited: set[ProcessorId] = set()

    # Of the networks that this processor has

    @property
    def states(self) -> list[NetworkState]:
        return self._states[: len(self.names)]

    @property
    def why(self) -> list[str]:
        """What is wrong with each, in words."""
        return self._why[: len(self.names)]

    def state_of(self, number: int) -> NetworkState:
        """Also of a network that this processor does not have."""
        return self._states[number]

    def why_of(self, number: int) -> str:
        return self._why[number]

    def name_of(self, number: int) -> str:
        return self.names[number] if number < len(self.names) else str(number + 1)

    # What is delivered

    def install(self, members: Sequence[ProcessorId]) -> None:
        """A new configuration: until each member has told what it knows, all stays as it is."""
        self._members = tuple(sorted(members))
        self._awaited = set(members)
        self.rows.clear()

    def take_row(self, origin: ProcessorId, row: Row) -> list[Change]:
        if origin not in self._members:
            return []
        self.rows[origin] = row
        before = list(self._states)
        if self._awaited:
            self._awaited.discard(origin)
            if self._awaited:
                return []
            self._begin()
            changes = self._judge(before)
            # What was told before is each member's own past.
            self._told = [frozenset(self._bad(number)) for number in range(NETWORKS_MAX)]
            return changes
        return self._judge(before)

    def drain(self, network: int) -> list[Change] | str:
        """What changes, or why it is refused."""
        if self._awaited:
            return "the ring has just changed: ask again"
        if self._states[network] is NetworkState.DRAINED:
            return "it is drained already"
        rest = [other for other in self._in_service() if other != network]
        if not rest:
            return "no other network is in service"
        cut = [other for other in rest if self._bad(other)]
        if len(cut) == len(rest):
            return f"{self.name_of(cut[0])} does not reach everyone: {self._why[cut[0]]}"
        before = list(self._states)
        self._states[network] = NetworkState.DRAINED
        return self._judge(before)

    def restore(self, network: int) -> list[Change] | str:
        if self._awaited:
            return "the ring has just changed: ask again"
        if self._states[network] is not NetworkState.DRAINED:
            return "it is not drained"
        return self._put_in(network)

    def reinstate(self, network: int) -> list[Change]:
        """Its probation is over."""
        if self._awaited or self._states[network] is not NetworkState.PROBATION:
            return []
        return self._put_in(network)

    def _put_in(self, network: int) -> list[Change]:
        before = list(self._states)
        self._states[network] = NetworkState.IN_SERVICE
        return self._judge(before)

    # What follows from it

    @property
    def is_agreed(self) -> bool:
        """Whether all members have told what they know."""
        return not self._awaited

    @property
    def known(self) -> int:
        """How many networks the member has that has most of them."""
        return max((row.networks for row in self.rows.values()), default=0)

    @property
    def drained(self) -> int:
        return sum(1 << n for n, state in enumerate(self._states) if state is NetworkState.DRAINED)

    @property
    def out(self) -> int:
        return sum(1 << n for n, state in enumerate(self._states) if state in OUT)

    @property
    def is_whole(self) -> bool:
        """Whether every network in service reaches everyone."""
        return not any(map(self._bad, self._in_service()))

    @property
    def carrying(self) -> int:
        """The networks that messages go on: those in service, or all where none of them is whole."""
        networks = self._in_service()
        if not self.is_whole:
            networks = [n for n, state in enumerate(self._states) if state is not NetworkState.DRAINED]
        return sum(1 << number for number in networks)

    def _in_service(self) -> list[int]:
        return [n for n, state in enumerate(self._states) if state is NetworkState.IN_SERVICE]

    @property
    def _common(self) -> int:
        """How many networks every member has."""
        return min((row.networks for row in self.rows.values()), default=len(self.names))

    def _lacking(self, network: int) -> list[ProcessorId]:
        return [member for member, row in sorted(self.rows.items()) if row.networks <= network]

    def _bad(self, network: int) -> list[Bad]:
        """The bad paths; to and from a member that does not have the network nothing comes through."""
        lacking = self._lacking(network)
        absent = [
            Bad(sender, receiver, True, 0)
            for one in lacking
            for other in self.rows
            if one != other
            for sender, receiver in ((one, other), (other, one))
        ]
        return absent + [
            Bad(finding.sender, receiver, finding.dead, finding.lost)
            for receiver, row in sorted(self.rows.items())
            for finding in row.findings
            if finding.network == network and finding.sender in self._members
        ]

    def _begin(self) -> None:
        drained = out = 0
        for row in self.rows.values():
            drained |= row.drained
            out |= row.out
        every = (1 << self._common) - 1
        if drained & every == every:
            drained &= ~every
        for number in range(NETWORKS_MAX):
            if drained >> number & 1:
                self._states[number] = NetworkState.DRAINED
            elif number >= self._common:
                self._states[number] = NetworkState.FAULTY
            elif out >> number & 1 and (drained | out) & every != every:
                self._states[number] = NetworkState.PROBATION
            else:
                self._states[number] = NetworkState.IN_SERVICE

    def _judge(self, before: list[NetworkState]) -> list[Change]:
        self._take_from_those_that_lack()
        for number in range(self._common):
            state = self._states[number]
            if state is not NetworkState.DRAINED:
                self._states[number] = self._judged(number, state)
        if not self.is_whole:
            self._take_what_is_whole()
        assert self._in_service(), "the last network in service is never marked"
        known = range(self.known)
        return [change for number in known if (change := self._change(number, before[number]))]

    def _take_from_those_that_lack(self) -> None:
        """A network that some member does not have is not in service, even if it was the last that was."""
        for number in range(self._common, NETWORKS_MAX):
            if number >= self.known or self._states[number] is not NetworkState.DRAINED:
                self._states[number] = NetworkState.FAULTY
            if number >= self.known:
                self._why[number], self._told[number] = "", frozenset()
        if not self._in_service():
            common = range(self._common)
            rest = [number for number in common if self._states[number] is not NetworkState.DRAINED]
            for number in rest or common:
                self._states[number] = NetworkState.IN_SERVICE

    def _judged(self, number: int, state: NetworkState) -> NetworkState:
        bad = self._bad(number)
        if not bad:
            return NetworkState.PROBATION if state in OUT else state
        if state is NetworkState.IN_SERVICE and self._in_service() == [number]:
            return state
        return NetworkState.FAULTY if any(path.dead for path in bad) else NetworkState.SICK

    def _take_what_is_whole(self) -> None:
        """The network in service does not reach everyone. One on probation that does need not wait."""
        for number, state in enumerate(self._states):
            if state is NetworkState.PROBATION:
                self._states[number] = NetworkState.IN_SERVICE
                for other in self._in_service():
                    self._states[other] = self._judged(other, self._states[other])
                return

    def _change(self, number: int, old: NetworkState) -> Change | None:
        """What is worth telling: another state, or a fault that is larger than was told. That a fault becomes
        smaller is told when it is over."""
        bad, why = frozenset(self._bad(number)), self._reason(number)
        is_news = why != self._why[number] and not bad < self._told[number]
        self._why[number] = why
        if self._states[number] is old and not is_news:
            return None
        self._told[number] = bad
        return Change(number, old, self._states[number], why)

    def _reason(self, number: int) -> str:
        said = []
        if self._states[number] is not NetworkState.DRAINED:
            said.append(diagnose(self._bad(number), self._members, self._lacking(number)))
        # Of networks that all have: the others' names are not known to all.
        crossed = {
            pair
            for row in self.rows.values()
            for pair in row.crossed
            if number in pair and max(pair) < self._common
        }
        said += [f"wired together with {self.name_of(sum(pair) - number)}" for pair in sorted(crossed)]
        return "; ".join(filter(None, said))
