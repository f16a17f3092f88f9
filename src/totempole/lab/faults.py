"""A fault that is on until it is undone."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType


class Fault:
    """`undo()` mends it, once; as a context manager it is mended at the end of the block."""

    def __init__(self, name: str, undo: Callable[[], None]) -> None:
        self.name = name
        self.active = True
        self._undo = undo

    def undo(self) -> None:
        if self.active:
            self.active = False
            self._undo()

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"Fault({self.name!r}, {'on' if self.active else 'undone'})"
