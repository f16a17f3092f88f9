"""Where the daemon is, one connection to it (asyncio), and how a program gets back to it."""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import random
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Protocol

from totempole.errors import SessionError, TlsError
from totempole.session import SHARED_BYTES
from totempole.session.codec import SharedReader
from totempole.types import Payload

ANSWER_S_MAX = 10.0
"""How long a daemon may take to answer a greeting or a farewell."""
LAST_READS_MAX = 16
"""More than a socket holds."""

KEPT_BYTES = 4 * 1024 * 1024

SOCKET_VARIABLE = "TOTEMPOLE_SOCKET"
SOCKET_DEFAULT = "/var/lib/totempole/clients.sock"
"""In the directory that the example configuration gives to a node."""

SOCKET_HERE: ContextVar[str] = ContextVar("totempole_socket", default="")
"""Goes before the environment, for the tasks of one context: tests run programs of several nodes in one
process."""

SIMULATED = "simulated:"
"""The paths of simulated daemons begin with it (`totempole.testing`). No file is called so."""


SEND_BUFFER_BYTES = 1_048_576
"""Asked of the kernel, which may give less."""


@cache
def keep_freed_memory() -> None:
    """Makes glibc keep what the program frees, up to twice KEPT_BYTES; it would go back to the kernel.

    Batches of messages are freed as soon as the program has taken them. Pages that come back for the next
    batch are mapped and zeroed again, which costs a fifth of the throughput. glibc keeps blocks of the size
    of the largest that was freed (mallopt(3), M_MMAP_THRESHOLD), unless the program has set that itself. So
    one is freed here, which was never written to.
    """
    bytes(KEPT_BYTES)


def widen(sock: Any) -> None:
    """Lets a Unix socket take a full run of the log at once. With what the kernel gives, a program writes a
    part, and goes on when the daemon has read that."""
    if sock is not None and sock.family == socket.AF_UNIX:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


def default_socket() -> str:
    """Of the daemon that a program means which names none."""
    return SOCKET_HERE.get() or os.environ.get(SOCKET_VARIABLE) or SOCKET_DEFAULT


@dataclass(frozen=True, slots=True)
class Tls:
    """The files with which a program and a daemon on another host prove who they are to each other."""

    certificate: str | FilePath
    """The program's own, with its chain (PEM)."""
    key: str | FilePath
    """The private key of the certificate (PEM)."""
    authorities: str | FilePath
    """Who may have signed the daemon's certificate (PEM)."""
    server_name: str | None = None
    """What the daemon's certificate says, if that is not the host's name."""

    def context(self) -> ssl.SSLContext:
        """For Python's `ssl`; raises SessionError for files that cannot be used."""
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.authorities)
            context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # ssl.SSLError is one
            names = f"{self.certificate}, {self.key}, {self.authorities}"
            raise SessionError(f"tls: {error}; the files are {names}") from None
        return context


CERTIFICATES = "check the certificates of both sides"


@dataclass(frozen=True, slots=True)
class Reconnect:
    """How a session gets back to a daemon that has gone away: at once, then at growing intervals."""

    first_s: float = 0.1
    """The first interval. Each is twice the one before."""
    most_s: float = 5.0
    """The longest."""
    give_up_s: float | None = 300.0
    """When it is no use any more: iterating then raises SessionError. None: never."""

    def __post_init__(self) -> None:
        if not 0 < self.first_s <= self.most_s or (self.give_up_s is not None and self.give_up_s < 0):
            raise SessionError(f"reconnect = {self!r}: give 0 < first_s <= most_s, give_up_s >= 0")

    def pauses(self) -> Iterator[float]:
        """Drawn at random below each bound, for all programs of a daemon come back at once."""
        yield 0.0
        bound = self.first_s
        while True:
            yield bound * random.uniform(0.5, 1.0)
            bound = min(2 * bound, self.most_s)


class Attempts:
    """When to try to get back, over the whole life of a session."""

    def __init__(self, how: Reconnect) -> None:
        self.how = how
        self._pauses = how.pauses()
        self._opened_s: float | None = None

    def opened(self, now_s: float) -> None:
        self._opened_s = now_s

    def lost(self, now_s: float) -> None:
        """After a connection that lasted, the pauses begin again. After a short one they go on growing: the
        next may end in the same way."""
        if self._opened_s is not None and now_s - self._opened_s >= self.how.most_s:
            self._pauses = self.how.pauses()

    def next_pause(self) -> float:
        return next(self._pauses)


