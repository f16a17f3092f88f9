"""`totem log state`: an object as it was, from a snapshot and the log behind it."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.text import Text

from totempole.cli import options
from totempole.cli.event_text import on_one_line, shown
from totempole.cli.log_show import position, when
from totempole.cli.log_source import WHERE, add_source, source_of
from totempole.cli.object_log import (
    CLASS_HELP,
    ObjectLog,
    check_object_name,
    load_class,
    plain,
    state_of,
)
from totempole.cli.output import Screen, table
from totempole.client.log_records import Record
from totempole.errors import CannotCarryError, CodecError, LogDamagedError, ObjectError, TotemError
from totempole.log.snapshots import StoredHead
from totempole.objects import records
from totempole.objects.codec import Codec
from totempole.objects.machine import (
    Event,
    ObjectMachine,
    ObjectOpened,
    RecordIgnored,
    StateNotCarried,
    Upgraded,
    UpgradeRefused,
)
from totempole.objects.records import Calls, Digest, Knows, Opened, Upgrade
from totempole.objects.snapshot_transfer import SnapshotError

COMMANDS_SHOWN = 20
SEARCH_POSITIONS = 10_000
"""Positions before the one that is asked for in which commands are looked for, without the class."""

EXAMPLES = f"""\
examples:
  totem log state bank --class bank:Bank                    the object as it is
  totem log state bank --class bank:Bank --at 120000        as it was after the record at position 120,000
  totem log state bank --class bank:Bank --json -           for programs
  totem log state bank --at 120000                          without the class: the commands before that
  totem log state bank --class bank:Bank --directory /backup/log

The newest snapshot before the position is read, and the log from there on; nothing is written. The class is
imported: its code runs here. A position before the oldest snapshot of a trimmed log cannot be shown.

