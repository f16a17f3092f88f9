"""The durable log, for asyncio programs.

    async with session.log("orders") as log:
        position = await log.append(b"buy 10", key="order-4711")
        receipt = await log.append(b"sell 5", until="red")
        ...
        print(await receipt.position())

A record is green once it is ordered and on the disks of a quorum: it keeps its position forever. It is red
once it is on the disk of the daemon's host, also while no majority of the replicas is connected. What can
happen in between is a receipt's to tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from totempole.client.appending import (
    UNFOUND,
    Appending,
    InDoubt,
    RecordName,
    RecordReceipt,
    Until,
    check_appended_to,
    check_log_name,
    position_in,
    records_taken,
)
from totempole.client.sending import one_as_bytes
from totempole.errors import Unknown
from totempole.session import RunPlaced
from totempole.types import Fence

if TYPE_CHECKING:
    from totempole.client.connection import Connection
    from totempole.client.endpoint import Endpoint
    from totempole.client.log_reader import LogReader
    from totempole.client.log_records import LogBatch, Record, Start
    from totempole.client.session import Session


async def ask_appending(
    connection: Connection, ask: Callable[[Appending], int], timeout: float | None
) -> Any:
    """Asks the daemon for what `ask` says, and waits for the answer."""
    connection.check_open()
    appending = connection.protocol.appending
    ticket = ask(appending)
    if not connection.flushing:
        connection.flush_soon()
    future = connection.expect(ticket)
    try:
        if timeout is None:
            return await future
        async with asyncio.timeout(timeout):
            return await future
    except TimeoutError:
        raise appending.give_up(ticket, f"no answer within {timeout:g} s") from None
    except asyncio.CancelledError:
        appending.give_up(ticket, "it was cancelled")
        raise
    finally:
        connection.forget(ticket)


class Receipt(RecordReceipt):
    """Names a record forever. `str(receipt)` can be kept, and `log.receipt(text)` makes it one again, in
    another program or at another replica, too."""

    __slots__ = ("_log",)

    def __init__(self, log: Log, name: RecordName) -> None:
        super().__init__(name)
        self._log = log

    async def position(self, timeout: float | None = None) -> int:
        """Waits until the record is green. `Unknown` if that takes longer than `timeout` seconds, or if the
        daemon does not know the record; `FencedError` if its fence has kept it out."""
        placed: RunPlaced | None = await self._log._ask(
            lambda appending: appending.find(self.name), timeout, (self.name,)
        )
        if placed is None:
            raise Unknown(UNFOUND, (self,))
        return position_in(placed, self.name.index)


class Log:
    """Made by `Session.log`, and used inside `async with`."""

    def __init__(self, session: Session, name: str, endpoints: Callable[[], Sequence[Endpoint]]) -> None:
        """`endpoints`: the log services that it is read from."""
        check_log_name(name)
        self._session = session
        self._name = name
        self._endpoints = endpoints
        self._reader: LogReader | None = None
        self._known = 0
        """Positions before it are known to be green."""

    @property
    def name(self) -> str:
        """The log's name."""
        return self._name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    # Appending

    @overload
    async def append(
        self,
        payload: bytes,
        *,
        key: str = "",
        fence: Fence | None = None,
        until: Literal["green"] = "green",
        timeout: float | None = None,
    ) -> int: ...

    @overload
    async def append(
        self, payload: bytes, *, key: str = "", until: Literal["red"], timeout: float | None = None
    ) -> Receipt: ...

    async def append(
        self,
        payload: bytes,
        *,
        key: str = "",
        fence: Fence | None = None,
        until: Until = "green",
        timeout: float | None = None,
    ) -> int | Receipt:
        """Appends a record. Returns its position once it is ordered and on the disks of a quorum; or, with
        until="red", a receipt once it is on the disk of the daemon's host.

        A key makes the record one: if the log has a record of that key among the last 65,536 with keys, there
        is no second one, and the position is that of the first. So an append with a key may be repeated, and
        is repeated by the session itself when the daemon goes away and comes back. Without a key that raises
        `Unknown`, and so does a `timeout`, in seconds: the receipt in it may tell later what has become of
        the record. Records that are appended at the same time share the cost.

        With a fence the record takes a position only if the fence lets it in; otherwise `FencedError` says
        which mark has kept it out. An append with a fence is repeated by the session, too.
        """
        check_appended_to(self._name)
        keys = (key,) if key else ()
        payloads = (payload if type(payload) is bytes else one_as_bytes(payload),)
        answer: int | Receipt
        (answer,) = await self._append(payloads, keys, until, timeout, fence)
        return answer

    @overload
    async def append_many(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[str] | None = None,
        *,
        fence: Fence | None = None,
        until: Literal["green"] = "green",
        timeout: float | None = None,
    ) -> list[int]: ...

    @overload
    async def append_many(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[str] | None = None,
        *,
        until: Literal["red"],
        timeout: float | None = None,
    ) -> list[Receipt]: ...

    async def append_many(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[str] | None = None,
        *,
        fence: Fence | None = None,
        until: Until = "green",
        timeout: float | None = None,
    ) -> list[int] | list[Receipt]:
        """Appends records, in this order: a position for each, or a receipt. A key for each, or none. Other
        records may come in between; and if it fails, the first of them may have been appended.

        With a fence they are in one run: all of them are let in, with no others in between, or none is
        (`FencedError`). Several such appends may be under way at once; they are sent in their order. A
        `groups.packing.Batch` is then sent without being unpacked.
        """
        check_appended_to(self._name)
        if not payloads and fence is None:
            return []
        return await self._append(records_taken(payloads, fence), tuple(keys or ()), until, timeout, fence)

    async def _append(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[str],
        until: Until,
        timeout: float | None,
        fence: Fence | None = None,
    ) -> list[Any]:
        answers: list[Any] = await self._ask(
            lambda appending: appending.append(self._name, payloads, keys, until, fence), timeout
        )
        if until == "red":
            return [Receipt(self, name) for name in answers]
        self._known = max(self._known, max(answers) + 1)
        return answers

    async def _ask(
        self,
        ask: Callable[[Appending], int],
        timeout: float | None,
        names: tuple[RecordName, ...] = (),
    ) -> Any:
        try:
            return await ask_appending(self._session.connection, ask, timeout)
        except InDoubt as doubt:
            receipts = [Receipt(self, name) for name in doubt.names or names]
            raise Unknown(str(doubt), tuple(receipts)) from None

    def receipt(self, text: str) -> Receipt:
        """The receipt that was written as this text."""
        return Receipt(self, RecordName.parse(text))

    # Readers

    async def hold(self, reader: str, position: int, timeout: float | None = None) -> None:
        """Nothing from this position on is trimmed while this reader needs it; -1 gives the hold up."""
        await self._ask(lambda appending: appending.hold(reader, position), timeout)

    # Reading

    @property
    def reader(self) -> LogReader:
        """Reads the log without the daemon: `status` and `locate` are there, too."""
        if self._reader is None:
            from totempole.client.log_reader import LogReader

            self._reader = LogReader(self._endpoints(), log=self._name, reconnect=self._session.reconnect)
        return self._reader

    def read(
        self, start: Start = "earliest", stop: int | None = None, *, follow: bool = False
    ) -> AsyncIterator[Record]:
        """Records from position `start` on, before `stop`: `async for record in log.read(position)`.

        Without `follow` it ends with what was green when it began, and has all that this log object has
        appended. With it the reading goes on as records are ordered. When the log service goes away, the
        reading goes on at its position, there or at another replica. `LogTrimmedError` says which position is
        the earliest that is kept.
        """
        return self.reader.read(start, stop, follow=follow, known=self._known)

    def batches(
        self,
        start: Start = "earliest",
        stop: int | None = None,
        *,
        follow: bool = False,
        columns: Sequence[str] | None = None,
    ) -> AsyncIterator[LogBatch]:
        """The same, as batches of records that were appended together: much faster than one by one. Without
        "payload" in `columns`, payloads are not sent."""
        from totempole.session.log_frames import COLUMNS

        wanted = COLUMNS if columns is None else columns
        return self.reader.batches(start, stop, follow=follow, columns=wanted, known=self._known)
