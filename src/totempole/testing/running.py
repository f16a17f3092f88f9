"""Runs tests in virtual time: one, or the same one for many seeds. A seed that fails is reported with the
command that runs it again, and its storms are reduced to the faults that matter."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator
from itertools import islice
from types import FrameType
from typing import Any, ParamSpec, TypeVar
from unittest import SkipTest

from totempole.testing.faults import code, shrink
from totempole.testing.trial import TRIAL, Trial
from totempole.testing.virtual_loop import LIMIT_S, TimeOver, VirtualLoop

P = ParamSpec("P")
T = TypeVar("T")
Test = Callable[P, Coroutine[Any, Any, T]]

SEED_VARIABLE = "TOTEMPOLE_SEED"
"""Only this seed is run."""
REAL_VARIABLE = "TOTEMPOLE_REAL"
"""If it is set, tests run on real daemons."""
SHRINK_RUNS_MAX = 100


def run(
    test: Test[[], T] | Coroutine[Any, Any, T],
    *,
    seed: int | None = None,
    limit: float = LIMIT_S,
    real: bool | None = None,
) -> T:
    """Runs a coroutine, or a coroutine function, in virtual time. `seed`: of its clusters, if they name none.
    TimeOver is raised when `limit` virtual seconds are over. `real`: in real time, on real daemons; not
    given: if TOTEMPOLE_REAL is set, as `pytest --totem-real` does."""
    __tracebackhide__ = True  # pytest then shows the lines of the test, not ours
    chosen = int(os.environ.get(SEED_VARIABLE, "0")) if seed is None else seed
    return _run(
        test() if callable(test) else test, Trial(chosen, _is_real() if real is None else real), limit
    )


def _is_real() -> bool:
    return bool(os.environ.get(REAL_VARIABLE))


def _run(test: Coroutine[Any, Any, T], trial: Trial, limit: float) -> T:
    __tracebackhide__ = True
    return _run_real(test, trial) if trial.real else _run_virtual(test, trial, limit)


def _run_real(test: Coroutine[Any, Any, T], trial: Trial) -> T:
    async def main() -> T:
        TRIAL.set(trial)
        return await test

    return asyncio.run(main())


def _run_virtual(test: Coroutine[Any, Any, T], trial: Trial, limit: float) -> T:
    __tracebackhide__ = True
    is_late: list[str] = []

    async def main() -> T:
        TRIAL.set(trial)
        task = asyncio.current_task()
        assert task is not None, "it runs"

        def cut_off() -> None:
            is_late.extend(_waiting(task) if not is_late else ())
            task.cancel()

        loop.on_limit = cut_off
        return await test

    loop = VirtualLoop(limit)
    failed: list[BaseException] = []

    def keep(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, asyncio.CancelledError):
            return  # Python 3.11's streams ask a task that was cancelled for its exception
        if "handle" in context and error is not None:
            failed.append(error)
        loop.default_exception_handler(context)

    loop.set_exception_handler(keep)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            result = runner.run(main())
            if failed:
                raise failed[0]  # by a callback, whom nobody waits for
            return result
        except asyncio.CancelledError as error:
            if not is_late:
                raise
            late = TimeOver("\n  ".join([f"{limit:g} virtual seconds are over; what waits:", *is_late]))
            for note in getattr(error, "__notes__", ()):
                late.add_note(note)
            raise late from None


def _waiting(main: asyncio.Task[Any]) -> list[str]:
    """Where tasks stand: the innermost line of each that is not of asyncio or of this package."""
    lines = []
    for task in sorted(asyncio.all_tasks(), key=hash):
        frames = [*_frames(task.get_coro())]
        own = [frame for frame in frames if not frame.f_globals.get("__name__", "").startswith(_OTHERS)]
        if own or task is main:
            inner = (own or frames)[-1]
            where = f"{os.path.basename(inner.f_code.co_filename)}:{inner.f_lineno}"
            lines.append(f"{where} in {inner.f_code.co_qualname}" + ", of the test" * (task is main))
    return lines


_OTHERS = ("asyncio", "totempole.", "contextlib")


def _frames(awaited: Any) -> Iterator[FrameType]:
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)


class SeedFailed(AssertionError):
    """With the seed, the command that runs it again, and the faults that matter, as its text."""

    def __init__(self, seed: int, text: str) -> None:
        super().__init__(text)
        self.seed = seed


def seeds(
    which: int | Iterable[int], *, limit: float = LIMIT_S, shrink_runs: int = SHRINK_RUNS_MAX
) -> Callable[[Callable[P, Coroutine[Any, Any, Any]]], Callable[P, None]]:
    """Runs an asynchronous test for each of these seeds: `@seeds(200)` is 0 to 199.

    The first seed that fails is reported. If the test has storms, their faults are left out one by one, in at
    most `shrink_runs` runs, as long as it fails in the same way.
    """
    numbers = range(which) if isinstance(which, int) else tuple(which)

    def decorate(test: Callable[P, Coroutine[Any, Any, Any]]) -> Callable[P, None]:
        @functools.wraps(test)
        def run_all(*args: P.args, **kwargs: P.kwargs) -> None:
            __tracebackhide__ = True
            for seed in _chosen(numbers):
                trial = Trial(seed, _is_real(), swept=True)
                try:
                    _run(test(*args, **kwargs), trial, limit)
                except SkipTest:
                    raise
                except Exception as error:
                    again = functools.partial(test, *args, **kwargs)
                    text = _report(test, again, trial, error, limit, shrink_runs)
                    raise SeedFailed(seed, text) from error

        return run_all

    return decorate


def _chosen(numbers: Iterable[int]) -> Iterable[int]:
    """Of a real cluster one run is as good as another."""
    given = os.environ.get(SEED_VARIABLE)
    if given is not None:
        return [int(given)]
    return islice(numbers, 1) if _is_real() else numbers


def _report(
    test: Callable[..., Any],
    again: Callable[[], Coroutine[Any, Any, Any]],
    trial: Trial,
    error: Exception,
    limit: float,
    shrink_runs: int,
) -> str:
    name = getattr(test, "__qualname__", str(test))
    where = os.path.relpath(inspect.getfile(inspect.unwrap(test)))
    lines = [
        f"seed {trial.seed}: {type(error).__name__}: {error}",
        f"run it again: {SEED_VARIABLE}={trial.seed} pytest {where}::{name.replace('.<locals>', '')}",
    ]
    count = sum(map(len, trial.drawn))
    if count and not trial.real:

        def fails(storms: list[Any]) -> bool:
            try:
                _run(again(), Trial(trial.seed, instead=storms), limit)
            except type(error):
                return True
            except Exception:
                return False
            return False

        fewer = shrink(trial.drawn, fails, shrink_runs)
        left = sum(map(len, fewer))
        these = "this one is enough" if left == 1 else f"these {left} are enough, each"
        lines.append(f"of {count} faults {these} in place of its storm:")
        lines += [code(storm) for storm in fewer]
    return "\n".join(lines)
