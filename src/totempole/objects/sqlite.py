"""An object whose state is a SQLite database, and whose position commits with its data.

    class Ledger(SqliteObject):
        schema = "CREATE TABLE entries (account TEXT NOT NULL, amount INTEGER NOT NULL)"

        @command
        def post(self, account: str, amount: int) -> None:
            self.db.execute("INSERT INTO entries VALUES (?, ?)", (account, amount))

        def balance(self, account: str) -> int:
            query = "SELECT coalesce(sum(amount), 0) FROM entries WHERE account = ?"
            return self.db.execute(query, (account,)).fetchone()[0]

    async with session.replica(Ledger, "ledger", file="ledger.db") as ledger:
        ...

Use it where the state is larger than memory should hold, or where other programs want to read it. What the
machine knows (its position, the clients' table) is written in the same transaction as the data. So a program
that is killed goes on from its file, at exactly the place that the data has. Without a `file`, in tests and
for tentative calls, the database is in memory.

Commands and readers use `self.db`, a `sqlite3.Connection`. Transactions belong to the object: BEGIN, COMMIT
and SAVEPOINT are refused, and a reader cannot write. `random()` in SQL is that of the order. What SQL leaves
open differs between hosts: give every SELECT whose order matters an ORDER BY, and take times from
`ordered.time()`, not from `datetime('now')`. (`totempole.testing.twins` finds such a method.)
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from totempole.errors import ObjectError
from totempole.objects import ordered
from totempole.objects.commands import ObjectType
from totempole.objects.machine import ObjectMachine

KEPT = "totempole_kept"
_CREATE_KEPT = (
    f"CREATE TABLE IF NOT EXISTS {KEPT} (one INTEGER PRIMARY KEY CHECK (one = 1), object TEXT NOT NULL, "
    "log INTEGER NOT NULL, head BLOB NOT NULL)"
)

_FORBIDDEN = frozenset(
    (
        sqlite3.SQLITE_TRANSACTION,
        sqlite3.SQLITE_SAVEPOINT,
        sqlite3.SQLITE_ATTACH,
        sqlite3.SQLITE_DETACH,
    )
)


class Kept(NamedTuple):
    """What a database knows of its place in the order."""

    object: str
    log: int
    """The log's own name: positions of another one mean nothing."""
    head: bytes
    """`snapshots.SnapshotHead`."""


class SqliteObject:
    object_can_fork: ClassVar[bool] = False
    """SQLite forbids a child the connection of its parent."""
    schema: ClassVar[str] = ""
    """SQL that makes the tables, run once."""
    _is_inside: bool
    """What is done is the object's own doing."""
    _is_writing: bool

    def __init__(self) -> None:
        self._connect(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))
        with self._inside():
            self.db.executescript(self.schema)

    @property
    def db(self) -> sqlite3.Connection:
        """Not to be kept: outside a command it only reads."""
        is_writing = self._is_inside or ordered.current.get() is not None
        if is_writing is not self._is_writing:
            self._is_writing = is_writing
            before, self._is_inside = self._is_inside, True
            self._db.execute(f"PRAGMA query_only = {not is_writing:d}")
            self._is_inside = before
        return self._db

    def _connect(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.file: Path | None = None
        self._is_inside = False
        self._is_writing = True
        db.create_function("random", 0, _random)
        db.set_authorizer(self._authorize)

    # What it is as an object (`state`)

    def snapshot(self) -> bytes:
        with self._inside():
            return self.db.serialize()

    @classmethod
    def restore(cls, content: bytes) -> Self:
        """In memory."""
        state = cls.__new__(cls)
        state._connect(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))
        with state._inside():
            state.db.deserialize(content)
        return state

    def digest(self) -> bytes:
        """Of what the tables hold. Pages may lie differently at each host."""
        found = blake2b(digest_size=16)
        with self._inside():
            names = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name != ? ORDER BY name"
            for name, sql in self.db.execute(names, (KEPT,)).fetchall():
                found.update(repr((name, sql)).encode())
                quoted = '"' + name.replace('"', '""') + '"'
                for row in self.db.execute(f"SELECT * FROM {quoted} ORDER BY {_key(self.db, quoted)}"):
                    found.update(repr(row).encode())
        return found.digest()

    # Its file

    @classmethod
    def open(cls, file: Path, object_name: str) -> tuple[Self, Kept] | None:
        """The state in this file, and its place in the order; None if the file is not there. ObjectError if
        it is another object's, or no such database."""
        if not file.exists():
            return None
        state = cls.__new__(cls)
        try:
            state._connect(_open(file))
            with state._inside():
                row = state.db.execute(f"SELECT object, log, head FROM {KEPT}").fetchone()
                if row is None:
                    raise sqlite3.DatabaseError("it does not say which object it is")
                state.db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise ObjectError(
                f"{file} cannot be opened as an object's database ({error}): name another file, or move it "
                "away, and the object is built anew"
            ) from None
        kept = Kept(*row)
        if kept.object != object_name:
            state.close()
            raise ObjectError(f"{file} holds object {kept.object!r}, not {object_name!r}: name another file")
        state.file = file
        return state, kept

    def move_to(self, file: Path, kept: Kept) -> None:
        """From memory to a file, which is there whole or not at all. An old one is replaced."""
        assert self.file is None, "it is in memory"
        fresh = file.with_name(file.name + ".new")
        fresh.unlink(missing_ok=True)
        try:
            to = _open(fresh)
            with self._inside():
                self.db.backup(to)
            to.execute(_CREATE_KEPT)
            to.execute(f"INSERT OR REPLACE INTO {KEPT} VALUES (1, ?, ?, ?)", kept)
            to.close()
            _sync(fresh)
            os.replace(fresh, file)
            _sync(file.parent)
            old, db = self.db, _open(file)
        except (sqlite3.Error, OSError) as error:
            raise ObjectError(f"{file}: the object's database cannot be written: {error}") from error
        old.close()
        self._connect(db)
        self.file = file
        with self._inside():
            self.db.execute("BEGIN IMMEDIATE")

    def commit(self, kept: Kept) -> None:
        """What has been done since the last time is on the disk when this returns, with its place."""
        assert self.file is not None, "it has a file"
        try:
            with self._inside():
                if not self.db.in_transaction:
                    raise sqlite3.DatabaseError("a command has rolled back what others had done")
                self.db.execute(f"INSERT OR REPLACE INTO {KEPT} VALUES (1, ?, ?, ?)", kept)
                self.db.execute("COMMIT")
                self.db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise ObjectError(
                f"{self.file}: the object's database cannot be written ({error}); what was committed before "
                "is whole, and a program that opens it goes on from there"
            ) from error

    def close(self) -> None:
        """What is not committed is forgotten."""
        self.db.close()

    # What commands and readers may do

    @contextmanager
    def _inside(self) -> Iterator[None]:
        before, self._is_inside = self._is_inside, True
        try:
            yield
        finally:
            self._is_inside = before

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, by: str | None
    ) -> int:
        if self._is_inside:
            return sqlite3.SQLITE_OK
        if action in _FORBIDDEN or KEPT in (first, second):
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA and second is not None:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


