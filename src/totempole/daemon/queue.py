"""What a client has not read yet: bounded, and what happens at the bound.

A frame for many clients is kept once (`Outgoing`) and counted once (`Memory`), in however many queues it is.
Each queue has its own bound too. A queue that has reached it takes no more, and its policy takes effect:

- disconnect: the client has to go.
- shed: messages of the group are left out until half of the queue is read; then, or before the next thing
  that is told about the group, a Gap says how many. Views are never left out: they may go over the bound by a
  quarter, then the client has to go.
- block: `blocks` says that the queue is over half full; the client's own sends wait meanwhile (`account`).
  At the bound it has to go: what others send cannot wait.

One thing always fits into a queue below its bound, however large; and while a large one is in it, the queue
may hold as much more: a client that reads as fast as it can must not be found too slow for the sake of one
large message. So the bound is exceeded by one message at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from totempole.groups.events import BecameSafe, GroupEvent, GroupMessages
from totempole.session import Gap, Policy
from totempole.session.codec import encode
from totempole.session.shared import SHARED_LEAST
from totempole.types import Payload

FRAME_OVERHEAD = 160
"""What a frame takes beside its bytes."""

LARGE_SHARE = 8
"""An event that takes more than this part of a queue is a large one."""

GATHERED_MAX = 64
GATHERED_BYTES_MAX = 1024 * 1024
"""Buffers and bytes that one call writes."""


class Memory:
    """Bytes in all queues together."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class Outgoing:
    """A frame as the buffers to write, in any number of queues."""

    __slots__ = ("buffers", "holders", "length", "weight")

    def __init__(self, buffers: tuple[Payload, ...], weight: int | None = None) -> None:
        self.buffers = buffers
        self.length = sum(map(len, buffers))
        self.weight = self.length + FRAME_OVERHEAD if weight is None else weight
        self.holders = 0


