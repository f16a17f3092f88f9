"""Programs that wait for runs: who asked for which, and what they are told.

A run is accepted, becomes durable at this replica, and has its place; or nobody here will know.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from totempole.core.io import Scope
from totempole.corel.events import Accepted, Durable, Fenced, Lost, Placed, Unknown
from totempole.corel.fences import FenceMark
from totempole.corel.run import RunId
from totempole.corel.zones import Ordered

PLACES_MAX = 65_536
"""Green runs whose places can be asked for without reading the log."""


class _Request(NamedTuple):
    process: int
    request: int


class _Place(NamedTuple):
    """What is remembered of a green run that was let in: no records."""

    position: int
    positions: int
    repeats: tuple[tuple[int, int], ...]


class Requests:
    def __init__(self, scope: Scope) -> None:
        self._tell = scope.tell
        self._waiting: dict[RunId, tuple[_Request, ...]] = {}
        self._undurable: deque[tuple[int, RunId]] = deque()
        """Until so many frames are durable."""
        self._places: OrderedDict[RunId, _Place | FenceMark] = OrderedDict()
        """A mark: it has kept the run out."""

    def accept(self, process: int, request: int, run: RunId) -> None:
        self._waiting[run] = (_Request(process, request),)
        self._tell(Accepted(process, request, run))

    def logged(self, run: RunId, frames: int) -> None:
        """The run is in the last of so many frames."""
        if run in self._waiting:
            self._undurable.append((frames, run))

    def became_durable(self, frames: int) -> None:
        while self._undurable and self._undurable[0][0] <= frames:
            run = self._undurable.popleft()[1]
            for request in self._waiting.get(run, ()):
                self._tell(Durable(*request, run))

    def ordered(self, ordered: Ordered) -> None:
        run = ordered.run.id
        place: _Place | FenceMark = _Place(ordered.position, ordered.positions, ordered.repeats)
        if ordered.fenced is not None:
            place = ordered.fenced
        self._places[run] = place
        if len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)
        for request in self._waiting.pop(run, ()):
            self._tell_place(request, run, place)

    def find(self, process: int, request: int, run: RunId, is_held: Callable[[RunId], bool]) -> None:
        """Answers now, or when a run that this replica holds gets its place."""
        place = self._places.get(run)
        if place is not None:
            self._tell_place(_Request(process, request), run, place)
            return
        held = is_held(run)
        if held:
            self._waiting[run] = (*self._waiting.get(run, ()), _Request(process, request))
        self._tell(Unknown(process, request, run, held))

    def _tell_place(self, request: _Request, run: RunId, place: _Place | FenceMark) -> None:
        if isinstance(place, FenceMark):
            self._tell(Fenced(request.process, request.request, run, *place))
        else:
            self._tell(Placed(request.process, request.request, run, *place))

    def forget(self, process: int) -> None:
        """It is gone: nobody waits for its answers."""
        for run, requests in list(self._waiting.items()):
            left = tuple([each for each in requests if each.process != process])
            if left:
                self._waiting[run] = left
            else:
                del self._waiting[run]

    def give_up(self, why: str, is_lost: Callable[[RunId], bool] = lambda _run: True) -> None:
        """Nobody here will know what becomes of these runs."""
        for run in [run for run in self._waiting if is_lost(run)]:
            for request in self._waiting.pop(run):
                self._tell(Lost(*request, run, why))

    def close(self, why: str) -> None:
        self._undurable.clear()
        self.give_up(why)