class DatabaseFile:
    """What a host does to keep an object in its file."""

    def __init__(self, file: str | os.PathLike[str], cls: type, object_name: str) -> None:
        if not issubclass(cls, SqliteObject):
            raise ObjectError(
                f"file = {str(file)!r}: {cls.__name__} is kept in memory; derive it from SqliteObject"
            )
        self._path = Path(file)
        self._object = object_name
        self._log = 0
        self._state: SqliteObject | None = None
        """That has the file open."""
        self._committed = 0

    def open(self, type_: ObjectType[Any], log: int, first: int) -> ObjectMachine[Any] | None:
        """The object as the file has it; None if there is no file, or if the log that follows it is trimmed
        before position `first`. What was not committed is forgotten."""
        self.release()
        self._log = log
        found = type_.cls.open(self._path, self._object)
        if found is None:
            return None
        state, kept = found
        try:
            if kept.log != log:
                raise ObjectError(
                    f"{self._path} belongs to another log, of another cluster or from before a rescue: move "
                    "it away, and the object is built anew"
                )
            machine = ObjectMachine.resume(type_, kept.head, state)
        except BaseException:
            state.close()
            raise
        if machine.applied < first:
            state.close()
            return None
        self._state, self._committed = state, machine.applied
        return machine

    def has_news(self, machine: ObjectMachine[Any]) -> bool:
        """Whether something is applied that is not committed."""
        return bool(machine.version) and machine.applied != self._committed

    def keep(self, machine: ObjectMachine[Any]) -> None:
        """Commits what is applied."""
        state = machine.state
        if not isinstance(state, SqliteObject):
            raise ObjectError(f"{type(state).__name__} is kept in memory; derive it from SqliteObject")
        kept = Kept(self._object, self._log, machine.head())
        if state.file is None:
            state.move_to(self._path, kept)
        else:
            state.commit(kept)
        if state is not self._state:
            self.release()
            self._state = state
        self._committed = machine.applied

    def release(self) -> None:
        """Closes the file. What was not committed is forgotten."""
        state, self._state = self._state, None
        if state is not None:
            state.close()


def _open(file: Path) -> sqlite3.Connection:
    """Another program that has the file open as an object's is an error at once."""
    db = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=1.0)
    db.execute("PRAGMA journal_mode = TRUNCATE")
    db.execute("PRAGMA synchronous = FULL")
    return db


def _key(db: sqlite3.Connection, quoted: str) -> str:
    """What puts the rows of a table in one order: its rowid, or its primary key where it has none."""
    try:
        db.execute(f"SELECT rowid FROM {quoted} LIMIT 0")
    except sqlite3.OperationalError:
        columns = db.execute(f"PRAGMA table_info({quoted})").fetchall()
        keys = sorted((place, name) for _, name, _, _, _, place in columns if place)
        return ", ".join('"' + name.replace('"', '""') + '"' for _, name in keys)
    return "rowid"


def _random() -> int:
    moment = ordered.current.get()
    if moment is None:
        raise ObjectError("random() outside a command")
    return moment.random.getrandbits(64) - 2**63


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
