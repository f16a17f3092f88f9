"""`totem node`: run a node in the foreground, check its settings, or print all that there are."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.markup import escape

from totempole.cli import options
from totempole.cli.command import EXIT_PASSING, EXIT_TROUBLE
from totempole.cli.output import Screen, table
from totempole.daemon.config import parse_address
from totempole.daemon.listeners import check_listeners, try_listeners
from totempole.daemon.tls import listen_tcp
from totempole.errors import TotemError
from totempole.log.reader import LogReader
from totempole.runtime.config import NetworkConfig, NodeConfig
from totempole.runtime.config_text import print_config, print_short, short_text
from totempole.runtime.daemon import run_daemon
from totempole.runtime.log_store import check_owner
from totempole.runtime.logs import start_logging, stop_logging
from totempole.runtime.status import SOCKET_NAME, StatusError, read_status

if TYPE_CHECKING:
    from totempole.runtime.network import Network
    from totempole.runtime.service import Service

EXAMPLES = """\
examples:
  totem node --print-config --short > node.toml      a node to try out on this host, as it is
  totem node --print-config > node.toml     every setting, its default and its meaning
  totem keygen totem.key                    the key that all hosts share
  totem node --config node.toml --check     are the settings good, and can everything be opened?
  totem node --config node.toml             run until SIGTERM or Ctrl-C
  totem node --config node.toml --set processor=2 --set network.address=10.0.0.2
  totem node --config node.toml --set network.2.address=10.0.1.2      the second of several [[network]] tables

