"""`totem bench objects`: replicated objects beside etcd's transactions and PySyncObj, and under fire."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.markup import escape
from rich.table import Table

from totempole.bench import object_fire, object_nodes, objects
from totempole.bench.objects import ETCD, OURS, PYSYNCOBJ, Case, Cell, Plan, Samples, median_load
from totempole.bench.replicated import REPLICAS, Load
from totempole.cli import options
from totempole.cli.bench_log import Aim, at_least
from totempole.cli.bench_rounds import chosen_plan, stepping
from totempole.cli.output import Screen, table
from totempole.errors import TotemError

FIRE_CALLS, QUICK_FIRE_CALLS = 10_000, 600
WRONG_SHOWN = 20
CALL_COLUMNS = ("calls/s", "x etcd", "x PySyncObj", "p50 ms", "p99 ms", "CPU µs", "under way")
READ_COLUMNS = ("reads/s", "p50 ms", "p99 ms", "CPU µs")


def add(benches: options.Verbs) -> None:
    parser = options.verb(
        benches,
        "objects",
        "replicated objects beside etcd's transactions and PySyncObj: calls, reads, snapshots",
    )
    options.add_judging(parser, quick="one short round, and an object of 100 MB")
    parser.add_argument("--rounds", type=options.at_least_one, metavar="N", help="medians over N rounds")
    parser.add_argument(
        "--directory", metavar="DIR", help="where the logs are written: on the disk to measure (default /tmp)"
    )
    parser.add_argument(
        "--fire",
        action="store_true",
        help="instead: kill -9 of nodes and of programs under calls, and judge that each was done once",
    )
    parser.add_argument(
        "--calls", type=options.at_least_one, metavar="N", help="of --fire: how many in all (10,000)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of --fire: who is killed, and when")
    parser.set_defaults(run=run_objects)


def run_objects(arguments: argparse.Namespace) -> int:
    return run_fire(arguments) if arguments.fire else run_rates(arguments)


def run_rates(arguments: argparse.Namespace) -> int:
    reason = objects.missing()
    if reason:
        raise TotemError(f"the peers of objects cannot be measured here: {reason}")
    screen = Screen(arguments.json)
    plan = chosen_plan(arguments, objects.QUICK, Plan())
    plan = replace(plan, directory=Path(arguments.directory) if arguments.directory else None)
    with stepping(screen, plan.steps) as tell:
        samples = objects.measure(plan, tell)
    screen.print(_call_table(samples, plan))
    screen.print()
    screen.print(_read_table(samples, plan))
    screen.print()
    for line in _lines(samples):
        screen.print(line)
    screen.print()
    screen.print(_aim_table(samples, plan))
    screen.save_json(_data(samples, plan))
    return 0


def _call_table(samples: Samples, plan: Plan) -> Table:
    title = f"{REPLICAS} nodes on this machine: a compare and a put, exactly once"
    heads = ("bytes", "callers")
    shown = table(*heads, "system", "interface", *CALL_COLUMNS, title=title, right=(*heads, *CALL_COLUMNS))
    before: tuple[int, int] | None = None
    for case, cell in objects.call_cells(plan):
        rounds = samples.calls.get(cell)
        if rounds:
            now = (cell.size, cell.callers)
            head = ("", "") if now == before else (str(cell.size), str(cell.callers))
            before = now
            shown.add_row(*head, case.name, cell.way, *_call_cells(samples, case, cell, median_load(rounds)))
    return shown


def _call_cells(samples: Samples, case: Case, cell: Cell, load: Load) -> Sequence[str]:
    ratios = [samples.ratio(cell, peer) if case.system == OURS else None for peer in (ETCD, PYSYNCOBJ)]
    return (
        f"{load.records_per_s:,.0f}",
        *("" if ratio is None else f"{ratio:.1f}" for ratio in ratios),
        *_times(load),
        f"{load.cpu_us:,.1f}",
        f"{load.under_way:,}",
    )


def _times(load: Load) -> tuple[str, str]:
    return f"{load.p50_us / 1e3:,.2f}", f"{load.p99_us / 1e3:,.2f}"


def _read_table(samples: Samples, plan: Plan) -> Table:
    title = f"Reads of {objects.READ_BYTES} bytes"
    shown = table(
        "callers", "system", "interface", *READ_COLUMNS, title=title, right=("callers", *READ_COLUMNS)
    )
    before = 0
    for case, cell in objects.read_cells(plan):
        rounds = samples.reads.get(cell)
        if rounds:
            load = median_load(rounds)
            head = "" if cell.callers == before else str(cell.callers)
            before = cell.callers
            shown.add_row(
                head, case.name, cell.way, f"{load.records_per_s:,.0f}", *_times(load), f"{load.cpu_us:,.1f}"
            )
    return shown


def _lines(samples: Samples) -> Iterator[str]:
    for text in samples.failures:
        yield f"Failed under load: {escape(text)}"
    if samples.sync_us:
        yield (
            f"fdatasync of 4 KiB on this disk: {median(samples.sync_us) / 1e3:.2f} ms; load average of the "
            f"machine before each round: {', '.join(f'{load:.1f}' for load in samples.load_average)}"
        )
    cost = samples.snapshot
    if cost is not None:
        yield (
            f"A snapshot of {cost.state_bytes / 1e6:,.0f} MB took {cost.seconds:.1f} s. Calls meanwhile: "
            f"{cost.meanwhile_per_s:,.0f}/s, {cost.kept:.0%} of {cost.quiet_per_s:,.0f}/s; the longest pause "
            f"{cost.longest_pause_ms:,.0f} ms"
        )
        yield (
            f"Memory of the program: {cost.resident_bytes / 1e6:,.0f} MB before it, at most "
            f"{cost.peak_bytes / 1e6:,.0f} MB with the child that encodes"
        )


# Under fire


def run_fire(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    calls = arguments.calls or (QUICK_FIRE_CALLS if arguments.quick else FIRE_CALLS)
    rounds = arguments.rounds or max(object_fire.ROUNDS_MIN, calls // object_fire.ROUND_CALLS)
    directory = Path(arguments.directory) if arguments.directory else None
    with stepping(screen, rounds) as tell:
        outcome = object_fire.burn(calls, rounds, arguments.seed, directory, tell)
    screen.print(
        f"{outcome.rounds} rounds: {outcome.kills} kills of nodes, {outcome.program_kills} of programs, and "
        f"{outcome.restarts} restarts of programs. {outcome.done:,} calls have returned, of which "
        f"{outcome.receipts:,} by a receipt; {outcome.refused:,} were not made; {outcome.doubtful:,} were in "
        f"doubt when a program was killed, {outcome.doubtful_done:,} of these were done. The object has "
        f"counted {outcome.value:,}"
    )
    for text in outcome.wrong[:WRONG_SHOWN]:
        screen.print(f"[bold red]{escape(text)}[/]")
    if not outcome.wrong:
        screen.print("[green]No call lost, none done twice, each number once, all replicas equal[/]")
    screen.save_json(asdict(outcome))
    return 1 if outcome.wrong else 0


# Aims


def aims(samples: Samples, plan: Plan) -> list[Aim]:
    """Those of which there is a measurement."""
    found = list(_ratio_aims(samples, plan))
    if samples.snapshot is not None:
        megabytes = samples.snapshot.state_bytes / 1e6
        found.append(
            at_least(
                f"calls' rate kept during a snapshot of {megabytes:,.0f} MB",
                objects.KEPT_AIM,
                samples.snapshot.kept,
            )
        )
    return found


def _ratio_aims(samples: Samples, plan: Plan) -> Iterator[Aim]:
    case = next(case for case in objects.CASES if case.system == OURS)
    most = max(plan.callers)
    for peer in (ETCD, PYSYNCOBJ):
        for size in plan.sizes:
            for way in (object_nodes.CALL, object_nodes.CALL_MANY):
                ratio = samples.ratio(Cell(case.name, way, size, most), peer)
                if ratio is not None:
                    what = f"{way}, times {peer}'s calls/s, {size} bytes, {most} callers"
                    yield at_least(what, objects.RATIO_AIM, ratio)


def _aim_table(samples: Samples, plan: Plan) -> Table:
    shown = table("", "aim", "found", title="Aims", right=("aim", "found"))
    for each in aims(samples, plan):
        colour = "green" if each.holds else "red"
        shown.add_row(each.what, each.aim, f"[{colour}]{each.found}[/]")
    return shown


# Data


def _data(samples: Samples, plan: Plan) -> dict[str, Any]:
    cost = samples.snapshot
    return {
        "sync_us": samples.sync_us,
        "load_average": samples.load_average,
        "calls": [
            {
                **_row(cell, samples.calls[cell]),
                "times_etcd": samples.ratio(cell, ETCD) if case.system == OURS else None,
                "times_pysyncobj": samples.ratio(cell, PYSYNCOBJ) if case.system == OURS else None,
            }
            for case, cell in objects.call_cells(plan)
            if samples.calls.get(cell)
        ],
        "reads": [
            _row(cell, samples.reads[cell]) for _, cell in objects.read_cells(plan) if samples.reads.get(cell)
        ],
        "failures": samples.failures,
        "snapshot": None if cost is None else {**asdict(cost), "kept": cost.kept},
        "aims": [each._asdict() for each in aims(samples, plan)],
    }


def _row(cell: Cell, rounds: list[Load]) -> dict[str, Any]:
    return {
        "system": cell.case,
        "interface": cell.way,
        "bytes": cell.size,
        "callers": cell.callers,
        "rounds": [asdict(one) for one in rounds],
    }
