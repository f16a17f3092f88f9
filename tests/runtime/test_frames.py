"""Frames on a stream: cut anywhere, they come out as they went in; too large a one is refused."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import LIMIT_S

from totempole.errors import SessionError
from totempole.runtime.frames import FRAME_BYTES_MAX, HEAD, Frame, FrameReader, FrameWriter

frames = st.lists(st.tuples(st.sampled_from(Frame), st.binary(max_size=60)), max_size=20)


def encoded(kind: int, body: bytes) -> bytes:
    return HEAD.pack(len(body), kind) + body


@given(frames, st.data())
def test_a_stream_cut_anywhere_gives_the_frames(sent: list[tuple[Frame, bytes]], data: st.DataObject) -> None:
    stream = b"".join(encoded(kind, body) for kind, body in sent)
    reader, found, start = FrameReader(), [], 0
    while start < len(stream):
        step = data.draw(st.integers(1, len(stream) - start))
        found += list(reader.feed(stream[start : start + step]))
        start += step
    assert found == sent


def test_a_reader_that_stops_between_two_frames_goes_on_with_the_second() -> None:
    reader = FrameReader()
    first = next(reader.feed(encoded(Frame.CONFIG, b"a") + encoded(Frame.SEND, b"b")))
    assert first == (Frame.CONFIG, b"a")
    assert list(reader.feed(b"")) == [(Frame.SEND, b"b")]


def test_a_frame_that_is_too_long_is_refused_before_it_has_come() -> None:
    with pytest.raises(SessionError, match=f"{FRAME_BYTES_MAX + 1} bytes; the most is {FRAME_BYTES_MAX}"):
        list(FrameReader().feed(HEAD.pack(FRAME_BYTES_MAX + 1, Frame.SEND)))


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(SessionError):
        list(FrameReader().feed(encoded(200, b"")))


def received(sock: socket.socket) -> list[tuple[Frame, bytes]]:
    sock.settimeout(LIMIT_S)
    reader, found = FrameReader(), []
    while data := sock.recv(65_536):
        found += list(reader.feed(data))
    return found


def test_a_writer_writes_all_before_it_closes() -> None:
    near, far = socket.socketpair()
    with near, far:
        writer = FrameWriter(near)
        bodies = [bytes([number]) * 100_000 for number in range(50)]
        for body in bodies:
            writer.write(Frame.SEND, body[:7], body[7:])
        closing = threading.Thread(target=lambda: (writer.close(), near.close()))
        closing.start()
        assert received(far) == [(Frame.SEND, body) for body in bodies]
        closing.join(LIMIT_S)
        assert not closing.is_alive()


def test_a_writer_whose_reader_is_gone_closes() -> None:
    near, far = socket.socketpair()
    with near:
        far.close()
        writer = FrameWriter(near)
        for _ in range(10):
            writer.write(Frame.SEND, bytes(1_000_000))
        writer.close()
        assert not writer._thread.is_alive()
