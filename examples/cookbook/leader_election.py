"""Leader election: at most one program leads at a time, and each has a higher token than those before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import totempole
from totempole.objects import Election

LEASE_S = 3.0
CLOCKS_S = 0.5  # the most by which the clocks of two hosts differ


class Candidate:
    def __init__(self, election: totempole.Replica[Election], name: str) -> None:
        self.election, self.name = election, name
        self.token, self.until = 0, 0.0

    def leads(self) -> bool:
        return asyncio.get_running_loop().time() < self.until

    async def campaign(self) -> None:
        while True:
            began = asyncio.get_running_loop().time()
            try:
                lease = await self.election.within(LEASE_S).call(Election.campaign, self.name, LEASE_S)
                if lease.owner == self.name:
                    self.token, self.until = lease.token, began + LEASE_S - CLOCKS_S
            except totempole.TotemError:
                pass  # no majority here: the lease runs out
            await asyncio.sleep(LEASE_S / 6)


@asynccontextmanager
async def candidate() -> AsyncIterator[Candidate]:
    async with totempole.connect() as session, session.replica(Election, "election") as election:
        me = Candidate(election, str(session.process))
        campaigning = asyncio.create_task(me.campaign())
        yield me
        campaigning.cancel()
