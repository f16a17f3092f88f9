"""What the benchmarks on real sockets share: a plan of rounds, and progress through it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from totempole.bench import (
    clients,
    compare,
    compare_pysyncobj,
    failover,
    gaps,
    lan100,
    limit,
    log,
    objects,
    rrp,
    scale,
    source,
)
from totempole.cli.output import Screen
from totempole.errors import TotemError
from totempole.lab import missing

P = TypeVar(
    "P",
    compare.Plan,
    compare_pysyncobj.Plan,
    limit.Plan,
    lan100.Plan,
    scale.Plan,
    failover.Plan,
    clients.Plan,
    rrp.Plan,
    gaps.Plan,
    log.Plan,
    objects.Plan,
    source.Plan,
)


def chosen_plan(arguments: argparse.Namespace, quick: P, full: P) -> P:
    plan = quick if arguments.quick else full
    return replace(plan, rounds=arguments.rounds) if arguments.rounds else plan


@contextmanager
def counting(screen: Screen, total: int) -> Iterator[Callable[[str], None]]:
    reason = missing()
    if reason:
        raise TotemError(f"hosts are network namespaces here: {reason}")
    with stepping(screen, total) as tell:
        yield tell


@contextmanager
def stepping(screen: Screen, total: int) -> Iterator[Callable[[str], None]]:
    """Without namespaces."""
    with screen.progress("measuring", total) as advance:
        done = 0

        def tell(note: str) -> None:
            nonlocal done
            advance(done, note)
            done += 1

        yield tell
