"""A replica's state and its log: every step is a frame, applied at once and made durable soon after.

A batch of frames goes to the disk when an input is done with (`flush`). What must not be said before the disk
has it waits for that (`gate`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from totempole.core.io import Scope
from totempole.corel.config import LogConfig
from totempole.corel.frames import Frame, Greened, Mark, decode, encode
from totempole.corel.tracing import LogTrace
from totempole.corel.zones import Ordered, Zones, replay


class Journal:
    def __init__(self, scope: Scope, config: LogConfig, trace: LogTrace) -> None:
        self.zones = Zones(config.recent_bytes)
        self.durable = 0
        """So many frames are."""
        self.waiting_bytes = 0
        """Handed to the disk, and not durable yet."""
        self._scope = scope
        self._config = config
        self._trace = trace
        self._frames: list[Frame] = []
        """Applied, and not handed to the disk yet."""
        self._is_urgent = False
        """Something waits for these frames to be durable."""
        self._under_way: deque[tuple[int, int, int]] = deque()
        """Ticket, frames in all, bytes."""
        self._segment_bytes = 0
        self._gate: deque[tuple[int, Callable[[], None]]] = deque()

    def open(self, frames: tuple[bytes, ...], zones: Zones | None = None) -> None:
        """`zones`: the state after these frames, if it is known."""
        self.zones = zones or replay(map(decode, frames), self._config.recent_bytes)
        self.durable = self.zones.frames
        self._segment_bytes = self._config.segment_bytes  # the next frame begins a segment

    def close(self) -> None:
        """What is not durable by now was promised to nobody."""
        self._frames.clear()
        self._is_urgent = False
        self._under_way.clear()
        self.waiting_bytes = 0
        self._gate.clear()

    @property
    def backlog_bytes(self) -> int:
        """What waits behind that which the disk is writing."""
        return self.waiting_bytes - self._under_way[0][2] if self._under_way else 0

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    @property
    def has_lazy_frames(self) -> bool:
        """Frames that nobody waits for, and that no other frame takes along."""
        return bool(self._frames)

    def step(self, frame: Frame) -> list[Ordered]:
        """The one way to change what the replica has. Returns the runs that have become green."""
        zones = self.zones
        if isinstance(frame, Greened):
            if self._frames and isinstance(self._frames[-1], Greened):
                self._frames.pop()
                zones.frames -= 1
        else:
            self._is_urgent = True
        if not self._frames and self._segment_bytes >= self._config.segment_bytes:
            self._begin_segment()
        self._frames.append(frame)
        return zones.apply(frame)

    def _begin_segment(self) -> None:
        zones, keep_bytes = self.zones, self._config.retention_bytes
        self._frames.append(zones.mark())
        zones.frames += 1
        if keep_bytes:
            self._scope.trim(min([zones.position, *zones.holds.values()]), keep_bytes)

    def gate(self, act: Callable[[], None]) -> None:
        """Acts when all frames so far are durable; in the order of the calls."""
        if self.durable >= self.zones.frames and not self._gate:
            act()
        else:
            self._is_urgent = True
            self._gate.append((self.zones.frames, act))

    def drop_gated(self) -> None:
        """What waits to be said belongs to a round that has ended."""
        self._gate.clear()

    def hurry(self) -> None:
        """Lets the next flush write frames that nobody waits for."""
        self._is_urgent = True

    def flush(self) -> bool:
        """Whether there was something to hand to the disk."""
        if not self._is_urgent or not self._frames:
            return False
        is_segment = isinstance(self._frames[0], Mark)
        encoded = tuple([encode(frame) for frame in self._frames])
        self._frames.clear()
        self._is_urgent = False
        size = sum(map(len, encoded))
        self._segment_bytes = size if is_segment else self._segment_bytes + size
        self._under_way.append((self._scope.append(encoded, is_segment), self.zones.frames, size))
        self.waiting_bytes += size
        return True

    def appended(self, ticket: int) -> bool:
        """Whether it was of this opening of the log."""
        if not self._under_way or self._under_way[0][0] != ticket:
            return False
        _, self.durable, size = self._under_way.popleft()
        self.waiting_bytes -= size
        self._trace.durable(self.durable)
        while self._gate and self._gate[0][0] <= self.durable:
            self._gate.popleft()[1]()
        return True
