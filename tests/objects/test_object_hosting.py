"""A host on a session's protocol: what is read again, announced, and told, without a daemon."""

from __future__ import annotations

from typing import Any

import pytest

from totempole.client.appending import HEAD_BYTES
from totempole.client.endpoint import Endpoint
from totempole.client.log_records import LogBatch, Notice
from totempole.client.protocol import Protocol
from totempole.corel.run import Primary, RunId
from totempole.errors import LogTrimmedError, ObjectBrokenError, ObjectClassError, SessionError
from totempole.objects.commands import command
from totempole.objects.hosting import CALL_HEAD_BYTES, FAILURES_MAX, Hosting, PrimaryChanged
from totempole.objects.machine import ObjectMachine
from totempole.objects.records import Call, Calls, Limits, Opened, encode
from totempole.objects.snapshotting import Begun

RUN = RunId(1, 2, 3)
CLIENT = "c" * 32


class Fragile:
    def __init__(self) -> None:
        self.count = 0

    @command
    def add(self) -> int:
        self.count += 1
        return self.count

    @command
    def interrupt(self) -> None:
        self.count += 100
        if INTERRUPTS:
            raise INTERRUPTS.pop()

    @command
    def keep(self, content: bytes) -> int:
        return len(content)


INTERRUPTS: list[BaseException] = []


class Driven:
    """A hosting, and a log that it is fed from."""

    def __init__(self) -> None:
        self.protocol = Protocol()
        self.turns = 0
        self.hosting: Hosting[Fragile] = Hosting(Fragile, "it", self.protocol, self._wake, self._wake)
        self.hosting.new_snapshots([Endpoint(path="/nowhere")], None)
        self.log = [encode(Opened("Fragile", 1, Limits()))]
        self.fed = self.hosting.begin(Begun(ObjectMachine(self.hosting.type), 0))
        self.feed()
        self.hosting.opened(0.0)

    def _wake(self) -> None:
        self.turns += 1

    def append(self, method: str) -> None:
        calls = (Call(len(self.log), method, self.hosting.type.encode_call(method).arguments),)
        self.log.append(encode(Calls(CLIENT, 0, 0, 1, calls)))

    def feed(self) -> None:
        batch = LogBatch("objects/it", RUN, 0, range(self.fed, len(self.log)), self.log[self.fed :], ())
        self.fed = len(self.log)
        items: list[Any] = [batch]

        def take() -> list[Any]:
            taken = items[:]
            items.clear()
            return taken

        while not self.hosting.is_stale and self.hosting.take_from(take):
            pass

    def read_again(self) -> None:
        self.fed = self.hosting.begin(Begun(ObjectMachine(self.hosting.type), 0))
        self.feed()


def test_a_log_that_was_trimmed_is_read_again_from_a_snapshot() -> None:
    it = Driven()
    it.append("add")
    it.hosting.feed_is_over(LogTrimmedError("it begins at 7", 7))
    assert it.hosting.is_stale
    with pytest.raises(ObjectBrokenError, match="read again"):
        _ = it.hosting.state
    it.read_again()
    assert it.hosting.state.count == 1


def test_a_feed_that_ends_otherwise_is_the_end() -> None:
    it = Driven()
    it.hosting.feed_is_over(SessionError("the daemon is gone"))
    with pytest.raises(SessionError, match="the daemon is gone"):
        it.hosting.check_open()
    other = Driven()
    other.hosting.feed_is_over(ValueError("odd"))
    with pytest.raises(SessionError, match="odd"):
        other.hosting.check_open()


def test_an_interrupted_command_leaves_no_half_changed_state_behind() -> None:
    it = Driven()
    it.append("interrupt")
    it.append("add")
    INTERRUPTS.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        it.feed()
    assert it.hosting.is_stale
    it.read_again()
    assert it.hosting.state.count == 101


def test_what_fails_at_the_same_place_again_and_again_is_given_up() -> None:
    it = Driven()
    it.append("interrupt")
    for _ in range(FAILURES_MAX):
        INTERRUPTS.append(MemoryError())
        it.feed()
        assert it.hosting.is_stale
        assert it.hosting.error is None
        it.fed = it.hosting.begin(Begun(ObjectMachine(it.hosting.type), 0))
    INTERRUPTS.append(MemoryError())
    it.feed()
    assert isinstance(it.hosting.error, ObjectBrokenError)


def test_another_class_is_the_end() -> None:
    it = Driven()
    fresh: Hosting[Fragile] = Hosting(Fragile, "it", it.protocol, it._wake, it._wake)
    batch = LogBatch("objects/it", RUN, 0, range(1), [encode(Opened("Bank", 1, Limits()))], ())
    items: list[Any] = [batch]
    fresh.take_from(lambda: [items.pop()] if items else [])
    assert isinstance(fresh.error, ObjectClassError)


def test_new_primaries_are_told_and_a_callback_that_fails_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = Driven()
    told: list[PrimaryChanged] = []

    def fail(_: PrimaryChanged) -> None:
        raise ValueError("mine")

    it.hosting.on_primary += [fail, told.append]
    items: list[Any] = [Notice(5, 9, RUN, Primary(3, {2: 1, 1: 1}, (1, 2)))]
    it.hosting.take_from(lambda: [items.pop()] if items else [])
    assert told == [PrimaryChanged(3, (1, 2), 5)]
    assert "callback" in caplog.text


def test_arguments_that_are_too_large_are_refused_with_the_bound() -> None:
    it = Driven()
    it.protocol.appending.append_bytes_max = 100_000
    most = 100_000 - HEAD_BYTES - CALL_HEAD_BYTES
    it.hosting.encode(Fragile.keep, (bytes(most - 10),), {})
    with pytest.raises(SessionError, match=f"at most {most}"):
        it.hosting.encode(Fragile.keep, (bytes(most),), {})


def test_a_node_without_a_log_has_no_objects() -> None:
    it = Driven()
    it.protocol.appending.append_bytes_max = 0
    with pytest.raises(SessionError, match="keeps no log"):
        it.hosting.new_snapshots([], None)
