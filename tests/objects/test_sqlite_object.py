"""An object on SQLite: its database, its file, and the machine that goes on from it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from totempole.errors import ObjectBrokenError, ObjectError
from totempole.objects import ordered, records
from totempole.objects.commands import ObjectType, command
from totempole.objects.machine import ObjectMachine
from totempole.objects.records import Calls, Kind, Opened
from totempole.objects.sqlite import Kept, SqliteObject


class Ledger(SqliteObject):
    schema = """
        CREATE TABLE entries (account TEXT NOT NULL, amount INTEGER NOT NULL CHECK (amount != 0));
        CREATE TABLE lots (account TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
    """

    @command
    def post(self, account: str, amount: int) -> int:
        self.db.execute("INSERT INTO entries VALUES (?, ?)", (account, amount))
        self.db.execute("INSERT OR REPLACE INTO lots VALUES (?, random())", (account,))
        return self.balance(account)

    @command
    def sql(self, text: str) -> None:
        self.db.execute(text)

    def balance(self, account: str) -> int:
        query = "SELECT coalesce(sum(amount), 0) FROM entries WHERE account = ?"
        found: int = self.db.execute(query, (account,)).fetchone()[0]
        return found


def calls(*made: tuple[Any, ...], first: int = 1, client: str = "c") -> bytes:
    of = ObjectType.of(Ledger)
    encoded = tuple([of.encode_call(m, args, number=n) for n, (m, *args) in enumerate(made, start=first)])
    return records.encode(Calls(client, 0, 0, 1, encoded))


def opened() -> ObjectMachine[Ledger]:
    machine = ObjectMachine(Ledger)
    machine.apply(records.encode(Opened("Ledger", 1, machine.limits)), 0, 0)
    return machine


def test_commands_write_and_readers_do_not() -> None:
    ledger = Ledger()
    with ordered.at(position=1):
        assert ledger.post("ann", 5) == 5
    assert ledger.balance("ann") == 5
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        ledger.db.execute("INSERT INTO entries VALUES ('ann', 1)")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        ledger.post("ann", 5)
    assert ledger.balance("ann") == 5


@pytest.mark.parametrize(
    "text",
    [
        "COMMIT",
        "BEGIN",
        "ROLLBACK",
        "SAVEPOINT a",
        "ATTACH ':memory:' AS other",
        "PRAGMA query_only = 0",
        "DROP TABLE totempole_kept",
    ],
)
def test_transactions_are_the_objects_own(text: str, tmp_path: Path) -> None:
    machine = opened()
    machine.state.move_to(tmp_path / "l.db", Kept("ledger", 1, machine.head()))
    (outcome,) = machine.apply(calls((Ledger.sql, text)), 1, 0)
    assert outcome.kind is Kind.RAISED
    assert "not authorized" in outcome.text or "prohibited" in outcome.text
    machine.state.commit(Kept("ledger", 1, machine.head()))


def test_an_error_of_sql_is_an_outcome() -> None:
    machine = opened()
    first, second = machine.apply(calls((Ledger.post, "ann", 0), (Ledger.post, "ann", 1)), 1, 0)
    assert (first.kind, second.kind) == (Kind.RAISED, Kind.DONE)
    assert "CHECK constraint failed" in first.text


def test_a_full_disk_is_none(tmp_path: Path) -> None:
    """Other hosts' disks are not full: the outcome would be another one there."""
    machine = opened()
    machine.state.move_to(tmp_path / "l.db", Kept("ledger", 1, machine.head()))
    with machine.state._inside():
        pages = machine.state.db.execute("PRAGMA page_count").fetchone()[0]
        machine.state.db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(ObjectBrokenError, match="database or disk is full"):
        machine.apply(calls((Ledger.sql, "INSERT INTO entries VALUES (hex(zeroblob(99999)), 1)")), 1, 0)


def test_digests_compare_what_tables_hold() -> None:
    machines = opened(), opened()
    for machine in machines:
        machine.apply(calls(*[(Ledger.post, f"a{n}", n + 1) for n in range(50)]), 1, 0)
    one, other = machines
    assert one.digest() == other.digest(), "random() is that of the order"
    with other.state._inside():
        other.state.db.execute("VACUUM")
    assert one.digest() == other.digest()
    with other.state._inside():
        other.state.db.execute("UPDATE lots SET number = number + 1 WHERE account = 'a7'")
    assert one.digest() != other.digest()


def test_a_snapshot_has_what_is_not_committed(tmp_path: Path) -> None:
    machine = opened()
    machine.state.move_to(tmp_path / "l.db", Kept("ledger", 1, machine.head()))
    machine.apply(calls((Ledger.post, "ann", 5)), 1, 0)
    other = ObjectMachine.restore(Ledger, machine.snapshot())
    assert other.state.balance("ann") == 5
    assert other.digest() == machine.digest()
    assert machine.copy().state.file is None


def test_it_goes_on_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "l.db"
    assert Ledger.open(file, "ledger") is None
    machine, whole = opened(), opened()
    machine.state.move_to(file, Kept("ledger", 77, machine.head()))
    made = [calls((Ledger.post, "ann", n), first=n) for n in range(1, 9)]
    for position, payload in enumerate(made, start=1):
        whole.apply(payload, position, 0)
    for position in (1, 2, 3):
        machine.apply(made[position - 1], position, 0)
    machine.state.commit(Kept("ledger", 77, machine.head()))
    machine.apply(made[3], 4, 0)
    machine.state.close()  # what follows the commit is forgotten, and so is its place

    found = Ledger.open(file, "ledger")
    assert found is not None
    state, kept = found
    assert (kept.object, kept.log) == ("ledger", 77)
    again = ObjectMachine.resume(Ledger, kept.head, state)
    assert again.applied == 4
    assert state.balance("ann") == 6
    for position, payload in enumerate(made, start=1):
        again.apply(payload, position, 0)
    assert again.digest() == whole.digest()


def test_one_program_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "l.db"
    machine = opened()
    machine.state.move_to(file, Kept("ledger", 1, machine.head()))
    with pytest.raises(ObjectError, match="database is locked"):
        Ledger.open(file, "ledger")


def test_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "l.db"
    machine = opened()
    machine.state.move_to(file, Kept("ledger", 1, machine.head()))
    machine.state.close()
    with pytest.raises(ObjectError, match="holds object 'ledger', not 'bank'"):
        Ledger.open(file, "bank")
    file.write_bytes(b"something else, and rather longer than a header of a database" * 20)
    with pytest.raises(ObjectError, match="not a database"):
        Ledger.open(file, "ledger")
    sqlite3.connect(tmp_path / "plain.db").execute("CREATE TABLE a (b)").connection.close()
    with pytest.raises(ObjectError, match="no such table"):
        Ledger.open(tmp_path / "plain.db", "ledger")


def test_what_was_rolled_back_is_not_committed(tmp_path: Path) -> None:
    machine = opened()
    machine.state.move_to(tmp_path / "l.db", Kept("ledger", 1, machine.head()))
    machine.apply(calls((Ledger.sql, "INSERT INTO lots VALUES ('a', 1)")), 1, 0)
    (outcome,) = machine.apply(
        calls((Ledger.sql, "INSERT OR ROLLBACK INTO lots VALUES ('a', 1)"), first=2), 2, 0
    )
    assert outcome.kind is Kind.RAISED
    with pytest.raises(ObjectError, match="rolled back what others had done"):
        machine.state.commit(Kept("ledger", 1, machine.head()))


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_sqlite_object import *
machine = opened()
machine.state.move_to(Path(sys.argv[2]), Kept("ledger", 1, machine.head()))
for position in range(1, 100):
    machine.apply(calls((Ledger.post, "ann", 1), first=position), position, 0)
    if position % 7 == 0:
        machine.state.commit(Kept("ledger", 1, machine.head()))
    if position == int(sys.argv[3]):
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("at", [3, 7, 40])
def test_a_program_that_is_killed_goes_on_at_its_place(at: int, tmp_path: Path) -> None:
    file = tmp_path / "l.db"
    argv = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(file), str(at)]
    assert subprocess.run(argv).returncode == -9
    found = Ledger.open(file, "ledger")
    assert found is not None
    machine = ObjectMachine.resume(Ledger, found[1].head, found[0])
    assert machine.applied == at // 7 * 7 + 1
    assert machine.state.balance("ann") == at // 7 * 7
