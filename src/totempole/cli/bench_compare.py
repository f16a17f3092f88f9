"""`totem bench compare`: tables of Totempole beside a peer, medians over several rounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from rich.table import Table

from totempole.bench import compare, compare_pysyncobj, corosync, pysyncobj
from totempole.bench.compare import CALLBACK, DAEMON, NODE, PERCENTILES
from totempole.cli.bench_rounds import chosen_plan, counting
from totempole.cli.output import Screen, table
from totempole.errors import TotemError

WAYS = {
    CALLBACK: "ring callbacks without groups (Application)",
    NODE: "embedded Node, in a group",
    DAEMON: "totem node and connect(), in a group",
}
"""What was measured: each way by the name of the interface that the program uses."""
VARIANTS = {
    CALLBACK + "agreed": f"{WAYS[CALLBACK]}, agreed",
    CALLBACK + "safe": f"{WAYS[CALLBACK]}, safe",
    CALLBACK + "cut": f"{WAYS[CALLBACK]}, agreed, gso_max_segs 1",
    NODE + "agreed": f"{WAYS[NODE]}, agreed",
    NODE + "safe": f"{WAYS[NODE]}, safe",
    DAEMON + "agreed": f"{WAYS[DAEMON]}, agreed",
    DAEMON + "safe": f"{WAYS[DAEMON]}, safe",
}
LATENCIES = {**WAYS, CALLBACK + "realtime": f"{WAYS[CALLBACK]}, realtime"}
RATE_COLUMNS = ("messages/s", "MB/s", "ratio")


def run_compare(arguments: argparse.Namespace) -> int:
    return PEERS[arguments.peer](arguments)


def _check(peer: str, reason: str) -> None:
    if reason:
        raise TotemError(f"{peer} cannot be measured here: {reason}")


def _rate_row(shown: Table, head: Sequence[str], rate: float, size: int, theirs: float) -> None:
    shown.add_row(*head, f"{rate:,.0f}", f"{rate * size / 1e6:.1f}", f"{rate / theirs:.1f}")


def latency_table(title: str, rows: Mapping[str, Sequence[float]]) -> Table:
    names = tuple(f"p{percent:g} µs" for percent in PERCENTILES)
    shown = table("system", *names, title=title, right=names)
    for name, values in rows.items():
        shown.add_row(name, *(f"{value:,.0f}" for value in values))
    return shown


def latency_data(rows: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    return {name: dict(zip(map(str, PERCENTILES), values, strict=True)) for name, values in rows.items()}


# corosync


def run_corosync(arguments: argparse.Namespace) -> int:
    _check("corosync", corosync.missing())
    screen = Screen(arguments.json)
    plan = chosen_plan(arguments, compare.QUICK, compare.LATENCIES if arguments.latency else compare.Plan())
    if arguments.bytes:
        plan = replace(plan, sizes=tuple(arguments.bytes), latency_count=0, failovers=False)
    with counting(screen, plan.steps) as tell:
        samples = compare.measure(plan, tell)
    for sealed in plan.encrypted if plan.sizes else ():
        screen.print(_rates_table(samples, plan, sealed))
        screen.print()
    if plan.latency_count:
        title = (
            f"From send to own delivery, {compare.LATENCY_RATE} messages/s of {compare.LATENCY_BYTES} bytes"
        )
        screen.print(latency_table(title, _latencies(samples)))
    if plan.failovers:
        screen.print()
        screen.print(_failover_table(samples))
    screen.save_json(_compare_data(samples, plan))
    return 0


def _rates_table(samples: compare.Samples, plan: compare.Plan, sealed: bool) -> Table:
    title = f"Ordered messages a second, {compare.HOSTS} nodes, one sender, "
    title += "encrypted" if sealed else "not encrypted, contents not checked"
    shown = table("bytes", "system", *RATE_COLUMNS, title=title, right=("bytes", *RATE_COLUMNS))
    for size in plan.sizes:
        transport, theirs = samples.best_of_theirs(sealed, size)
        _rate_row(shown, (str(size), f"corosync, {transport}"), theirs, size, theirs)
        for variant, name in VARIANTS.items():
            rounds = samples.ours.get((sealed, variant, size))
            if rounds:
                _rate_row(shown, ("", name), median(rounds), size, theirs)
    return shown


def _latencies(samples: compare.Samples) -> dict[str, list[float]]:
    rows = {f"corosync {name}": rounds for name, rounds in samples.their_latencies_us.items()}
    rows |= {f"totempole, {LATENCIES[way]}": rounds for way, rounds in samples.our_latencies_us.items()}
    return {
        name: [
            median(compare.percentile(latencies, percent) for latencies in rounds) for percent in PERCENTILES
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
    return {**rows, f"totempole, {WAYS[CALLBACK]}": samples.our_failovers_ms}


def _compare_data(samples: compare.Samples, plan: compare.Plan) -> dict[str, Any]:
    def of(found: Mapping[tuple[bool, str, int], list[float]], sealed: bool, size: int) -> dict[str, Any]:
        return {
            name: rounds
            for (encrypted, name, bytes_), rounds in found.items()
            if encrypted == sealed and bytes_ == size
        }

    return {
        "throughput": [
            {
                "encrypted": sealed,
                "bytes": size,
                "corosync": of(samples.theirs, sealed, size),
                "totempole": of(samples.ours, sealed, size),
            }
            for sealed in plan.encrypted
            for size in plan.sizes
        ],
        "latency_us": latency_data(_latencies(samples)),
        "failover_ms": _failovers(samples),
    }


# PySyncObj


def run_pysyncobj(arguments: argparse.Namespace) -> int:
    _check("PySyncObj", pysyncobj.missing())
    screen = Screen(arguments.json)
    plan = chosen_plan(arguments, compare_pysyncobj.QUICK, compare_pysyncobj.Plan())
    if arguments.bytes:
        plan = replace(plan, sizes=tuple(arguments.bytes))
    with counting(screen, plan.steps) as tell:
        samples = compare_pysyncobj.measure(plan, tell)
    screen.print(_operations_table(samples, plan))
    screen.print()
    title = f"One operation of {compare_pysyncobj.LATENCY_BYTES} bytes at a time"
    screen.print(latency_table(title, samples.percentiles_us()))
    screen.save_json(_operations_data(samples, plan))
    return 0


def _operations_table(samples: compare_pysyncobj.Samples, plan: compare_pysyncobj.Plan) -> Table:
    title = f"Ordered operations a second, {compare_pysyncobj.HOSTS} nodes, in memory, not encrypted"
    shown = table("bytes", "system", *RATE_COLUMNS, title=title, right=("bytes", *RATE_COLUMNS))
    for size in plan.sizes:
        mode, theirs = samples.best_of_theirs(size)
        _rate_row(shown, (str(size), mode), theirs, size, theirs)
        for way in compare_pysyncobj.ways():
            _rate_row(shown, ("", way), median(samples.ours[way, size]), size, theirs)
    return shown


def _operations_data(samples: compare_pysyncobj.Samples, plan: compare_pysyncobj.Plan) -> dict[str, Any]:
    return {
        "throughput": [
            {
                "bytes": size,
                "pysyncobj": {
                    mode: rounds for (mode, bytes_), rounds in samples.theirs.items() if bytes_ == size
                },
                "totempole": {way: samples.ours[way, size] for way in compare_pysyncobj.ways()},
            }
            for size in plan.sizes
        ],
        "latency_us": latency_data(samples.percentiles_us()),
    }


PEERS: dict[str, Callable[[argparse.Namespace], int]] = {
    "corosync": run_corosync,
    "pysyncobj": run_pysyncobj,
}
