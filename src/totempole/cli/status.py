"""`totem status`: what a running node says about itself, as a page for eyes or as JSON."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from totempole.cli import network_text, options
from totempole.cli.command import EXIT_PASSING
from totempole.cli.log_warnings import log_warnings
from totempole.cli.output import Screen, table
from totempole.errors import TotemError
from totempole.runtime import hints
from totempole.runtime.status import Document, is_operational, read_status

WATCH_S = 1.0

NEEDS: dict[str, Callable[[int, int], bool]] = {
    "all": lambda present, count: present >= count,
    "majority": lambda present, count: 2 * present > count or not count,
    "one": lambda present, count: True,
}
"""Whether so many of the expected members are enough."""

EXAMPLES = """\
examples:
  totem status                          the node at TOTEMPOLE_SOCKET, or in /var/lib/totempole
  totem status --config node.toml       the node with these settings
  totem status --directory DIR          the node with this directory
  totem status --watch                  once a second, until Ctrl-C
  totem status --watch 500 >> log       a page every 500 seconds (SRP_DEBUG_TIMEOUT of Totem appendix A)
  totem status --json                   all of it, for programs
  totem status --need majority          succeed if most of the expected members are there
  totem status --cluster                ask the other nodes, too, through their metrics ports
  totem status --cluster 10.0.0.1:9464 10.0.0.2:9464      ask these, from any host

