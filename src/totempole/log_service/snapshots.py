"""Answers programs that list, get and put snapshots of objects. Files are read and written on a few threads.
While that takes long, a frame without content says every second that the service is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from totempole.errors import CodecError, StorageError
from totempole.log.snapshots import CHUNK_BYTES, SnapshotFile, StoredHead, snapshots_of
from totempole.log_service.answering import Send
from totempole.log_service.snapshot_files import BYTES_MAX, RefusedError, SnapshotFiles, Unfinished
from totempole.log_service.source import Source
from totempole.session.log_frames import (
    BEAT_S,
    PUT_REQUEST_BYTES_MAX,
    Answer,
    Failed,
    GetSnapshot,
    ListSnapshots,
    PutChunk,
    PutFrom,
    PutReached,
    PutSnapshot,
    Request,
    SnapshotChunk,
    SnapshotFound,
    SnapshotMissing,
    SnapshotRefused,
    Snapshots,
    SnapshotStored,
)

THREADS = 3
PUTS_MAX = 2
"""At the same time; others wait."""
GREEN_S_MAX = 3.0
"""How long a put waits for its position to be green on this replica's disk."""

GREEN_POLL_S = 0.02
PUT_SILENCE_S = 30.0
"""A program that puts a snapshot and sends nothing for so long has to begin again."""

Next = Callable[[int], Awaitable[Request]]
"""The next request of a program: of so many bytes at most."""
T = TypeVar("T")