def reconnect_of(choice: bool | Reconnect) -> Reconnect | None:
    if isinstance(choice, Reconnect):
        return choice
    return Reconnect() if choice else None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Unix socket on this host, or an address and a port."""

    path: str = ""
    host: str = ""
    port: int = 0
    context: ssl.SSLContext | None = None
    server_name: str | None = None

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"

    @property
    def is_simulated(self) -> bool:
        return self.path.startswith(SIMULATED)

    def unreachable(self, error: BaseException) -> SessionError:
        """Why there is no connection, and the way out."""
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, PermissionError):
            way = "the daemon's setting clients.users names who may (and clients.socket_mode the file's mode)"
        elif isinstance(error, ssl.SSLError):
            return TlsError(f"no daemon at {self}: {why}; {CERTIFICATES}")
        elif self.is_simulated and isinstance(error, FileNotFoundError):
            way = "a simulated daemon is there for asyncio programs only: use totempole.connect()"
        elif os.path.isdir(self.path):
            why, way = "a directory", f"name the socket in it, like {os.path.join(self.path, 'clients.sock')}"
        elif self.path:
            way = (
                "start one with `totem node` (three to try things out: `totem dev`), or name its socket: "
                f"{SOCKET_VARIABLE}, connect(path), or --socket"
            )
        else:
            way = "check that the daemon runs there and has clients.listen set"
        return SessionError(f"no daemon at {self}: {why}; {way}")


def endpoint_of(
    path: str | os.PathLike[str] | None, host: str | None, tls: ssl.SSLContext | Tls | None
) -> Endpoint:
    """What `connect` was given, checked."""
    if host is None:
        if tls is not None:
            raise SessionError("tls is for a daemon on another host: give host= too")
        return Endpoint(path=os.fspath(path or default_socket()))
    if path is not None:
        raise SessionError("give a path or a host, not both")
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise SessionError(f"host = {host!r}: give address:port")
    if tls is None:
        raise SessionError(f"host = {host!r}: give tls= too, for a daemon talks to other hosts by TLS only")
    name = name.removeprefix("[").removesuffix("]")
    if isinstance(tls, Tls):
        return Endpoint("", name, int(port), tls.context(), tls.server_name or name)
    return Endpoint("", name, int(port), tls, name)


Path = str | os.PathLike[str]


def endpoints_of(
    path: Path | Sequence[Path] | None,
    host: str | Sequence[str] | None,
    tls: ssl.SSLContext | Tls | None,
) -> list[Endpoint]:
    """The same of one or several daemons."""
    paths = [path] if path is None or isinstance(path, (str, os.PathLike)) else list(path)
    hosts = [host] if host is None or isinstance(host, str) else list(host)
    if not paths or not hosts:
        raise SessionError("an empty list of daemons: give at least one")
    if hosts == [None]:
        return [endpoint_of(each, None, tls) for each in paths]
    return [endpoint_of(path if path is None else paths[0], each, tls) for each in hosts]


class Endpoints:
    """The daemons that a session may use, and the one that it uses."""

    def __init__(self, given: Endpoint | socket.socket | Sequence[Endpoint]) -> None:
        self._all: Sequence[Endpoint | socket.socket]
        self._all = [given] if isinstance(given, (Endpoint, socket.socket)) else given
        self._index = 0

    @property
    def all(self) -> Sequence[Endpoint | socket.socket]:
        return self._all

    @property
    def count(self) -> int:
        return len(self._all)

    @property
    def current(self) -> Endpoint | socket.socket:
        return self._all[self._index]

    @property
    def name(self) -> str:
        return str(self.current) if isinstance(self.current, Endpoint) else "the embedded node"

    @property
    def peer(self) -> str:
        """Who is there."""
        return f"the daemon at {self.name}" if isinstance(self.current, Endpoint) else self.name

    def refused(self, farewell: str | None, why: str) -> SessionError:
        """The daemon has hung up before there was a session. `farewell`: what it has said about that.

        With TLS 1.3 a program's certificate is looked at after the handshake: a daemon that does not accept
        it hangs up without a word."""
        text = f"{self.peer} refused the session: {farewell or why}"
        has_tls = isinstance(self.current, Endpoint) and self.current.context is not None
        return TlsError(f"{text}; {CERTIFICATES}") if has_tls and not farewell else SessionError(text)

    @property
    def greeting_s_max(self) -> float | None:
        """How long the answer to a greeting may take. An embedded node takes its time to start, and a pair of
        sockets tells when its other end is gone."""
        return ANSWER_S_MAX if isinstance(self.current, Endpoint) else None

    @property
    def are_simulated(self) -> bool:
        return all(isinstance(each, Endpoint) and each.is_simulated for each in self._all)

    def move_on(self) -> None:
        self._index = (self._index + 1) % len(self._all)

    def tries(self) -> Iterator[bool]:
        """Each once; whether it is the last."""
        for number in range(len(self._all)):
            yield number == len(self._all) - 1


class Offer:
    """Memory that a program shares with a daemon on its host, before the daemon has it (`session.shared`)."""

    def __init__(self, descriptor: int, reader: SharedReader) -> None:
        self.reader = reader
        self._descriptor = descriptor

    @classmethod
    def made(cls) -> Offer | None:
        """None where there is no such memory to be had."""
        try:
            descriptor = os.memfd_create("totempole", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except (AttributeError, OSError):
            return None
        try:
            os.ftruncate(descriptor, SHARED_BYTES)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            memory = mmap.mmap(descriptor, SHARED_BYTES, prot=mmap.PROT_READ)
        except OSError:
            os.close(descriptor)
            return None
        return cls(descriptor, SharedReader(memoryview(memory)))

    def send(self, descriptor: int, parts: Sequence[Payload]) -> bytes:
        """With these, the first that are written to the socket of this descriptor. What it did not take."""
        data = b"".join(parts)
        try:
            with socket.socket(fileno=os.dup(descriptor)) as sock:
                return data[socket.send_fds(sock, [data], [self._descriptor]) :]
        except OSError:
            return data  # without the memory, or the connection is lost, as will be heard
        finally:
            self.close()

    def close(self) -> None:
        """The program needs the descriptor no longer; its own mapping stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Owner(Protocol):
    """The session."""

    def room(self, link: Link) -> memoryview: ...

    def received(self, link: Link, count: int) -> None: ...

    def lost(self, link: Link, error: BaseException | None) -> None: ...

    def writable(self) -> None: ...


