"""The way in on this host: accepts connections on the Unix socket, and asks the kernel who is there."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Callable
from contextlib import closing, suppress

from totempole.daemon.config import ClientsConfig
from totempole.daemon.connection import ByteStream
from totempole.daemon.credentials import allowed_uids, peer_of
from totempole.daemon.host import Host, unwatch
from totempole.daemon.identity import Identity
from totempole.daemon.socket_file import UnixListener
from totempole.daemon.tls import listen_tcp, server_context
from totempole.session import FOR_GOOD, Refused
from totempole.session.codec import encode

ACCEPTS_PER_TURN = 16
PAUSE_US = 500_000
"""How long nobody is accepted after the system had no descriptor or memory to spare."""


def check_listeners(config: ClientsConfig) -> None:
    """Raises for users that this host does not know, and for files that TLS cannot use."""
    if config.enabled:
        allowed_uids(config.users)
        if config.listen:
            server_context(config)


def try_listeners(config: ClientsConfig) -> None:
    """Opens the socket and the port, and closes them again. Raises for what cannot be opened."""
    if config.enabled and config.socket is not None:
        UnixListener(config.socket, config.socket_mode).close()
    if config.enabled and config.address is not None:
        listen_tcp(config.address).close()


class UnixAcceptor:
    """Open on construction. `enter` gets each connection that may come in, `complain` the reason
    otherwise."""

    def __init__(
        self,
        config: ClientsConfig,
        host: Host,
        enter: Callable[[socket.socket, Identity], None],
        complain: Callable[[str, str, Identity | None], None],
    ) -> None:
        assert config.socket is not None
        self._host = host
        self._enter = enter
        self._complain = complain
        self._uids = allowed_uids(config.users)
        self._listener = UnixListener(config.socket, config.socket_mode)
        self._descriptor = self._listener.socket.fileno()
        self._watched = False
        self._open = True
        self._resume()

    def stop_listening(self) -> None:
        """Nobody new comes in."""
        if self._open:
            self._open = False
            self._pause()
            self._listener.close()

    def close(self) -> None:
        self.stop_listening()

    def _resume(self) -> None:
        if self._open and not self._watched:
            self._watched = True
            self._host.watch(self._descriptor, self._on_ready)

    def _pause(self) -> None:
        if self._watched:
            self._watched = False
            unwatch(self._host, self._descriptor)

    def _on_ready(self, _: int) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, _ = self._listener.socket.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                self._complain("not accepted", _why_not_accepted(error), None)
                self._pause()
                self._host.at(self._host.now_us() + PAUSE_US, self._resume)
                return
            self._admit(sock)

    def _admit(self, sock: socket.socket) -> None:
        try:
            identity = peer_of(sock)
        except OSError:
            sock.close()
            return
        if identity.uid in self._uids:
            self._enter(sock, identity)
            return
        text = f"user {identity.uid} may not connect to this daemon: name it in the setting users"
        turn_away(sock, text, for_good=True)
        self._complain("user", text, identity)


def _why_not_accepted(error: OSError) -> str:
    text = os.strerror(error.errno or 0)
    if error.errno != errno.EMFILE:
        return text
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{text}: {allowed} are allowed; allow more with `ulimit -n`, or LimitNOFILE= in systemd"


def turn_away(sock: ByteStream, text: str, *, for_good: bool = False) -> None:
    """Says why, as far as that goes without waiting, and closes. `for_good`: it need not come back."""
    farewell = encode(Refused(FOR_GOOD if for_good else 0, text))
    with closing(sock), suppress(OSError):
        sock.sendmsg([farewell], (), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
