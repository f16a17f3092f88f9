"""`totem bench log`: the durable log beside etcd and PySyncObj, after a kill, catching up, and read."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from totempole.bench import log, log_fire, log_nodes
from totempole.bench.log import CASES, ETCD, OURS, Case, Plan, Samples
from totempole.bench.replicated import REPLICAS, Load
from totempole.cli import options
from totempole.cli.bench_rounds import chosen_plan, stepping
from totempole.cli.output import Screen, table
from totempole.errors import TotemError

FIRE_ROUNDS, QUICK_FIRE_ROUNDS = 100, 3
WRONG_SHOWN = 20
LOAD_COLUMNS = ("records/s", "MB/s", "x etcd", "p50 ms", "p99 ms", "CPU µs", "under way")


def add(benches: options.Verbs) -> None:
    parser = options.verb(
        benches, "log", "the durable log beside etcd and PySyncObj: throughput, latency, kill -9, catch-up"
    )
    options.add_judging(parser, quick="one short round")
    parser.add_argument("--rounds", type=options.at_least_one, metavar="N", help="medians over N rounds")
    parser.add_argument(
        "--directory", metavar="DIR", help="where the logs are written: on the disk to measure (default /tmp)"
    )
    parser.add_argument(
        "--fire",
        action="store_true",
        help="instead: kill -9 of one, two or all nodes under load, --rounds times (100), and judge the logs",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of --fire: who is killed, and when")
    parser.set_defaults(run=run_log)


def run_log(arguments: argparse.Namespace) -> int:
    return run_fire(arguments) if arguments.fire else run_rates(arguments)


def run_rates(arguments: argparse.Namespace) -> int:
    reason = log.missing()
    if reason:
        raise TotemError(f"the log's peers cannot be measured here: {reason}")
    screen = Screen(arguments.json)
    plan = chosen_plan(arguments, log.QUICK, Plan())
    plan = replace(plan, directory=Path(arguments.directory) if arguments.directory else None)
    with stepping(screen, plan.steps) as tell:
        samples = log.measure(plan, tell)
    for synced in (True, False):
        screen.print(_load_table(samples, plan, synced))
        screen.print()
    screen.print(_turns_table(samples))
    screen.print()
    screen.print(_failover_table(samples))
    screen.print()
    for line in _lines(samples):
        screen.print(line)
    screen.print()
    screen.print(_aim_table(samples, plan))
    screen.save_json(_data(samples, plan))
    return 0


def _load_table(samples: Samples, plan: Plan, synced: bool) -> Table:
    title = f"{REPLICAS} replicas on this machine, " + ("synced" if synced else "not synced")
    shown = table("bytes", "system", "interface", *LOAD_COLUMNS, title=title, right=("bytes", *LOAD_COLUMNS))
    for size in plan.sizes:
        head = str(size)
        for case, way, load in _loads(samples, size, synced):
            shown.add_row(head, case.name, way, *_load_cells(load, size, samples.ratio(case, way, size)))
            head = ""
    return shown


def _loads(samples: Samples, size: int, synced: bool) -> Iterator[tuple[Case, str, Load]]:
    for case in CASES:
        for way in case.ways:
            load = samples.load(case.name, way, size)
            if load is not None and case.synced == synced:
                yield case, way, load


def _load_cells(load: Load, size: int, ratio: float | None) -> Sequence[str]:
    return (
        f"{load.records_per_s:,.0f}",
        f"{load.records_per_s * size / 1e6:,.1f}",
        "" if ratio is None else f"{ratio:.1f}",
        f"{load.p50_us / 1e3:,.1f}",
        f"{load.p99_us / 1e3:,.1f}",
        f"{load.cpu_us:,.1f}",
        f"{load.under_way:,}",
    )


def _turns_table(samples: Samples) -> Table:
    names = ("p50 ms", "p99 ms")
    title = f"One record of {log.LATENCY_BYTES} bytes at a time"
    shown = table("system", *names, title=title, right=names)
    for case in samples.turns_us:
        times = [samples.turn_us(case, percent) or 0.0 for percent in (50, 99)]
        shown.add_row(case, *(f"{us / 1e3:.2f}" for us in times))
    return shown


def _failover_table(samples: Samples) -> Table:
    names = ("median ms", "slowest ms")
    shown = table("killed", *names, title="From kill -9 to the next record that is ordered", right=names)
    for system, what in (
        (OURS, "a replica of totempole's log"),
        (log.JUST_BACK, f"the same, {log_nodes.JUST_BACK_S:g} s after one came back"),
        (ETCD, "etcd's leader"),
    ):
        times = samples.failovers_ms.get(system)
        if times:
            shown.add_row(what, f"{median(times):,.0f}", f"{max(times):,.0f}")
    return shown


def _lines(samples: Samples) -> Iterator[str]:
    for text in samples.failures:
        yield f"Failed under load: {escape(text)}"
    yield f"fdatasync of 4 KiB on this disk: {median(samples.sync_us) / 1e3:.2f} ms (median of all rounds)"
    found = samples.catch_up
    if found is not None:
        yield (
            f"Catching up: {found.missed:,} records missed, {found.behind:,} when it took part again, "
            f"{found.seconds:.1f} s from its start ({found.joining_s:.1f} s until it had joined)"
        )
        yield (
            f"The others meanwhile: {found.meanwhile_per_s:,.0f} records/s, {found.kept:.0%} of "
            f"{found.whole_per_s:,.0f} with all three before; {found.without_per_s:,.0f} without it"
        )
    yield f"Read: {samples.read_per_s:,.0f} rows/s on one core"


# Under fire


def run_fire(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    rounds = arguments.rounds or (QUICK_FIRE_ROUNDS if arguments.quick else FIRE_ROUNDS)
    directory = Path(arguments.directory) if arguments.directory else None
    with stepping(screen, rounds) as tell:
        outcome = log_fire.burn(rounds, arguments.seed, directory, tell)
    screen.print(
        f"{outcome.kills} kills in {outcome.rounds} rounds: {outcome.records:,} records, of which "
        f"{outcome.green:,} were told to be green; {outcome.red:,} receipts, {outcome.unknown:,} unknown"
    )
    for text in outcome.wrong[:WRONG_SHOWN]:
        screen.print(f"[bold red]{escape(text)}[/]")
    if not outcome.wrong:
        screen.print("[green]No green record lost, none twice, all logs equal[/]")
    screen.save_json(asdict(outcome))
    return 1 if outcome.wrong else 0


# Aims


class Aim(NamedTuple):
    what: str
    aim: str
    found: str
    holds: bool


def aims(samples: Samples, plan: Plan) -> list[Aim]:
    """Those of which there is a measurement."""
    found = [*_ratio_aims(samples, plan), *_turn_aims(samples)]
    failovers = samples.failovers_ms.get(OURS)
    if failovers:
        found.append(at_most("green again after kill -9, ms", log.FAILOVER_MS_AIM, median(failovers)))
    caught_up = samples.catch_up
    if caught_up is not None:
        found.append(at_most("catching up, s", log.CATCH_UP_S_AIM, caught_up.seconds))
        found.append(at_least("the others' throughput meanwhile", log.KEPT_AIM, caught_up.kept))
    if samples.read_per_s:
        found.append(at_least("rows read per second and core", log.READ_PER_S_AIM, samples.read_per_s))
    return found


def _ratio_aims(samples: Samples, plan: Plan) -> Iterator[Aim]:
    ours = next(case for case in CASES if case.system == OURS and case.synced)
    for size in plan.sizes:
        ratios = [samples.ratio(ours, way, size) for way in ours.ways]
        best = max((ratio for ratio in ratios if ratio is not None), default=None)
        if best is not None and size in log.RATIO_AIMS:
            yield at_least(f"times etcd's records/s, {size} bytes, synced", log.RATIO_AIMS[size], best)


def _turn_aims(samples: Samples) -> Iterator[Aim]:
    ours, theirs = (
        next(case.name for case in CASES if case.system == system and case.synced) for system in (OURS, ETCD)
    )
    mine, others = samples.turn_us(ours, 50), samples.turn_us(theirs, 50)
    if mine is not None and others is not None:
        yield at_most("p50 of one at a time, synced, ms (etcd's)", others / 1e3, mine / 1e3)


def at_least(what: str, aim: float, found: float) -> Aim:
    return Aim(
        what, f"at least {aim:,.4g}" if aim < 1e4 else f"at least {aim:,.0f}", _number(found), found >= aim
    )


def at_most(what: str, aim: float, found: float) -> Aim:
    return Aim(what, f"at most {aim:,.4g}", _number(found), found <= aim)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _aim_table(samples: Samples, plan: Plan) -> Table:
    shown = table("", "aim", "found", title="Aims", right=("aim", "found"))
    for each in aims(samples, plan):
        colour = "green" if each.holds else "red"
        shown.add_row(each.what, each.aim, f"[{colour}]{each.found}[/]")
    return shown


# Data


def _data(samples: Samples, plan: Plan) -> dict[str, Any]:
    return {
        "sync_us": samples.sync_us,
        "loads": [
            {
                "bytes": size,
                "synced": case.synced,
                "system": case.name,
                "interface": way,
                "ratio": samples.ratio(case, way, size),
                "rounds": [asdict(one) for one in samples.loads[case.name, way, size]],
            }
            for synced in (True, False)
            for size in plan.sizes
            for case, way, _ in _loads(samples, size, synced)
        ],
        "one_at_a_time_us": {
            case: {"p50": samples.turn_us(case, 50), "p99": samples.turn_us(case, 99)}
            for case in samples.turns_us
        },
        "failures": samples.failures,
        "failover_ms": dict(samples.failovers_ms),
        "catch_up": None
        if samples.catch_up is None
        else {**asdict(samples.catch_up), "kept": samples.catch_up.kept},
        "read_per_s": samples.read_per_s,
        "aims": [each._asdict() for each in aims(samples, plan)],
    }
