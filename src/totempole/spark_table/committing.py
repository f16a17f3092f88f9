"""The driver's side of a write: a session with a daemon, and what becomes of the tasks' messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from totempole.client.appending import FencedError
from totempole.client.running import run
from totempole.client.session import Session
from totempole.errors import SessionError, TlsError, TotemError
from totempole.groups.packing import Batch
from totempole.spark_table.access import REFUSALS, Access
from totempole.spark_table.manifest import PackedRun, Producer
from totempole.spark_table.publishing import Outcome, Publisher
from totempole.types import Fence

PAUSE_S = 0.2
"""Between two attempts, while the log takes nothing."""

_logger = logging.getLogger("totempole.spark_table")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskRows:
    """What a task of Spark has written, or gives along to be written."""

    producer: str
    partition: int
    rows: int
    inline: tuple[PackedRun, ...] = ()
    """All of its rows, if they are few."""
    positions: tuple[int, ...] = ()
    """Otherwise: of its staged runs."""
    hold: str = ""
    """That keeps them."""


def commit(access: Access, batch: int, tasks: Sequence[TaskRows], first_batch: int = 0) -> Outcome:
    """Publishes a batch: the tasks are those attempts that count, all of one producer."""
    return run(_commit(access, batch, tasks, first_batch))


def release(access: Access, tasks: Iterable[TaskRows]) -> None:
    """Gives up what tasks have staged, for nobody will publish it."""
    held = [task.hold for task in tasks if task.hold]
    if held:
        run(_release(access, held))


async def _commit(access: Access, batch: int, tasks: Sequence[TaskRows], first_batch: int) -> Outcome:
    in_order = sorted(tasks, key=lambda task: task.partition)
    (name,) = {task.producer for task in tasks}
    producer = Producer(name)
    inline = [each for task in in_order for each in task.inline]
    positions = [position for task in in_order for position in task.positions]
    async with _opened(access, producer) as order:
        publisher = Publisher(order, producer, batch, first_batch)
        outcome = await publisher.publish(inline, positions)
        if positions or order.has_held:
            await _let_go(publisher, [task.hold for task in tasks if task.hold])
    rows = sum(task.rows for task in tasks)
    _logger.info("%s: batch %d, %d rows: %s", producer, batch, rows, outcome.value)
    return outcome


async def _let_go(publisher: Publisher, held: Sequence[str]) -> None:
    """The batch is complete: a hold that stays is no reason to fail. The next batch finds it."""
    try:
        await publisher.release(held)
    except TotemError as error:
        _logger.warning("holds are not released, see `totem log holds`: %s", error)


async def _release(access: Access, held: Sequence[str]) -> None:
    try:
        async with _opened(access, Producer("")) as order:
            for name in held:
                await order.hold(name, -1)
    except SessionError as error:
        _logger.warning("holds are not released, see `totem log holds`: %s", error)


@asynccontextmanager
async def _opened(access: Access, producer: Producer) -> AsyncIterator[SessionOrder]:
    """A session with a daemon; one that is away is waited for, and one that refuses a certificate is not."""
    until_s = asyncio.get_running_loop().time() + access.patience_s
    refusals = 0
    while True:
        session = access.async_session(f"spark driver {producer.id}")
        try:
            await session.__aenter__()
            break
        except SessionError as error:
            refusals += isinstance(error, TlsError)
            if refusals >= REFUSALS or asyncio.get_running_loop().time() + PAUSE_S > until_s:
                raise
        await asyncio.sleep(PAUSE_S)
    try:
        yield SessionOrder(access, session)
    finally:
        await session.__aexit__(None, None, None)


class SessionOrder:
    """`publishing.Order`, by a session with a daemon and the log services of replicas."""

    def __init__(self, access: Access, session: Session) -> None:
        self.has_held = False
        self._access = access
        self._session = session

    async def append(self, run: PackedRun, fence: Fence) -> None:
        keys = [str(key, "utf-8") for key in Batch(run.keys)] if run.keys else None
        log = self._session.log(run.log)

        async def ask(timeout_s: float) -> None:
            await log.append_many(Batch(run.batch), keys, fence=fence, timeout=timeout_s)

        await self._insist(ask, f"{run.count} rows for log {run.log!r}")

    async def stage(self, log: str, records: Sequence[bytes]) -> list[int]:
        async def ask(timeout_s: float) -> list[int]:
            return await self._session.log(log).append_many(records, timeout=timeout_s)

        return await self._insist(ask, f"{sum(map(len, records))} bytes to be staged")

    async def staged(self, log: str, positions: Sequence[int]) -> AsyncGenerator[bytes, None]:
        start, stop = positions[0], positions[-1] + 1
        wanted = set(positions)
        batches = self._access.async_reader(log).batches(start, stop, known=stop)
        async with aclosing(batches) as found:  # type: ignore[type-var]
            async for batch in found:
                for position, payload in zip(batch.positions, batch.payloads, strict=True):
                    if position in wanted:
                        yield payload

    async def hold(self, name: str, position: int) -> None:
        self.has_held = self.has_held or position >= 0

        async def ask(timeout_s: float) -> None:
            await self._session.log(name).hold(name, position, timeout=timeout_s)

        await self._insist(ask, f"hold {name!r}")

    async def holds(self) -> Iterable[str]:
        status = await self._access.async_reader("").status()
        return status.holds

    async def _insist(self, ask: Callable[[float], Awaitable[T]], what: str) -> T:
        """Asks until it is done, while the log takes nothing: fences make that safe, and staged runs that are
        there twice are named once."""
        clock = asyncio.get_running_loop().time
        until_s = clock() + self._access.patience_s
        while True:
            try:
                return await ask(max(PAUSE_S, until_s - clock()))
            except FencedError:
                raise
            except SessionError as error:
                if clock() + PAUSE_S > until_s:
                    raise not_taken(what, self._access.patience_s, error) from None
                _logger.info("%s: %s", what, error)
            await asyncio.sleep(PAUSE_S)


def not_taken(what: str, patience_s: float, error: SessionError) -> SessionError:
    return SessionError(
        f"the log has not taken {what} within {patience_s:g} s (option timeout): {error}; `totem log status` "
        "shows whether a majority of its replicas is connected, and who is missing"
    )
