"""`totem bench rrp`: what several networks under one ring move, and how long they stop when one fails."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table

from totempole.bench import corosync, gaps, rrp
from totempole.cli.bench_rounds import chosen_plan, counting
from totempole.cli.output import Screen, table
from totempole.errors import TotemError

GAP_AIM = 0.1
"""Of knet's passive mode."""


def run_redundant(arguments: argparse.Namespace) -> int:
    return run_gaps(arguments) if arguments.gaps else run_rates(arguments)


def run_rates(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    plan = chosen_plan(arguments, rrp.QUICK, rrp.Plan())
    with counting(screen, plan.steps) as tell:
        rates = rrp.measure(plan, tell)
    for nodes in plan.nodes:
        screen.print(_rates_table(rates, plan, nodes))
        screen.print()
    screen.print(f"Configuration changes while measuring: {rates.changes}")
    screen.save_json(_rates_data(rates, plan))
    return 0


def _rates_table(rates: rrp.Rates, plan: rrp.Plan, nodes: int) -> Table:
    names = ("KB/s", "ratio", "aim", "RRP")
    title = f"Payload, {nodes} nodes, everyone sending; ratios to one network in the same round"
    shown = table("bytes", "networks", *names, title=title, right=("bytes", *names))
    for size in plan.sizes:
        for place, case in enumerate(plan.cases):
            ratio = rates.ratio(nodes, size, case)
            theirs = rrp.published_ratio(nodes, size, case)
            colour = "green" if ratio is not None and ratio >= case.aim else "red"
            shown.add_row(
                "" if place else str(size),
                case.name,
                f"{rates.rate(nodes, size, case) / 1e3:,.0f}",
                "" if ratio is None else f"[{colour}]{ratio:.2f}[/]",
                f"{case.aim:.2f}" if case.aim else "",
                "" if theirs is None else f"{theirs:.2f}",
            )
    return shown


def _rates_data(rates: rrp.Rates, plan: rrp.Plan) -> dict[str, Any]:
    return {
        "changes": rates.changes,
        "rates": [
            {
                "nodes": nodes,
                "bytes": size,
                "case": case.name,
                "bytes_per_s": rates.found[nodes, size, case.name],
                "ratio": rates.ratio(nodes, size, case),
                "aim": case.aim,
                "published_ratio": rrp.published_ratio(nodes, size, case),
            }
            for nodes in plan.nodes
            for size in plan.sizes
            for case in plan.cases
        ],
    }


# Gaps


def run_gaps(arguments: argparse.Namespace) -> int:
    reason = corosync.missing()
    if reason:
        raise TotemError(f"corosync cannot be measured here: {reason}")
    screen = Screen(arguments.json)
    plan = chosen_plan(arguments, gaps.QUICK, gaps.Plan())
    with counting(screen, plan.steps) as tell:
        found = gaps.measure(plan, tell)
    screen.print(_gaps_table(found))
    ratios = _ratios(found)
    for step, ratio in ratios.items():
        colour = "green" if ratio <= GAP_AIM else "red"
        screen.print(f"{step}: passive is [{colour}]{ratio:.3f}[/] of knet's passive (aim: {GAP_AIM:g})")
    screen.save_json(_gaps_data(found, ratios))
    return 0


def _ratios(found: gaps.Gaps) -> dict[str, float]:
    ours, theirs = gaps.ours_name("passive"), gaps.theirs_name("passive")
    return {
        step: found.typical_ms(ours, step) / found.typical_ms(theirs, step) for step in (gaps.CUT, gaps.LOSS)
    }


def _gaps_table(found: gaps.Gaps) -> Table:
    names = (*(f"{step}, ms" for step in gaps.STEPS), "changes")
    title = f"Longest time without a delivery, {gaps.HOSTS} nodes of {gaps.RATE} messages/s, medians (worst)"
    shown = table("system", *names, title=title, right=names)
    for system in found.systems:
        cells = [
            f"{found.typical_ms(system, step):,.0f} ({max(found.gaps_ms[system, step]):,.0f})"
            for step in gaps.STEPS
        ]
        shown.add_row(system, *cells, str(found.changes[system]))
    return shown


def _gaps_data(found: gaps.Gaps, ratios: dict[str, float]) -> dict[str, Any]:
    return {
        "systems": [
            {
                "system": system,
                "changes": found.changes[system],
                "gaps_ms": {step: found.gaps_ms[system, step] for step in gaps.STEPS},
            }
            for system in found.systems
        ],
        "ratios": ratios,
    }