SIGTERM and Ctrl-C leave the ring gracefully, the second time at once. SIGHUP reads the key file again, and
the settings: a ring on several networks takes further ones at the end, or does without the last.
Exits 0 after a graceful leave, 2 if something is set wrong, 3 if it had to stop, or could not start yet;
docs/node.md says when. --check exits in the same way: 0 if the node would start, 2 or 3 if it would not.
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    options.add_config(parser)
    parser.add_argument("--check", action="store_true", help="open everything, say what, and close it again")
    parser.add_argument("--print-config", action="store_true", help="print every setting as a TOML file")
    parser.add_argument("--lab", nargs="*", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument(
        "--short", action="store_true", help="of --print-config: only what must be given, or differs"
    )
    options.add_json(parser, "what --check found, as data")
    parser.set_defaults(run=run_node)


def run_node(arguments: argparse.Namespace) -> int:
    if arguments.print_config:
        sys.stdout.write(_printed(arguments))
        return 0
    if arguments.short:
        raise TotemError("node: --short goes with --print-config")
    if not arguments.config:
        raise TotemError("node: --config FILE is missing; totem node --print-config writes one to start from")
    config = _load(arguments, places=not arguments.check)
    if arguments.check:
        return check(Screen(arguments.json), config)
    return serve(config, partial(_load, arguments, places=True), arguments.lab)


def _printed(arguments: argparse.Namespace) -> str:
    config = _load(arguments, places=False) if arguments.config else None
    if not arguments.short:
        return print_config(config)
    return print_short(arguments.set) if config is None else short_text(config)


def _load(arguments: argparse.Namespace, places: bool) -> NodeConfig:
    return NodeConfig.load(arguments.config, arguments.set, places=places)


def serve(config: NodeConfig, reread: Callable[[], NodeConfig], cut: Sequence[str] | None = None) -> int:
    """`cut`: of a node in a lab, the addresses that it does not hear (runtime/packet_filter.py)."""
    # Here, because a node brings sockets, storage and the seal with it, and other commands need none of them.
    from totempole.runtime.memory import prepare_for_packets
    from totempole.runtime.packet_filter import PacketFilter, check_loopback
    from totempole.runtime.service import Service

    logger = start_logging(config.logging.level, config.logging.format)
    try:
        packet_filter = None if cut is None else PacketFilter(cut)
        if packet_filter is not None:
            check_loopback(config)
        with closing(Service(config, logger, reread, packet_filter)) as service:
            if packet_filter is not None:
                threading.Thread(target=_stop_with_input, args=(service,), daemon=True).start()
            prepare_for_packets()
            return run_daemon(service, config, logger)
    finally:
        stop_logging()


def _stop_with_input(service: Service) -> None:
    """A node in a lab leaves when whoever started it has ended."""
    while os.read(sys.stdin.fileno(), 4_096):
        pass
    service.stop()


# --check


class Finding(NamedTuple):
    """What would be opened, and what stands against it."""

    what: str
    text: str
    problem: str = ""
    may_pass: bool = False
    """Whether the problem may go away by itself."""


def check(screen: Screen, config: NodeConfig) -> int:
    found = list(findings(config))
    shown = table("what", "is")
    for finding in found:
        shown.add_row(finding.what, escape(finding.text))
        if finding.problem:
            shown.add_row("", f"[bold red]{escape(finding.problem)}[/]")
    screen.print(shown)
    holds = not any(finding.problem for finding in found)
    screen.print("\n[green]Ready to run.[/]" if holds else "\n[bold red]Not ready to run.[/]")
    screen.save_json({"holds": holds, "findings": [finding._asdict() for finding in found]})
    return _exit_code(finding.may_pass for finding in found if finding.problem)


def _exit_code(passing: Iterable[bool]) -> int:
    """As a node with these problems would end: each of them may pass, or not."""
    problems = [*passing]
    if not problems:
        return 0
    return EXIT_PASSING if all(problems) else EXIT_TROUBLE


def findings(config: NodeConfig) -> Iterator[Finding]:
    ring = config.ring
    yield Finding(
        "processor", f"{config.processor} of cluster {ring.cluster_id}, {ring.ring_kind.name.lower()} ring"
    )
    yield _attempt("places", str(config.directory), lambda: _places(config))
    yield _attempt("seal", _seal_place(config), lambda: _seal(config))
    is_running = _is_running(config.directory)
    if is_running:
        yield Finding("sockets", "not tried: a node with this directory is running (totem status)")
    else:
        yield from _networks(config)
    for number, network in enumerate(config.networks):
        what = _which("peers", config, number)
        yield _attempt(what, network.transport, partial(_peers, network))
    yield _attempt("clients", _clients_place(config), lambda: _clients(config, is_running))
    yield _attempt("log", str(config.log_directory), lambda: _log(config, is_running))
    yield Finding("status", str(config.directory / SOCKET_NAME))
    yield _attempt("metrics", _metrics_place(config), lambda: _metrics(config, is_running))
    yield _attempt("trace", str(config.trace_directory), lambda: _trace(config))


def _log(config: NodeConfig, is_running: bool) -> str:
    """Of the durable log."""
    section, directory = config.log, config.log_directory
    if not section.enabled:
        return "off"
    _check_writable(directory)
    if section.listen and not is_running:
        listen_tcp(parse_address(section.listen)).close()
    replicas = ", ".join(map(str, section.replicas)) or "whoever the log itself names"
    headers = LogReader(directory).headers() if directory.exists() else []
    if not headers:
        return f"{directory}, empty; replicas: {replicas}"
    check_owner(directory, headers[-1], config.processor, config.ring.cluster_id)
    return f"{directory}, {headers[-1].position:,} positions or more; replicas: {replicas}"


def _attempt(what: str, text: str, attempt: Callable[[], str]) -> Finding:
    try:
        return Finding(what, attempt())
    except (TotemError, OSError) as error:
        return Finding(what, text, str(error), may_pass=getattr(error, "may_pass", False))


def _is_running(directory: Path) -> bool:
    try:
        read_status(directory)
    except StatusError:
        return False
    return True


def _places(config: NodeConfig) -> str:
    config.check_places()
    _check_writable(config.directory)
    return f"{config.directory}, {'is there' if config.directory.exists() else 'will be made'}"


def _check_writable(directory: Path) -> None:
    """The directory, or the nearest above it in which it will be made."""
    place = next(each for each in (directory, *directory.absolute().parents) if each.exists())
    if not place.is_dir():
        raise TotemError(f"{directory}: {place} is a file: name a directory")
    if not os.access(place, os.W_OK | os.X_OK):
        raise TotemError(f"{place}: this user may not write there: change its owner, or run as that one")


def _seal_place(config: NodeConfig) -> str:
    return "none" if config.security.key_file is None else str(config.security.key_file)


def _seal(config: NodeConfig) -> str:
    if config.security.key_file is None:
        return "none: whoever reaches the ports can forge messages"
    from totempole.runtime import keyring

    active, *others = keyring.load(config.security.key_file).keys
    accepted = "".join(f", key {key.id} accepted too" for key in others)
    return f"{config.security.key_file}: key {active.id} active{accepted}"


def _ports(network: NetworkConfig) -> str:
    ports = f"UDP {network.address} port {network.port} (data) and {network.port + 1} (token)"
    return ports if network.transport == "mesh" else f"{ports}, multicast {network.group}"


def _which(what: str, config: NodeConfig, number: int) -> str:
    return what if len(config.networks) == 1 else f"{what} {config.network_name(number)}"


def _networks(config: NodeConfig) -> Iterator[Finding]:
    """Opened together: no two may be on one interface, and of several under one ring some may be absent."""
    opened: list[Network] = []
    try:
        for number, network in enumerate(config.networks):
            attempt = partial(_open, config, number, opened)
            yield _attempt(_which("sockets", config, number), _ports(network), attempt)
        if len(opened) == len(config.networks) > 1:
            yield _attempt("networks", f"{len(opened)}", lambda: _separate(config, opened))
    finally:
        for found in opened:
            found.sockets.close()


def _open(config: NodeConfig, number: int, opened: list[Network]) -> str:
    from totempole.runtime.network import Network

    name, others = config.network_name(number), config.networks_beside(number)
    opened.append(Network(number, config.networks[number], name, others))
    return _sockets(config, opened[-1])


def _separate(config: NodeConfig, opened: list[Network]) -> str:
    from totempole.runtime.network import check_networks

    check_networks(opened)
    return f"{len(opened)}, {config.redundancy.style if config.is_redundant else 'a ring on each'}"


def _sockets(config: NodeConfig, network: Network) -> str:
    sockets = network.sockets
    if not network.is_there:
        return f"{_ports(network.config)}: absent now, and the node starts without it: {network.absence}"
    offload = "offload" if sockets.offload.send and sockets.offload.receive else "no offload"
    return (
        f"{_ports(network.config)}, on {sockets.interface.name}, datagrams of {network.segment_bytes:,} "
        f"bytes, {offload}, {_buffers(config, network.config, sockets.receive_buffer_bytes)}"
    )


def _buffers(config: NodeConfig, network: NetworkConfig, got: int) -> str:
    asked, window = network.receive_buffer_bytes, config.ring.window_bytes
    if got >= asked:
        return f"receive buffers of {got:,} bytes"
    text = f"receive buffers of {got:,} bytes where {asked:,} were asked for: raise net.core.rmem_max"
    return text if got >= window else f"{text}, or the window of {window:,} is lowered to that"


def _peers(network: NetworkConfig) -> str:
    if network.transport == "multicast":
        return f"whoever is in {network.group}, with multicast_hops = {network.multicast_hops}"
    words = [str(peer) for peer in network.peers]
    if network.peers_dns:
        words.append(f"{network.peers_dns}: {', '.join(_resolve(network.peers_dns))}")
    return "; ".join(words)


def _resolve(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    except socket.gaierror as error:
        raise TotemError(f"peers_dns = {name}: {error.strerror}; is there such a name?") from error
    return sorted({str(address[0]) for *_, address in found})


def _clients_place(config: NodeConfig) -> str:
    clients = config.clients
    if not clients.enabled:
        return "none: enabled = false"
    users = ", ".join(("this user", "root", *clients.users))
    listen = f"; TLS {clients.listen}" if clients.listen else ""
    return f"{config.clients_socket} for {users}{listen}"


def _clients(config: NodeConfig, is_running: bool) -> str:
    """A node that runs has its own socket and port open. One that has no directory yet makes it, and then its
    socket."""
    clients = config.clients
    check_listeners(clients)
    if not is_running:
        has_directory = config.directory.is_dir()
        try_listeners(replace(clients, socket=config.clients_socket) if has_directory else clients)
    return _clients_place(config)


def _metrics_place(config: NodeConfig) -> str:
    address, port = config.metrics.address, config.metrics.port
    shown = f"[{address}]" if ":" in address else address
    return f"http://{shown}:{port}/metrics" if port else "off"


def _metrics(config: NodeConfig, is_running: bool) -> str:
    if config.metrics.port and not is_running:
        from totempole.runtime.metrics import MetricsServer

        MetricsServer(config.metrics, dict, logging.getLogger(__name__)).close()
    return _metrics_place(config)


def _trace(config: NodeConfig) -> str:
    trace = config.trace
    if trace.level == "off" and not trace.inputs:
        return "off"
    _check_writable(config.trace_directory)
    return f"{trace.level}{', inputs recorded' if trace.inputs else ''}, {config.trace_directory}"
