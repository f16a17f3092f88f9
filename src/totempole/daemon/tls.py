"""The way in from other hosts: TCP with mutual TLS, on a thread of its own.

The front accepts, sees the handshake through, and hands the service one end of a socket pair, as if the
client were on this host; then it carries bytes between the two. So the ring's thread never does
cryptography, and the service knows one kind of client. Each direction of a connection holds one piece at a
time: whoever does not read stops whoever writes to him. Connections are bounded (clients_max), and so are
handshakes under way, which have a time limit. The name in the client's certificate is who it is.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from totempole.daemon.config import ClientsConfig
from totempole.daemon.identity import Identity
from totempole.daemon.relay import Relay
from totempole.errors import ConfigurationError, NetworkError

HANDSHAKES_MAX = 64
HANDSHAKE_S = 5.0
BACKLOG = 128
WAKE_S = 0.5

Enter = Callable[[socket.socket, Identity], None]
Complain = Callable[[str, str, Identity | None], None]


def server_context(config: ClientsConfig) -> ssl.SSLContext:
    """Whoever connects must show a certificate of one of the authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(str(config.tls_certificate), str(config.tls_key))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"tls_certificate = {config.tls_certificate}, tls_key = {config.tls_key}: {_text(error)}; "
            "give a certificate and its key, both PEM"
        ) from None
    try:
        context.load_verify_locations(str(config.tls_authorities))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"tls_authorities = {config.tls_authorities}: {_text(error)}; give authorities' certificates, PEM"
        ) from None
    return context


def certificate_name(certificate: Any) -> str:
    """The common name of the subject; without one, the first alternative name; without any, the serial."""
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName" and value:
                return str(value)
    for _, value in certificate.get("subjectAltName", ()):
        return str(value)
    return f"serial {certificate.get('serialNumber', 'unknown')}"


class TlsFront:
    """Listens from construction on. What it has for the service it says on the service's thread (`call`)."""

    def __init__(
        self,
        config: ClientsConfig,
        call: Callable[[Callable[[], None]], None],
        enter: Enter,
        complain: Complain,
    ) -> None:
        assert config.address is not None
        self._context = server_context(config)
        self._relays_max = config.clients_max
        self._call = call
        self._enter = enter
        self._complain = complain
        self._listener = listen_tcp(config.address)
        self._listening_on = self._listener.fileno()
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._relays: dict[int, Relay] = {}
        """By each of their descriptors."""
        self._watched: dict[int, int] = {}
        self._waker, self._wakes = socket.socketpair()
        self._epoll = select.epoll()
        self._watch(self._wakes.fileno(), select.EPOLLIN)
        self._listening = self._running = True
        self._thread = threading.Thread(target=self._run, name="totempole-tls", daemon=True)
        self._thread.start()

    def stop_listening(self) -> None:
        """Nobody new comes in."""
        self._listening = False
        self._waker.send(b"x")

    def close(self) -> None:
        """Ends all connections."""
        self._running = False
        self._waker.close()
        self._thread.join()

    # On the front's own thread

    def _run(self) -> None:
        try:
            while self._running:
                self._turn()
        finally:
            for relay in set(self._relays.values()):
                relay.close()
            self._listener.close()
            self._wakes.close()
            self._epoll.close()

    def _turn(self) -> None:
        if self._listening:
            self._watch(self._listening_on, select.EPOLLIN if self._has_room() else 0)
        elif self._listener.fileno() >= 0:
            self._watch(self._listening_on, 0)
            self._listener.close()
        for descriptor, _ in self._epoll.poll(WAKE_S):
            if descriptor == self._listening_on:
                self._accept()
            elif descriptor == self._wakes.fileno():
                self._wakes.recv(64)
            elif descriptor in self._relays:
                self._serve(self._relays[descriptor])
        self._expire()

    def _has_room(self) -> bool:
        """Else whoever comes waits in the listener's own queue, or is refused by the kernel."""
        relays = set(self._relays.values())
        shaking = sum(relay.inner is None for relay in relays)
        return shaking < HANDSHAKES_MAX and len(relays) < self._relays_max

    def _watch(self, descriptor: int, events: int) -> None:
        """Not at all for no events: the end of a connection would be told again and again."""
        before = self._watched.get(descriptor, 0)
        if events == before:
            return
        if not before:
            self._epoll.register(descriptor, events)
        elif events:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.unregister(descriptor)
        self._watched[descriptor] = events

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError:
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.getpeername()  # raises if the connection was reset while it waited, as `wrap_socket` does
            outer = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            sock.close()
            text = f"{address[0]}: gone before the TLS handshake: {_text(error)}"
            self._call(lambda: self._complain("handshake", text, None))
            return
        relay = Relay(outer, address[0], time.monotonic() + HANDSHAKE_S)
        self._relays[outer.fileno()] = relay
        self._watch(outer.fileno(), relay.events[0])

    def _serve(self, relay: Relay) -> None:
        if relay.inner is None:
            self._shake(relay)
        elif not relay.carry():
            self._end(relay)
        if relay.outer.fileno() in self._relays:
            outer_events, inner_events = relay.events
            self._watch(relay.outer.fileno(), outer_events)
            if relay.inner is not None:
                self._watch(relay.inner.fileno(), inner_events)

    def _shake(self, relay: Relay) -> None:
        try:
            if not relay.shake():
                return
            ours, theirs = socket.socketpair()
        except OSError as error:
            self._refuse(relay, f"the TLS handshake failed: {_text(error)}")
            return
        identity = Identity(certificate=certificate_name(relay.outer.getpeercert() or {}))
        ours.setblocking(False)
        relay.begin(ours)
        self._relays[ours.fileno()] = relay
        self._call(lambda: self._enter(theirs, identity))

    def _refuse(self, relay: Relay, text: str) -> None:
        peer = relay.peer
        self._end(relay)
        self._call(lambda: self._complain("handshake", f"{peer}: {text}", None))

    def _end(self, relay: Relay) -> None:
        for sock in (relay.outer, relay.inner):
            if sock is not None:
                self._watch(sock.fileno(), 0)
                del self._relays[sock.fileno()]
                del self._watched[sock.fileno()]
        relay.close()

    def _expire(self) -> None:
        now_s = time.monotonic()
        for relay in list(self._relays.values()):
            if relay.deadline_s is not None and now_s >= relay.deadline_s:
                self._refuse(relay, f"no TLS handshake within {HANDSHAKE_S:g} s")


def listen_tcp(address: tuple[str, int]) -> socket.socket:
    """Raises NetworkError with the way out."""
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        raise NetworkError(
            f"listen = {host}:{port}: {error.strerror}; give an address of this host and a free port"
        ) from None
    listener.setblocking(False)
    return listener


def _text(error: OSError) -> str:
    return error.strerror or str(error)
