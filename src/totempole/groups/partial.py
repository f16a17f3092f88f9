"""Pieces of what was too large for one packet, put together again.

A process has at most one unit under way in pieces, and one more of state for a joiner, since each lane is
emptied in order (lanes.py). What each sender has under way is bounded by its own `partial_bytes_max`.
"""

from __future__ import annotations

from typing import NamedTuple

from totempole.errors import CodecError
from totempole.groups.body import Run, RunKind
from totempole.types import ProcessId


class _Partial(NamedTuple):
    total: int
    number: int
    pieces: list[bytes]


class Partials:
    def __init__(self) -> None:
        self._under_way: dict[tuple[ProcessId, bool], tuple[_Partial, int]] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def bytes(self) -> int:
        return sum(received for _, received in self._under_way.values())

    def clear(self) -> None:
        """The configuration is over: what is not whole by now is sent again from the start."""
        self._under_way.clear()

    def forget(self, sender: ProcessId) -> None:
        """It is gone, perhaps in the middle of a piece of state."""
        self._under_way.pop((sender, False), None)
        self._under_way.pop((sender, True), None)

    def add(self, sender: ProcessId, run: Run) -> Run | None:
        """The run as it was sent, when it is whole with this piece."""
        length = len(run.content)
        if length == run.total:
            return run
        if not length:
            raise CodecError("group piece empty")
        lane = (sender, run.kind == RunKind.STATE)
        if run.offset == 0:
            self._under_way[lane] = (_Partial(run.total, run.number, []), 0)
        partial, received = self._under_way.get(lane, (None, 0))
        if partial is None or (run.offset, run.total, run.number) != (
            received,
            partial.total,
            partial.number,
        ):
            raise CodecError("group piece out of place")
        partial.pieces.append(bytes(run.content))  # not a view: that would keep the whole packet
        received += length
        assert 0 < received <= run.total, "pieces end within their unit"
        if received < run.total:
            self._under_way[lane] = (partial, received)
            return None
        del self._under_way[lane]
        content = b"".join(partial.pieces)
        assert len(content) == run.total, "what is whole is as long as it was"
        return run._replace(offset=0, content=content)