class Link(asyncio.BufferedProtocol):
    """One connection of an asyncio session."""

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self.welcomed: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.reading_paused = False
        self.writing_paused = False
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._offer: Offer | None = None
        """To go with the first bytes that are written."""

    async def connect(self, where: Endpoint | socket.socket) -> None:
        loop = self._loop
        try:
            if isinstance(where, socket.socket):
                await loop.create_connection(lambda: self, sock=where)
            elif where.path:
                await loop.create_unix_connection(lambda: self, where.path)
            else:
                await loop.create_connection(
                    lambda: self, where.host, where.port, ssl=where.context, server_hostname=where.server_name
                )
        except TimeoutError:
            raise
        except OSError as error:
            if isinstance(where, Endpoint):
                raise where.unreachable(error) from None
            raise SessionError(f"the socket cannot be used: {error}") from None

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream
        widen(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._owner.room(self)

    def buffer_updated(self, nbytes: int) -> None:
        self._owner.received(self, nbytes)

    def connection_lost(self, error: BaseException | None) -> None:
        if isinstance(error, OSError):
            self._hear_last_words()
        self._close()
        self._owner.lost(self, error)

    def _hear_last_words(self) -> None:
        """Writing failed, for the daemon has hung up. It may have said why, and asyncio has not read that."""
        transport = self._transport
        if transport is None or transport.get_extra_info("sslcontext") is not None:
            return
        with suppress(OSError):
            descriptor = transport.get_extra_info("socket").fileno()
            for _ in range(LAST_READS_MAX):
                count = os.readv(descriptor, [self._owner.room(self)])
                if not count:
                    return
                self._owner.received(self, count)

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        self._owner.writable()

    # The session's

    @property
    def is_welcome(self) -> bool:
        """Whether the daemon has answered the greeting."""
        welcomed = self.welcomed
        return welcomed.done() and not welcomed.cancelled() and welcomed.exception() is None

    @property
    def closing(self) -> bool:
        """Whether it takes nothing any more. The session hears a little later that it is lost."""
        return self._transport is None or self._transport.is_closing()

    def offer(self) -> SharedReader | None:
        """Memory for large frames goes to the daemon with the greeting, if it is on this host."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None or sock.family != socket.AF_UNIX:
            return None
        self._offer = Offer.made()
        return self._offer.reader if self._offer is not None else None

    def write(self, parts: Sequence[Payload]) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._offer is not None:
            offer, self._offer = self._offer, None
            rest = offer.send(self._transport.get_extra_info("socket").fileno(), parts)
            parts = [rest] if rest else []
        self._transport.writelines(parts)

    def read(self, on: bool) -> None:
        """Reads on, or does not."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and on is self.reading_paused:
            self.reading_paused = not on
            (transport.resume_reading if on else transport.pause_reading)()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._close()

    def _close(self) -> None:
        if self._offer is not None:
            self._offer.close()
            self._offer = None
        if not self.closed.done():
            self.closed.set_result(None)
