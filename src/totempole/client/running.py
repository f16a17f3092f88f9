"""`totempole.run`: an asyncio program, with what a program that is a member of groups wants around it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from totempole.errors import TotemError

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, on uvloop where that is installed, with an orderly end upon SIGTERM.

    SIGTERM cancels `main`, as Ctrl-C does: its `async with` blocks end sessions and leave rings. Then the
    program exits with 0. A second SIGTERM ends it where it is. A program that has set a handler of its own
    keeps it.

    Where an event loop runs already, as in Jupyter, write `await main()`.
    """
    if not asyncio.iscoroutine(main):
        raise TypeError(
            f"run takes a coroutine, not {main!r}: write `totempole.run(main())`, with the parentheses"
        )
    _refuse_within_a_loop(main)
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        from uvloop import new_event_loop as factory
    terminated = threading.Event()
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(_until_terminated(main, terminated))
    except asyncio.CancelledError:
        if terminated.is_set():
            raise SystemExit(0) from None
        raise


def _refuse_within_a_loop(main: Coroutine[Any, Any, Any]) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    name = getattr(main, "__name__", "main")
    main.close()  # nobody will await it
    raise TotemError(
        f"an event loop runs here already, as in Jupyter: write `await {name}()` in place of "
        f"`totempole.run({name}())`"
    )


async def _until_terminated(main: Coroutine[Any, Any, T], terminated: threading.Event) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def terminate() -> None:
        terminated.set()
        loop.remove_signal_handler(signal.SIGTERM)  # the second one is the system's
        task.cancel()

    is_main = threading.current_thread() is threading.main_thread()
    takes_signal = is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if takes_signal:
        loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await main
    finally:
        if takes_signal:
            loop.remove_signal_handler(signal.SIGTERM)
