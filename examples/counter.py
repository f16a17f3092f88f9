"""A replicated counter: every copy shows the same values, in the same order.

    python examples/counter.py [--socket PATH | --embed node.toml]

Start it several times, on one host or on several. Type `3` or `-2` and Enter: all copies count. Ctrl-D
leaves. A copy that comes later begins with the state of the others. Kill one: the others go on.

When the network parts, both sides go on counting. When it heals, the first member of each side tells what its
side has counted. For each member that ever counted, the larger number of operations is the later record.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable
from contextlib import suppress

from helping import either, options, run, session, show, typed

from totempole import Group, Messages, Place, Reconnected, Session, State, Unknown, View


class Counter:
    def __init__(self) -> None:
        self.records: dict[str, list[int]] = {}
        """For each member that ever counted: how many operations, and their sum."""
        self.place: Place | None = None
        """Of the last message that was counted."""

    @property
    def value(self) -> int:
        return sum(total for _, total in self.records.values())

    def add(self, who: str, amount: int) -> None:
        operations, total = self.records.get(who, (0, 0))
        self.records[who] = [operations + 1, total + amount]

    def merge(self, records: dict[str, list[int]]) -> None:
        for who, record in records.items():
            self.records[who] = max(record, self.records.get(who, [0, 0]))

    def snapshot(self) -> bytes:
        return json.dumps({"merge": self.records}).encode()


async def main() -> None:
    counter = Counter()
    async with (
        session(options(__doc__).parse_args()) as mine,
        mine.join("counter", state=counter.snapshot, want_state=True) as group,
    ):
        await either(count(mine, group, counter), ask(group, counter, typed()))
    show("left at", counter.value)


async def ask(group: Group, counter: Counter, lines: AsyncIterable[str]) -> None:
    """Returns when all that was typed is counted here, too."""
    receipt = None
    async for line in lines:
        try:
            receipt = await group.multicast(json.dumps({"add": int(line)}).encode())
        except ValueError:
            show(f"{line!r} is no whole number")
    if receipt is not None:
        with suppress(Unknown):  # the daemon went away with it
            delivered = await receipt.delivered()
            while counter.place is None or counter.place < delivered.place:
                await asyncio.sleep(0)


async def count(mine: Session, group: Group, counter: Counter) -> None:
    async for event in group:
        match event:
            case Messages(sender=sender, payloads=payloads, place=place):
                counter.place = place
                for message in map(json.loads, payloads):
                    if "add" in message:
                        counter.add(str(sender), message["add"])
                    else:
                        counter.merge(message["merge"])
                    show(counter.value)
            case State(data=data):
                if data is not None:
                    counter.merge(json.loads(data)["merge"])
                show("begins at", counter.value)
            case View(kind="regular", members=members, together=together, strangers=strangers):
                show(len(members), "copies")
                if strangers and together[:1] == (mine.process,):
                    await group.multicast(counter.snapshot())
            case Reconnected(unacknowledged=lost):
                show("the daemon was away; of your own operations, the last", lost, "may be lost")


if __name__ == "__main__":
    run(main())
