"""Recording what clients of a real system called and were told, and judging it.

    history = History()
    call = history.begin("client 1", "transfer", "ann", "bob", 10)
    try:
        call.returned(await bank.call(Bank.transfer, "ann", "bob", 10))
    except Refused as refusal:
        call.raised(refusal)
    ...
    assert_linearizable(history.calls(), ClassModel(Bank))

A call for which nothing is said after its begin may have taken effect or not: `Unknown`. Of a call that has
surely had no effect one says `without_effect`.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from totempole.checkers.class_model import Raised
from totempole.checkers.linearizability import STEPS_MAX, Call, Judgement, Model, judge
from totempole.checkers.verdict import Outcome
from totempole.testing.virtual_loop import VirtualLoop

FORMAT = "totempole history 1"
_RAISED = "raised"
TICK_S = 1e-9


class NotLinearizable(AssertionError):
    """With the report as its text."""

    def __init__(self, judgement: Judgement) -> None:
        super().__init__(str(judgement))
        self.judgement = judgement


class Undecided(AssertionError):
    """The history is too hard to be judged within the bound. It may be bad."""

    def __init__(self, judgement: Judgement) -> None:
        super().__init__(str(judgement))
        self.judgement = judgement


def assert_linearizable(calls: Iterable[Call], model: Model, *, steps_max: int = STEPS_MAX) -> Judgement:
    """For tests. Raises NotLinearizable, or Undecided."""
    judgement = judge(calls, model, steps_max=steps_max)
    if judgement.outcome is Outcome.VIOLATED:
        raise NotLinearizable(judgement)
    if judgement.outcome is Outcome.UNDECIDED:
        raise Undecided(judgement)
    return judgement


class History:
    """Calls of any number of tasks and threads. Histories of several processes of one host have one clock,
    and can be put together."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """`clock`: not given, the host's, or that of simulated time where the history is made in it."""
        self._clock = clock or _clock_here()
        self._lock = threading.Lock()
        self._calls: dict[int, Call] = {}
        self._last = 0

    def begin(self, client: str, operation: str, *arguments: Any) -> OpenCall:
        """Before the call is made."""
        with self._lock:
            self._last += 1
            self._calls[self._last] = Call(client, operation, arguments, self._clock())
            return OpenCall(self, self._last)

    def end(self, number: int, result: Any) -> None:
        with self._lock:
            call = self._calls[number]
            if not call.is_pending:
                raise ValueError(f"the call has ended already: {call}")
            self._calls[number] = replace(call, ended=self._clock(), result=result)

    def drop(self, number: int) -> None:
        with self._lock:
            del self._calls[number]

    def calls(self) -> list[Call]:
        with self._lock:
            return list(self._calls.values())

    def save(self, path: Path) -> None:
        """A line for each call. Arguments and results must be what JSON can carry."""
        lines = [json.dumps(FORMAT)]
        for call in self.calls():
            values = asdict(call)
            values[_RAISED] = isinstance(call.result, Raised)
            lines.append(json.dumps(values, ensure_ascii=False))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    @staticmethod
    def load(*paths: Path) -> list[Call]:
        """The calls of all these files."""
        calls = []
        for path in paths:
            first, *lines = path.read_text(encoding="utf-8").splitlines()
            if json.loads(first) != FORMAT:
                raise ValueError(f"{path} is no history")
            for line in lines:
                values = json.loads(line)
                if values.pop(_RAISED):
                    values["result"] = Raised(*values["result"])
                values["arguments"] = tuple(values["arguments"])
                calls.append(Call(**values))
        return calls


def _clock_here() -> Callable[[], float]:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return time.monotonic
    return _ticking(loop) if isinstance(loop, VirtualLoop) else time.monotonic


def _ticking(loop: VirtualLoop) -> Callable[[], float]:
    """Virtual time stands still while programs run: what happens in one instant is told apart."""
    last, ticks = -1.0, 0

    def now() -> float:
        nonlocal last, ticks
        instant = loop.time()
        ticks = ticks + 1 if instant == last else 0
        last = instant
        return instant + ticks * TICK_S

    return now


class OpenCall:
    """A call that is under way."""

    __slots__ = ("_history", "_number")

    def __init__(self, history: History, number: int) -> None:
        self._history = history
        self._number = number

    def returned(self, result: Any = None) -> None:
        self._history.end(self._number, result)

    def raised(self, error: Exception) -> None:
        """The object itself has raised it: a result like any other."""
        self._history.end(self._number, Raised(type(error).__name__, str(error)))

    def without_effect(self) -> None:
        """The call was refused before anything was done."""
        self._history.drop(self._number)
