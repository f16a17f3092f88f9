"""A bank whose total never changes, however many copies transfer at once and whatever is killed meanwhile.

    python examples/bank.py [--transfers N] [--socket PATH | --embed node.toml]

The node needs a durable log (docs/log.md). Start it on several hosts. Each copy makes random transfers and
shows the total, read so that it is true at that moment. Kill a copy or a node with -9, part the network: a
transfer happens once or not at all. Ctrl-C ends it.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from helping import options, run, session, show

import totempole
from totempole import Refused, command

ACCOUNTS = 100
AT_FIRST = 1000
AT_ONCE = 16


class Bank:
    """A plain class: `Bank().transfer(0, 1, 10)` needs no cluster."""

    def __init__(self) -> None:
        self.accounts: list[int] = [AT_FIRST] * ACCOUNTS
        self.transfers = 0

    @command
    def transfer(self, source: int, target: int, amount: int) -> int:
        """Returns what is left."""
        if amount < 0 or self.accounts[source] < amount:
            raise Refused("not enough")
        self.accounts[source] -= amount
        self.accounts[target] += amount
        self.transfers += 1
        return self.accounts[source]

    def total(self) -> tuple[int, int]:
        """Of all accounts, and after how many transfers."""
        return sum(self.accounts), self.transfers


async def transfer(bank: totempole.Replica[Bank], count: int) -> int:
    """Returns how many were made; some accounts have not enough."""
    made = 0
    for _ in range(count):
        source, target = random.sample(range(ACCOUNTS), 2)
        with suppress(Refused):
            await bank.call(Bank.transfer, source, target, random.randrange(AT_FIRST))
            made += 1
    return made


async def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--transfers", type=int, default=10_000, metavar="N", help="by this copy")
    arguments = parser.parse_args()
    async with session(arguments) as mine, mine.replica(Bank, "bank") as bank:
        share = arguments.transfers // AT_ONCE
        work = [asyncio.create_task(transfer(bank, share)) for _ in range(AT_ONCE)]
        while not all(task.done() for task in work):
            await asyncio.wait(work, timeout=1.0)
            total, transfers = await bank.read(Bank.total)
            show(f"total {total} after {transfers} transfers")
        show("made by this copy:", sum(task.result() for task in work))


if __name__ == "__main__":
    run(main())
