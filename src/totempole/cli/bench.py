"""`totem bench`: what is fast, what is slow, and where time goes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from totempole.bench.layers import LAYERS, OTHER, Breakdown
from totempole.bench.sim import QUICK, Plan, Sample, break_down, measure
from totempole.cli import bench_log, bench_net, bench_objects, bench_source, bench_spark, options
from totempole.cli.output import Screen, table

EXAMPLES = """\
examples:
  totem bench sim            medians over five rounds, a minute or two
  totem bench sim --quick    a first impression in well under a minute
  totem bench compare corosync --json compare.json
  totem bench compare pysyncobj --quick
  totem bench clients        1, 10 and 100 programs on one daemon
  totem bench failover --idle 600 --rounds 1
                             a crash after ten idle minutes, and one on a busy ring
  totem bench rrp --quick    what two and three networks under one ring move, beside one
  totem bench log --directory /data --json log.json
                             the durable log on that disk, beside etcd and PySyncObj
  totem bench objects --quick
                             replicated objects beside etcd's transactions and PySyncObj
  totem bench objects --fire --calls 10000
                             exactly once, through kill -9 of nodes and programs
  totem bench source --directory /data
                             the order as a Spark table and stream, beside Parquet
  totem bench spark          events verified and campaign runs per second
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    benches = parser.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
    sim = options.verb(
        benches, "sim", "measure the simulator: packet events and fuzz runs per second, one core"
    )
    options.add_judging(sim, quick="small workloads, three rounds")
    sim.set_defaults(run=run_sim_bench)
    bench_net.add(benches)
    bench_log.add(benches)
    bench_objects.add(benches)
    bench_source.add(benches)
    bench_spark.add(benches)


def run_sim_bench(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    samples, breakdowns = measure_all(screen, QUICK if arguments.quick else Plan())
    holds = all(sample.work.holds for sample in samples)
    screen.print(_rate_table(samples))
    screen.print()
    screen.print(_layer_table(breakdowns))
    if not holds:
        screen.print("[bold red]A run did not hold: its speed means nothing[/]")
    screen.save_json({"holds": holds, "rates": _rate_data(samples), "layers": breakdowns})
    return 0 if holds else 1


def measure_all(screen: Screen, plan: Plan) -> tuple[list[Sample], dict[str, Breakdown]]:
    samples, breakdowns = [], {}
    workloads = plan.workloads
    with screen.progress("measuring", len(workloads) * (plan.rounds + 1)) as advance:
        done = 0

        def tell() -> None:
            nonlocal done
            done += 1
            advance(done, name)

        for name, workload in workloads.items():
            samples.append(measure(name, workload, plan.rounds, tell))
            breakdowns[name] = break_down(workload)
            tell()
    return samples, breakdowns


def _rate_table(samples: Sequence[Sample]) -> Table:
    numbers = ("packet events/s", "deliveries/s", "runs/s", "simulated s/s", "spread")
    shown = table("workload", *numbers, title="One core, medians", right=numbers)
    for sample in samples:
        shown.add_row(
            sample.name,
            f"{sample.packet_events_per_s:,.0f}",
            f"{sample.deliveries_per_s:,.0f}",
            f"{sample.runs_per_s:.2f}",
            f"{sample.simulated_per_s:.3f}",
            f"{sample.spread:.0%}",
        )
    return shown


def _layer_table(breakdowns: Mapping[str, Breakdown]) -> Table:
    shown = table(
        "layer", *breakdowns, title="Where time goes (own time under cProfile)", right=tuple(breakdowns)
    )
    for layer in (*LAYERS, OTHER):
        shares = [_share(breakdown, layer) for breakdown in breakdowns.values()]
        shown.add_row(layer, *(f"{share:.0%}" for share in shares))
    return shown


def _share(breakdown: Breakdown, layer: str) -> float:
    whole = sum(breakdown.values())
    return breakdown.get(layer, 0.0) / whole if whole else 0.0


def _rate_data(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    return [
        {
            "workload": sample.name,
            "packet_events": sample.work.packet_events,
            "packet_events_per_s": round(sample.packet_events_per_s, 1),
            "deliveries_per_s": round(sample.deliveries_per_s, 1),
            "runs_per_s": round(sample.runs_per_s, 3),
            "simulated_s_per_s": round(sample.simulated_per_s, 4),
            "rounds_s": [round(round_s, 4) for round_s in sample.rounds_s],
        }
        for sample in samples
    ]