class SnapshotService:
    def __init__(
        self, source: Source, processor: int, complain: Callable[[str], object], bytes_max: int = BYTES_MAX
    ) -> None:
        self.files = SnapshotFiles(snapshots_of(Path(source.directory)), complain, bytes_max=bytes_max)
        self._source = source
        self._processor = processor
        self._threads = source.threads or ThreadPoolExecutor(THREADS, "totempole-snapshots")
        self._puts = asyncio.Semaphore(PUTS_MAX)
        self._putting: set[str] = set()
        """Objects."""

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def list(self, request: ListSnapshots) -> Answer:
        self.files.log = self._source.zones.log
        try:
            heads = await self._do(lambda: self.files.heads(request.object))
        except StorageError as error:
            return Failed("closed", str(error))
        return Snapshots(tuple(head for head in heads if self._is_ours(head)))

    # Getting

    async def get(self, request: GetSnapshot, send: Send) -> None:
        self.files.log = self._source.zones.log
        try:
            file = await self._do(lambda: self.files.open(request.object, request.position))
        except StorageError as error:
            await send(SnapshotMissing(str(error)))
            return
        if file is None or not self._is_ours(file.head) or not 0 <= request.offset <= file.head.size:
            if file is not None:
                file.close()
            await send(SnapshotMissing("it keeps no such snapshot"))
            return
        with file:
            await send(SnapshotFound(file.head, request.offset))
            is_good = await self._slow(lambda: self.files.verify(file), lambda: send(SnapshotChunk(b"")))
            if not is_good:
                await send(SnapshotMissing("it was damaged, and is set aside"))
                return
            await self._send(file, request.offset, send)

    async def _send(self, file: SnapshotFile, offset: int, send: Send) -> None:
        while offset < file.head.size:
            content = await self._do(partial(file.chunk, offset))
            if not content:
                await send(SnapshotMissing("its file has become shorter"))
                return
            await send(SnapshotChunk(content))
            offset += len(content)

    # Putting

    async def put(self, request: PutSnapshot, take: Next, send: Send) -> None:
        """Ends when the snapshot is stored, or refused before any of it has come. If it is refused later, the
        program hangs up."""
        head = request.head
        self.files.log = self._source.zones.log
        try:
            await self._check_position(head)
            async with self._alone(head.object), self._turn(send):
                unfinished = await self._slow(
                    lambda: self.files.begin(head, again=request.again), lambda: send(PutReached(0))
                )
                if unfinished is None:
                    kept = await self._do(lambda: self.files.prune(head))
                else:
                    kept = await self._put(unfinished, take, send)
        except RefusedError as refused:
            await send(SnapshotRefused(refused.kind, str(refused)))
        else:
            await send(SnapshotStored(self._processor, kept))

    async def _put(self, unfinished: Unfinished, take: Next, send: Send) -> tuple[int, ...]:
        try:
            await send(PutFrom(unfinished.offset, unfinished.crc))
            await self._receive(unfinished, take, send)
            return await self._slow(
                lambda: self.files.finish(unfinished), lambda: send(PutReached(unfinished.synced))
            )
        except RefusedError as refused:
            await send(SnapshotRefused(refused.kind, str(refused)))
            left = unfinished.head.size
            while left > 0 and isinstance(chunk := await take(PUT_REQUEST_BYTES_MAX), PutChunk):
                left -= len(chunk.content)  # it was on its way
            raise EOFError("a put that was refused has ended") from None
        finally:
            unfinished.close()

    async def _receive(self, unfinished: Unfinished, take: Next, send: Send) -> None:
        head = unfinished.head
        pieces: list[bytes] = []
        size = 0
        while unfinished.offset + size < head.size:
            match await self._next(take):
                case PutChunk(content) if content:
                    pieces.append(content)
                    size += len(content)
                case PutSnapshot(same, True) if same == head:
                    pieces, size = [], 0
                    await self._do(unfinished.restart)
                    await send(PutFrom(0, 0))
                case other:
                    raise CodecError("frame unexpected", f"{type(other).__name__} within a put")
            if size >= CHUNK_BYTES or unfinished.offset + size >= head.size:
                content, pieces, size = b"".join(pieces), [], 0
                if await self._do(partial(unfinished.write, content)):
                    await send(PutReached(unfinished.synced))

    @staticmethod
    async def _next(take: Next) -> Request:
        """A program that hangs must not keep others from putting theirs."""
        try:
            async with asyncio.timeout(PUT_SILENCE_S):
                return await take(PUT_REQUEST_BYTES_MAX)
        except TimeoutError:
            raise EOFError("a put has stopped") from None

    async def _check_position(self, head: StoredHead) -> None:
        """A snapshot of what is not green here would push out good ones, and might never be reached."""
        source = self._source
        if not self._is_ours(head):
            raise RefusedError("log", f"it is of log {head.log:x}, and this is log {source.zones.log:x}")
        try:
            async with asyncio.timeout(GREEN_S_MAX):
                while head.position > source.position:
                    await source.refresh()
                    await asyncio.sleep(GREEN_POLL_S)
        except TimeoutError:
            raise RefusedError(
                "position",
                f"it is of position {head.position}, and this replica has records before "
                f"{source.position} on disk",
            ) from None

    @asynccontextmanager
    async def _alone(self, object_name: str) -> AsyncIterator[None]:
        if object_name in self._putting:
            raise RefusedError("busy", "another program puts a snapshot of this object now")
        self._putting.add(object_name)
        try:
            yield
        finally:
            self._putting.discard(object_name)

    @asynccontextmanager
    async def _turn(self, send: Send) -> AsyncIterator[None]:
        while self._puts.locked():
            await send(PutReached(0))
            await asyncio.sleep(BEAT_S)
        async with self._puts:
            yield

    # Within

    def _is_ours(self, head: StoredHead) -> bool:
        """After a rescue, or in a directory that was copied, there may be snapshots of another log."""
        return head.log != 0 and head.log == self._source.zones.log

    async def _do(self, work: Callable[[], T]) -> T:
        """On a thread. Whoever is cancelled meanwhile waits for the end of it: a file that is being written
        must not be closed."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    async def _slow(self, work: Callable[[], T], beat: Callable[[], Awaitable[None]]) -> T:
        """The same, with a sign of life now and then."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            while not (await asyncio.wait([future], timeout=BEAT_S))[0]:
                await beat()
        except BaseException:
            await asyncio.wait([future])
            raise
        return future.result()
