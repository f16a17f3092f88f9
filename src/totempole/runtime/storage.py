"""Stable storage: the few numbers that must outlive a crash (Totem §4.2: the ring sequence number; §5.1).

One SQLite database in the node's directory, in WAL mode with `synchronous=FULL`: a write has reached the disk
when the call returns, or it raises. Whoever opens the directory holds a lock on it for life, and the database
names the processor and the cluster that it belongs to.

The rules when something is wrong:

- A write that fails is the last one: what the disk holds is then uncertain, so the storage takes no more.
  What was acknowledged before is still there, and the failed write is there whole or not at all.
- A database that is damaged is refused and left as it is. SQLite's own check finds a broken structure; a
  checksum over all values finds a changed or a missing value.
- A database that is gone is begun anew, with numbers from the clock (`srp.stable`): above all that the node
  can have used before. So is one that has never been used. In one that has, no number may be missing or
  beyond its range.
- A database appears in the directory complete, by rename, or not at all. So one that is empty or without its
  tables was damaged, and does not pass for a first start.

Two things cannot be seen here. A directory that was brought back from a backup looks like any other; other
nodes notice, if they remember the processor (`FormerLife`). And damage to the write-ahead log that a
crash left behind looks like a write that the crash cut off: the values are those of an earlier write.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from totempole.core.effects import Records
from totempole.core.records import record_text, record_value
from totempole.errors import StorageError, StorageFullError
from totempole.srp.stable import EPOCH_S, SECONDS_MAX, first_numbers
from totempole.wire.layout import INCARNATION_MAX, NUMBER_MAX

FORMAT_VERSION = 1
DATABASE = "storage.sqlite"
LOCK = "lock"

NUMBERS = frozenset({"incarnation", "ring_seq", "future_ring_seq", "timestamp"})
"""What every life stores (Totem §4.2, §5.1)."""

WAL_PAGES_MAX = 256
"""Pages of the write-ahead log before they are moved into the database: a megabyte."""

WRITES_MAX = 64
"""Writes that a StorageWriter holds, queued and under way. The protocol has a few under way at most."""

_MAGIC = b"SQLite format 3\0"
_SCHEMA = """
CREATE TABLE identity (
    format INTEGER NOT NULL, processor INTEGER NOT NULL, cluster INTEGER NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE kv (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
# Values are decimal text: what the wire carries has 64 bits and no sign, and SQLite's integers have 63.


class Storage:
    """For one thread at a time. `values` is what has been stored; change it by `write` only."""

    def __init__(
        self, path: Path, database: sqlite3.Connection, lock: int, values: dict[str, Any], *, lost: bool
    ) -> None:
        """Use `Storage.open`."""
        self.path = path
        self.lost = lost
        """The directory has been used before, and its database was gone."""
        self.values = values
        self._database = database
        self._lock = lock
        self._failure: StorageError | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        directory: Path,
        processor: int,
        cluster_id: int,
        wall_clock: Callable[[], float] = time.time,
    ) -> Self:
        """Takes the directory's lock, and creates the database at the very first start.

        A first start stores numbers taken from the wall clock, so that a processor whose disk was replaced
        uses none of them twice: not the seal's nonces, nor a ring's number, nor a timestamp.
        """
        path = directory / DATABASE
        with _explained(path):
            make_directory(directory)
            used = (directory / LOCK).exists()
            lock = take_lock(directory)
            try:
                lost = used and not path.exists()
                if not path.exists():
                    _create(path, processor, cluster_id, _first_numbers(wall_clock()))
                _check_header(path)
                database = _connect(path)
            except BaseException:
                os.close(lock)
                raise
        try:
            with _explained(path):
                values = _load(path, database, processor, cluster_id)
                storage = cls(path, database, lock, values, lost=lost)
            _check_numbers(path, values)
            if "future_ring_seq" not in values:
                storage._complete(wall_clock())
        except BaseException:
            _close_database(database)
            os.close(lock)
            raise
        return storage

    def _complete(self, now_s: float) -> None:
        """Numbers that a storage without a life yet lacks: an earlier version stored fewer."""
        if not {*self.values, "future_ring_seq"} >= NUMBERS:
            self.write(_first_numbers(now_s) | self.values)

    def write(self, values: Records) -> None:
        """One transaction, durable on return. After a StorageError the storage takes no more writes."""
        if self._closed:
            raise StorageError(f"{self.path}: the storage is closed")
        if self._failure is not None:
            raise StorageError(f"{self.path}: an earlier write failed ({self._failure})")
        changed = {**self.values, **values}
        try:
            with _explained(self.path), _transaction(self._database):
                _put(self._database, values, changed)
        except StorageError as error:
            self._failure = error
            raise
        self.values = changed

    def close(self) -> None:
        """Every write is durable already: this gives back the lock, and may be called twice."""
        if not self._closed:
            self._closed = True
            _close_database(self._database)
            os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _first_numbers(now_s: float) -> dict[str, int]:
    seconds = int(now_s) - EPOCH_S
    if not 0 < seconds < SECONDS_MAX:
        shown = time.strftime("%Y-%m-%d", time.gmtime(now_s))
        raise StorageError(
            f"the wall clock says {shown}, and a processor's first numbers are counted from 2020: set the "
            "clock and start again (later starts do not read it)"
        )
    return first_numbers(seconds)


def _check_numbers(path: Path, values: Records) -> None:
    """What a life has left must be whole: a number that is guessed may have been used."""
    if "future_ring_seq" in values and not set(values) >= NUMBERS:
        raise _damaged(path, f"{', '.join(sorted(NUMBERS - set(values)))} is missing")
    for name in sorted(NUMBERS & set(values)):
        most = INCARNATION_MAX if name == "incarnation" else NUMBER_MAX
        if not 0 <= values[name] < most:
            raise _damaged(path, f"{name} = {values[name]} is beyond its range")


# The directory and its lock


def make_directory(directory: Path) -> None:
    """Made durable with its parents: a directory that is gone after a power cut takes its values along."""
    missing = [place for place in (directory, *directory.parents) if not place.exists()]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in missing:
        sync_directory(place.parent)


def sync_directory(directory: Path) -> None:
    """Makes the names in it durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def take_lock(directory: Path) -> int:
    """The kernel gives the lock back when the process ends, however it ends."""
    handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(handle)
        raise StorageError(
            f"{directory} is in use by the process with pid {holder}: stop it, or give this node a directory "
            "of its own"
        ) from None
    except BaseException:
        os.close(handle)
        raise
    return handle


# The database


def _create(path: Path, processor: int, cluster_id: int, values: Records) -> None:
    wal = path.with_name(f"{path.name}-wal")
    if wal.exists():
        raise StorageError(
            f"{path} is missing, but its write-ahead log {wal.name} is there: put the database back beside "
            "it; or, if its values are lost for good, move the log away to start as a new processor"
        )
    unfinished = path.with_name(f"{path.name}.new")
    for leftover in (unfinished, path.with_name(f"{unfinished.name}-journal")):
        leftover.unlink(missing_ok=True)  # an earlier first start did not get as far as the rename
    database = sqlite3.connect(unfinished, isolation_level=None)
    try:
        database.execute("PRAGMA synchronous=FULL")
        database.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
        with _transaction(database):
            identity = (FORMAT_VERSION, processor, cluster_id)
            database.execute("INSERT INTO identity VALUES (?, ?, ?, 0)", identity)
            _put(database, values, values)
    finally:
        database.close()
    os.rename(unfinished, path)
    sync_directory(path.parent)


def _check_header(path: Path) -> None:
    """SQLite takes a file of less than a page for a new database, and would begin one over it."""
    with open(path, "rb") as file:
        header = file.read(len(_MAGIC) + 2)
        length = os.fstat(file.fileno()).st_size
    page_bytes = int.from_bytes(header[len(_MAGIC) :], "big") or 1
    # SQLite writes its largest page size, which does not fit the two bytes, as 1.
    if not header.startswith(_MAGIC) or length < (65_536 if page_bytes == 1 else page_bytes):
        raise _damaged(path, "it does not begin like a database")


def _connect(path: Path) -> sqlite3.Connection:
    # mode=rw: a file that vanished is an error and not a first start. Threads: a StorageWriter's is another.
    uri = f"{path.absolute().as_uri()}?mode=rw"
    database = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0, check_same_thread=False)
    try:
        # The lock file keeps others out, so the log's index can stay in memory: no mapped file to run full.
        database.execute("PRAGMA locking_mode=EXCLUSIVE")
        database.execute("PRAGMA synchronous=FULL")
        database.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES_MAX}")
    except BaseException:
        _close_database(database)
        raise
    return database


def _load(path: Path, database: sqlite3.Connection, processor: int, cluster_id: int) -> dict[str, Any]:
    (mode,) = database.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise StorageError(f"{path}: SQLite gives journal mode {mode!r}, not WAL: use another file system")
    with _transaction(database):  # for writing: storage that cannot be written is refused now
        problems = [text for (text,) in database.execute("PRAGMA quick_check")]
        if problems != ["ok"]:
            raise _damaged(path, str(problems[0]))
        checksum = _check_identity(path, database, processor, cluster_id)
        stored = database.execute("SELECT name, value FROM kv").fetchall()
    try:
        values = {str(name): record_value(value) for name, value in stored}
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    if _checksum(values) != checksum:
        raise _damaged(path, "the values do not fit their checksum")
    return values


def _check_identity(path: Path, database: sqlite3.Connection, processor: int, cluster_id: int) -> int:
    rows = database.execute("SELECT format, processor, cluster, checksum FROM identity").fetchall()
    if len(rows) != 1:
        raise _damaged(path, f"it names {len(rows)} owners, not one")
    version, owner, cluster, checksum = rows[0]
    if version != FORMAT_VERSION:
        raise StorageError(
            f"{path} has format {version} and this program knows format {FORMAT_VERSION}: use the version of "
            "totempole that wrote it"
        )
    for name, theirs, ours in (("processor", owner, processor), ("cluster_id", cluster, cluster_id)):
        if theirs != ours:
            raise StorageError(
                f"{path} belongs to {name} = {theirs}, and this node has {name} = {ours}: correct {name}, or "
                "give this node a directory of its own"
            )
    return int(checksum)


def _put(database: sqlite3.Connection, values: Records, all_values: Records) -> None:
    rows = [(name, record_text(value)) for name, value in values.items()]
    database.executemany("INSERT OR REPLACE INTO kv VALUES (?, ?)", rows)
    database.execute("UPDATE identity SET checksum = ?", (_checksum(all_values),))


def _checksum(values: Records) -> int:
    plain = {name: value.hex() if isinstance(value, bytes) else int(value) for name, value in values.items()}
    return zlib.crc32(json.dumps(plain, sort_keys=True).encode())


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite has rolled back some failures itself
            database.execute("ROLLBACK")
        raise


def _close_database(database: sqlite3.Connection) -> None:
    # Closing moves the log into the database. Where that fails the log stays, and the next start reads it.
    with suppress(sqlite3.Error):
        database.close()


# What went wrong, in words


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        _explain_sqlite(path, error)
    except OSError as error:
        _explain_system(path, error)


def _explain_sqlite(path: Path, error: sqlite3.Error) -> NoReturn:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or "no such table" in str(error):
        raise _damaged(path, str(error)) from error
    if name == "SQLITE_FULL":
        raise _full(path) from error
    if name.startswith("SQLITE_BUSY"):
        raise StorageError(f"{path}: another program has the database open ({error}): close it") from error
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        raise StorageError(
            f"{path} cannot be written ({error}): let this user write the file and its directory"
        ) from error
    raise StorageError(f"{path}: the disk does not do its work ({error}, {name}): look after it") from error


def _explain_system(path: Path, error: OSError) -> NoReturn:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise _full(path) from error
    raise StorageError(
        f"{path.parent} cannot be used for stable storage ({error}): let this user write it, or name another "
        "directory"
    ) from error


def _full(path: Path) -> StorageError:
    return StorageFullError(
        f"{path}: the disk is full and the write did not take place: free some space, then start again"
    )


def _damaged(path: Path, what: str) -> StorageError:
    return StorageError(
        f"{path} is damaged ({what}) and was left as it is: put back a copy; or, if its values are lost for "
        "good, move it away with its -wal file to start as a new processor"
    )


# Writing beside the protocol


class StorageWriter:
    """A thread that writes, so that the protocol's thread never waits for the disk.

    `done(ticket)` is called, on this thread and in the order of submission, when a write is durable. All that
    has queued up behind a write is one transaction. After a failure `failed(error)` is called once, nothing
    more is written or acknowledged, and `submit` raises.
    """

    def __init__(
        self,
        storage: Storage,
        done: Callable[[int], object],
        failed: Callable[[StorageError], object],
    ) -> None:
        self._storage = storage
        self._done = done
        self._failed = failed
        self._queue: deque[tuple[int, Records]] = deque()
        self._outstanding = 0
        self._closing = False
        self._failure: StorageError | None = None
        self._changed = threading.Condition()
        # A daemon: a node that dies without `close` must not live on for the sake of writes nobody waits for.
        self._thread = threading.Thread(target=self._run, name="totempole-storage", daemon=True)
        self._thread.start()

    def submit(self, ticket: int, values: Records) -> None:
        """Never waits. At WRITES_MAX it raises: the disk stands still, or the caller asks too much."""
        with self._changed:
            if self._failure is not None:
                raise StorageError(f"{self._storage.path}: an earlier write failed ({self._failure})")
            if self._closing:
                raise StorageError(f"{self._storage.path}: the writer is closed")
            if self._outstanding >= WRITES_MAX:
                raise StorageError(
                    f"{self._storage.path}: {WRITES_MAX} writes wait for the disk, and no more may: the disk "
                    "stands still or is far too slow; look after it"
                )
            self._outstanding += 1
            self._queue.append((ticket, dict(values)))
            self._changed.notify()

    def close(self) -> None:
        """Writes and acknowledges what is queued, then ends the thread. Not to be called by a callback."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while batch := self._next_batch():
                self._write(batch)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, StorageError):
            shown = f"{type(error).__name__}: {error}"
            error = StorageError(f"{self._storage.path}: the writer stopped: {shown}")
        with self._changed:
            self._failure = error
            self._queue.clear()
        self._failed(error)

    def _next_batch(self) -> list[tuple[int, Records]]:
        """All that is queued; nothing once the writer is closed and has written all."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            batch = list(self._queue)
            self._queue.clear()
            return batch

    def _write(self, batch: list[tuple[int, Records]]) -> None:
        merged: dict[str, int] = {}
        for _, values in batch:
            merged.update(values)
        self._storage.write(merged)
        for ticket, _ in batch:
            with self._changed:
                self._outstanding -= 1
            self._done(ticket)
