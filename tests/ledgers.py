"""Objects for tests of replicas' logs, and logs on disk with their commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from zlib import crc32

from totempole.log.snapshots import StoredHead, snapshots_of
from totempole.log_service.snapshot_files import SnapshotFiles
from totempole.objects import records
from totempole.objects.commands import ObjectType, Refused, command
from totempole.objects.machine import ObjectMachine
from totempole.objects.records import Calls
from written_logs import LOG, WrittenLog


class Bank:
    def __init__(self) -> None:
        self.accounts: dict[str, int] = {}
        self.transfers = 0

    @command
    def put(self, account: str, amount: int) -> int:
        self.accounts[account] = self.accounts.get(account, 0) + amount
        return self.accounts[account]

    @command
    def transfer(self, one: str, other: str, amount: int) -> None:
        if self.accounts.get(one, 0) < amount:
            raise Refused(f"{one} has not got {amount}")
        self.accounts[one] -= amount
        self.accounts[other] = self.accounts.get(other, 0) + amount
        self.transfers += 1


class Moody:
    """Does at one host what it does not at another: its variable says so."""

    VARIABLE = "TOTEMPOLE_TEST_MOOD"

    def __init__(self) -> None:
        self.count = 0
        self.moods: list[str] = []

    @command
    def add(self, amount: int) -> int:
        self.count += amount
        return self.count

    @command
    def feel(self) -> None:
        self.moods.append(os.environ.get(self.VARIABLE, ""))


class ObjectInLog:
    """An object whose host is this: appends its commands to a log on disk, and takes snapshots of it."""

    def __init__(self, log: WrittenLog, cls: type[Any], name: str = "bank", client: str = "test") -> None:
        self.log = log
        self.name = name
        self.machine: ObjectMachine[Any] = ObjectMachine(cls)
        self._type = ObjectType.of(cls)
        self._client = client
        self._number = 0
        opening = self.machine.opening()
        assert opening is not None
        self.append(opening)

    def append(self, payload: bytes) -> int:
        position = self.log.zones.position
        run = self.log.append([payload], log=f"objects/{self.name}")
        self.machine.apply(payload, position, run.time_us)
        return position

    def call(self, method: str, *arguments: Any) -> int:
        """Its position."""
        self._number += 1
        call = self._type.encode_call(method, arguments, number=self._number)
        content = Calls(self._client, 0, self._number - 1, self._type.version, (call,))
        return self.append(records.encode(content))

    def others(self, count: int) -> None:
        """Records of other logs."""
        self.log.append([b"noise"] * count, log="noise")

    def snapshot(self) -> StoredHead:
        """Takes one, and keeps it as the log service does."""
        return keep(self.log.directory, self.name, self.log.zones.position, self.machine)


def keep(directory: Path, name: str, position: int, machine: ObjectMachine[Any]) -> StoredHead:
    content = machine.snapshot().encode()
    head = StoredHead(name, position, machine.name, machine.version, len(content), crc32(content), LOG)
    files = SnapshotFiles(snapshots_of(directory), lambda text: None)
    unfinished = files.begin(head)
    assert unfinished is not None
    unfinished.write(content[unfinished.offset :])
    files.finish(unfinished)
    return head
