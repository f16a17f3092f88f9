"""A simulated run on disk: its trace, with the terms that only the simulator knows, and its replicas' logs.

Both are as nodes write them.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from totempole.checkers.terms_file import write_terms
from totempole.errors import ConfigurationError
from totempole.sim.log_files import LogFiles
from totempole.sim.script_runner import Outcome, terms_of
from totempole.trace.parquet import write_parquet


def save_run(directory: Path, outcome: Outcome) -> Path:
    """In a directory of the run's name, which is the scenario's: one file for all processors."""
    name = outcome.scenario.name
    file = directory / f"run={quote(name, safe='')}" / "part-00000.parquet"
    write_parquet(file, [[row._replace(run=name) for row in outcome.judged_rows]])
    write_terms(directory, {name: terms_of(outcome)})
    return file


def save_logs(directory: Path, outcome: Outcome) -> list[Path]:
    """What is on the disks at the end, each in a directory of its own: a log that any reader takes for a
    node's. An empty disk has none."""
    found = []
    for me, host in sorted(outcome.world.hosts.items()):
        if host.log_disk is None:
            raise ConfigurationError("--logs: this scenario has no durable log (a line `log p q r`)")
        if host.log_disk.segments():
            place = directory / f"node{me}"
            place.mkdir(parents=True)
            files = LogFiles(place, me)
            files.append(host.log_disk.written())
            files.close()
            found.append(place)
    return found
