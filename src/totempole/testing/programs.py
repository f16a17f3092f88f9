"""A program under test: started on a node, it dies with its host and comes back with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from totempole.client.endpoint import SOCKET_HERE
from totempole.testing.virtual_loop import PLACE

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Crashed(Exception):
    """The host of the program has crashed: nobody knows what has become of what it was doing."""


class Closes(Protocol):
    """A connection, or a server."""

    def close(self) -> None: ...


class Life:
    """One life of a program: its tasks and connections. `PLACE` has it, in all of its tasks."""

    def __init__(self, host: str, socket: str) -> None:
        self.host = host
        self.is_over = False
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._connections: list[Closes] = []
        self.context = self._context(socket)

    def _context(self, socket: str) -> Context:
        context = copy_context()
        context.run(PLACE.set, self)
        context.run(SOCKET_HERE.set, socket)
        return context

    def start(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        task = asyncio.get_running_loop().create_task(work, context=self.context.copy())
        self.entered(task)
        return task

    def entered(self, task: asyncio.Task[Any]) -> None:
        if self.is_over:
            task.cancel()
        elif task not in self._tasks:
            self._tasks[task] = None
            task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if self.is_over and not task.cancelled():
            task.exception()  # nobody asks the dead

    def connected(self, end: Closes) -> None:
        self._connections.append(end)

    def end(self) -> None:
        """As by kill -9: its connections break off, and its tasks are cancelled wherever they wait."""
        self.is_over = True
        for connection in self._connections:
            connection.abort() if isinstance(connection, asyncio.Transport) else connection.close()
        for task in list(self._tasks):
            task.cancel()


class Program(Generic[T]):
    """Made by `Cluster.start`."""

    def __init__(self, node: int, make: Callable[[], Any], host: str, socket: str) -> None:
        self.node = node
        self._host = host
        self._make = make
        self._socket = socket
        self._life: Life | None = None
        self._main: asyncio.Task[Any] | None = None
        self._ready: asyncio.Future[T] | None = None
        self._ended_early = False
        """It ran when its host crashed."""
        self._is_seen = False
        """Somebody has asked for its result."""

    def __repr__(self) -> str:
        name = getattr(self._make, "__qualname__", None) or getattr(self._make, "func", self._make)
        return f"<program {getattr(name, '__qualname__', name)} on node {self.node}>"

    # For tests

    @property
    def is_running(self) -> bool:
        return self._main is not None and not self._main.done()

    @property
    def value(self) -> T:
        """What it is: that which entering its context manager has given."""
        if self._ready is None or not self._ready.done():
            raise Crashed(f"{self!r} is not there")
        return self._ready.result()

    async def ready(self) -> T:
        """The same, once it is there."""
        if self._ready is None or self._life is None or self._life.is_over:
            raise Crashed(
                f"{self!r} is not there: its host has crashed. After a restart, or a storm, "
                "`await c.settled()` waits until its programs have started again"
            )
        return await asyncio.shield(self._ready)

    async def run(
        self, method: Callable[Concatenate[T, P], Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Calls a method of its value in the program: `await store.run(Store.put, "a", 1)`. Raises `Crashed`
        if the program's host crashes meanwhile."""
        value = await self.ready()
        life = self._life
        assert life is not None, "it is ready"

        async def work() -> R:
            return await method(value, *args, **kwargs)

        return await self._outcome(life, life.start(work()))

    async def finished(self) -> Any:
        """Waits for its end, and gives its result. Raises what it has raised, or `Crashed`."""
        assert self._life is not None, "it was started"
        assert self._main is not None, "it was started"
        self._is_seen = True
        return await self._outcome(self._life, self._main)

    async def stop(self) -> None:
        """Asks it to end, as by Ctrl-C, and waits for that: it leaves its groups."""
        if self._main is not None:
            self._main.cancel()
            await asyncio.wait([self._main])

    async def _outcome(self, life: Life, task: asyncio.Task[R]) -> R:
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            raise
        if life.is_over and (task.cancelled() or task.exception() is not None):
            raise Crashed(f"node {self.node} has crashed")
        return task.result()

    # For the cluster

    def begin(self) -> None:
        self._life = life = Life(self._host, self._socket)
        self._ready = asyncio.get_running_loop().create_future()
        self._main = life.start(self._live(self._ready))
        self._main.add_done_callback(lambda main: main.cancelled() or main.exception())  # `failure` tells it

    async def _live(self, ready: asyncio.Future[T]) -> Any:
        try:
            made = self._make()
            if not hasattr(made, "__aenter__"):
                ready.set_result(made)
                return await made
            async with made as value:
                ready.set_result(value)
                await asyncio.get_running_loop().create_future()
        except BaseException as error:
            if not ready.done():
                self._is_seen = True
                told = Crashed(f"node {self.node} has crashed") if self._life_is_over else error
                ready.set_exception(told)
                ready.exception()  # nobody need be waiting
            raise

    @property
    def is_dead(self) -> bool:
        """It has died with its host."""
        return self._life_is_over and self._ended_early

    @property
    def _life_is_over(self) -> bool:
        return self._life is not None and self._life.is_over

    def end(self) -> None:
        if self._life is not None and not self._life.is_over:
            self._ended_early = self.is_running
            self._life.end()

    async def ended(self, within_s: float) -> None:
        """Waits for the end of a program that was cancelled."""
        if self._main is not None:
            await asyncio.wait([self._main], timeout=within_s)

    @property
    def failure(self) -> BaseException | None:
        """What it has raised, unless somebody has heard of it, or its host has crashed."""
        main = self._main
        if main is None or not main.done() or main.cancelled() or self._is_seen or self._life_is_over:
            return None
        return main.exception()
