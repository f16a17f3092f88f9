"""Objects on SQLite in programs of real nodes: they go on from their files."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_log_node import three

import totempole
from daemons import Cluster, Daemon
from totempole import command
from totempole.errors import ObjectError
from totempole.objects import Counter, SqliteObject

pytestmark = pytest.mark.nodes


@pytest.fixture(scope="module")
def them(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with three(tmp_path_factory.mktemp("sqlite")) as them:
        yield them


class Ledger(SqliteObject):
    schema = "CREATE TABLE entries (account TEXT NOT NULL, amount INTEGER NOT NULL)"

    @command
    def post(self, account: str, amount: int) -> int:
        self.db.execute("INSERT INTO entries VALUES (?, ?)", (account, amount))
        return self.balance(account)

    def balance(self, account: str) -> int:
        query = "SELECT coalesce(sum(amount), 0) FROM entries WHERE account = ?"
        return int(self.db.execute(query, (account,)).fetchone()[0])


def test_an_object_on_sqlite_goes_on_from_its_file(them: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"

    async def post(daemon: Daemon, count: int) -> tuple[int, int]:
        async with (
            totempole.connect(daemon.socket) as session,
            session.replica(Ledger, "ledger", file=file) as ledger,
        ):
            start = ledger._running.hosting.start
            for _ in range(count):
                last = await ledger.call(Ledger.post, "ann", 1)
            assert await ledger.read(Ledger.balance, "ann") == last
            with pytest.raises(ObjectError, match="database is locked"):
                async with session.replica(Ledger, "ledger", file=file):
                    pass
            return last, start

    assert asyncio.run(post(them[1], 20)) == (20, 0)
    before, start = asyncio.run(post(them[2], 1))
    assert before == 21
    assert start > 0, "it was not read from the beginning of the log"
    with totempole.blocking.connect(them[3].socket) as session:
        with session.replica(Ledger, "ledger", file=file) as ledger:
            assert ledger.call(Ledger.post, "ann", 1) == 22
        with session.replica(Ledger, "ledger") as ledger:
            assert ledger.peek(Ledger.balance, "ann") == 22
        with pytest.raises(ObjectError, match="Counter is kept in memory"):
            session.replica(Counter, "counter", file=file)
        with (
            pytest.raises(ObjectError, match="holds object 'ledger', not 'other'"),
            session.replica(Ledger, "other", file=file),
        ):
            pass


def test_a_file_of_another_log_is_refused(them: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    with totempole.blocking.connect(them[1].socket) as session:
        with session.replica(Ledger, "theirs", file=file) as ledger:
            ledger.call(Ledger.post, "ann", 1)
        with sqlite3.connect(file) as database:
            database.execute("UPDATE totempole_kept SET log = log + 1")
        with (
            pytest.raises(ObjectError, match="belongs to another log"),
            session.replica(Ledger, "theirs", file=file),
        ):
            pass
