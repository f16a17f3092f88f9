"""`totem status --cluster`: every node of a cluster asked, and who sees whom.

The node on this host answers through its status socket, the others through the ports at which they answer
Prometheus: read-only, and open already where a cluster is watched. So a node that is cut off from the ring is
still asked, if its host can be reached at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from http.client import HTTPConnection, HTTPException
from typing import Self

from prometheus_client.parser import text_string_to_metric_families
from rich.markup import escape
from rich.text import Text

from totempole.cli.command import EXIT_PASSING, EXIT_TROUBLE
from totempole.cli.output import Screen, table
from totempole.cli.status import duration
from totempole.errors import TotemError
from totempole.runtime.status import OPERATIONAL, Document

ANSWER_S = 2.0
ANSWER_BYTES_MAX = 4 << 20
ASKED_AT_ONCE = 16
NO_PORT = "not asked: give all nodes the same [metrics] port, at an address that can be reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a node says of itself."""

    processor: int = 0
    """0: nothing is known but where it was asked."""
    place: str = ""
    problem: str = ""
    """Why there is no answer."""
    cluster_id: int = 0
    version: str = ""
    state: str = ""
    members: tuple[int, ...] = ()
    expected: int = 0
    missing: int = 0
    uptime_s: int = 0
    clients: int = 0
    log: str = ""

    @property
    def answered(self) -> bool:
        return not self.problem

    @property
    def is_well(self) -> bool:
        return self.answered and self.state == OPERATIONAL and not self.missing

    @classmethod
    def of_document(cls, document: Document) -> Self:
        """From the status socket."""
        expected = document.get("expected", {})
        return cls(
            processor=document["processor"],
            place="this host",
            cluster_id=document["cluster_id"],
            version=document["version"],
            state=document["state"],
            members=tuple(document["members"]),
            expected=expected.get("count", 0),
            missing=expected.get("missing", 0),
            uptime_s=document["uptime_s"],
            clients=document.get("clients", {}).get("clients", 0),
            log=document.get("log", {}).get("standing", ""),
        )

    @classmethod
    def of_metrics(cls, text: str, place: str) -> Self:
        """From what Prometheus reads. Raises ValueError or KeyError for what is no node's."""
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        values = {sample.name: sample.value for sample in samples if not sample.labels}
        labels = {sample.name: sample.labels for sample in samples if sample.value == 1.0}
        node = labels["totempole_node_info"]
        return cls(
            processor=int(node["processor"]),
            place=place,
            cluster_id=int(node["cluster_id"]),
            version=node["version"],
            state=labels["totempole_state"]["state"],
            members=tuple(
                int(sample.labels["processor"])
                for sample in samples
                if sample.name == "totempole_ring_member"
            ),
            expected=int(values.get("totempole_ring_members_expected", 0)),
            missing=int(values.get("totempole_ring_members_missing", 0)),
            uptime_s=int(values.get("totempole_uptime_seconds", 0)),
            clients=int(values.get("totempole_clients", 0)),
            log=labels.get("totempole_log_standing", {}).get("standing", ""),
        )


def show_cluster(screen: Screen, places: Sequence[str], document: Document | None) -> int:
    """Of the nodes at these places; without any, of those that the node with this document knows."""
    if document is None:
        for place in places:
            _split(place)
        nodes = _ask_all([(0, [place]) for place in places])
    else:
        nodes = [Seen.of_document(document), *_others(document)]
    nodes.sort(key=lambda node: (node.processor, node.place))
    whole = is_whole(nodes)
    _show(screen, nodes, whole)
    screen.save_json({"whole": whole, "parts": parts(nodes), "nodes": [asdict(node) for node in nodes]})
    if not any(node.answered for node in nodes):
        return EXIT_TROUBLE
    return 0 if whole else EXIT_PASSING


