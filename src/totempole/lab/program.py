"""Programs that use a daemon, for tests: sessions that join groups, send, and write down what they see.

`python -m totempole.lab.program SOCKET DIRECTORY` takes commands on standard input, one a line, and says
lines of JSON. Each session has a name:

    open NAME [once]                        connects; `once`: it does not come back when the daemon goes away
    join NAME GROUP POLICY [donor=BYTES] [state]
                                            `donor`: gives the group's state, with so many bytes of ballast
    hold NAME, go NAME                      from here on, of a state only the first piece is given; or all
    leave NAME GROUP
    send NAME GROUPS SIZE COUNT SERVICE [notice]        one after the other, as they are accepted
    pace NAME GROUPS SIZE RATE SERVICE [notice]         so many a second
    quiet                                   all that send stop after the next message
    report                                  what each has sent and seen so far
    close NAME

GROUPS are joined by commas. What a session sees goes into DIRECTORY/NAME.seen, a line of JSON for each event,
as `Seen` says. A message has its sender's name in it, its number among all that this `send` or `pace` has
sent, and a digest of the rest: whoever receives it checks that. The state of a group is a digest of all its
messages, in their order.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path
from struct import Struct
from typing import IO, Any, Literal

from totempole.client.endpoint import Reconnect
from totempole.client.events import Event, Gap, Messages, Reconnected, Safe, State, View
from totempole.client.session import Session, connect
from totempole.errors import TotemError
from totempole.types import Service

HEAD = Struct(">16sIQI")
"""Of a message: who sent it, in which of its streams, its number there, and the CRC-32 of the rest."""
STATE = Struct(">QI")
"""How many messages, and their digest."""
BALLAST_BYTES = 262_144
RECONNECT = Reconnect(first_s=0.05, most_s=0.5, give_up_s=None)

Seen = Literal["opened", "messages", "view", "safe", "state", "gap", "reconnected", "wrong", "ended"]
"""What a line of the record begins with:

    opened       process
    messages     place, sender's process, number, count, groups, service, digest of all payloads
    view         place, kind, group, members, together, changed
    safe         place, sender's process, number, count
    state        place, group, donor, bytes
    gap          group, messages, bytes
    reconnected  process, process before, unacknowledged, reason
    wrong        what was wrong with a message
    ended        why
