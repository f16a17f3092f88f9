"""One case on an executor, so that whatever it does, a row comes of it.

In the worker's own process an exception or a run without end becomes an outcome. A run that takes the process
with it (the interpreter crashes, the kernel is out of memory) fails Spark's task; the next attempt runs each
case in a process of its own, and then only that one dies.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from multiprocessing.connection import Connection

from totempole.sim.fuzz.trial import Verdict
from totempole.spark.campaign.cases import Case
from totempole.spark.campaign.limits import LAST_S, TimeLimit, memory_limit, time_limit

TEXT_MAX = 10_000
"""Characters of a failure's text that are kept."""

Trial = Callable[[Case], Verdict]


class Ending(StrEnum):
    HOLDS = "holds"
    VIOLATED = "violated"
    TIME_LIMIT = "time limit"
    RAISED = "raised"
    """The simulator or a checker, not the protocol: what that raises is a violation."""
    DIED = "died"
    """The process that ran it."""


JUDGED = (Ending.HOLDS, Ending.VIOLATED)


@dataclass(frozen=True, slots=True)
class Run:
    """A row of the table of runs."""

    kind: str
    profile: str
    seed: int
    outcome: str
    violated: tuple[str, ...] = ()
    text: str = ""
    packet_events: int = 0
    deliveries: int = 0
    coverage: tuple[tuple[str, int], ...] = ()
    elapsed_ms: int = field(default=0, compare=False)


def run_all(cases: Iterable[Case], trial: Trial, limit_s: float, apart: bool) -> Iterator[Run]:
    """`apart`: each in a process of its own."""
    freeze_once()
    for case in cases:
        yield run_apart(case, trial, limit_s) if apart else run_here(case, trial, limit_s)


@cache
def freeze_once() -> None:
    """What a worker of Spark has loaded stays there: the collection after each run need not look at it."""
    gc.freeze()


def run_here(case: Case, trial: Trial, limit_s: float) -> Run:
    started_s = time.perf_counter()

    def ended(outcome: Ending, text: str) -> Run:
        return Run(*case, outcome, text=text[-TEXT_MAX:], elapsed_ms=_ms_since(started_s))

    try:
        with time_limit(limit_s), memory_limit():
            verdict = trial(case)
    except TimeLimit:
        return ended(Ending.TIME_LIMIT, _too_long(limit_s))
    except Exception:
        return ended(Ending.RAISED, traceback.format_exc())
    return Run(
        *case,
        Ending.VIOLATED if verdict.violated else Ending.HOLDS,
        verdict.violated,
        verdict.text[:TEXT_MAX],
        verdict.packet_events,
        verdict.deliveries,
        tuple(sorted(verdict.coverage.items())),
        _ms_since(started_s),
    )


def run_apart(case: Case, trial: Trial, limit_s: float) -> Run:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_run_and_tell, args=(sender, case, trial, limit_s))
    started_s = time.perf_counter()
    child.start()
    sender.close()
    try:
        if not receiver.poll(limit_s + LAST_S / 2):
            return Run(*case, Ending.TIME_LIMIT, text=_too_long(limit_s), elapsed_ms=_ms_since(started_s))
        run: Run = receiver.recv()
        return run
    except EOFError:
        child.join()
        return Run(*case, Ending.DIED, text=_how(child.exitcode), elapsed_ms=_ms_since(started_s))
    finally:
        child.kill()
        child.join()
        receiver.close()


def _run_and_tell(sender: Connection, case: Case, trial: Trial, limit_s: float) -> None:
    sender.send(run_here(case, trial, limit_s))
    sender.close()
    os._exit(0)  # leaves what it has from Spark's worker alone: buffers, sockets, exit handlers


def _too_long(limit_s: float) -> str:
    return f"not done after {limit_s:g} s"


def _how(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"the process that ran it was ended by {signal.Signals(-exitcode).name}"
    return f"the process that ran it ended with exit code {exitcode}"


def _ms_since(started_s: float) -> int:
    return round((time.perf_counter() - started_s) * 1_000)
