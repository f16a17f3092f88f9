"""A campaign's directory: what has been run, kept wave by wave, and what it adds up to.

    campaign.json                        with which code and which time limit
    runs/wave-000000.parquet …           one row for each run
    coverage.parquet, failures.parquet   what the runs of the last command add up to

A file appears whole or not at all, so that a campaign goes on after any end. It never mixes runs of different
code.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import totempole
from totempole.errors import TotemError
from totempole.spark.campaign.cases import Campaign, Case
from totempole.spark.campaign.summary import Summary
from totempole.spark.campaign.tables import RUNS

WAY_OUT = "name another directory with --out, or remove this one"
PACKAGES = ("checkers", "groups", "segment", "sim", "srp", "trace", "wire")
"""What decides the outcome of a run, beside the modules at the root."""


class Store:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._runs = path / "runs"

    @classmethod
    @contextmanager
    def opened(cls, path: Path, limit_s: float) -> Iterator[Store]:
        """Made if it is not there; for one command at a time."""
        store = cls(path)
        store._runs.mkdir(parents=True, exist_ok=True)
        with (path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise TotemError(f"{path}: another campaign is at work there: wait, or {WAY_OUT}") from None
            store._check(limit_s)
            yield store

    def _check(self, limit_s: float) -> None:
        file = self.path / "campaign.json"
        ours = {"code": fingerprint(), "limit_s": limit_s}
        if not file.exists():
            if self._files():
                raise TotemError(f"{file} is missing, and there are runs: {WAY_OUT}")
            _replace(file, (json.dumps(ours) + "\n").encode())
            return
        try:
            theirs = {name: json.loads(file.read_text(encoding="utf-8"))[name] for name in ours}
        except (ValueError, KeyError, TypeError) as error:
            raise TotemError(f"{file} is not the file of a campaign ({error}): {WAY_OUT}") from None
        if theirs["code"] != ours["code"]:
            raise TotemError(f"{self.path} has runs of other code than this: {WAY_OUT}")
        if theirs["limit_s"] != limit_s:
            raise TotemError(
                f"{self.path} has runs with --limit {theirs['limit_s']:g}: give that, or {WAY_OUT}"
            )

    # Runs

    def pending(self, campaign: Campaign) -> list[Case]:
        """The cases that have not been run, in order."""
        done = {
            Case(*row)
            for file in self._files()
            for row in zip(*_read(file, ["kind", "profile", "seed"]).to_pydict().values(), strict=True)
        }
        return [case for case in campaign.cases() if case not in done]

    def keep(self, runs: Any) -> None:
        """The runs of a wave."""
        files = self._files()
        number = int(files[-1].stem.removeprefix("wave-")) + 1 if files else 0
        write_table(self._runs / f"wave-{number:06}.parquet", runs)

    def runs(self, campaign: Campaign) -> Any:
        """All that belong to the campaign, in order."""
        tables = [_read(file) for file in self._files()]
        runs = pa.concat_tables([RUNS.empty_table(), *tables])
        seed, kinds, profiles = runs["seed"], pa.array(campaign.kinds), pa.array(campaign.profiles)
        wanted = pc.and_(
            pc.and_(pc.greater_equal(seed, campaign.seeds.start), pc.less(seed, campaign.seeds.stop)),
            pc.and_(pc.is_in(runs["kind"], kinds), pc.is_in(runs["profile"], profiles)),
        )
        return runs.filter(wanted).sort_by([(name, "ascending") for name in ("kind", "profile", "seed")])

    def sum_up(self, campaign: Campaign) -> Summary:
        """What all that adds up to, also as tables."""
        summary = Summary(campaign, self.runs(campaign))
        write_table(self.path / "coverage.parquet", summary.coverage)
        write_table(self.path / "failures.parquet", summary.failures)
        return summary

    def _files(self) -> list[Path]:
        return sorted(self._runs.glob("wave-*.parquet"))


def write_table(file: Path, table: Any) -> None:
    """In one step. What is left of a write that was cut short begins with a dot, which readers pass over."""
    partial = file.with_name(f".{file.name}.partial")
    pq.write_table(table, partial, compression="zstd")
    os.replace(partial, file)


def _replace(file: Path, content: bytes) -> None:
    partial = file.with_name(f".{file.name}.partial")
    partial.write_bytes(content)
    os.replace(partial, file)


def _read(file: Path, columns: list[str] | None = None) -> Any:
    try:
        return pq.read_table(file, columns=columns, schema=RUNS)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise TotemError(
            f"{file} cannot be read ({reason}): remove it, and its seeds are run again"
        ) from None


@cache
def fingerprint() -> str:
    """Of the code that decides what becomes of a seed."""
    root = Path(totempole.__file__).parent
    files = [*root.glob("*.py"), *(file for name in PACKAGES for file in (root / name).rglob("*.py"))]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return digest.hexdigest()
