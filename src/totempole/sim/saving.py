"""A simulated run on disk, as a node's traces are, with the terms that only the simulator knows."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from totempole.checkers.terms_file import write_terms
from totempole.sim.script_runner import Outcome, terms_of
from totempole.trace.parquet import write_parquet


def save_run(directory: Path, outcome: Outcome) -> Path:
    """In a directory of the run's name, which is the scenario's: one file for all processors."""
    name = outcome.scenario.name
    file = directory / f"run={quote(name, safe='')}" / "part-00000.parquet"
    write_parquet(file, [[row._replace(run=name) for row in outcome.judged_rows]])
    write_terms(directory, {name: terms_of(outcome)})
    return file
