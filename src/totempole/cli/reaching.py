"""How `totem send`, `listen` and `groups` reach a daemon: by its socket, by its settings, or by TLS."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from totempole.client.endpoint import SOCKET_DEFAULT, SOCKET_VARIABLE, Tls
from totempole.errors import TotemError

TLS_FILES = ("certificate", "key", "authorities")

WHERE = f"""\
The daemon is the one at --socket PATH, or with the settings in --config FILE, or at {SOCKET_VARIABLE},
or at {SOCKET_DEFAULT}; on another host, the one at --host ADDRESS:PORT (docs/security.md)."""


def add_daemon(parser: argparse.ArgumentParser) -> None:
    _add(parser.add_argument_group("the daemon"), "store")


def add_daemons(parser: argparse.ArgumentParser) -> None:
    _add(parser.add_argument_group("the daemons, one or several"), "append")


def _add(where: argparse._ArgumentGroup, action: str) -> None:
    where.add_argument("--socket", action=action, metavar="PATH", help="its Unix socket on this host")
    where.add_argument("--config", action=action, metavar="FILE", help="its settings, which name the socket")
    where.add_argument(
        "--host",
        action=action,
        metavar="ADDRESS:PORT",
        help="where it listens, on another host; with --tls-…",
    )
    where.add_argument("--tls-certificate", metavar="FILE", help="who you are (PEM)")
    where.add_argument("--tls-key", metavar="FILE", help="the certificate's private key (PEM)")
    where.add_argument("--tls-authorities", metavar="FILE", help="whose word about the daemon counts (PEM)")
    where.add_argument("--tls-name", metavar="NAME", help="what its certificate calls it, if not ADDRESS")


def daemon_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `connect` needs to know, checked."""
    given = [name for name in ("socket", "config", "host") if getattr(arguments, name)]
    if len(given) > 1:
        raise TotemError(f"give --{given[0]} or --{given[1]}, not both")
    files = {name: getattr(arguments, f"tls_{name}") for name in TLS_FILES}
    if not arguments.host:
        if any(files.values()) or arguments.tls_name:
            raise TotemError("--tls-… is for a daemon on another host: give --host ADDRESS:PORT too")
        return {"path": _path(arguments)}
    for name, file in files.items():
        if not file:
            raise TotemError(f"--host: give --tls-{name} FILE too, for other hosts are reached by TLS only")
    return {"host": arguments.host, "tls": Tls(**files, server_name=arguments.tls_name)}


def daemons_of(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The same for each of several; the one that is found by itself when none is given."""
    nowhere = vars(arguments) | dict.fromkeys(("socket", "config", "host"))
    no_tls = dict.fromkeys((*(f"tls_{name}" for name in TLS_FILES), "tls_name")) if arguments.host else {}
    found = []
    for name in ("socket", "config", "host"):
        for value in getattr(arguments, name) or ():
            given = nowhere | {name: value} | (no_tls if name != "host" else {})
            found.append(daemon_of(argparse.Namespace(**given)))
    return found or [daemon_of(argparse.Namespace(**nowhere))]


def _path(arguments: argparse.Namespace) -> str | None:
    if arguments.config:
        from totempole.runtime.config import NodeConfig  # and with it the whole node

        return str(NodeConfig.load(arguments.config, places=False).clients_socket)
    path: str | None = arguments.socket
    return path


def say(text: str) -> None:
    """A remark for whoever looks on; what was asked for goes to standard output."""
    print(f"# {text}", file=sys.stderr, flush=True)


@contextmanager
def remarks() -> Iterator[None]:
    """While this lasts, the session's own warnings are shown as remarks."""
    logger, handler = logging.getLogger("totempole.client"), _Remarks(logging.WARNING)
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


class _Remarks(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())