Exits 0 when the node is operational in a ring with the members that are expected (`expected`, or the peers of
a mesh), 1 when it is forming a ring, 2 when there is no answer, 3 when it is operational and members are
missing. --need says how many must be there: all, a majority, or one, which is the node itself.
"""

Row = tuple[str, str]


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    options.add_node(parser)
    parser.add_argument(
        "--watch",
        nargs="?",
        type=options.seconds,
        const=WATCH_S,
        metavar="SECONDS",
        help="ask again every SECONDS, until interrupted (default: every second)",
    )
    parser.add_argument(
        "--need", choices=NEEDS, default="all", help="the expected members that must be there (default all)"
    )
    parser.add_argument(
        "--cluster",
        nargs="*",
        metavar="ADDRESS:PORT",
        help="ask every node, through its metrics port: those at these places, or those that this node knows",
    )
    options.add_json(parser, "the document as it is")
    parser.set_defaults(run=run_status)


def run_status(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    if arguments.cluster:
        return _cluster(screen, arguments.cluster, None)
    directory = options.directory_of(arguments, "status")
    if arguments.watch:
        return watch(screen, lambda: read_status(directory), every_s=arguments.watch, need=arguments.need)
    document = read_status(directory)
    if arguments.cluster is not None:
        return _cluster(screen, (), document)
    screen.print(page(document))
    screen.save_json(document)
    return exit_code(document, arguments.need)


def _cluster(screen: Screen, places: Sequence[str], document: Document | None) -> int:
    # Here, because it reads metrics, and a status does not.
    from totempole.cli.cluster_status import show_cluster

    return show_cluster(screen, places, document)


def exit_code(document: Document, need: str = "all") -> int:
    if not is_operational(document):
        return 1
    expected = document.get("expected") or {"count": 0, "present": 0}
    return 0 if NEEDS[need](expected["present"], expected["count"]) else EXIT_PASSING


def watch(
    screen: Screen,
    read: Callable[[], Document],
    pause: Callable[[float], None] = time.sleep,
    every_s: float = WATCH_S,
    need: str = "all",
) -> int:
    """Shows the page until interrupted; a node that does not answer is shown so, and asked again."""
    last: Document = {}
    try:
        with _showing(screen) as show:
            while True:
                last, shown = _look(read)
                screen.save_json(last)
                show(shown)
                pause(every_s)
    except KeyboardInterrupt:
        return exit_code(last, need)


@contextmanager
def _showing(screen: Screen) -> Iterator[Callable[[RenderableType], None]]:
    """One page that is replaced, on a terminal; elsewhere one page after the other, each with its time."""
    if not screen.out.is_terminal:
        yield lambda page: screen.print(Text(time.strftime("%F %T")), page, "")
        return
    with Live(console=screen.out, auto_refresh=False) as live:
        yield lambda page: live.update(page, refresh=True)


def _look(read: Callable[[], Document]) -> tuple[Document, RenderableType]:
    try:
        document = read()
    except TotemError as error:
        return {}, Text(str(error), "bold red")
    return document, page(document)


# The page


def page(document: Document) -> RenderableType:
    shown = table("", "")
    shown.show_header = False
    for name, text in rows(document):
        style = "" if name != "state" else "bold green" if is_operational(document) else "bold yellow"
        shown.add_row(Text(name, "dim"), Text(text, style))
    return Group(shown, *(Text(f"! {text}", "yellow") for text in warnings(document)))


def rows(document: Document) -> Iterator[Row]:
    """What the document says; what it does not say is left out."""
    get = document.get
    up, version = duration(get("uptime_s", 0)), get("version", "?")
    yield "node", f"{get('processor', '?')} of cluster {get('cluster_id', '?')}, up {up}, totempole {version}"
    yield "state", str(get("state", "unknown"))
    yield "ring", _ring(document)
    yield "members", _members(document)
    if get("networks"):
        yield from network_text.rows(document)
    else:
        yield "network", _network(document)
    yield "seal", _seal(document)
    for name, key, text in PARTS:
        if get(key):
            yield name, text(document[key])
    yield "dropped", counts(get("dropped", {}))
    yield "refused", counts(get("kernel_refused", {}))


def _ring(document: Document) -> str:
    last = document.get("last_configuration") or {}
    name = f"{document.get('ring', '?')}, {document.get('ring_kind', '?')}"
    ago = f", installed {duration(last['ago_s'])} ago" if "ago_s" in last else ""
    return f"{name}{ago}; {document.get('configuration_changes', 0):,} configuration changes"


def _members(document: Document) -> str:
    members = " ".join(map(str, document.get("members", []))) or "none yet"
    expected = document.get("expected")
    return f"{members}; {expected['present']} of {expected['count']} expected" if expected else members


def _network(document: Document) -> str:
    offload = document.get("offload", {})
    used = [direction for direction in ("send", "receive") if offload.get(direction)]
    return (
        f"{document.get('transport', '?')} at {document.get('address', '?')}, "
        f"datagrams of {document.get('segment_bytes', 0):,} bytes, "
        f"offload {' and '.join(used) if used else 'off'}"
    )


def _seal(document: Document) -> str:
    if not document.get("sealed"):
        return "none"
    active, *others = document.get("key_ids") or ["?"]
    return f"key {active} active" + "".join(f", key {key} accepted too" for key in others)


def _rotation(rotation: Mapping[str, int]) -> str:
    names = {"last": "last", "p50": "median", "p99": "99 % below", "max": "longest"}
    return ", ".join(f"{names[name]} {micros(rotation[name])}" for name in names if name in rotation)


def _rates(rates: Mapping[str, float]) -> str:
    names = {
        "messages_per_s": "messages/s",
        "packets_per_s": "packets/s",
        "tokens_per_s": "tokens/s",
        "retransmissions_per_s": "retransmissions/s",
    }
    words = [f"{rates[name]:,.0f} {text}" for name, text in names.items() if name in rates]
    if "bytes_per_s" in rates:
        words.insert(1, f"{rates['bytes_per_s'] / 1e6:,.1f} MB/s")
    return ", ".join(words)


def _timeouts(timeouts: Mapping[str, int]) -> str:
    words = {name.removesuffix("_us").replace("_", " "): value for name, value in timeouts.items()}
    return ", ".join(f"{name} {micros(value)}" for name, value in words.items())


def _fill(template: str) -> Callable[[Mapping[str, Any]], str]:
    """Writes values into a text; those that are not given are 0."""
    return lambda values: template.format_map(defaultdict(int, values))


def _clients(clients: Mapping[str, Any]) -> str:
    words = [
        f"{clients.get('clients', 0):,} of {clients.get('clients_max', 0):,} connected",
        f"{clients.get('queued_bytes', 0):,} bytes unread",
    ]
    told = [name for name in ("disconnected", "refused") if clients.get(name)]
    words += [f"{name}: {counts(clients[name])}" for name in told]
    if clients.get("shed_messages"):
        words.append(f"{clients['shed_messages']:,} messages shed")
    return "; ".join(words)


def _log(log: Mapping[str, Any]) -> str:
    members = " ".join(map(str, log.get("members", []))) or "none"
    words = [
        f"{log.get('standing', '?')}, primary {log.get('primary', 0)}, members {members}",
        f"position {log.get('position', 0):,}, {log.get('green_runs', 0):,} runs green",
        *(
            f"{log.get(f'{colour}_runs', 0):,} {colour} of {log.get(f'{colour}_bytes', 0):,} bytes"
            for colour in ("yellow", "red")
        ),
    ]
    return "; ".join(words)


def _replicas(log: Mapping[str, Any]) -> str:
    words = [
        f"{each['processor']} on disk {each['disk']}"
        + (f" with weight {each['weight']}" if each["weight"] != 1 else "")
        + ("" if each["is_present"] else " (missing)")
        for each in log.get("replicas", [])
    ]
    return ", ".join(words) or "the log is not founded yet: all its replicas must be there once"


def _trace(trace: Mapping[str, Any]) -> str:
    return f"{trace.get('level', 'off')}{', inputs recorded' if trace.get('inputs') else ''}"


PARTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("rotation", "rotation_us", _rotation),
    ("rates", "rates", _rates),
    (
        "queues",
        "queue",
        _fill("{send:,} of {send_max:,} packets wait for the token, {application:,} bytes for a packet"),
    ),
    ("clients", "clients", _clients),
    ("log", "log", _log),
    ("replicas", "log", _replicas),
    ("timeouts", "timeouts_us", _timeouts),
    ("lag", "lag", _fill("last {last_ms:,.1f} ms, longest {max_ms:,.1f} ms, {alarms:,} alarms")),
    ("buffer", "receive_buffer_bytes", _fill("{got:,} of {asked:,} bytes asked for; window {window:,}")),
    ("trace", "trace", _trace),
)


def counts(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(values.items())) or "none"


def micros(value_us: float) -> str:
    if value_us < 1_000:
        return f"{value_us:.0f} µs"
    return f"{value_us / 1_000:.3g} ms" if value_us < 1_000_000 else f"{value_us / 1_000_000:.3g} s"


def duration(seconds: float) -> str:
    minutes, hours, days = int(seconds) // 60, int(seconds) // 3600, int(seconds) // 86_400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {int(seconds) % 60} s" if minutes else f"{int(seconds)} s"


def warnings(document: Document) -> Iterator[str]:
    """What a person should look at."""
    if not is_operational(document):
        yield f"not operational: {document.get('state', 'unknown')}; a ring is being formed, or cannot be"
    elif len(document.get("members", [])) == 1 and document.get("expected", {}).get("count") != 1:
        yield "alone in its ring: no other node is heard"
    yield from _missing(document.get("expected") or {})
    if document.get("sealed") is False:
        yield "unsealed: whoever reaches the ports can forge messages; make a key with totem keygen"
    offload = document.get("offload", {})
    if offload.get("reason"):
        yield f"no UDP offload: {offload['reason']}"
    buffer = document.get("receive_buffer_bytes", {})
    if buffer.get("got", 0) < buffer.get("asked", 0):
        yield "receive buffers are smaller than asked for: raise net.core.rmem_max (docs/tuning.md)"
    yield from network_text.warnings(document.get("networks", []))
    yield from _log_warnings(document.get("log", {}))
    alarms = document.get("lag", {}).get("alarms", 0)
    if alarms:
        yield f"event loop lag, {alarms:,} times: the host is overloaded, or the process was stopped"
    for reason in sorted(document.get("dropped", {})):
        hint = hints.dropped(reason, document.get("sealed") is not False)
        if hint:
            yield f"packets dropped, {reason}: {hint}"
    for name, count in sorted(document.get("kernel_refused", {}).items()):
        yield f"{count:,} packets not sent, {name}: {hints.refused(name)}"


def _missing(expected: Mapping[str, Any]) -> Iterator[str]:
    if not expected.get("missing"):
        return
    count = f"{expected['missing']} of {expected['count']} expected members are missing"
    who = [
        f"{each['processor']} at {each['address'] or 'an unknown address'}"
        + ("" if each["met"] else ", never met")
        for each in expected["absent"]
    ]
    yield f"{count}, for {duration(expected['for_s'])}" + (f": {'; '.join(who)}" if who else "")


def _log_warnings(log: Mapping[str, Any]) -> Iterator[str]:
    if log.get("failure"):
        yield f"the log is closed: {log['failure']}"
    elif log.get("standing") == "minority":
        yield "the log waits for a majority of its replicas: what is appended stays red"
    if log.get("missing"):
        yield f"the log lacks replicas: {', '.join(map(str, log['missing']))}"
    yield from log_warnings(log)
    if log.get("last_alarm"):
        yield f"the log's last alarm: {log['last_alarm']}"
