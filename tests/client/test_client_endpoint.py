"""Where the daemon is, and how a program gets back to it; and a state cut into pieces."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.client.donor import captured, pieces, pieces_async
from totempole.client.endpoint import (
    SOCKET_DEFAULT,
    Attempts,
    Endpoint,
    Link,
    Reconnect,
    Tls,
    endpoint_of,
    reconnect_of,
    widen,
)
from totempole.errors import SessionError


def test_a_path_or_the_environment_or_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOTEMPOLE_SOCKET", raising=False)
    assert endpoint_of(None, None, None).path == SOCKET_DEFAULT == "/var/lib/totempole/clients.sock"
    monkeypatch.setenv("TOTEMPOLE_SOCKET", "/run/other.sock")
    assert endpoint_of(None, None, None).path == "/run/other.sock"
    assert endpoint_of(Path("/run/this.sock"), None, None).path == "/run/this.sock"


def test_a_host_and_tls() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert endpoint_of(None, "10.0.0.1:5410", context) == Endpoint("", "10.0.0.1", 5410, context, "10.0.0.1")
    assert endpoint_of(None, "[fd00::1]:5410", context).host == "fd00::1"


@pytest.mark.parametrize(
    ("path", "host", "tls", "text"),
    [
        (None, "10.0.0.1:5410", None, "tls="),
        (None, None, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "host="),
        ("/x", "10.0.0.1:5410", None, "not both"),
        (None, "10.0.0.1", None, "address:port"),
        (None, "10.0.0.1:99999", None, "address:port"),
        (None, "10.0.0.1:5410", Tls("no-such.pem", "no-such.key", "no-such.pem"), "no-such.key"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(path: Any, host: Any, tls: Any, text: str) -> None:
    with pytest.raises(SessionError, match=text):
        endpoint_of(path, host, tls)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(13, "Permission denied"), "clients.users"),
        (FileNotFoundError(2, "No such file"), "totem node"),
    ],
)
def test_why_there_is_no_connection(error: OSError, text: str) -> None:
    assert text in str(Endpoint("/run/x.sock").unreachable(error))


def test_the_pauses_grow_to_a_bound() -> None:
    how = Reconnect(first_s=0.1, most_s=1.0)
    found = list(islice(how.pauses(), 10))
    assert found[0] == 0.0
    bounds = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(found[1:], bounds, strict=True))


def test_a_connection_that_did_not_last_does_not_start_the_pauses_again() -> None:
    attempts = Attempts(Reconnect(first_s=0.1, most_s=5.0))
    assert attempts.next_pause() == 0.0
    for second in range(5):
        attempts.opened(second)
        attempts.lost(second + 0.5)
        assert attempts.next_pause() >= 0.05 * 2**second
    attempts.opened(10)
    attempts.lost(15)
    assert attempts.next_pause() == 0.0


def test_reconnecting_is_a_choice_with_checked_values() -> None:
    assert reconnect_of(True) == Reconnect()
    assert reconnect_of(False) is None
    with pytest.raises(SessionError, match="first_s"):
        Reconnect(first_s=2.0, most_s=1.0)


# States


@given(chunks=st.lists(st.binary(max_size=50), max_size=20), size=st.integers(1, 30))
def test_pieces_are_even_and_the_last_one_is_marked(chunks: list[bytes], size: int) -> None:
    found = list(pieces(chunks, size))
    assert b"".join(bytes(content) for content, _ in found) == b"".join(chunks)
    assert [last for _, last in found] == [False] * (len(found) - 1) + [True]
    assert all(len(content) == size for content, _ in found[:-1])

    async def asynchronous() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def collect() -> list[Any]:
        return [piece async for piece in pieces_async(asynchronous(), size)]

    assert asyncio.run(collect()) == found


def test_a_buffer_is_captured_when_it_is_given() -> None:
    buffer = bytearray(b"now")
    state = captured(buffer)
    buffer[:] = b"then"
    assert [content for content, _ in pieces(state, 10)] == [b"now"]


@pytest.mark.parametrize("wrong", ["text", None, 5])
def test_a_state_is_bytes_or_chunks(wrong: Any) -> None:
    with pytest.raises(TypeError, match="state is bytes"):
        captured(wrong)
    with pytest.raises(TypeError, match="state is bytes"):
        list(pieces([wrong], 10))


def test_a_unix_socket_takes_more_at_once_than_the_kernel_would_let_it(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")

    async def connected() -> int:
        lost = asyncio.Event()
        owner: Any = SimpleNamespace(lost=lambda *_: lost.set())
        link = Link(owner, asyncio.get_running_loop())
        await link.connect(Endpoint(path))
        assert link._transport is not None
        sock = link._transport.get_extra_info("socket")
        size: int = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        link.abort()
        await lost.wait()
        return size

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        widened = asyncio.run(connected())
    with socket.socket(socket.AF_UNIX) as fresh:
        assert widened > fresh.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        widen(fresh)
        assert widened == fresh.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def test_other_sockets_are_left_to_the_kernel() -> None:
    """It finds a size for each connection, unless it is told one."""
    with socket.socket(socket.AF_INET) as sock:
        before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        widen(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == before
    widen(None)
