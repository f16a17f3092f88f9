"""Traces to verify: many runs of five processors under load, parted, brought together, one crashed and back.

Each run is another seed, so that no two are alike; all must hold. Several runs share a Parquet file: with a
file for each node of a short run, opening files would be most of the work.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from pathlib import Path

from totempole.checkers.terms import Terms
from totempole.checkers.terms_file import write_terms
from totempole.sim.script_parser import parse
from totempole.sim.script_runner import run, terms_of
from totempole.trace.parquet import write_parquet
from totempole.trace.schema import Row

RUNS_OF_A_FILE = 16
LEVEL = "checked"

_SCENARIO = """\
processors p=1 q=2 r=3 s=4 t=5
seed {seed}
{loads}
at 900ms partition (p q) (r s t)
at 1300ms heal
at 1700ms crash {crashed}
at 1900ms restart {crashed}
end 3500ms
expect settled 1s
"""
_LOAD = "at 500ms load {name} rate={rate} size=200 safe=0.3 until=2500ms"
_NAMES = "pqrst"


def simulate(seed: int, rate: int) -> tuple[str, list[Row], Terms]:
    """A run's name, rows and terms. `rate`: messages a second of each processor."""
    loads = "\n".join(_LOAD.format(name=name, rate=rate) for name in _NAMES)
    crashed = _NAMES[seed % len(_NAMES)]
    name = f"bench-{seed}"
    gc.disable()
    try:
        outcome = run(parse(_SCENARIO.format(seed=seed, loads=loads, crashed=crashed), name), level=LEVEL)
    finally:
        gc.enable()
    assert not outcome.failures, outcome.failures
    return name, [row._replace(run=name) for row in outcome.rows], terms_of(outcome)


def _write(work: tuple[Path, range, int]) -> tuple[dict[str, Terms], int]:
    directory, seeds, rate = work
    runs = [simulate(seed, rate) for seed in seeds]
    write_parquet(directory / f"part-{seeds.start:05d}.parquet", [rows for _, rows, _ in runs])
    return {name: terms for name, _, terms in runs}, sum(len(rows) for _, rows, _ in runs)


def make_traces(
    directory: Path, runs: int, rate: int, jobs: int, tell: Callable[[int, str], None], first: int = 0
) -> int:
    """How many events there are now. All cores simulate."""
    directory.mkdir(parents=True, exist_ok=True)
    seeds = range(first, first + runs)
    work = [(directory, seeds[at : at + RUNS_OF_A_FILE], rate) for at in range(0, runs, RUNS_OF_A_FILE)]
    known: dict[str, Terms] = {}
    events = 0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for terms, count in pool.imap(_write, work):
            known |= terms
            events += count
            tell(len(known), f"runs simulated, {events:,} events")
    write_terms(directory, known)
    return events
