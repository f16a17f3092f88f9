"""Frames between programs and log services: bytes to frames and back, however the socket cuts them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.corel.run import Run, RunId, RunKind, Stamp, pack_records
from totempole.errors import CodecError
from totempole.log.blocks import Blocks
from totempole.session.log_frames import (
    HEAD,
    Answer,
    AskSegments,
    AskStatus,
    EncodedRuns,
    Failed,
    Finished,
    FrameBuffer,
    Hello,
    Locate,
    Measure,
    Measured,
    Missing,
    OrderedRun,
    Reached,
    Read,
    Request,
    Runs,
    Segments,
    Welcome,
    decode_answer,
    decode_request,
    decode_viewed_answer,
    encode,
    encode_run,
    log_socket_of,
)

RUN = RunId(1, 2, 3)


def ordered(place: int, size: int) -> OrderedRun:
    body = pack_records("orders", [bytes(size), b"x"])
    return OrderedRun(place, 7, 99, ((1, 3),), Run(RUN, Stamp(1, 2, 3, 4), 5, RunKind.RECORDS, 2, body))


ANSWERS: list[Answer] = [
    Welcome(1, 2, 3, 4, 5, 6),
    Runs((ordered(0, 10), ordered(1, 0))),
    Reached(1, 2, 3),
    Finished(1, 2),
    Missing(RUN, "unknown"),
    Failed("trimmed", "gone", 5),
    Segments(1, 2, ((1, 500), (2, 70))),
    Measured(1, 2, 3),
]


@pytest.mark.parametrize(
    "request_frame",
    [
        Hello(),
        Read("orders", 5),
        Read(logs=("a", "b"), without="c"),
        Locate(RUN),
        AskStatus(),
        AskSegments(),
        Measure(1, 2, 3, 4, ("a",), "b"),
    ],
)
def test_requests_come_back_as_they_were(request_frame: Request) -> None:
    assert decode_request(bytes(encode(request_frame))[HEAD.size :]) == request_frame


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_come_back_as_they_were(answer: Answer) -> None:
    assert decode_answer(bytes(encode(answer))[HEAD.size :]) == answer


def test_encoded_runs_are_read_as_runs() -> None:
    runs = (ordered(3, 100), ordered(4, 5))
    frame = encode(EncodedRuns([encode_run(run) for run in runs]))
    assert decode_answer(bytes(frame)[HEAD.size :]) == Runs(runs)


def test_frames_of_an_older_version_are_read() -> None:
    """What has been added since stands at the end, and is not there."""
    told = msgspec.msgpack.decode(bytes(encode(Welcome(1, 2, 3, 4, 5, 6, True, True)))[HEAD.size :])
    assert decode_answer(msgspec.msgpack.encode(told[:-1])) == Welcome(1, 2, 3, 4, 5, 6, True, False)
    asked = msgspec.msgpack.decode(bytes(encode(Read("orders", 5, logs=("a",), without="b")))[HEAD.size :])
    assert decode_request(msgspec.msgpack.encode(asked[:-2])) == Read("orders", 5)


def test_the_stop_of_a_run_leaves_repeats_out() -> None:
    assert ordered(0, 1).stop == 8


@given(
    st.lists(st.integers(0, 3_000), max_size=20),
    st.lists(st.integers(1, 700), min_size=1),
    st.integers(8, 300),
    st.booleans(),
)
def test_frames_are_put_together_however_they_are_cut(
    sizes: list[int], cuts: list[int], room: int, is_viewed: bool
) -> None:
    answers: list[Answer] = [Runs((ordered(place, size),)) for place, size in enumerate(sizes)]
    data = b"".join(map(encode, answers))
    buffer: FrameBuffer[Answer] = FrameBuffer(decode_answer, 2**20, room)
    if is_viewed:
        buffer = FrameBuffer(decode_viewed_answer, 2**20, room, Blocks())
    found: list[Answer] = []
    at = turn = 0
    while at < len(data):
        view = buffer.room()
        assert len(view), "there is always room for more"
        count = min(len(view), cuts[turn % len(cuts)], len(data) - at)
        view[:count] = data[at : at + count]
        found += buffer.filled(count)
        at += count
        turn += 1
    assert b"".join(map(encode, found)) == data
    if not is_viewed:
        assert found == answers


@given(st.binary(max_size=200))
def test_nonsense_raises_nothing_but_codec_errors(data: bytes) -> None:
    for decode in (decode_request, decode_answer):
        with suppress(CodecError):
            decode(data)


def test_a_frame_longer_than_allowed_is_refused_before_it_comes() -> None:
    buffer: FrameBuffer[Answer] = FrameBuffer(decode_answer, 1000)
    buffer.room()[: HEAD.size] = HEAD.pack(1001)
    with pytest.raises(CodecError, match="1001 bytes"):
        buffer.filled(HEAD.size)


def test_the_socket_is_beside_the_daemons() -> None:
    assert log_socket_of(Path("/var/lib/totempole/clients.sock")) == Path(
        "/var/lib/totempole/clients-log.sock"
    )
