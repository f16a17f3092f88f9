"""Snapshots on their way: however they break off, what arrives is what was sent."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.errors import SessionError
from totempole.log.snapshots import StoredHead
from totempole.objects import snapshot_store, snapshot_transfer
from totempole.objects.snapshot_transfer import (
    Getting,
    Putting,
    SnapshotDamagedError,
    SnapshotError,
    SnapshotRefusedError,
)
from totempole.session.log_frames import (
    Answer,
    Finished,
    PutChunk,
    PutFrom,
    PutReached,
    PutSnapshot,
    SnapshotChunk,
    SnapshotFound,
    SnapshotMissing,
    SnapshotRefused,
    SnapshotStored,
)


class Bytes:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.size = len(content)
        self.crc = crc32(content)

    def read(self, offset: int, size: int) -> bytes:
        return self.content[offset : offset + size]


def head_of(content: bytes) -> StoredHead:
    return StoredHead("bank", 10, "Bank", 1, len(content), crc32(content), 7)


CONTENT = bytes(range(256)) * 20


@given(st.lists(st.integers(0, 3_000), min_size=1), st.lists(st.integers(0, 4), min_size=1))
def test_a_get_that_breaks_off_anywhere_gives_the_content(sizes: list[int], breaks: list[int]) -> None:
    getting = Getting(head_of(CONTENT))
    got = bytearray()
    turn = 0
    while not getting.is_done:
        request = getting.request()
        assert request.offset == len(got)
        getting.take(SnapshotFound(head_of(CONTENT), request.offset))
        for _ in range(breaks[turn % len(breaks)] + 1):
            size = sizes[turn % len(sizes)] or 1
            got += getting.take(SnapshotChunk(CONTENT[len(got) : len(got) + size]))
            turn += 1
    getting.check()
    assert got == CONTENT


def test_another_content_is_found_at_the_end() -> None:
    getting = Getting(head_of(CONTENT))
    getting.request()
    getting.take(SnapshotFound(head_of(CONTENT), 0))
    getting.take(SnapshotChunk(bytes(len(CONTENT))))
    with pytest.raises(SnapshotDamagedError, match="position 10"):
        getting.check()


@pytest.mark.parametrize(
    "found",
    [
        SnapshotMissing("gone"),
        SnapshotFound(head_of(b"other"), 0),
        SnapshotFound(head_of(CONTENT), 5),
    ],
)
def test_a_service_that_has_another_one_has_it_not(found: Answer) -> None:
    getting = Getting(head_of(CONTENT))
    getting.request()
    assert getting.take(found) == b""
    assert getting.missing
    getting.request()
    assert not getting.missing


@pytest.mark.parametrize(
    "answers",
    [
        [SnapshotChunk(b"x")],
        [Finished(1, 2)],
        [SnapshotFound(head_of(CONTENT), 0), SnapshotFound(head_of(CONTENT), 0)],
        [SnapshotFound(head_of(CONTENT), 0), SnapshotChunk(CONTENT + b"x")],
    ],
)
def test_a_service_that_answers_nonsense_is_left(answers: list[Answer]) -> None:
    getting = Getting(head_of(CONTENT))
    getting.request()
    with pytest.raises(SessionError):
        [getting.take(answer) for answer in answers]


class Service:
    """Keeps what comes, and loses its tail when it is interrupted."""

    def __init__(self) -> None:
        self.content = b""

    def answer_from(self) -> PutFrom:
        return PutFrom(len(self.content), crc32(self.content))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5_000), st.booleans()), max_size=8))
def test_a_put_that_breaks_off_anywhere_leaves_the_content(breaks: list[tuple[int, int, bool]]) -> None:
    """`(chunks that come, bytes of them that stay, whether what stays is garbled)`"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_transfer, "PUT_BYTES_MAX", 700)
        service = Service()
        putting = Putting(head_of(CONTENT), Bytes(CONTENT))
        for chunks, stays, is_garbled in [*breaks, (10**6, 10**6, False)]:
            assert putting.request() == PutSnapshot(head_of(CONTENT))
            assert putting.chunk() is None
            again = putting.take(service.answer_from())
            if again is not None:
                assert again.again
                service.content = b""
                assert putting.take(PutFrom(0, 0)) is None
            for _ in range(chunks):
                chunk = putting.chunk()
                if chunk is None:
                    break
                service.content += chunk.content
            service.content = service.content[:stays]
            if is_garbled and service.content:
                service.content = b"\xff" + service.content[1:]
        assert service.content == CONTENT
    assert putting.take(PutReached(5)) is None
    putting.take(SnapshotStored(1, (10,)))
    assert putting.stored == SnapshotStored(1, (10,))


def test_a_refusal_is_raised() -> None:
    putting = Putting(head_of(CONTENT), Bytes(CONTENT))
    putting.request()
    with pytest.raises(SnapshotRefusedError, match="no room") as refused:
        putting.take(SnapshotRefused("room", "no room"))
    assert refused.value.kind == "room"


def test_a_content_that_is_too_short_is_found() -> None:
    putting = Putting(head_of(CONTENT + b"more"), Bytes(CONTENT))
    putting.request()
    putting.take(PutFrom(0, 0))
    putting.chunk()
    with pytest.raises(SnapshotError, match="ends before its size"):
        putting.chunk()


def test_more_than_there_is_at_the_service_begins_again() -> None:
    putting = Putting(head_of(CONTENT), Bytes(CONTENT))
    putting.request()
    again = putting.take(PutFrom(len(CONTENT) + 1, crc32(CONTENT)))
    assert again is not None
    assert again.again


def test_a_second_start_is_nonsense() -> None:
    putting = Putting(head_of(CONTENT), Bytes(CONTENT))
    putting.request()
    putting.take(PutFrom(0, 0))
    with pytest.raises(SessionError):
        putting.take(PutFrom(0, 0))


def test_going_on_without_comparing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Putting, "_crc_of", lambda *_: crc32(b"\xff" + CONTENT[1:100]))
    putting = Putting(head_of(CONTENT), Bytes(CONTENT))
    putting.request()
    assert putting.take(PutFrom(100, crc32(b"\xff" + CONTENT[1:100]))) is None, "the mutant goes on"
    monkeypatch.undo()
    putting.request()
    assert putting.take(PutFrom(100, crc32(b"\xff" + CONTENT[1:100]))) is not None


# A rest


def test_a_put_rests_after_each_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of the same program, and the log on the same disk, go first."""
    content = bytes(snapshot_transfer.PUT_BYTES_MAX * 2 + 1)
    done: list[str] = []

    class Counting:
        def begin(self) -> None:
            done.append("begin")

        def end(self) -> None:
            done.append("rest")

    class Link:
        def __init__(self) -> None:
            self.left = len(content)

        def send(self, request: object) -> None:
            done.append(type(request).__name__)
            if isinstance(request, PutChunk):
                self.left -= len(request.content)

        def has_news(self) -> bool:
            return self.left == 0

        def next(self, timeout_s: float) -> Answer:
            return PutFrom(0, 0) if self.left else SnapshotStored(1, (10,))

    monkeypatch.setattr(snapshot_store, "Rest", Counting)
    store = snapshot_store.BlockingSnapshotStore(None)  # type: ignore[arg-type]
    stored = store._put(Link(), Putting(head_of(content), Bytes(content)))  # type: ignore[arg-type]
    assert stored == SnapshotStored(1, (10,))
    assert done == ["PutSnapshot", "begin", *["PutChunk", "rest"] * 3, "begin"]
