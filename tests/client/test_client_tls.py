"""Sessions with a daemon on another host, by TLS with a certificate on both sides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from daemon_loop import daemon

from certificates import Authority
from totempole.client import blocking
from totempole.client.endpoint import Tls
from totempole.client.events import Messages
from totempole.client.session import connect
from totempole.daemon.tls import TlsFront
from totempole.errors import TlsError

LIMIT_S = 60.0


@contextmanager
def remote_daemon(path: Path) -> Iterator[tuple[str, Tls]]:
    """Its address, and the files of a program that it lets in."""
    authority = Authority(path)
    certificate, key = authority.issue("daemon")
    files = {"tls_certificate": certificate, "tls_key": key, "tls_authorities": authority.path}
    with daemon(path, listen="127.0.0.1:0", **files) as it:
        front = next(listener for listener in it.service._listeners if isinstance(listener, TlsFront))
        host, port = front.address
        yield f"{host}:{port}", Tls(*authority.issue("program"), authority.path)


SENT = [b"small", b"x" * 200_000, *[b"y" * 10_000] * 500]


def test_the_asyncio_session(tmp_path: Path) -> None:
    async def main(host: str, tls: Tls) -> None:
        async with connect(host=host, tls=tls) as session, session.join("g") as group:
            sending = asyncio.create_task(group.multicast_many(SENT))
            found: list[bytes] = []
            async for event in group:
                if isinstance(event, Messages):
                    found += event.payloads
                if len(found) == len(SENT):
                    break
            await sending
            assert found == SENT

    with remote_daemon(tmp_path) as (host, tls):
        asyncio.run(main(host, tls))
        asyncio.run(main(host, tls))


def test_the_blocking_session(tmp_path: Path) -> None:
    with (
        remote_daemon(tmp_path) as (host, tls),
        blocking.connect(host=host, tls=tls.context()) as session,
        session.join("g") as group,
    ):
        group.multicast_many(SENT)
        found: list[bytes] = []
        while len(found) < len(SENT):
            event = group.next(timeout=LIMIT_S)
            if isinstance(event, Messages):
                found += event.payloads
        assert found == SENT
        with pytest.raises(TimeoutError):
            group.next(timeout=0.01)


def test_a_stranger_is_told_to_check_the_certificates(tmp_path: Path) -> None:
    """Whichever side does not accept the other's."""

    async def main(host: str, tls: Tls) -> None:
        with pytest.raises(TlsError, match="check the certificates of both sides"):
            async with connect(host=host, tls=tls):
                pass

    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other")
    with remote_daemon(tmp_path) as (host, good):
        for tls in (
            Tls(*stranger.issue("stranger"), stranger.path),
            Tls(good.certificate, good.key, stranger.path),
            Tls(*stranger.issue("stranger"), good.authorities),
        ):
            asyncio.run(main(host, tls))
            with (
                pytest.raises(TlsError, match="check the certificates of both sides"),
                blocking.connect(host=host, tls=tls),
            ):
                pass