"""


class Tally:
    """The state of a group: how many messages, and a digest that depends on each and on their order."""

    def __init__(self, content: bytes = bytes(STATE.size)) -> None:
        self.count, self.digest = STATE.unpack_from(content)

    def add(self, payload: bytes) -> None:
        self.count += 1
        self.digest = zlib.crc32(payload[: HEAD.size], self.digest)

    def pack(self) -> bytes:
        return STATE.pack(self.count, self.digest)


class Program:
    """One session."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.session: Session
        self.end = ""
        self.sent: Counter[str] = Counter()
        """Accepted, by groups."""
        self.received: Counter[str] = Counter()
        """By sender's name and groups."""
        self.last: dict[tuple[str, int], int] = {}
        """The number of the last message of each sender's streams."""
        self.members: dict[str, list[str]] = {}
        self.tallies: dict[str, Tally] = {}
        self.counts: Counter[str] = Counter()
        """Of what was seen, by kind."""
        self.shed = 0
        self.wrong = 0
        self.streams = 0
        self.sending: set[asyncio.Task[None]] = set()
        self.may_give = asyncio.Event()
        """All of a state, and not only the first piece."""
        self.may_give.set()
        self.asked = 0
        """How often its state was wanted."""
        self._resting = asyncio.Event()
        """Whoever sends stops after the next message."""
        self._groups: dict[str, AsyncExitStack] = {}
        self._open = AsyncExitStack()
        self._taking: asyncio.Task[None] | None = None
        self._file: IO[str] = open(directory / f"{name}.seen", "a", buffering=1, encoding="utf-8")  # noqa: SIM115

    def _note(self, kind: Seen, *fields: Any) -> None:
        self.counts[kind] += 1
        self._file.write(json.dumps([kind, *fields]) + "\n")

    # Life

    async def open(self, socket: str, once: bool) -> None:
        session = connect(socket, name=self.name, reconnect=False if once else RECONNECT)
        self.session = await self._open.enter_async_context(session)
        self._note("opened", str(self.session.process))
        self._taking = asyncio.create_task(self._take())

    async def close(self) -> None:
        self.quiet()
        with suppress(TotemError):
            await self._open.aclose()
        if self._taking is not None:
            await self._taking

    async def join(self, group: str, policy: Any, *options: str) -> None:
        wants = "state" in options
        donor = next((int(word.partition("=")[2]) for word in options if word.startswith("donor=")), None)
        provider = None if donor is None else lambda: self._give(group, donor)
        if not wants:
            self.tallies[group] = Tally()
        stack = self._groups[group] = AsyncExitStack()
        await stack.enter_async_context(
            self.session.join(group, policy=policy, state=provider, want_state=wants)
        )

    async def leave(self, group: str) -> None:
        await self._groups.pop(group).aclose()
        self.members.pop(group, None)

    def _give(self, group: str, ballast: int) -> AsyncIterator[bytes]:
        state = self.tallies[group].pack()
        self.asked += 1

        async def pieces() -> AsyncIterator[bytes]:
            yield state
            for _ in range(-(-ballast // BALLAST_BYTES)):
                yield os.urandom(BALLAST_BYTES)
                await self.may_give.wait()

        return pieces()

    # Receiving

    async def _take(self) -> None:
        events = self.session.events()
        try:
            async for event in events:
                self._see(event)
        except TotemError as error:
            self.end = str(error)
        self._note("ended", self.end)

    def _see(self, event: Event) -> None:
        match event:
            case Messages():
                self._see_messages(event)
            case View(kind, group, members, together, place, changed):
                self.members[group] = [str(member) for member in members]
                self._note("view", place, kind, group, self.members[group], [*map(str, together)], changed)
            case Safe(sender, number, several, _, place):
                self._note("safe", place, str(sender), number, several)
            case State(group, donor, data, place):
                self.tallies[group] = Tally(data) if data is not None else Tally()
                self._note("state", place, group, str(donor), len(data or b""))
            case Gap(group, messages, size):
                self.shed += messages
                self._note("gap", group, messages, size)
            case Reconnected(process, before, unacknowledged, reason):
                # What happened in between was missed; and with the new process, all its memberships are.
                for group in self.members:
                    self.tallies.pop(group, None)
                self.members.clear()
                self.last.clear()
                self._note("reconnected", str(process), str(before), unacknowledged, reason)

    def _see_messages(self, event: Messages) -> None:
        groups = ",".join(event.groups)
        digest = 0
        for payload in event.payloads:
            digest = zlib.crc32(payload, digest)
            self._check(payload, groups)
            for group in event.groups:
                if group in self.tallies and group in self.members:
                    self.tallies[group].add(payload)
        sender, service = str(event.sender), event.service.name.lower()
        self._note(
            "messages", event.place, sender, event.number, len(event.payloads), groups, service, digest
        )

    def _check(self, payload: bytes, groups: str) -> None:
        name, stream, number, crc = HEAD.unpack_from(payload)
        sender = name.rstrip(b"\0").decode()
        self.received[f"{sender}:{groups}"] += 1
        last = self.last.get((sender, stream), -1)
        if zlib.crc32(memoryview(payload)[HEAD.size :]) != crc:
            self._wrong(f"message {number} of {sender} has another content")
        if number <= last:
            self._wrong(f"message {number} of {sender} comes behind {last}")
        self.last[sender, stream] = number

    def _wrong(self, text: str) -> None:
        self.wrong += 1
        self._note("wrong", text)

    # Sending

    def start(self, sending: Coroutine[Any, Any, None]) -> None:
        self._resting.clear()
        task = asyncio.create_task(self._run(sending))
        self.sending.add(task)
        task.add_done_callback(self.sending.discard)

    def quiet(self) -> None:
        self._resting.set()

    async def _run(self, sending: Coroutine[Any, Any, None]) -> None:
        try:
            await sending
        except TotemError as error:
            self.end = self.end or str(error)

    async def send(self, groups: str, size: int, times: int, service: Service, notice: bool) -> None:
        multicast = self._stream(groups, size, service, notice)
        for number in range(times):
            if not self._resting.is_set():
                await multicast(number)

    async def pace(self, groups: str, size: int, rate: float, service: Service, notice: bool) -> None:
        multicast = self._stream(groups, size, service, notice)
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        for number in count():
            await multicast(number)
            due_s = max(due_s + 1 / rate, loop.time())
            await asyncio.sleep(due_s - loop.time())
            if self._resting.is_set():
                return

    def _stream(
        self, groups: str, size: int, service: Service, notice: bool
    ) -> Callable[[int], Coroutine[Any, Any, None]]:
        stream = self.streams
        self.streams += 1

        async def multicast(number: int) -> None:
            rest = os.urandom(max(0, size - HEAD.size))
            head = HEAD.pack(self.name.encode(), stream, number, zlib.crc32(rest))
            await self.session.multicast(groups.split(","), head + rest, service, safe_notice=notice)
            self.sent[groups] += 1

        return multicast

    def report(self) -> dict[str, Any]:
        return {
            "process": str(self.session.process),
            "sent": dict(self.sent),
            "received": dict(self.received),
            "members": self.members,
            "tallies": {group: [tally.count, tally.digest] for group, tally in self.tallies.items()},
            "seen": dict(self.counts),
            "asked": self.asked,
            "shed": self.shed,
            "wrong": self.wrong,
            "sending": len(self.sending),
            "end": self.end,
        }


class Programs:
    """All sessions of this process, and what leads them. Commands are carried out one after the other."""

    def __init__(self, socket: str, directory: Path) -> None:
        self._socket = socket
        self._directory = directory
        self._programs: dict[str, Program] = {}
        self._buffer = b""
        self._commands: asyncio.Queue[list[str]] = asyncio.Queue()

    async def run(self) -> None:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._on_input)
        while words := await self._commands.get():
            verb, *rest = words
            try:
                await COMMANDS[verb](self, *rest)
            except TotemError as error:
                _say(event="report", error=f"{' '.join(words)}: {error}")
            else:
                if verb != "report":
                    _say(event="report", done=verb)
        os._exit(0)  # whoever leads is gone

    def _on_input(self) -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._commands.put_nowait(line.decode().split())
        if not data:
            self._commands.put_nowait([])

    async def _open(self, name: str, *options: str) -> None:
        program = Program(name, self._directory)
        await program.open(self._socket, "once" in options)
        self._programs[name] = program

    async def _join(self, name: str, group: str, policy: str, *options: str) -> None:
        await self._programs[name].join(group, policy, *options)

    async def _leave(self, name: str, group: str) -> None:
        await self._programs[name].leave(group)

    async def _send(self, name: str, groups: str, size: str, times: str, service: str, *options: str) -> None:
        program = self._programs[name]
        chosen = Service[service.upper()]
        program.start(program.send(groups, int(size), int(times), chosen, "notice" in options))

    async def _pace(self, name: str, groups: str, size: str, rate: str, service: str, *options: str) -> None:
        program = self._programs[name]
        chosen = Service[service.upper()]
        program.start(program.pace(groups, int(size), float(rate), chosen, "notice" in options))

    async def _quiet(self) -> None:
        for program in self._programs.values():
            program.quiet()

    async def _hold(self, name: str) -> None:
        self._programs[name].may_give.clear()

    async def _go(self, name: str) -> None:
        self._programs[name].may_give.set()

    async def _report(self) -> None:
        _say(event="report", programs={name: program.report() for name, program in self._programs.items()})

    async def _close(self, name: str) -> None:
        await self._programs[name].close()


COMMANDS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "open": Programs._open,
    "join": Programs._join,
    "leave": Programs._leave,
    "send": Programs._send,
    "pace": Programs._pace,
    "quiet": Programs._quiet,
    "hold": Programs._hold,
    "go": Programs._go,
    "report": Programs._report,
    "close": Programs._close,
}


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    asyncio.run(Programs(sys.argv[1], Path(sys.argv[2])).run())