{WHERE}"""


def add_state(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("object", type=check_object_name, metavar="OBJECT", help="its name")
    parser.add_argument("--class", dest="cls", metavar="MODULE:CLASS", help=CLASS_HELP)
    parser.add_argument(
        "--at", type=position, metavar="POSITION", help="the last record that counts (default: the end)"
    )
    options.add_json(parser, "the same as data")
    add_source(parser)
    parser.set_defaults(run=run_state)


def run_state(arguments: argparse.Namespace) -> int:
    cls = load_class(arguments.cls) if arguments.cls else None
    screen = Screen(arguments.json)
    source = source_of(arguments)
    log = ObjectLog(arguments.object, source, arguments.directory or "the log service")
    end = log.span.stop
    stop = end if arguments.at is None else arguments.at + 1
    if stop > end:
        raise TotemError(f"--at {arguments.at}: the log ends before position {end}")
    if cls is None:
        return _show_commands(screen, log, stop)
    machine, head = machine_at(log, cls, stop)
    document = _document(log, machine, head, stop)
    screen.save_json(document)
    _print(screen, document)
    return 0


def machine_at(log: ObjectLog, cls: type[Any], stop: int) -> tuple[ObjectMachine[Any], StoredHead | None]:
    """The object with all records before `stop`, and the snapshot that it began with. One that cannot be read
    is passed over. Raises ObjectError, ObjectTrimmedError."""
    problems: list[TotemError] = []
    for head in [each for each in log.heads() if each.position <= stop] + [None]:
        if head is None and problems and log.span.first > 0:
            break
        try:
            start = log.start(head)
            machine = log.machine(cls, head)
        except (SnapshotError, LogDamagedError) as error:
            problems.append(error)
            continue
        if head is None and start >= stop > 0:
            raise TotemError(
                f"position {stop - 1} is trimmed: the log begins with position {start}, and no snapshot is "
                "as old"
            )
        for record in log.records(start, stop):
            machine.apply(record.payload, record.position, record.time_us)
        if not machine.version:
            raise ObjectError(f"there is no object {log.name!r} before position {stop} in {log.where}")
        return machine, head
    raise problems[-1]


def _document(
    log: ObjectLog, machine: ObjectMachine[Any], head: StoredHead | None, stop: int
) -> dict[str, Any]:
    return {
        "object": log.name,
        "class": machine.name,
        "version": machine.version,
        "at": stop - 1,
        "last_record": machine.applied - 1,
        "time": when(machine.time_us),
        "commands": machine.commands,
        "digest": machine.digest().hex(),
        "snapshot": head.position if head is not None else None,
        "events": [
            _event_text(event) for event in machine.take_events() if not isinstance(event, ObjectOpened)
        ],
        "state": state_of(machine),
    }


def _event_text(event: Event) -> str:
    match event:
        case RecordIgnored(where, why):
            return f"the record at position {where} was passed over: {why}"
        case Upgraded(before, version, where):
            return f"upgraded from version {before} to {version} at position {where}"
        case UpgradeRefused(version, why):
            return f"the upgrade to version {version} was refused: {why}"
        case StateNotCarried(where, why):
            return f"no digest could be taken at position {where}: {why}"
        case _:
            return str(event)


def _print(screen: Screen, document: dict[str, Any]) -> None:
    base = document["snapshot"]
    began = "the beginning of its log" if base is None else f"a snapshot at position {base:,}"
    screen.long(
        f"object {on_one_line(document['object'])}, class {document['class']} version {document['version']}, "
        f"after position {document['at']:,}: {document['commands']:,} commands, the last record at "
        f"{document['last_record']:,}, {document['time']}; from {began}"
    )
    for event in document["events"]:
        screen.print(Text(f"! {event}", "yellow"))
    state = document["state"]
    rows = state.items() if isinstance(state, dict) else [("", state)]
    for name, value in rows:
        screen.long(f"{name} = {_folded(value)}" if name else _folded(value))


def _folded(value: Any) -> str:
    """On one line, if it is short."""
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= 100 else json.dumps(value, indent=2, ensure_ascii=False)


# Without the class


def _show_commands(screen: Screen, log: ObjectLog, stop: int) -> int:
    start = max(log.span.first, stop - SEARCH_POSITIONS)
    found = list(log.records(start, stop))[-COMMANDS_SHOWN:]
    rows = [row for record in found for row in command_rows(record)]
    class_name = next((head.class_name for head in log.heads()), "") or next(
        (row["class"] for row in rows if "class" in row), ""
    )
    screen.save_json({"object": log.name, "at": stop - 1, "class": class_name or None, "commands": rows})
    shown_rows = table("position", "time", "client", "", right=("position",))
    for row in rows:
        shown_rows.add_row(f"{row['position']:,}", row["time"], Text(row["who"]), Text(row["text"]))
    screen.print(shown_rows)
    if not rows:
        screen.long(f"no records of object {log.name} from position {start:,} to {stop - 1:,}")
    named = f" (its name is {class_name})" if class_name else ""
    screen.long(
        f"These are the commands before position {stop:,}. To see the state, name the object's class{named}: "
        "--class MODULE:CLASS"
    )
    return 0


def command_rows(record: Record) -> list[dict[str, Any]]:
    """A row for each call of a record, or one for what else it is."""
    row: dict[str, Any] = {"position": record.position, "time": when(record.time_us), "who": ""}
    try:
        content = records.decode(record.payload)
    except (CodecError, ObjectError) as error:
        return [row | {"text": f"no record of an object: {error}"}]
    match content:
        case Calls():
            return [
                row
                | {
                    "who": f"{on_one_line(content.client)}#{call.number}",
                    "method": call.method,
                    "arguments": _arguments(call.arguments),
                    "text": f"{on_one_line(call.method)}({_listed(call.arguments)})",
                }
                for call in content.calls
            ]
        case Opened():
            return [
                row
                | {
                    "class": content.name,
                    "text": f"opened as {on_one_line(content.name)} version {content.version}",
                }
            ]
        case Knows():
            text = f"knows version {content.version}" if content.version else "closes the object"
            return [row | {"who": on_one_line(content.host), "text": text}]
        case Upgrade():
            return [row | {"text": f"upgrade to version {content.version}"}]
        case Digest():
            counts = ", ".join(str(each.commands) for each in content.checkpoints)
            return [row | {"who": on_one_line(content.host), "text": f"digest after {counts} commands"}]


_any: Codec[Any] = Codec()


def _arguments(content: bytes) -> Any:
    try:
        return plain(_any.decode(content))
    except CannotCarryError:
        return plain(content)


def _listed(content: bytes) -> str:
    found = _arguments(content)
    if not isinstance(found, list):
        return shown(content)
    return on_one_line(", ".join(json.dumps(each, ensure_ascii=False) for each in found))
