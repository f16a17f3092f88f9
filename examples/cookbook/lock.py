"""A lock with a fencing token: what it protects refuses everybody who has lost the lock unknowingly."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import totempole
from totempole.objects import Fence, Lock

LEASE_S = 2.0


@asynccontextmanager
async def locked(locks: totempole.Replica[Lock], name: str) -> AsyncIterator[int]:
    owner = f"{random.getrandbits(64):x}"  # of this holding: another task of this program is another owner
    while True:
        with suppress(totempole.Refused):
            token = await locks.call(Lock.acquire, name, owner, LEASE_S)
            break
        await asyncio.sleep(LEASE_S / 10)
    try:
        yield token
    finally:
        with suppress(totempole.Refused, totempole.TotemError):  # too late, or no majority: it runs out
            await locks.within(LEASE_S).call(Lock.release, name, token)


class Account:
    """What is protected. It keeps the highest token with its own data, wherever these are."""

    def __init__(self) -> None:
        self.fence, self.balance = Fence(), 0

    def read(self, token: int) -> int:
        self.fence.check(token)
        return self.balance

    def write(self, token: int, balance: int) -> None:
        self.fence.check(token)
        self.balance = balance
