"""`totem load`: messages at a rate to real nodes, a latency table while it runs, and a verdict at the end."""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

from rich.live import Live
from rich.table import Table

import totempole
from totempole.bench.load import Driver, Plan, Result, Tally
from totempole.bench.load_check import STAMP_BYTES
from totempole.cli import options
from totempole.cli.output import Screen, table
from totempole.cli.reaching import WHERE, add_daemons, daemons_of, remarks
from totempole.cli.status import micros
from totempole.client.protocol import PolicyName
from totempole.errors import TotemError
from totempole.types import Service

T = TypeVar("T")

ROWS_SHOWN = 15
WRONG_SHOWN = 20
QUICK_S = 2.0
SECONDS = 10.0
RATE_PER_S = 1_000.0

COLUMNS = (
    *("second", "accepted", "delivered", "messages/s", "MB/s", "p50", "p90", "p99", "max"),
    *("push-back", "views", "shed"),
)
WIDTH = 11
"""Of a column, where lines are plain."""

EXAMPLES = f"""\
examples:
  totem load                                   1,000 messages of 64 bytes a second, for ten seconds
  totem load --rate 20k --size 64..1500        faster, of any size between the two
  totem load --saturate --seconds 60           as many as the ring takes
  totem load --size 64:9,65536:1               nine small messages for each large one
  totem load --service agreed:4,safe:1         every fifth message is safe
  totem load --socket a.sock --socket b.sock   a client of each of two daemons
  totem load --clients 10 --count 100000       ten clients, so many messages in all

{WHERE}
Give --socket, --config or --host several times for several daemons.

Each client is a member of the group and receives the messages of all. The latency is the time from the call
that sends a message until it comes back to its sender. Push-back is the share of time that calls waited to be
accepted. Ctrl-C stops sending; what was accepted is waited for, unless Ctrl-C comes again.

Exits 0 when everything that was accepted was delivered to all clients exactly once, in order, unchanged;
1 when not: lines say what was lost, repeated, out of order or damaged.
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("group", nargs="?", default="load", metavar="GROUP", help="where to (default: load)")
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--rate", type=rate, default=RATE_PER_S, metavar="N[/s]", help="messages a second, of all clients"
    )
    pace.add_argument("--saturate", action="store_true", help="as many as are accepted")
    add(
        "--size", type=sizes, default=sizes("64"), metavar="BYTES", help="64, 64..1500, or a mix: 64:9,1500:1"
    )
    add(
        "--service",
        type=services,
        default=services("agreed"),
        metavar="SERVICE",
        help="agreed, safe, or a mix: agreed:4,safe:1",
    )
    add("--seconds", type=options.seconds, metavar="S", help=f"how long (default {SECONDS:g})")
    add("--count", type=options.at_least_one, metavar="N", help="messages of all clients, at most")
    add("--clients", type=options.at_least_one, metavar="N", help="in all (default: one for each daemon)")
    add("--policy", choices=get_args(PolicyName), default="block", help="for a client that is too slow")
    add(
        "--drain", type=options.seconds, default=10.0, metavar="S", help="wait so long for what does not come"
    )
    options.add_judging(parser, quick=f"{QUICK_S:g} seconds, and the summary only")
    add_daemons(parser)
    parser.set_defaults(run=run_load)


def run_load(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    daemons = daemons_of(arguments)
    plan = _plan(arguments, len(daemons))
    with remarks(), _showing(screen, plan, brief=arguments.quick) as tell:
        result = totempole.run(_drive(plan, daemons, tell))
    _show(screen, plan, result)
    screen.save_json(_data(plan, len(daemons), result))
    return 1 if result.wrong else 0


def _plan(arguments: argparse.Namespace, daemons: int) -> Plan:
    clients = arguments.clients or daemons
    if clients < daemons:
        raise TotemError(f"load: --clients {clients} for {daemons} daemons: give at least {daemons}")
    return Plan(
        group=arguments.group,
        rate_per_s=None if arguments.saturate else arguments.rate,
        sizes=arguments.size,
        services=arguments.service,
        seconds=_seconds(arguments),
        count=arguments.count,
        clients=clients,
        policy=arguments.policy,
        drain_s=arguments.drain,
    )


def _seconds(arguments: argparse.Namespace) -> float:
    """As told; a number of messages alone has all the time that it needs."""
    if arguments.seconds is not None:
        return float(arguments.seconds)
    if arguments.quick:
        return QUICK_S
    return float("inf") if arguments.count else SECONDS


async def _drive(plan: Plan, daemons: list[dict[str, Any]], tell: Callable[[Tally], None]) -> Result:
    driver = Driver(plan, tell)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, driver.stop)
    return await driver.run(daemons)


# What is given


def rate(text: str) -> float:
    """`1000`, `1000/s`, `20k/s`: messages a second."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?)(k?)(?:/s)?", text)
    value = float(found[1]) * (1000 if found[2] else 1) if found else 0.0
    if not value:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a rate: give messages a second, like 1000/s or 20k/s"
        )
    return value


def sizes(text: str) -> tuple[tuple[range, float], ...]:
    """`64`, `64..1500`, or several of these with weights: `64:9,1500..9000:1`."""
    return _mix(text, _range_of_bytes)


