"""The benchmarks on real sockets, behind `totem bench`: tables of medians over several rounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from statistics import median
from typing import Any, TypeVar

from rich.table import Table

from totempole.bench import compare, corosync, endurance, lan100, limit, scale
from totempole.cli import options
from totempole.cli.output import Screen, table
from totempole.errors import TotemError
from totempole.lab import missing

PEERS = ("corosync",)
P = TypeVar("P", compare.Plan, limit.Plan, lan100.Plan, scale.Plan)
MINUTES = {"calm": 10.0, "soak": 60.0}
QUICK_MINUTES = 0.25


def add(benches: options.Verbs) -> None:
    comparing = _bench(benches, "compare", "measure beside another system, in one run", run_compare)
    comparing.add_argument("peer", choices=PEERS, help="the system to compare with")
    limiting = _bench(
        benches, "limit", "our share of what a raw UDP pump moves between the same hosts", run_limit
    )
    lan = _bench(
        benches, "lan100", "everyone sending on a LAN of 100 Mbit/s: how much is payload", run_lan100
    )
    scaling = _bench(benches, "scale", "2 to 8 nodes on one machine: throughput, rotation, CPU", run_scale)
    for parser in (comparing, limiting, lan, scaling):
        parser.add_argument("--rounds", type=options.at_least_one, metavar="N", help="medians over N rounds")
    for name, summary in (
        ("calm", "full load on busy cores: no configuration may change"),
        ("soak", "full load for long: no node's memory may grow"),
    ):
        parser = _bench(benches, name, summary, run_endurance, bench=name)
        parser.add_argument("--minutes", type=float, default=MINUTES[name], help=f"default {MINUTES[name]:g}")


def _bench(
    benches: options.Verbs, name: str, summary: str, run: Callable[..., int], **defaults: str
) -> argparse.ArgumentParser:
    parser = options.verb(benches, name, summary)
    options.add_judging(parser, quick="one short round")
    parser.set_defaults(run=run, **defaults)
    return parser


def _plan(arguments: argparse.Namespace, quick: P, full: P) -> P:
    plan = quick if arguments.quick else full
    return replace(plan, rounds=arguments.rounds) if arguments.rounds else plan


@contextmanager
def _counting(screen: Screen, total: int) -> Iterator[Callable[[str], None]]:
    reason = missing()
    if reason:
        raise TotemError(f"hosts are network namespaces here: {reason}")
    with screen.progress("measuring", total) as advance:
        done = 0

        def tell(note: str) -> None:
            nonlocal done
            advance(done, note)
            done += 1

        yield tell


# compare


def run_compare(arguments: argparse.Namespace) -> int:
    reason = corosync.missing()
    if reason:
        raise TotemError(f"corosync cannot be measured here: {reason}")
    screen = Screen(arguments.json)
    plan = _plan(arguments, compare.QUICK, compare.Plan())
    with _counting(screen, plan.steps) as tell:
        samples = compare.measure(plan, tell)
    for sealed in plan.encrypted:
        screen.print(_rates_table(samples, plan, sealed))
        screen.print()
    screen.print(_latency_table(samples))
    screen.print()
    screen.print(_failover_table(samples))
    screen.save_json(_compare_data(samples, plan))
    return 0


def _rates_table(samples: compare.Samples, plan: compare.Plan, sealed: bool) -> Table:
    variants = ["agreed", "safe"] + ([] if sealed else ["cut"])
    heads = {"agreed": "agreed/s", "safe": "safe/s", "cut": "gso_max_segs 1"}
    columns = ["corosync/s", "MB/s", "by"]
    for variant in variants:
        columns += [heads[variant], "MB/s", "ratio"]
    title = f"Ordered messages a second, {compare.HOSTS} nodes, one sender, "
    title += "encrypted" if sealed else "not encrypted"
    shown = table("bytes", *columns, title=title, right=tuple(column for column in columns if column != "by"))
    for size in plan.sizes:
        transport, theirs = samples.best_of_theirs(sealed, size)
        cells = [f"{theirs:,.0f}", f"{theirs * size / 1e6:.1f}", transport]
        for variant in variants:
            rate = median(samples.ours[sealed, variant, size])
            cells += [f"{rate:,.0f}", f"{rate * size / 1e6:.1f}", f"{rate / theirs:.1f}"]
        shown.add_row(str(size), *cells)
    return shown


def _latency_table(samples: compare.Samples) -> Table:
    names = tuple(f"p{percent:g} µs" for percent in compare.PERCENTILES)
    title = f"From send to own delivery, {compare.LATENCY_RATE} messages/s of {compare.LATENCY_BYTES} bytes"
    shown = table("system", *names, title=title, right=names)
    for name, rounds in _latencies(samples).items():
        shown.add_row(name, *(f"{value:,.0f}" for value in rounds))
    return shown


def _latencies(samples: compare.Samples) -> dict[str, list[float]]:
    rows = {f"corosync {name}": rounds for name, rounds in samples.their_latencies_us.items()}
    rows["totempole"] = samples.our_latencies_us
    return {
        name: [
            median(compare.percentile(latencies, percent) for latencies in rounds)
            for percent in compare.PERCENTILES
        ]
        for name, rounds in rows.items()
    }


def _failover_table(samples: compare.Samples) -> Table:
    names = ("median ms", "slowest ms")
    shown = table("system", *names, title="From kill -9 to the next configuration at the others", right=names)
    for name, times in _failovers(samples).items():
        shown.add_row(name, f"{median(times):,.0f}", f"{max(times):,.0f}")
    return shown


def _failovers(samples: compare.Samples) -> dict[str, list[float]]:
    rows = {f"corosync {name}": times for name, times in samples.their_failovers_ms.items()}
    return {**rows, "totempole": samples.our_failovers_ms}


def _compare_data(samples: compare.Samples, plan: compare.Plan) -> dict[str, Any]:
    return {
        "throughput": [
            {
                "encrypted": sealed,
                "bytes": size,
                "corosync": {
                    transport: rounds
                    for (encrypted, transport, bytes_), rounds in samples.theirs.items()
                    if encrypted == sealed and bytes_ == size
                },
                "totempole": {
                    variant: rounds
                    for (encrypted, variant, bytes_), rounds in samples.ours.items()
                    if encrypted == sealed and bytes_ == size
                },
            }
            for sealed in plan.encrypted
            for size in plan.sizes
        ],
        "latency_us": {
            name: dict(zip(map(str, compare.PERCENTILES), values, strict=True))
            for name, values in _latencies(samples).items()
        },
        "failover_ms": _failovers(samples),
    }


# limit, lan100, scale


def run_limit(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    plan = _plan(arguments, limit.QUICK, limit.Plan())
    with _counting(screen, 2 * plan.rounds) as tell:
        shares = limit.measure(plan, tell)
    names = ("pump MB/s", "totempole MB/s", "share")
    shown = table("bytes", *names, title="Beside a raw UDP pump, one sender, three receivers", right=names)
    for one in shares:
        rates = (f"{one.pump_bytes_per_s / 1e6:,.0f}", f"{one.ours_bytes_per_s / 1e6:,.0f}")
        shown.add_row(str(one.message_bytes), *rates, f"{one.share:.0%}")
    screen.print(shown)
    screen.save_json([{**asdict(one), "share": one.share} for one in shares])
    return 0


def run_lan100(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    plan = _plan(arguments, lan100.QUICK, lan100.Plan())
    with _counting(screen, plan.rounds * len(plan.nodes)) as tell:
        shares = lan100.measure(plan, tell)
    names = ("payload Mbit/s", "of the link", "raw pump Mbit/s", "of the pump")
    title = "One shared medium of 100 Mbit/s, everyone sending 1 KB messages"
    shown = table("nodes", *names, title=title, right=names)
    for one in shares:
        shown.add_row(
            str(one.nodes),
            f"{one.payload_bytes_per_s * 8 / 1e6:.1f}",
            f"{one.of_link:.1%}",
            f"{one.pump_bytes_per_s * 8 / 1e6:.1f}",
            f"{one.of_pump:.1%}",
        )
    screen.print(shown)
    screen.save_json([{**asdict(one), "of_link": one.of_link, "of_pump": one.of_pump} for one in shares])
    return 0


def run_scale(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    plan = _plan(arguments, scale.QUICK, scale.Plan())
    with _counting(screen, len(plan.nodes)) as tell:
        sizes = scale.measure(plan, tell)
    names = ("messages/s", "MB/s", "rotation µs", "CPU µs/delivery", "idle CPU/node")
    title = f"One sender, messages of {scale.MESSAGE_BYTES} bytes, all nodes on this machine"
    shown = table("nodes", *names, title=title, right=names)
    for one in sizes:
        shown.add_row(
            str(one.nodes),
            f"{one.messages_per_s:,.0f}",
            f"{one.messages_per_s * scale.MESSAGE_BYTES / 1e6:,.0f}",
            f"{one.rotation_us:,.0f}",
            f"{one.cpu_us_per_delivery:.2f}",
            f"{one.idle_cpu_share:.1%}",
        )
    screen.print(shown)
    screen.save_json([asdict(one) for one in sizes])
    return 0


# calm, soak


def run_endurance(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    busy = arguments.bench == "calm"
    seconds = 60.0 * (QUICK_MINUTES if arguments.quick else arguments.minutes)
    reason = missing()
    if reason:
        raise TotemError(f"hosts are network namespaces here: {reason}")
    with screen.progress(arguments.bench, round(seconds)) as advance:
        result = endurance.endure(seconds, busy, lambda at_s: advance(round(at_s), ""))
    holds = result.changes == 0 and (busy or result.flat)
    screen.print(_endurance_table(result))
    screen.print(f"[bold {'green' if holds else 'red'}]{'holds' if holds else 'does not hold'}[/]")
    screen.save_json({"holds": holds, "readings": [asdict(reading) for reading in result.readings]})
    return 0 if holds else 1


def _endurance_table(result: endurance.Endurance) -> Table:
    shown = table("what", "value", title="Four nodes at full load", right=("value",))
    last = result.readings[-1]
    shown.add_row("seconds", f"{last.at_s:,.0f}")
    shown.add_row("messages/s, median", f"{result.messages_per_s:,.0f}")
    shown.add_row("configuration changes", str(result.changes))
    shown.add_row("retransmissions", f"{last.retransmissions:,}")
    shown.add_row("longest lag, ms", f"{last.lag_ms_max:,.1f}")
    shown.add_row("largest node, MiB", f"{result.resident_bytes_max / 2**20:,.1f}")
    shown.add_row("growth, last third over first", f"{result.growth:.3f}")
    return shown
