"""`totem log show` and `totem log follow`: records as lines, for eyes or as JSON."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from totempole.cli import options
from totempole.cli.event_text import on_one_line, shown
from totempole.cli.log_source import WHERE, LogSource, add_source, source_of
from totempole.client.endpoint import Reconnect
from totempole.client.log_records import Notice, Record, batch_of, notice_of
from totempole.corel.run import Change, Hold, Primary, RunKind
from totempole.corel.zones import Ordered
from totempole.errors import TotemError
from totempole.session.log_frames import OrderedRun

LAST = 20

SHOW_EXAMPLES = f"""\
examples:
  totem log show                             the last {LAST} positions of all logs
  totem log show --start 1000 --stop 1100    records at positions 1000 to 1099
  totem log show --log orders --start 0 --json
  totem log show --events                    new primaries, replicas and holds, too
  totem log show --directory /backup/log     from files

{WHERE}"""

FOLLOW_EXAMPLES = f"""\
examples:
  totem log follow                           what is ordered from now on, until Ctrl-C
  totem log follow --start 0 --log orders    all of it, then what comes
  totem log follow --json | program          an object a line

{WHERE}
It goes on at its position when the log service goes away and comes back.
"""


def add_show(parser: options.Parser) -> None:
    parser.epilog = SHOW_EXAMPLES
    _add(parser)
    parser.add_argument("--stop", type=position, metavar="POSITION", help="end before it")
    parser.set_defaults(run=run_show)


def add_follow(parser: options.Parser) -> None:
    parser.epilog = FOLLOW_EXAMPLES
    _add(parser)
    parser.set_defaults(run=run_follow)


def _add(parser: options.Parser) -> None:
    parser.add_argument("--log", default="", metavar="NAME", help="only records of this log")
    parser.add_argument("--start", type=position, metavar="POSITION", help="begin with it")
    parser.add_argument("--json", action="store_true", help="an object a line")
    parser.add_argument("--events", action="store_true", help="the log's own runs, too")
    add_source(parser)


def position(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: give a position, a whole number from 0")
    return int(text)


def run_show(arguments: argparse.Namespace) -> int:
    source = source_of(arguments)
    start, stop = arguments.start, arguments.stop
    if start is None:
        span = source.span()
        stop = span.stop if stop is None else stop
        start = max(span.first, min(stop, span.stop) - LAST)
    if stop is not None and stop <= start:
        raise TotemError(f"--stop {stop}: give a position behind --start {start}")
    return _print(source, start, stop, arguments, follow=False)


def run_follow(arguments: argparse.Namespace) -> int:
    try:
        source = source_of(arguments, Reconnect(give_up_s=None))
        return _print(source, arguments.start, None, arguments, follow=True)
    except KeyboardInterrupt:
        return 0


def _print(
    source: LogSource, start: int | None, stop: int | None, arguments: argparse.Namespace, *, follow: bool
) -> int:
    lines = json_lines if arguments.json else text_lines
    out = sys.stdout
    try:
        for ordered in source.runs(start, stop, arguments.log, follow):
            for item in items_of(ordered, start or 0, stop, arguments.log, events=arguments.events):
                out.write(lines(item))
            if follow:
                out.flush()
        out.flush()
    except BrokenPipeError:
        sys.stderr.close()  # whoever reads has had enough
    return 0


def items_of(
    ordered: Ordered, start: int, stop: int | None, log: str, *, events: bool
) -> Iterator[Record | Notice]:
    item = OrderedRun.of(ordered)
    if ordered.run.kind is not RunKind.RECORDS:
        if events:
            yield notice_of(item)
        return
    batch = batch_of(item, start, 2**63 if stop is None else stop)
    if batch is not None and (not log or batch.log == log):
        yield from batch


# Lines


def text_lines(item: Record | Notice) -> str:
    if isinstance(item, Notice):
        return f"{'-':>10}  {'':24}  {event_text(item)}\n"
    key = f" [{on_one_line(item.key)}]" if item.key else ""
    return f"{item.position:>10}  {when(item.time_us)}  {on_one_line(item.log)}{key}  {shown(item.payload)}\n"


def json_lines(item: Record | Notice) -> str:
    document = _event(item) if isinstance(item, Notice) else record_document(item)
    return json.dumps(document, ensure_ascii=False) + "\n"


def record_document(record: Record) -> dict[str, Any]:
    """One record for programs: text if it is some, else base64."""
    document: dict[str, Any] = {
        "position": record.position,
        "time": when(record.time_us),
        "log": record.log,
        "origin": record.origin,
        "run": _run_text(record.run),
    }
    if record.key:
        document["key"] = record.key
    try:
        document["text"] = record.payload.decode("utf-8")
    except UnicodeDecodeError:
        document["base64"] = base64.b64encode(record.payload).decode("ascii")
    return document


_run_text = lru_cache(256)(str)


@lru_cache(256)
def when(time_us: int) -> str:
    """All records of a run have one time."""
    at = datetime.fromtimestamp(time_us // 1_000_000, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S") + f".{time_us % 1_000_000 // 1000:03}Z"


def event_text(notice: Notice) -> str:
    content = notice.content
    if isinstance(content, Primary):
        members = ", ".join(map(str, sorted(content.disks)))
        return f"primary {content.number}: {members}{' found the log' if content.founding else ''}"
    if isinstance(content, Change):
        if not content.disk:
            return f"replica {content.processor} is removed"
        return f"replica {content.processor} is added, with weight {content.weight}"
    if content.position < 0:
        return f"reader {on_one_line(content.reader)} releases its hold"
    return f"reader {on_one_line(content.reader)} holds from position {content.position} on"


def _event(notice: Notice) -> dict[str, Any]:
    content = notice.content
    document: dict[str, Any] = {"before_position": notice.position, "run": str(notice.run)}
    match content:
        case Primary():
            return document | {"event": "primary", "number": content.number, "members": sorted(content.disks)}
        case Change():
            weight = content.weight if content.disk else 0
            return document | {"event": "change", "processor": content.processor, "weight": weight}
        case Hold():
            return document | {"event": "hold", "reader": content.reader, "position": content.position}
