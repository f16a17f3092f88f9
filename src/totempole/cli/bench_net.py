"""The benchmarks on real sockets, behind `totem bench`: tables of medians over several rounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, replace
from statistics import median

from rich.table import Table

from totempole.bench import clients, endurance, failover, lan100, limit, scale
from totempole.cli import options
from totempole.cli.bench_compare import PEERS, run_compare
from totempole.cli.bench_redundant import run_redundant
from totempole.cli.bench_rounds import chosen_plan, counting
from totempole.cli.output import Screen, table
from totempole.errors import TotemError
from totempole.lab import missing

MINUTES = {"calm": 10.0, "soak": 60.0}
QUICK_MINUTES = 0.25


def add(benches: options.Verbs) -> None:
    comparing = _bench(benches, "compare", "measure beside another system, in one run", run_compare)
    comparing.add_argument("peer", choices=tuple(PEERS), help="the system to compare with")
    comparing.add_argument(
        "--latency", action="store_true", help="beside corosync: latencies only, in more and shorter rounds"
    )
    comparing.add_argument(
        "--bytes",
        type=options.at_least_one,
        nargs="+",
        metavar="N",
        help="throughput with messages of these sizes; beside corosync, nothing else",
    )
    limiting = _bench(
        benches, "limit", "our share of what a raw UDP pump moves between the same hosts", run_limit
    )
    lan = _bench(
        benches, "lan100", "everyone sending on a LAN of 100 Mbit/s: how much is payload", run_lan100
    )
    redundant = _bench(
        benches, "rrp", "one ring on several networks: throughput of each style, beside one", run_redundant
    )
    redundant.add_argument(
        "--gaps",
        action="store_true",
        help="instead: the longest delivery gap when a network fails, beside corosync's with two knet links",
    )
    scaling = _bench(benches, "scale", "2 to 8 nodes on one machine: throughput, rotation, CPU", run_scale)
    failing = _bench(
        benches, "failover", "kill -9 on an idle ring and on a busy one: the next configuration", run_failover
    )
    failing.add_argument(
        "--idle",
        type=options.at_least_one,
        metavar="SECONDS",
        help=f"how long the ring is quiet before a kill; default {failover.Plan().idle_s:g}",
    )
    crowding = _bench(
        benches, "clients", "1, 10 and 100 clients on one daemon: throughput, fairness, memory", run_clients
    )
    crowding.add_argument(
        "--window",
        type=options.at_least_one,
        metavar="BYTES",
        help="each client has at most so many bytes of its own under way; default: what the daemon takes",
    )
    for parser in (comparing, limiting, lan, redundant, scaling, failing, crowding):
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


# limit, lan100, scale, failover


def run_limit(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    plan = chosen_plan(arguments, limit.QUICK, limit.Plan())
    with counting(screen, 2 * plan.rounds) as tell:
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
    plan = chosen_plan(arguments, lan100.QUICK, lan100.Plan())
    with counting(screen, plan.rounds * len(plan.nodes)) as tell:
        shares = lan100.measure(plan, tell)
    names = ("payload Mbit/s", "of the link", "raw pump Mbit/s", "of the pump")
    title = "One shared medium of 100 Mbit/s, everyone sending 1 KB messages"
    shown = table("nodes", "ring", *names, title=title, right=names)
    for one in shares:
        shown.add_row(
            str(one.nodes),
            one.ring_kind,
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
    plan = chosen_plan(arguments, scale.QUICK, scale.Plan())
    with counting(screen, len(plan.nodes)) as tell:
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


def run_failover(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    plan = chosen_plan(arguments, failover.QUICK, failover.Plan())
    plan = replace(plan, idle_s=arguments.idle or plan.idle_s)
    with counting(screen, 2 * plan.rounds) as tell:
        found = failover.measure(plan, tell)
    names = ("median ms", "slowest ms", "ratio")
    title = f"From kill -9 to the next configuration at the others, {failover.HOSTS} nodes"
    shown = table("ring", *names, title=title, right=names)
    for name, times, ratio in (
        ("busy", found.busy_ms, 1.0),
        (f"idle for {plan.idle_s:g} s", found.idle_ms, found.ratio),
    ):
        shown.add_row(name, f"{median(times):,.0f}", f"{max(times):,.0f}", f"{ratio:.2f}")
    screen.print(shown)
    screen.print(f"Token loss timeout as the ring went idle: {median(found.stretched_ms):,.0f} ms")
    screen.save_json({"idle_s": plan.idle_s, **asdict(found), "ratio": found.ratio})
    return 0


# clients


def run_clients(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    plan = chosen_plan(arguments, clients.QUICK, clients.Plan())
    plan = replace(plan, window_bytes=arguments.window or 0)
    with counting(screen, len(plan.clients)) as tell:
        crowds = clients.measure(plan, tell)
    screen.print(_crowd_table(crowds, plan))
    screen.save_json([asdict(crowd) for crowd in crowds])
    return 0 if all(crowd.ended == 0 for crowd in crowds) else 1


def _crowd_table(crowds: list[clients.Crowd], plan: clients.Plan) -> Table:
    names = ("ordered/s", "MB/s", "received/s", "fairness", "idle MiB", "loaded MiB", "disconnected")
    title = f"Clients of one daemon, all sending and receiving messages of {plan.message_bytes} bytes"
    shown = table("clients", *names, title=title, right=names)
    for crowd in crowds:
        shown.add_row(
            str(crowd.clients),
            f"{crowd.ordered_per_s:,.0f}",
            f"{crowd.ordered_per_s * crowd.message_bytes / 1e6:,.1f}",
            f"{crowd.delivered_per_s:,.0f}",
            f"{crowd.fairness:.2f}",
            f"{crowd.idle_bytes / 2**20:,.0f}",
            f"{crowd.resident_bytes / 2**20:,.0f}",
            str(crowd.ended),
        )
    return shown


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