def _range_of_bytes(text: str) -> range:
    low, _, high = text.partition("..")
    high = high or low
    if not low.isdecimal() or not high.isdecimal() or not STAMP_BYTES <= int(low) <= int(high):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size: give bytes, like 64 or 64..1500, of at least {STAMP_BYTES}"
        )
    return range(int(low), int(high) + 1)


def services(text: str) -> tuple[tuple[Service, float], ...]:
    """`agreed`, `safe`, or both with weights: `agreed:4,safe:1`."""
    return _mix(text, _service)


def _service(text: str) -> Service:
    found = {service.name.lower(): service for service in Service}
    if text not in found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a service: give {' or '.join(found)}")
    return found[text]


def _mix(text: str, part: Callable[[str], T]) -> tuple[tuple[T, float], ...]:
    parts = []
    for word in text.split(","):
        what, colon, weight = word.partition(":")
        if colon and not (re.fullmatch(r"\d+(\.\d*)?", weight) and float(weight)):
            raise argparse.ArgumentTypeError(f"{word!r}: {weight!r} is not a weight: give a number above 0")
        parts.append((part(what), float(weight) if colon else 1.0))
    return tuple(parts)


# What is shown


@contextmanager
def _showing(screen: Screen, plan: Plan, brief: bool) -> Iterator[Callable[[Tally], None]]:
    """A table that grows and scrolls, on a terminal; elsewhere a line a second."""
    if brief:
        yield lambda tally: None
    elif not screen.out.is_terminal:
        screen.long("".join(column.rjust(WIDTH) for column in COLUMNS))
        rows: list[Tally] = []
        yield lambda tally: _print_line(screen, plan, rows, tally)
    else:
        with Live(_table(plan, []), console=screen.out, auto_refresh=False) as live:
            yield _LiveTable(plan, live).add


class _LiveTable:
    def __init__(self, plan: Plan, live: Live) -> None:
        self._plan, self._live = plan, live
        self._rows: list[Tally] = []

    def add(self, tally: Tally) -> None:
        self._rows.append(tally)
        self._live.update(_table(self._plan, self._rows), refresh=True)


def _print_line(screen: Screen, plan: Plan, rows: list[Tally], tally: Tally) -> None:
    rows.append(tally)
    screen.long("".join(cell.rjust(WIDTH) for cell in _cells(plan, str(len(rows)), tally)))


def _table(plan: Plan, rows: list[Tally]) -> Table:
    shown = table(*COLUMNS, right=COLUMNS)
    first = max(0, len(rows) - ROWS_SHOWN)
    for number, tally in enumerate(rows[first:], first + 1):
        shown.add_row(*_cells(plan, str(number), tally))
    total = Tally()
    for tally in rows:
        total.add(tally)
    shown.add_section()
    shown.add_row(*_cells(plan, "all", total), style="bold")
    return shown


def _cells(plan: Plan, name: str, tally: Tally) -> tuple[str, ...]:
    data = tally.data(plan.clients)
    times = [_time(data["latency_us"][mark]) for mark in ("p50", "p90", "p99", "max")]
    return (
        *(name, f"{tally.accepted:,}", f"{tally.delivered:,}", f"{data['messages_per_s']:,.0f}"),
        *(f"{data['bytes_per_s'] / 1e6:,.2f}", *times, f"{data['push_back']:.0%}"),
        *(f"{tally.views:,}", f"{tally.shed:,}"),
    )


def _time(value_us: int | None) -> str:
    return "-" if value_us is None else micros(value_us)


def _show(screen: Screen, plan: Plan, result: Result) -> None:
    total = result.total
    data = total.data(plan.clients)
    for line in result.wrong[:WRONG_SHOWN]:
        screen.long(f"! {line}")
    if len(result.wrong) > WRONG_SHOWN:
        screen.long(f"! and {len(result.wrong) - WRONG_SHOWN:,} more of these")
    latency = ", ".join(f"{name} {_time(value)}" for name, value in data["latency_us"].items())
    screen.long(
        f"{total.accepted:,} messages of {_count(plan.clients, 'client')} accepted, {total.delivered:,} came "
        f"back in {total.seconds:.1f} s: {data['messages_per_s']:,.0f} messages/s, "
        f"{data['bytes_per_s'] / 1e6:,.2f} MB/s"
    )
    screen.long(f"latency {latency}; push-back {data['push_back']:.1%} of the time")
    screen.long(
        f"{total.received:,} receptions by all clients, {_count(total.views, 'view')}, {total.shed:,} shed, "
        f"{_count(total.reconnects, 'reconnect')}, {result.foreign:,} messages of others"
    )
    screen.long(
        "FAILS" if result.wrong else "holds: all that was accepted was delivered exactly once, in order"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _data(plan: Plan, daemons: int, result: Result) -> dict[str, Any]:
    return {
        "group": plan.group,
        "rate_per_s": plan.rate_per_s,
        "clients": plan.clients,
        "daemons": daemons,
        "holds": not result.wrong,
        "wrong": list(result.wrong),
        "total": result.total.data(plan.clients),
        "seconds": [tally.data(plan.clients) for tally in result.seconds],
        "foreign": result.foreign,
    }