class ClientQueue:
    def __init__(self, bytes_max: int, memory: Memory) -> None:
        self.bytes = 0
        """The weight of all that waits."""
        self.bytes_max = bytes_max
        self.shed = 0
        """Messages left out."""
        self.exchange: Callable[[Outgoing], Outgoing | None] | None = None
        """Gives a frame to write in place of a large one, if that can be had."""
        self._memory = memory
        self._frames: deque[Outgoing] = deque()
        self._written = 0
        """Of the first frame."""
        self._policies: dict[str, Policy] = {}
        self._blocking = 0
        self._shedding = False
        self._appended = self._dropped = 0
        self._large: deque[tuple[int, int]] = deque()
        """Large events in the queue: up to where `_dropped` has to come, and what each weighs."""
        self._gaps: dict[str, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._frames)

    # Policies

    def set_policy(self, group: str, policy: Policy | None) -> Policy | None:
        """From now on; None: the client has left the group. What it was before."""
        before = self._policies.pop(group, None)
        if policy is not None:
            self._policies[group] = policy
        self._blocking += (policy is Policy.BLOCK) - (before is Policy.BLOCK)
        return before

    @property
    def blocks(self) -> bool:
        return self._blocking > 0 and self.bytes > self.bytes_max // 2

    @property
    def _room(self) -> int:
        if not self._large:
            return self.bytes_max
        return self.bytes_max + max(weight for _, weight in self._large)

    # What comes in

    def put(self, frame: Outgoing, above: bool = False) -> bool:
        """An answer, or (`above`) news that may go over the bound by a quarter, as views may. False, and not
        taken, when the client has to go."""
        room = self._room
        if self.bytes >= (room + room // 4 if above else room):
            return False
        self._append(frame)
        return True

    def push(self, frames: Sequence[Outgoing]) -> bool:
        """What the client can get elsewhere, too: it has half of the queue. False, and not taken, when that
        is full."""
        if self.bytes >= self.bytes_max // 2:
            return False
        self._append_all(frames)
        return True

    def tell(self, event: GroupEvent, frames: Sequence[Outgoing]) -> bool:
        """An event and its frames. False, and not taken, when the client has to go."""
        if self.bytes < self._room and not self._shedding:
            self._append_all(frames)
            return True
        return self._tell_at_the_bound(event, frames)

    def _tell_at_the_bound(self, event: GroupEvent, frames: Sequence[Outgoing]) -> bool:
        is_messages = isinstance(event, (GroupMessages, BecameSafe))
        groups = [group for group in _groups_of(event) if group in self._policies]
        if not groups:
            return True  # it has left: what is still on its way need not reach it
        room = self._room
        if all(self._policies[group] is Policy.SHED for group in groups):
            if is_messages:
                self._leave_out(event, groups)
                return True
            room += room // 4
        if self.bytes >= room:
            return False
        for group in groups:
            self._close_gap(group)
        self._append_all(frames)
        return True

    def _leave_out(self, event: GroupEvent, groups: Sequence[str]) -> None:
        self._shedding = True
        if isinstance(event, GroupMessages):
            self.shed += event.count
            for group in groups:
                count, size = self._gaps.get(group, (0, 0))
                self._gaps[group] = (count + event.count, size + len(event.batch))

    def _close_gap(self, group: str) -> None:
        gap = self._gaps.pop(group, None)
        if gap is not None:
            self._append(Outgoing((encode(Gap(group, *gap)),)))

    def _append_all(self, frames: Sequence[Outgoing]) -> None:
        before = self._appended
        for frame in frames:
            self._append(frame)
        weight = self._appended - before
        if weight > self.bytes_max // LARGE_SHARE:
            self._large.append((self._appended, weight))

    def _append(self, frame: Outgoing) -> None:
        if not frame.holders:
            self._memory.bytes += frame.weight
        frame.holders += 1
        self.bytes += frame.weight
        self._appended += frame.weight
        self._frames.append(frame)

    # What goes out

    def gather(self) -> list[Payload]:
        """The next buffers to write, as many as one call should."""
        buffers: list[Payload] = []
        size = 0
        for place, frame in enumerate(islice(self._frames, GATHERED_MAX // 2)):
            size += frame.length
            if self.exchange is not None and frame.length >= SHARED_LEAST and (place or not self._written):
                frame = self._exchanged(place, frame)
            buffers += frame.buffers
            if size >= GATHERED_BYTES_MAX:
                break
        skip = self._written
        while skip and skip >= len(buffers[0]):
            skip -= len(buffers.pop(0))
        if skip:
            buffers[0] = memoryview(buffers[0])[skip:]
        return buffers

    def _exchanged(self, place: int, frame: Outgoing) -> Outgoing:
        assert self.exchange is not None
        small = self.exchange(frame)
        if small is None:
            return frame
        self._drop(frame)
        small.holders = 1
        self._frames[place] = small
        return small

    def written(self, count: int) -> None:
        """So many of the bytes that were gathered are gone."""
        frames = self._frames
        count += self._written
        while frames and count >= frames[0].length:
            count -= frames[0].length
            self._drop(frames.popleft())
        self._written = count
        if self._shedding and self.bytes < self.bytes_max // 2:
            self._shedding = False
            for group in list(self._gaps):
                self._close_gap(group)

    def _drop(self, frame: Outgoing) -> None:
        self.bytes -= frame.weight
        self._dropped += frame.weight
        while self._large and self._dropped >= self._large[0][0]:
            self._large.popleft()
        frame.holders -= 1
        if not frame.holders:
            self._memory.bytes -= frame.weight

    def clear(self) -> None:
        """Forgets what waits, but for the frame of which a part is written."""
        keep = self._frames.popleft() if self._written else None
        for frame in self._frames:
            self._drop(frame)
        self._frames.clear()
        self._gaps.clear()
        if keep is not None:
            self._frames.append(keep)

    def close(self, last: Outgoing, after_all: bool) -> None:
        """This is the last to be written: after all that waits, or only what has been begun."""
        if not after_all:
            self.clear()
        self._append(last)

    def discard(self) -> None:
        """Nothing is written any more."""
        self._written = 0
        self.clear()


def _groups_of(event: GroupEvent) -> tuple[str, ...]:
    return event.groups if isinstance(event, (GroupMessages, BecameSafe)) else (event.group,)
