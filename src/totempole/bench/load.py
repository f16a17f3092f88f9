"""The packet driver of Totem appendix A (`totem -p`) against real nodes: clients that send and check.

Each client is a session of its own with one of the daemons. All are members of one group, so each receives
the messages of all, and judges them: everything that was accepted comes once, in order, as it was sent.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import groupby
from random import Random
from struct import Struct
from typing import Any
from zlib import crc32

from totempole.bench.load_check import STAMP_BYTES, Latencies, Received, judge, read_stamp, stamped
from totempole.client.events import Gap, Messages, Reconnected, View
from totempole.client.protocol import PolicyName
from totempole.client.session import Group, Session, connect
from totempole.errors import TotemError
from totempole.types import ProcessId, Service

RUN_BYTES = 232_000
"""Messages are handed over in runs of about so many bytes: several ring packets, and less than the credit."""
RUN_MESSAGES = 500
CATCH_UP_S = 0.1
"""After a stall, messages of at most this long are made up for: a stall should not end in a flood."""
PAUSE_S_MIN = 0.0005
PUSH_BACK_NS = 1_000_000
"""A call that takes longer than this was made to wait."""
MEET_S_MAX = 30.0
LOOK_S = 0.02

_PLACE = Struct(">IQ")


@dataclass(frozen=True, slots=True)
class Plan:
    group: str = "load"
    rate_per_s: float | None = 1_000.0
    """Messages of all clients together; None: as many as are accepted."""
    sizes: tuple[tuple[range, float], ...] = ((range(64, 65), 1.0),)
    """Ranges of bytes, and how often each is drawn compared with the others."""
    services: tuple[tuple[Service, float], ...] = ((Service.AGREED, 1.0),)
    seconds: float = 10.0
    count: int | None = None
    """Messages of all clients together; None is no limit."""
    clients: int = 1
    policy: PolicyName = "block"
    drain_s: float = 10.0
    """What was accepted is waited for until nothing has come for so long."""

    def __post_init__(self) -> None:
        least = min(sizes.start for sizes, _ in self.sizes)
        if least < STAMP_BYTES:
            raise TotemError(f"load: messages of {least} bytes: a message has at least {STAMP_BYTES} bytes")

    @property
    def run_messages(self) -> int:
        """How many make a run of a good size."""
        weight = sum(weight for _, weight in self.sizes)
        mean = sum((sizes.start + sizes.stop - 1) / 2 * each for sizes, each in self.sizes) / weight
        return max(1, min(RUN_MESSAGES, int(RUN_BYTES / mean)))


@dataclass(slots=True)
class Tally:
    """What happened in a second, or in all."""

    seconds: float = 0.0
    accepted: int = 0
    delivered: int = 0
    """Messages that came back to their sender,"""
    bytes: int = 0
    """and how large they were."""
    received: int = 0
    """By all clients together."""
    push_back_ns: int = 0
    """How long calls waited to be accepted, of all clients together."""
    views: int = 0
    shed: int = 0
    """Messages dropped because a client was too slow (policy "shed")."""
    reconnects: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def add(self, other: Tally) -> None:
        for name in self.__slots__:
            if name == "latencies":
                self.latencies.add(other.latencies)
            else:
                setattr(self, name, getattr(self, name) + getattr(other, name))

    def data(self, clients: int) -> dict[str, Any]:
        marks = {f"p{percent}": self.latencies.percentile(percent) for percent in (50, 90, 99)}
        seconds = self.seconds or 1.0
        return {
            "seconds": round(self.seconds, 3),
            "accepted": self.accepted,
            "delivered": self.delivered,
            "received": self.received,
            "messages_per_s": round(self.delivered / seconds, 1),
            "bytes_per_s": round(self.bytes / seconds),
            "latency_us": {**marks, "max": self.latencies.longest_us if self.latencies.total else None},
            "push_back": round(self.push_back_ns / 1e9 / seconds / clients, 4),
            "views": self.views,
            "shed": self.shed,
            "reconnects": self.reconnects,
        }


@dataclass(frozen=True, slots=True)
class Result:
    total: Tally
    seconds: tuple[Tally, ...]
    wrong: tuple[str, ...]
    """What was accepted and not delivered once, in order, as it was sent; nothing is as it should be."""
    foreign: int
    """Messages of other programs in the group."""


class Client:
    """One session: it sends, and judges what it receives."""

    def __init__(self, number: int, session: Session, group: Group, driver: Driver) -> None:
        self.number = number
        self.session = session
        self.accepted = 0
        self.members: tuple[ProcessId, ...] = ()
        self.end = ""
        """Why the session is over, if it is."""
        self.received = [Received() for _ in range(driver.plan.clients)]
        self.order = 0
        """A digest of what was received, in its order."""
        self.damaged = 0
        self.foreign = 0
        self._offered = 0
        self._group = group
        self._driver = driver
        self._random = Random()

    # Sending

    async def send(self) -> None:
        try:
            if self._driver.plan.rate_per_s is None:
                await self._saturate()
            else:
                await self._pace(self._driver.plan.rate_per_s / self._driver.plan.clients)
        except TotemError as error:
            self._over(error)

    async def _saturate(self) -> None:
        run = self._driver.plan.run_messages
        while await self._offer(run):
            await asyncio.sleep(0)

    async def _pace(self, rate: float) -> None:
        loop = asyncio.get_running_loop()
        # Clients take turns, and the first message goes at once.
        due_s = loop.time() - 1 / rate + self.number / rate / self._driver.plan.clients
        run = self._driver.plan.run_messages
        while True:
            now_s = loop.time()
            due_s = max(due_s, now_s - max(CATCH_UP_S, 1.5 / rate))
            count = min(run, int((now_s - due_s) * rate + 1e-6))
            if count and not await self._offer(count):
                return
            due_s += count / rate
            if await self._driver.stops_within(max(PAUSE_S_MIN, due_s + 1 / rate - loop.time())):
                return

    async def _offer(self, count: int) -> bool:
        """Multicasts so many messages, or what is left to send; False when there is nothing left."""
        plan, tally = self._driver.plan, self._driver.tally
        count = self._driver.take(count)
        services = [self._draw(plan.services) for _ in range(count)]
        for service, group in groupby(services):
            began_ns = time.monotonic_ns()
            run = [self._message(began_ns) for _ in group]
            asked_ns = time.monotonic_ns()
            await self._group.multicast_many(run, service)
            waited_ns = time.monotonic_ns() - asked_ns
            self.accepted += len(run)
            tally().accepted += len(run)
            if waited_ns > PUSH_BACK_NS:
                tally().push_back_ns += waited_ns
        return bool(count)

    def _message(self, sent_ns: int) -> bytes:
        sizes = self._draw(self._driver.plan.sizes)
        size = sizes.start if len(sizes) == 1 else self._random.choice(sizes)
        message = stamped(self._driver.run_id, self.number, self._offered, sent_ns, size)
        self._offered += 1
        return message

    def _draw(self, mix: Sequence[tuple[Any, float]]) -> Any:
        if len(mix) == 1:
            return mix[0][0]
        return self._random.choices([what for what, _ in mix], [weight for _, weight in mix])[0]

    # Receiving

    async def receive(self) -> None:
        try:
            async for event in self._group:
                self._take(event)
        except TotemError as error:
            self._over(error)

    def _take(self, event: Any) -> None:
        tally = self._driver.tally()
        if type(event) is Messages:
            self._take_messages(event, tally)
        elif type(event) is View:
            self.members = event.members
            tally.views += 1
        elif type(event) is Gap:
            tally.shed += event.messages
        elif type(event) is Reconnected:
            tally.reconnects += 1
            self._driver.owners[event.process] = self.number

    def _take_messages(self, event: Messages, tally: Tally) -> None:
        now_ns = time.monotonic_ns()
        owner = self._driver.owners.get(event.sender)
        for payload in event.payloads:
            stamp = read_stamp(self._driver.run_id, payload)
            if stamp is None or owner not in (None, stamp.client):
                self._take_odd(owner)
                continue
            self.received[stamp.client].note(stamp.number)
            self.order = crc32(_PLACE.pack(stamp.client, stamp.number), self.order)
            tally.received += 1
            if stamp.client == self.number:
                tally.delivered += 1
                tally.bytes += len(payload)
                tally.latencies.note((now_ns - stamp.sent_ns) // 1000)

    def _take_odd(self, owner: int | None) -> None:
        """Other programs may use the group too; what a client of ours has sent must come as it was sent."""
        if owner is None:
            self.foreign += 1
        else:
            self.damaged += 1

    def _over(self, error: TotemError) -> None:
        self.end = self.end or str(error)
        self._driver.stop()

    # Judging

    def has_all(self, clients: Sequence[Client]) -> bool:
        pairs = zip(self.received, clients, strict=True)
        return all(not received.lost(sender.accepted) for received, sender in pairs)

    def wrong(self, clients: Sequence[Client]) -> list[str]:
        lines = []
        for sender in clients:
            lines += judge(self.number + 1, sender.number + 1, self.received[sender.number], sender.accepted)
        if self.damaged:
            lines.append(f"client {self.number + 1}: {self.damaged:,} messages came damaged, or as another's")
        if self.end:
            lines.append(f"client {self.number + 1}: its session ended: {self.end}")
        return lines


class Driver:
    """All clients of a run. `tell` is called once a second with what happened in it."""

    def __init__(self, plan: Plan, tell: Callable[[Tally], None] = lambda tally: None) -> None:
        self.plan = plan
        self.run_id = os.urandom(8)
        self.clients: list[Client] = []
        self.owners: dict[ProcessId, int] = {}
        """Which client each process is, or was."""
        self._tell = tell
        self._left = plan.count
        self._tally = Tally()
        self._seconds: list[Tally] = []
        self._since_s = 0.0
        self._stopping = asyncio.Event()
        self._impatient = False

    async def run(self, daemons: Sequence[dict[str, Any]]) -> Result:
        """`daemons`: what `connect` needs to know of each. The clients are spread over them."""
        async with AsyncExitStack() as open_now:
            for number in range(self.plan.clients):
                await self._connect(open_now, number, daemons[number % len(daemons)])
            receiving = [asyncio.create_task(client.receive()) for client in self.clients]
            try:
                await self._meet()
                await self._send()
                self._tick()
                return self._result()
            finally:
                for task in receiving:
                    task.cancel()
                await asyncio.wait(receiving)

    def stop(self) -> None:
        """Sends no more, and waits for what was accepted; the second time it does not wait."""
        self._impatient = self._stopping.is_set()
        self._stopping.set()

    def tally(self) -> Tally:
        return self._tally

    def take(self, count: int) -> int:
        """How many of these messages a client may still send."""
        if self._stopping.is_set():
            return 0
        if self._left is None:
            return count
        count = min(count, self._left)
        self._left -= count
        return count

    async def stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    # Phases

    async def _connect(self, open_now: AsyncExitStack, number: int, daemon: dict[str, Any]) -> None:
        session = await open_now.enter_async_context(connect(**daemon, name=f"totem load {number + 1}"))
        group = await open_now.enter_async_context(session.join(self.plan.group, policy=self.plan.policy))
        self.clients.append(Client(number, session, group, self))
        self.owners[session.process] = number

    async def _meet(self) -> None:
        """Every client sees all the others: from here on each receives everything."""
        give_up_s = time.monotonic() + MEET_S_MAX
        everyone = set(self.owners)
        while not all(everyone <= set(client.members) for client in self.clients):
            if time.monotonic() > give_up_s:
                raise TotemError("load: the clients do not meet: are all these daemons in one ring?")
            if await self.stops_within(LOOK_S):
                return

    async def _send(self) -> None:
        self._tally, self._since_s = Tally(), time.monotonic()
        ticking = asyncio.create_task(self._tick_for_ever())
        sending = [asyncio.create_task(client.send()) for client in self.clients]
        try:
            await self._until_sent(sending)
            self._stopping.set()
            await self._drain(sending)
        finally:
            for task in (ticking, *sending):
                task.cancel()
            await asyncio.wait((ticking, *sending))

    async def _until_sent(self, sending: Sequence[asyncio.Task[None]]) -> None:
        """All have sent all, or the time is over, or it was told to stop: a call may wait for long."""
        stopping = asyncio.create_task(self._stopping.wait())
        done = asyncio.gather(*sending)
        await asyncio.wait((stopping, done), timeout=self.plan.seconds, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

    async def _drain(self, sending: Sequence[asyncio.Task[None]]) -> None:
        """Until all that was accepted has come everywhere, or nothing comes any more."""
        before, since_s = -1, time.monotonic()
        while not self._impatient and not any(client.end for client in self.clients):
            if all(task.done() for task in sending) and self._have_all():
                return
            so_far = sum(received.count for client in self.clients for received in client.received)
            if so_far != before:
                before, since_s = so_far, time.monotonic()
            if time.monotonic() - since_s > self.plan.drain_s:
                return
            await asyncio.sleep(LOOK_S)

    def _have_all(self) -> bool:
        return all(client.has_all(self.clients) for client in self.clients)

    # Counting

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._since_s + 1.0 - time.monotonic())
            self._tick()

    def _tick(self) -> None:
        now_s = time.monotonic()
        tally, self._tally = self._tally, Tally()
        tally.seconds, self._since_s = now_s - self._since_s, now_s
        self._seconds.append(tally)
        self._tell(tally)

    def _result(self) -> Result:
        total = Tally()
        for tally in self._seconds:
            total.add(tally)
        foreign = max(client.foreign for client in self.clients)
        return Result(total, tuple(self._seconds), tuple(self._wrong(total)), foreign)

    def _orders_differ(self) -> bool:
        """Among those who have received the same: a call that was cut short may have reached only some."""
        orders: dict[tuple[int, ...], set[int]] = {}
        for client in self.clients:
            orders.setdefault(tuple(one.next for one in client.received), set()).add(client.order)
        return any(len(found) > 1 for found in orders.values())

    def _wrong(self, total: Tally) -> list[str]:
        lines = [line for client in self.clients for line in client.wrong(self.clients)]
        if not lines and not total.accepted:
            return ["nothing was accepted"]
        if not lines and self._orders_differ():
            lines.append("not all clients received the messages in the same order")
        return lines
