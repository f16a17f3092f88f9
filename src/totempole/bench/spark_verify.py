"""How fast Spark verifies: events a second, its growth with the size of the trace and with the cores.

Each measurement is a program of its own with a session of its own, which first verifies a small trace, so
that Java is warm, and then the trace in question: from the list of files to the verdicts of all runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from totempole.errors import TotemError


@dataclass(frozen=True, slots=True)
class Verified:
    """One measurement."""

    cores: int
    runs: int
    events: int
    seconds: float
    holds: bool

    @property
    def events_per_s(self) -> float:
        return self.events / self.seconds

    @property
    def events_per_s_and_core(self) -> float:
        return self.events_per_s / self.cores


def measure(traces: list[Path], warm: Path, cores: int, memory: str = "4g") -> Verified:
    """In a program of its own."""
    words = [sys.executable, "-P", "-m", __name__, str(cores), memory, str(warm), *map(str, traces)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TotemError(f"the verification did not end well: {done.stderr.strip()[-500:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    return Verified(cores, told["runs"], told["events"], told["seconds"], told["holds"])


def main(cores: str, memory: str, warm: str, *traces: str) -> None:
    from totempole.checkers.terms import Terms
    from totempole.spark.session import LARGE, build_session
    from totempole.spark.verdicts import judge_files

    spark = build_session("totem bench spark", f"local[{cores}]", {"spark.driver.memory": memory, **LARGE})
    judge_files(spark, [Path(warm)], Terms())
    began_s = time.perf_counter()
    judged = judge_files(spark, [Path(trace) for trace in traces], Terms())
    seconds = time.perf_counter() - began_s
    undecided = any(counts.get("undecided", 0) for counts in judged.outcomes.values())
    told = {"runs": judged.runs, "events": judged.events, "seconds": seconds}
    print(json.dumps(told | {"holds": judged.holds and not undecided}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
