"""Ready-made objects: locks with fencing tokens, and elections.

    async with session.replica(Lock, "locks") as locks:
        token = await locks.call(Lock.acquire, "printer", "ann", 10.0)
        ...
        await locks.call(Lock.release, "printer", token)

A lock is held for a time, its lease, so that a holder that dies does not keep it forever. Time is that of the
order (`ordered.time`). A holder that was paused for longer than its lease may not know that it has lost the
lock. So no lock alone keeps two programs out of a resource. Its token does: it is higher each time somebody
gets the lock, and a resource that refuses tokens below the highest it has seen (`Fence`) is safe.
"""

from __future__ import annotations

import msgspec

from totempole.errors import ObjectError
from totempole.objects import ordered
from totempole.objects.commands import Refused, command


class Lease(msgspec.Struct, frozen=True):
    owner: str
    token: int
    """Higher than that of every lease before it, of any lock of the cluster."""
    until_us: int
    """By the order's time."""


class Lock:
    """Any number of locks, by name."""

    leases: dict[str, Lease]

    def __init__(self) -> None:
        self.leases = {}

    @command
    def acquire(self, name: str, owner: str, seconds: float = 10.0) -> int:
        """The token. Refused while another owner has the lock. The same owner gets its token again, and the
        lease is longer from now on."""
        until_us = end_of_lease(seconds)
        lease = self._lease(name)
        if lease is None:
            lease = Lease(owner, ordered.token(), until_us)
        elif lease.owner == owner:
            lease = Lease(owner, lease.token, max(until_us, lease.until_us))
        else:
            left_s = (lease.until_us - ordered.time_us()) / 1_000_000
            raise Refused(f"{name} is held by {lease.owner} for another {left_s:.3f} s")
        self.leases[name] = lease
        return lease.token

    @command
    def renew(self, name: str, token: int, seconds: float = 10.0) -> None:
        """So long from now on. Refused if the lease is over, or somebody else has the lock."""
        until_us = end_of_lease(seconds)
        lease = self._held(name, token)
        self.leases[name] = Lease(lease.owner, token, max(until_us, lease.until_us))

    @command
    def release(self, name: str, token: int) -> None:
        """Refused if the lease is over, or somebody else has the lock."""
        self._held(name, token)
        del self.leases[name]

    def _lease(self, name: str) -> Lease | None:
        lease = self.leases.get(name)
        return lease if lease is not None and lease.until_us > ordered.time_us() else None

    def _held(self, name: str, token: int) -> Lease:
        lease = self._lease(name)
        if lease is None or lease.token != token:
            raise Refused(f"{name} is no longer yours: the lease is over, or somebody else has it")
        return lease

    # Reading

    def holder(self, name: str) -> Lease | None:
        """The last one that got it and has not released it. Its lease may be over."""
        return self.leases.get(name)


class Election:
    """Who leads: the first candidate that asks leads until its lease is over, or it resigns."""

    leader: Lease | None

    def __init__(self) -> None:
        self.leader = None

    @command
    def campaign(self, candidate: str, seconds: float = 10.0) -> Lease:
        """The one who leads now. A candidate that leads already leads longer: call it again well before the
        lease is over."""
        until_us = end_of_lease(seconds)
        leader = self.leader
        if leader is None or leader.until_us <= ordered.time_us():
            leader = Lease(candidate, ordered.token(), until_us)
        elif leader.owner == candidate:
            leader = Lease(candidate, leader.token, max(until_us, leader.until_us))
        self.leader = leader
        return leader

    @command
    def resign(self, candidate: str) -> None:
        """Nobody leads until the next one asks. Does nothing if the candidate does not lead."""
        if self.leader is not None and self.leader.owner == candidate:
            self.leader = None

    # Reading

    def current(self) -> Lease | None:
        """The one who leads. Its lease may be over."""
        return self.leader


class Fence:
    """Stands before a resource that only the holder of a lock may use. It is not replicated: the resource has
    it, and keeps `highest` with its own data."""

    def __init__(self, highest: int = 0) -> None:
        self.highest = highest

    def check(self, token: int) -> None:
        """Raises ObjectError if somebody has been here with a later token."""
        if token < self.highest:
            raise ObjectError(f"token {token} is too old: the lock has been given to somebody else since")
        self.highest = token


def end_of_lease(seconds: float) -> int:
    """In the order's time, for a command. Refuses what is no time."""
    if not 0 < seconds <= 10**9:
        raise Refused(f"{seconds!r} seconds: give a time above 0")
    return ordered.time_us() + round(seconds * 1_000_000)
