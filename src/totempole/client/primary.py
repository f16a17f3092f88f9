"""A replicated state machine in memory that goes on in one side of a partition only, for asyncio programs.

    class Store:
        def __init__(self) -> None:
            self.values: dict[str, str] = {}

        def apply(self, command: bytes) -> str | None:
            key, value = json.loads(command)
            before, self.values[key] = self.values.get(key), value
            return before

        def snapshot(self) -> bytes:
            return json.dumps(self.values).encode()

        def restore(self, snapshot: bytes) -> None:
            self.values = json.loads(snapshot)

    async with connect() as session, Primary(session, "store", Store, expected=3) as store:
        before = await store.do(b'["colour", "red"]')

One member on each of `expected` nodes. `primary_member` has the rules, and why they hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from totempole.client.events import Event, Messages, Reconnected, View
from totempole.client.primary_member import M, Phase, PrimaryMember
from totempole.client.sending import one_as_bytes
from totempole.errors import NotPrimary, SessionError
from totempole.types import ProcessId, Service

if TYPE_CHECKING:
    from totempole.client.session import Group, Session

CLOSED = "the primary group is closed: use it inside `async with`"


class Primary(Generic[M]):
    """Used inside `async with`. `machine` makes the state as it is at the very beginning, each time alike."""

    def __init__(self, session: Session, group: str, machine: Callable[[], M], *, expected: int) -> None:
        self._member = PrimaryMember(machine, expected)
        self._session = session
        self._group: Group = session.join(group)
        self._me: ProcessId | None = None
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._waiters: set[asyncio.Future[None]] = set()
        self._unsent = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._error: SessionError | None = None
        self._logger = logging.getLogger("totempole.client")

    async def __aenter__(self) -> Self:
        self._me = self._session.process
        await self._group.__aenter__()
        self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._send())]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._end(SessionError(CLOSED))
        await self._group.__aexit__(kind, error, traceback)

    # For the program

    @property
    def machine(self) -> M:
        """The state as this member has it: perhaps an old one. `do` a command to read what is true now."""
        return self._member.machine

    @property
    def is_primary(self) -> bool:
        """As far as this member knows: others may have gone on without it a moment ago."""
        return self._member.phase is Phase.PRIMARY

    @property
    def is_certain(self) -> bool:
        """Not after half of the nodes or more have lost their memory at once: then the newest state that was
        left was taken, and commands that were done may be missing."""
        return self._member.certain

    @property
    def problem(self) -> str:
        """Why this member is not in the primary; empty if it is, or may be in a moment."""
        return self._member.problem

    async def primary(self) -> None:
        """Waits until this member is in the primary."""
        while not self.is_primary:
            self._check()
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(future)
            try:
                await future
            finally:
                self._waiters.discard(future)

    async def do(self, command: bytes, timeout: float | None = None) -> Any:
        """Has all members apply the command. Returns, or raises, what it gave in this one.

        It waits while views change. `NotPrimary`: this side may not go on, and the command was not applied.
        `Unknown`: the connection was lost, the network parted, or `timeout` seconds passed, while it was
        under way.
        """
        self._check()
        ticket = self._member.do(one_as_bytes(command))
        future = self._futures[ticket] = asyncio.get_running_loop().create_future()
        self._pump()
        try:
            async with asyncio.timeout(timeout) as limit:
                return await future
        except TimeoutError:
            if not limit.expired():
                raise  # by the machine itself
            raise self._member.give_up(ticket, f"no answer within {timeout:g} s") from None
        except asyncio.CancelledError:
            self._member.give_up(ticket, "it was cancelled")
            raise
        finally:
            self._futures.pop(ticket, None)

    # Within

    def _check(self) -> None:
        if self._error is not None or not self._tasks:
            raise self._error or SessionError(CLOSED)

    async def _receive(self) -> None:
        try:
            async for event in self._group:
                self._take(event)
                self._pump()
            self._end(SessionError(CLOSED))
        except SessionError as error:
            self._end(error)
        except Exception as error:
            text = f"the state of {self._group.name!r} cannot be used: {type(error).__name__}: {error}"
            self._logger.exception("%s", text)
            self._session.receiving.abandon(self._group.name)
            self._end(SessionError(text))

    def _take(self, event: Event) -> None:
        match event:
            case View(kind=kind, members=members, place=place):
                assert self._me is not None
                self._member.view(self._me, kind, members, place)
            case Messages(sender=sender, payloads=payloads):
                for payload in payloads:
                    self._member.message(sender, bytes(payload))
            case Reconnected(process=process):
                self._me = process
                self._member.lost()

    def _pump(self) -> None:
        """Passes on what the member has to say."""
        member = self._member
        if member.out:
            self._unsent.set()
        answers, member.answers = member.answers, []
        for ticket, value, error in answers:
            future = self._futures.get(ticket)
            if future is not None and not future.done():
                if error is None:
                    future.set_result(value)
                else:
                    future.set_exception(error)
        if self._waiters and self.is_primary:
            self._wake()

    def _wake(self) -> None:
        for future in self._waiters:
            if not future.done():
                future.set_result(None)

    async def _send(self) -> None:
        """On a task of its own: the member goes on while the ring pushes back."""
        try:
            while True:
                await self._unsent.wait()
                self._unsent.clear()
                out, self._member.out = self._member.out, []
                await self._group.multicast_many(out, Service.SAFE)
        except SessionError as error:
            self._end(error)

    def _end(self, error: SessionError) -> None:
        if self._error is None:
            self._error = error
            self._member.lost()
            self._pump()
            for future in self._futures.values():
                if not future.done():
                    future.set_exception(NotPrimary(f"the command was not sent: {error}"))
            self._wake()
