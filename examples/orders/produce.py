"""Puts orders into the durable log, each of them once, whatever is killed meanwhile.

    python produce.py DIRECTORY [--orders 5000] [--rate 100] [--ahead 1000] [--producers 8]

An order is appended with its id as the key. A second record with the same key takes no place in the log. So
whoever is not sure appends again: the session does so when its node is killed, and this program does so when
it is started a second time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from random import Random

from nodes import sockets

import totempole

CUSTOMERS = ("ann", "bob", "cyd", "dan", "eve", "fay", "gus", "hal")
PRODUCTS = ("coffee", "tea", "cocoa", "honey", "jam", "bread", "cheese", "olives")


def order(number: int) -> dict[str, object]:
    """The same for the same number, in every life of this program."""
    random = Random(number)
    return {
        "id": f"order-{number:06}",
        "customer": random.choice(CUSTOMERS),
        "product": random.choice(PRODUCTS),
        "quantity": random.randint(1, 9),
    }


async def append(log: totempole.Log, placed: dict[str, object]) -> int:
    """The order's position. It is on the disks of a majority then."""
    while True:
        try:
            return await log.append(json.dumps(placed).encode(), key=str(placed["id"]), timeout=30)
        except totempole.TotemError as error:  # it may be in the log or not: the key makes that harmless
            print("again:", placed["id"], error, flush=True)
            await asyncio.sleep(0.5)


class Pace:
    """When an order may be sent: at a rate, and while not too many wait for their invoices."""

    def __init__(self, since_s: float, rate: float, ahead: int) -> None:
        self.since_s, self.rate, self.ahead = since_s, rate, ahead
        self.invoices = 0

    async def follow(self, invoices: totempole.Log) -> None:
        async for batch in invoices.batches(follow=True, columns=("position",)):
            self.invoices += len(batch)

    async def wait(self, number: int) -> None:
        if self.rate:
            await asyncio.sleep(self.since_s + number / self.rate - time.time())
        while self.ahead and number - self.invoices >= self.ahead:
            await asyncio.sleep(0.1)


async def produce(log: totempole.Log, numbers: range, pace: Pace) -> None:
    """One of several producers."""
    for number in numbers:
        await pace.wait(number)
        await append(log, order(number))


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="of the nodes")
    parser.add_argument("--orders", type=int, default=5000, metavar="N")
    parser.add_argument("--rate", type=float, default=100, metavar="N", help="orders a second; 0: no limit")
    parser.add_argument(
        "--ahead", type=int, default=0, metavar="N", help="wait while so many have no invoice; 0: no limit"
    )
    parser.add_argument("--producers", type=int, default=8, metavar="N", help="at the same time")
    parser.add_argument("--since", type=float, default=time.time(), metavar="T", help="Unix time of order 0")
    given = parser.parse_args()
    nodes = sockets(given.directory)
    pace = Pace(given.since, given.rate, given.ahead)
    shares = [range(first, given.orders, given.producers) for first in range(given.producers)]
    async with totempole.connect(nodes) as session, session.log("orders") as log:
        following = asyncio.ensure_future(pace.follow(session.log("invoices")))
        await asyncio.gather(*[produce(log, numbers, pace) for numbers in shares])
        following.cancel()
    print(given.orders, "orders are in the log")


if __name__ == "__main__":
    try:
        totempole.run(main())
    except KeyboardInterrupt:
        print()
