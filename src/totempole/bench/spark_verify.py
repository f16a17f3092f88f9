"""How fast Spark verifies: events a second, its growth with the size of the trace and with the cores.

Each program has a session of its own, which first verifies a small trace, so that Java is warm, and then
traces of growing size: from the list of files to the verdicts of all runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from totempole.errors import TotemError

MEMORY = "4g"


@dataclass(frozen=True, slots=True)
class Verified:
    """One measurement."""

    judge: str
    cores: int
    runs: int
    events: int
    seconds: float
    holds: bool


def measure(warm: Path, traces: Sequence[Sequence[Path]], judge: str, cores: int) -> list[Verified]:
    """All of `traces`, one after the other, in one program."""
    work = json.dumps([list(map(str, each)) for each in traces])
    words = [sys.executable, "-P", "-m", __name__, judge, str(cores), str(warm), work]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TotemError(f"the verification did not end well: {done.stderr.strip()[-500:]}")
    lines = done.stdout.splitlines()[-len(traces) :]
    return [Verified(judge, cores, **json.loads(line)) for line in lines]


def main(judge: str, cores: str, warm: str, work: str) -> None:
    from totempole.checkers.terms import Terms
    from totempole.spark.session import LARGE, build_session
    from totempole.spark.verdicts import judge_files
    from totempole.spark.verify import Judge

    settings = {"spark.driver.memory": MEMORY, **(LARGE if judge == Judge.STATEMENTS else {})}
    spark = build_session("totem bench spark", f"local[{cores}]", settings)
    judge_files(spark, [Path(warm)], Terms(), by=Judge(judge))
    for traces in json.loads(work):
        began_s = time.perf_counter()
        judged = judge_files(spark, [Path(trace) for trace in traces], Terms(), by=Judge(judge))
        seconds = time.perf_counter() - began_s
        undecided = any(counts.get("undecided", 0) for counts in judged.outcomes.values())
        holds = judged.holds and not undecided
        told = {"runs": judged.runs, "events": judged.events, "seconds": seconds, "holds": holds}
        print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
