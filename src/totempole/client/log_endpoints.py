"""Which log services a program may ask, in which order, and what to make of a refusal."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from totempole.client.endpoint import Attempts, Endpoint, Reconnect, Tls, default_socket, endpoint_of
from totempole.client.endpoint import Path as FilePath
from totempole.errors import LogError, LogTrimmedError, SessionError, TlsError
from totempole.session.log_frames import (
    VERSION,
    Answer,
    AskSegments,
    Failed,
    Hello,
    Located,
    Measure,
    Missing,
    OrderedRun,
    Request,
    Runs,
    Welcome,
    log_socket_of,
)

ANSWER_S_MAX = 10.0
"""How long a service may take to answer."""


def log_endpoints(
    path: FilePath | Sequence[FilePath] | None = None,
    replicas: str | Sequence[str] | None = None,
    tls: ssl.SSLContext | Tls | None = None,
) -> tuple[Endpoint, ...]:
    """`path`: the socket of the daemon, or of its log service; or several. `replicas`: "address:port,…",
    asked in turn."""
    if replicas is None:
        if tls is not None:
            raise SessionError("tls is for log services on other hosts: give replicas= too")
        if path is None or isinstance(path, str | os.PathLike):
            path = [path or default_socket()]
        if not path:
            raise SessionError("an empty list of sockets: give at least one")
        return tuple([Endpoint(path=_log_socket(Path(each))) for each in path])
    if path is not None:
        raise SessionError("give a path or replicas, not both")
    words = replicas.split(",") if isinstance(replicas, str) else replicas
    context = tls.context() if isinstance(tls, Tls) else tls
    found = []
    for word in filter(None, map(str.strip, words)):
        endpoint = endpoint_of(None, word, context)
        if isinstance(tls, Tls) and tls.server_name:
            endpoint = Endpoint("", endpoint.host, endpoint.port, context, tls.server_name)
        found.append(endpoint)
    if not found:
        raise SessionError(f"replicas = {replicas!r}: give address:port, several with commas between")
    return tuple(found)


def _log_socket(given: Path) -> str:
    return str(given if given.stem.endswith("-log") else log_socket_of(given))


def services_beside(
    daemons: Sequence[Endpoint | socket.socket],
    log_socket: str = "",
    replicas: str | Sequence[str] | None = None,
    tls: ssl.SSLContext | Tls | None = None,
) -> tuple[Endpoint, ...]:
    """The log services that a session reads from: those of its daemons on this host, or the ones named."""
    known = [daemon for daemon in daemons if isinstance(daemon, Endpoint)]
    if replicas is not None:
        context = next((daemon.context for daemon in known if daemon.context is not None), None)
        return log_endpoints(None, replicas, tls or context)
    if log_socket:
        return (Endpoint(path=log_socket),)
    found = [Endpoint(path=str(log_socket_of(Path(each.path)))) for each in known if each.path]
    if not found:
        raise SessionError(
            'the daemon is on another host: name its log service with replicas="address:port", as its '
            "setting log.listen has it"
        )
    return tuple(found)


class Replicas:
    """The services that a program reads from: the one that answers, until it does not. Then the next."""

    def __init__(
        self, endpoints: Sequence[Endpoint], reconnect: Reconnect | None, name: str = "", log: int = 0
    ) -> None:
        assert endpoints, "there is one at least"
        self.endpoints = tuple(endpoints)
        self.log = log
        """The log that is read, once a service has named it."""
        self._name = name
        self._reconnect = reconnect
        self._at = 0
        self._attempts = Attempts(reconnect) if reconnect else None
        self._failed_since_s: float | None = None
        self._trimmed: dict[int, LogTrimmedError] = {}
        """Those that have not kept what was asked for."""
        self._damaged: dict[int, str] = {}
        """Those that cannot read it, and what they say."""

    @property
    def endpoint(self) -> Endpoint:
        return self.endpoints[self._at]

    def hello(self) -> Hello:
        return Hello(VERSION, self._name, self.log)

    def welcomed(self, welcome: Welcome, now_s: float) -> None:
        if welcome.version != VERSION:
            raise LogError(
                f"the log service at {self.endpoint} speaks version {welcome.version}, this is {VERSION}"
            )
        if self.log and welcome.log and welcome.log != self.log:
            raise LogError(
                f"the replica at {self.endpoint} has log {welcome.log:x}, and what was read is of log "
                f"{self.log:x}: it belongs to another cluster, or was rescued since"
            )
        self.log = welcome.log
        if self._attempts is not None:
            self._attempts.opened(now_s)

    def answered(self, answer: Answer) -> None:
        """Whoever fails from now on fails anew."""
        self._failed_since_s = None
        if isinstance(answer, Runs):
            self._trimmed.clear()
            self._damaged.clear()

    def failed(self, error: SessionError, now_s: float) -> float:
        """A service could not be read from. How long to wait before the next is tried; or the error, if there
        is no use."""
        self._at = (self._at + 1) % len(self.endpoints)
        if self._attempts is None or self._reconnect is None:
            raise error
        if self._failed_since_s is None:
            self._failed_since_s = now_s
            self._attempts.lost(now_s)
        limit_s = self._reconnect.give_up_s
        if limit_s is not None and now_s - self._failed_since_s >= limit_s:
            raise LogError(f"no log service has answered for {limit_s:g} s: {error}") from None
        return self._attempts.next_pause()

    def refused(self, failed: Failed) -> SessionError:
        """What to make of a refusal. Raises it, if another service would say the same."""
        text = f"the log service at {self.endpoint}: {failed.text}"
        if failed.kind == "trimmed":
            self._trimmed[self._at] = LogTrimmedError(text, failed.earliest)
        elif failed.kind == "damaged":
            self._damaged[self._at] = text
        elif failed.kind != "closed":
            raise LogError(text)
        if len(self._trimmed.keys() | self._damaged.keys()) == len(self.endpoints):
            if not self._damaged:
                raise min(self._trimmed.values(), key=lambda error: error.earliest)
            all_texts = {**{at: str(error) for at, error in self._trimmed.items()}, **self._damaged}
            raise LogError(
                f"no log service can read on: {'; '.join(all_texts[at] for at in sorted(all_texts))}"
            )
        return SessionError(text)


def unreachable(endpoint: Endpoint, error: BaseException) -> SessionError:
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(error, PermissionError):
        way = "the node's setting clients.users names who may"
    elif is_refusal(error):
        return TlsError(f"no log service at {endpoint}: {error}; check the certificates of both sides")
    elif endpoint.path:
        way = "check that the node runs and has a log: `totem log status`"
    else:
        way = "check that the node runs there and has log.listen set"
    return SessionError(f"no log service at {endpoint}: {why}; {way}")


def is_refusal(error: BaseException) -> bool:
    """One side does not accept the other's certificate. What cuts a TLS connection off is another error."""
    return type(error) in (ssl.SSLError, ssl.SSLCertVerificationError)


def cut_off(endpoint: Endpoint) -> TlsError:
    """With TLS 1.3 a program's certificate is looked at after the handshake. A service that does not accept
    it hangs up without a word."""
    return TlsError(
        f"no log service at {endpoint}: it closes the connection before it says anything; check the "
        "certificates of both sides"
    )


def check_measures(request: Request, welcome: Welcome) -> None:
    """SessionError: the service is of an older version, and would hang up. Another may do."""
    if isinstance(request, AskSegments | Measure) and not welcome.measures:
        raise SessionError(
            f"the log service of processor {welcome.processor} is of an older version: it does not tell "
            "sizes; upgrade its node"
        )


def unexpected(answer: Answer) -> SessionError:
    return SessionError(f"the log service answers with {type(answer).__name__}, which nobody asked for")


def located(answer: Answer) -> OrderedRun | None:
    """What `Locate` was answered with. LogError: it may have been trimmed."""
    if isinstance(answer, Located):
        return answer.ordered
    if isinstance(answer, Missing):
        if answer.why == "trimmed":
            raise LogError(
                f"run {answer.run} was ordered, and may be trimmed: its position is not known here"
            )
        return None
    raise unexpected(answer)
