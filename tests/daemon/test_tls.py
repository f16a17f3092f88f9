"""Programs on other hosts: mutual TLS in front of the same service."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from daemon_loop import LIMIT_S, Daemon, Program, daemon

from certificates import Authority
from totempole.daemon import tls
from totempole.daemon.config import ClientsConfig
from totempole.daemon.tls import TlsFront, certificate_name, server_context
from totempole.errors import ConfigurationError, NetworkError
from totempole.session import Ended, Refused

RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@contextmanager
def tls_daemon(path: Path, **settings: Any) -> Iterator[tuple[Daemon, Authority, tuple[str, int]]]:
    authority = Authority(path)
    certificate, key = authority.issue("daemon")
    files = {"tls_certificate": certificate, "tls_key": key, "tls_authorities": authority.path}
    with daemon(path, listen="127.0.0.1:0", **files, **settings) as it:
        front = next(listener for listener in it.service._listeners if isinstance(listener, TlsFront))
        yield it, authority, front.address


def connect(address: tuple[str, int], context: ssl.SSLContext, greet: bool = True) -> Program:
    raw = socket.create_connection(address, LIMIT_S)
    return Program(None, "remote", greet, context.wrap_socket(raw, server_hostname="127.0.0.1"))


def test_a_client_with_a_certificate_is_as_good_as_one_on_this_host(tmp_path: Path) -> None:
    with tls_daemon(tmp_path) as (it, authority, address):
        with connect(address, authority.client_context("spark.example")) as remote, it.program() as local:
            remote.join("g")
            local.join("g")
            payloads = [bytes([number]) * 50_000 for number in range(40)]
            for payload in payloads:
                remote.send("g", payload)
            assert local.payloads(40) == payloads
            assert remote.payloads(40) == payloads
            who = it.loop.ask(lambda: [str(each.identity) for each in it.service._processes.values()])
            assert "certificate spark.example" in who
        it.wait_for(lambda status: not status["clients"])


def test_without_a_certificate_nobody_comes_in(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with tls_daemon(tmp_path) as (it, authority, address):
        stranger = ssl.create_default_context(cafile=str(authority.path))
        stranger.load_cert_chain(*Authority(tmp_path / "other", "elsewhere").issue("spark.example"))
        for context in (authority.client_context(None), stranger):
            with suppress(OSError), connect(address, context, greet=False) as program:
                assert program.last() is None
        it.wait_for(lambda status: status["refused"].get("handshake", 0) == 2)
        assert it.snapshot()["accepted"] == 0
        name, fields = it.logged[-1]
        assert name == "client refused"
        assert "127.0.0.1: the TLS handshake failed" in fields["text"]


def test_what_is_not_tls_is_refused_and_silence_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_daemon(tmp_path) as (it, authority, address):
        with socket.create_connection(address, LIMIT_S) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n" * 10)
            it.wait_for(lambda status: status["refused"].get("handshake", 0) == 1)
        monkeypatch.setattr(tls, "HANDSHAKE_S", 0.0)
        silent = [socket.create_connection(address, LIMIT_S) for _ in range(100)]
        it.wait_for(lambda status: status["refused"].get("handshake", 0) == 101)
        monkeypatch.undo()
        with connect(address, authority.client_context("a")) as program:
            program.join("g")
        for sock in silent:
            sock.close()


def test_whoever_is_gone_before_it_is_accepted_closes_nothing(tmp_path: Path) -> None:
    """It has reset the connection while the front was busy: there is nothing to shake hands with."""
    with tls_daemon(tmp_path) as (it, authority, address):
        front = next(listener for listener in it.service._listeners if isinstance(listener, TlsFront))
        accept, is_busy, is_gone = front._accept, threading.Event(), threading.Event()

        def accept_late() -> None:
            is_busy.set()
            assert is_gone.wait(LIMIT_S)
            accept()

        front._accept = accept_late  # type: ignore[method-assign]
        with socket.create_connection(address, LIMIT_S) as gone:
            assert is_busy.wait(LIMIT_S)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        is_gone.set()
        with connect(address, authority.client_context("a")) as program:
            program.join("g")
        it.wait_for(lambda _: not front._relays)
        assert it.snapshot()["refused"] == {"handshake": 1}


def test_without_descriptors_one_is_refused_and_the_next_comes_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with tls_daemon(tmp_path) as (it, authority, address):
        with monkeypatch.context() as patched:
            patched.setattr(socket, "socketpair", refuse)
            with suppress(OSError), connect(address, authority.client_context("a"), greet=False) as early:
                assert early.last() is None
            it.wait_for(lambda status: status["refused"] == {"handshake": 1})
        with connect(address, authority.client_context("a")) as program:
            program.join("g")


def test_handshakes_under_way_are_bounded(tmp_path: Path) -> None:
    with tls_daemon(tmp_path) as (it, _, address):
        front = next(listener for listener in it.service._listeners if isinstance(listener, TlsFront))
        silent = [socket.create_connection(address, LIMIT_S) for _ in range(tls.HANDSHAKES_MAX + 20)]
        it.wait_for(lambda _: len(front._relays) == tls.HANDSHAKES_MAX)
        for _ in range(20):
            assert len(front._relays) <= tls.HANDSHAKES_MAX
            it.snapshot()
        for sock in silent:
            sock.close()
        it.wait_for(lambda status: not front._relays)


def test_a_client_over_the_limit_is_told_so_through_tls(tmp_path: Path) -> None:
    with tls_daemon(tmp_path, clients_max=2) as (it, authority, address), it.program(), it.program():
        with connect(address, authority.client_context("late"), greet=False) as late:
            last = late.last()
        assert isinstance(last, Refused)
        assert "clients_max" in last.text


def test_a_remote_client_that_never_reads_is_bounded_and_slows_nobody(tmp_path: Path) -> None:
    settings = {"client_receive_bytes_max": 262_144}
    with tls_daemon(tmp_path, **settings) as (it, authority, address), it.program() as sender:
        deaf = connect(address, authority.client_context("deaf"))
        deaf.join("g")
        payload = bytes(50_000)
        for _ in range(2_000):
            sender.send("g", payload)
            if it.snapshot()["disconnected"]:
                break
        it.wait_for(lambda status: status["disconnected"] == {"too slow": 1})
        deaf.socket.close()
        it.skip(10)
        it.wait_for(lambda status: status["clients"] == 1)
        causes = [fields for name, fields in it.logged if name == "client disconnected"]
        assert causes[0]["certificate"] == "deaf"


def test_the_end_reaches_remote_clients(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with tls_daemon(tmp_path) as (it, authority, address):
        with connect(address, authority.client_context("a")) as program:
            it.loop.ask(lambda: it.service.finish("the node leaves"))
            assert program.last() == Ended("the node leaves")
        with suppress(OSError), connect(address, authority.client_context("b"), greet=False) as late:
            # The listener may take one more before its thread wakes: the service turns it away.
            assert late.last() in (None, Refused(0, "the node leaves"))
        assert len(set(threading.enumerate()) - before) < 10


def test_files_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("daemon")
    (tmp_path / "junk").write_text("junk")
    good = {"tls_certificate": certificate, "tls_key": key, "tls_authorities": authority.path}
    for name in good:
        for wrong in (tmp_path / "missing", tmp_path / "junk"):
            config = ClientsConfig(listen="127.0.0.1:0", **{**good, name: wrong})
            with pytest.raises(ConfigurationError, match=f"{name} = {wrong}"):
                server_context(config)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with tls_daemon(tmp_path) as (it, _, address):
        config = it.service.config
        taken = ClientsConfig(
            listen=f"127.0.0.1:{address[1]}",
            tls_certificate=config.tls_certificate,
            tls_key=config.tls_key,
            tls_authorities=config.tls_authorities,
        )
        with pytest.raises(NetworkError, match=f"listen = 127.0.0.1:{address[1]}: Address already in use"):
            TlsFront(taken, it.loop.call, it.service.adopt, it.service._turned_away)


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        ({"subject": ((("countryName", "DE"),), (("commonName", "a"),))}, "a"),
        ({"subject": (), "subjectAltName": (("DNS", "b.example"),)}, "b.example"),
        ({"serialNumber": "0C"}, "serial 0C"),
    ],
)
def test_the_name_in_a_certificate(certificate: dict[str, Any], name: str) -> None:
    assert certificate_name(certificate) == name
