"""`totem log status`: what a replica of the durable log has, who votes, who is missing, and who lags."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from totempole.cli import options
from totempole.cli.event_text import on_one_line
from totempole.cli.log_show import when
from totempole.cli.log_source import Span, log_directory
from totempole.cli.log_warnings import log_warnings
from totempole.cli.output import Screen, table
from totempole.client.blocking_log_reader import LogReader as ServiceReader
from totempole.client.endpoint import Endpoint
from totempole.errors import TotemError
from totempole.log.reader import LogReader
from totempole.log.segments import segment_name, segment_numbers
from totempole.runtime.node_log import fences_document
from totempole.runtime.status import StatusError, read_status

EXAMPLES = """\
examples:
  totem log status                       the node at TOTEMPOLE_SOCKET, or in /var/lib/totempole
  totem log status --config node.toml    the node with these settings
  totem log status --directory DIR       a node's directory, or that of a log: also without a node, or a copy
  totem log status --json -              the same for programs

Exits 0 when the replica is in a primary component, so that records become green, and no replica is missing; 1
when that is not so, or no node runs; 2 when there is no log.
"""

PRIMARY = "primary"
FENCES_NAMED = 5
Document = dict[str, Any]


def add_status(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    options.add_node(parser)
    options.add_json(parser, "the same as data")
    parser.set_defaults(run=run_status)


def run_status(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    document = read_document(arguments)
    screen.save_json(document)
    screen.print(page(document))
    return 0 if document["standing"] == PRIMARY and not document["missing"] else 1


def read_document(arguments: argparse.Namespace) -> Document:
    """What the node says of its log, with what its files and its log service add; without a node, what the
    files say."""
    directory = options.directory_of(arguments, "log")
    if segment_numbers(directory) if directory.is_dir() else False:
        return of_files(directory)
    try:
        status = read_status(directory)
    except StatusError:
        if not (directory / "log").is_dir():
            raise
        return of_files(log_directory(str(directory)))
    log = status.get("log")
    if not log:
        raise TotemError(f"node {status.get('processor')} keeps no log: set enabled = true in [log]")
    document = {"processor": status.get("processor"), "cluster_id": status.get("cluster_id"), **log}
    return document | _of_service(log)


def _of_service(log: Document) -> Document:
    """What only the log service knows: what is kept, and how far it has read."""
    service = log.get("service") or {}
    if not service.get("socket"):
        return {}
    with suppress(TotemError):
        told = ServiceReader([Endpoint(path=service["socket"])], name="totem log status").status()
        return {
            "first_position": told.first,
            "segments": told.segments,
            "bytes": told.bytes,
            "time_us": told.time_us,
            "rule": told.rule,
            "readers": told.readers,
            "service_position": told.position,
        }
    return {"service_position": None}


def of_files(directory: Path) -> Document:
    """Of a log without its node."""
    reader = LogReader(directory)
    headers = reader.headers()
    if not headers:
        raise TotemError(f"{directory} has no log in it: name the directory of a node's log, or a copy of it")
    with reader.at_end() as cursor:
        zones = cursor.zones
    size = sum((directory / segment_name(header.number)).stat().st_size for header in headers)
    red_bytes = zones.red_bytes
    return {
        "processor": headers[-1].processor,
        "cluster_id": headers[-1].cluster,
        "standing": "stopped",
        "failure": "",
        "log": f"{zones.log:016x}",
        "disk": f"{zones.disk:016x}",
        "primary": zones.committed.number,
        "members": list(zones.committed.members),
        "behind": [],
        "first_position": headers[0].position,
        "position": zones.position,
        "time_us": zones.time_us,
        "green_runs": zones.green_runs,
        "yellow_runs": len(zones.yellow),
        "yellow_bytes": zones.pending_bytes - red_bytes,
        "red_runs": len(zones.red),
        "red_bytes": red_bytes,
        "rule": zones.replicas.rule,
        "replicas": [
            {"processor": who, "disk": f"{voter.disk:016x}", "weight": voter.weight, "is_present": None}
            for who, voter in sorted(zones.replicas.voters.items())
        ],
        "missing": [],
        "holds": dict(sorted(zones.holds.items())),
        "fences": fences_document(zones.fences),
        "alarms": {},
        "last_alarm": "",
        "segments": len(headers),
        "bytes": size,
        "service": None,
    }


# The page


def page(document: Document) -> RenderableType:
    shown = table("", "")
    shown.show_header = False
    is_well = document["standing"] == PRIMARY
    for name, text in rows(document):
        style = "" if name != "standing" else "bold green" if is_well else "bold yellow"
        shown.add_row(Text(name, "dim"), Text(text, style))
    return Group(shown, Text(""), replicas(document), *map(_warning, warnings(document)))


def _warning(text: str) -> Text:
    return Text(f"! {text}", "yellow")


def rows(document: Document) -> Iterator[tuple[str, str]]:
    yield "replica", f"{document['processor']} of cluster {document['cluster_id']}, disk {document['disk']}"
    yield "standing", STANDINGS.get(document["standing"], str(document["standing"]))
    yield "log", f"{document['log']}, {document.get('rule', 'majority')} voting"
    members = ", ".join(map(str, document["members"])) or "none"
    yield "primary", f"{document['primary']}, members {members}"
    yield "green", _green(document)
    yield (
        "pending",
        (
            f"{document['yellow_runs']:,} yellow runs ({document['yellow_bytes']:,} bytes), "
            f"{document['red_runs']:,} red ({document['red_bytes']:,} bytes)"
        ),
    )
    if "segments" in document:
        yield "disk", f"{document['segments']:,} segments, {document['bytes']:,} bytes"
    if document["holds"]:
        holds = sorted(document["holds"].items(), key=lambda hold: hold[1])
        yield "holds", ", ".join(f"{on_one_line(reader)} from {where:,} on" for reader, where in holds)
    fences = document.get("fences") or {"count": 0}
    if fences["count"]:
        yield "fences", _fences(fences)
    service = document.get("service")
    if service:
        yield "service", _service(document, service)


def _green(document: Document) -> str:
    position = document["position"]
    first = document.get("first_position")
    kept = f"records before position {position:,}" if first is None else str(Span(first, position))
    last = f", the last of {when(document['time_us'])}" if document.get("time_us") else ""
    return f"{kept}, in {document['green_runs']:,} runs{last}"


def _fences(fences: Document) -> str:
    """The marks that were moved last. A mark is moved by the records that it lets in."""
    words = [
        f"{on_one_line(each['name'])} at {each['number']:,}"
        + (f" (position {each['position']:,})" if each["position"] >= 0 else "")
        for each in fences["latest"][:FENCES_NAMED]
    ]
    more = fences["count"] - len(words)
    return ", ".join(words) + (f" and {more:,} more" if more else "")


def _service(document: Document, service: Document) -> str:
    position = document.get("service_position")
    if position is None:
        return f"does not answer at {service['socket']}; {service['restarts']} restarts"
    lag = max(0, document["position"] - position)
    where = " and ".join(filter(None, (service["socket"], service["listen"])))
    return f"{where}: {document['readers'] - 1:,} readers, {lag:,} positions behind"


def replicas(document: Document) -> RenderableType:
    shown = table("replica", "disk", "weight", "", "lag (runs)", right=("weight", "lag (runs)"))
    for each in document["replicas"]:
        there = {True: "connected", False: "missing", None: ""}[each["is_present"]]
        lag = each.get("unacknowledged_runs")
        shown.add_row(
            str(each["processor"]),
            each["disk"],
            str(each["weight"]),
            Text(there, "bold red" if each["is_present"] is False else ""),
            "" if lag is None else f"{lag:,}",
        )
    voters = {each["processor"] for each in document["replicas"]}
    for who in document["behind"]:
        shown.add_row(str(who), "", "", "catches up", "")
    for who in document["members"]:
        if who not in voters:
            shown.add_row(str(who), "", "", "no vote", "")
    return shown


STANDINGS = {
    PRIMARY: "primary: records become green",
    "minority": "minority: records wait (red) until a majority of the replicas is connected",
    "forming": "forming: the replicas agree on what they have",
    "behind": "behind: it fetches what the others have ordered",
    "closed": "closed: this node has no log open",
    "stopped": "not known: this is what the files say, without a node",
}


def warnings(document: Document) -> Iterator[str]:
    if document["failure"]:
        yield f"the log has failed: {document['failure']}"
    if document["missing"]:
        names = ", ".join(map(str, document["missing"]))
        yield f"replicas are missing: {names}; put another in the place of one: totem log replace"
    yield from log_warnings(document)
    if document["last_alarm"]:
        yield document["last_alarm"]
    if document.get("service") and document.get("service_position") is None:
        yield "the log service does not answer: nobody can read this replica"