def is_whole(nodes: Sequence[Seen]) -> bool:
    """Whether all answer, are of one cluster, and see just each other."""
    everybody = tuple(sorted({node.processor for node in nodes}))
    return (
        all(node.is_well and tuple(sorted(node.members)) == everybody for node in nodes)
        and len({node.cluster_id for node in nodes}) == 1
    )


def parts(nodes: Sequence[Seen]) -> list[list[int]]:
    """The different rings that the nodes say they are in."""
    return [list(part) for part in sorted({node.members for node in nodes if node.answered})]


def _others(document: Document) -> list[Seen]:
    me, port = str(document["processor"]), document.get("metrics", {}).get("port", 0)
    addresses: dict[str, list[str]] = dict(document.get("addresses", {}))
    for absent in document.get("expected", {}).get("absent", []):
        addresses.setdefault(str(absent["processor"]), [absent["address"]] if absent["address"] else [])
    asked = []
    for processor, known in addresses.items():
        if processor != me:
            hosts = dict.fromkeys(_split(address)[0] for address in known)
            asked.append((int(processor), [_place(host, port) for host in hosts] if port else []))
    return _ask_all(asked)


def _split(place: str) -> tuple[str, int]:
    """`10.0.0.1:9464`, `[fd00::1]:9464` or `node-1:9464`."""
    host, _, port = place.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise TotemError(f"status: --cluster {place}: give ADDRESS:PORT, like 10.0.0.1:9464")
    return host, int(port)


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _ask_all(asked: Sequence[tuple[int, list[str]]]) -> list[Seen]:
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return [*pool.map(lambda one: _ask(*one), asked)]


def _ask(processor: int, places: Sequence[str]) -> Seen:
    """At the first of these places that answers."""
    problem = NO_PORT
    for place in places:
        try:
            seen = Seen.of_metrics(_fetch(place), place)
        except (OSError, HTTPException) as error:
            problem = f"no answer: {getattr(error, 'strerror', None) or error or type(error).__name__}"
        except (ValueError, KeyError):
            problem = "an answer that is no node's"
        else:
            if processor in (0, seen.processor):
                return seen
            problem = f"processor {seen.processor} answers"
    return Seen(processor=processor, place=", ".join(places), problem=problem)


def _fetch(place: str) -> str:
    connection = HTTPConnection(*_split(place), timeout=ANSWER_S)
    try:
        connection.request("GET", "/metrics")
        data = connection.getresponse().read(ANSWER_BYTES_MAX)
    finally:
        connection.close()
    return data.decode()


# The page


def _show(screen: Screen, nodes: Sequence[Seen], whole: bool) -> None:
    shown = table("node", "asked at", "state", "sees", "missing", "up", "clients", "log", "version")
    for node in nodes:
        shown.add_row(str(node.processor or "?"), escape(node.place) or "-", *_cells(node))
    screen.print(shown)
    found = parts(nodes)
    if whole:
        screen.print(Text(f"All {len(nodes)} nodes are in one ring.", "green"))
        return
    silent = [str(node.processor or node.place) for node in nodes if not node.answered]
    if silent:
        screen.print(Text(f"! no answer from {', '.join(silent)}", "yellow"))
    if len(found) > 1:
        rings = "; ".join(" ".join(map(str, part)) or "nobody" for part in found)
        screen.print(Text(f"! {len(found)} rings are seen: {rings}", "yellow"))
    for missing, expected in sorted({(node.missing, node.expected) for node in nodes if node.missing}):
        screen.print(Text(f"! {missing} of {expected} expected members are missing", "yellow"))


def _cells(node: Seen) -> list[str]:
    if not node.answered:
        return [f"[bold red]{escape(node.problem)}[/]", *[""] * 6]
    style = "green" if node.state == OPERATIONAL else "yellow"
    return [
        f"[{style}]{escape(node.state)}[/]",
        " ".join(map(str, node.members)),
        f"{node.missing} of {node.expected}" if node.expected else "-",
        duration(node.uptime_s),
        str(node.clients),
        node.log or "-",
        escape(node.version),
    ]
