"""What a node writes down of itself: the trace, in its spool, and its inputs, for replay.

A trace's times are the wall clock's at the start plus what the steady clock has counted since: rows of
several hosts can be laid side by side, and a step of the clock does not bend a trace.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from totempole.core.effects import Effect, Records
from totempole.core.inputs import Input
from totempole.errors import TraceError
from totempole.runtime.config import NodeConfig
from totempole.runtime.recording import InputRecorder, RecordingHeader
from totempole.stack import StackSpec
from totempole.trace.recorder import Recorder
from totempole.trace.schema import LEVELS

if TYPE_CHECKING:
    from totempole.trace.spool import Spool


CLOCKS_READ_NS = 5_000
"""Both clocks are read within so little time, unless the machine is busy."""
CLOCKS_READ_MAX = 100


def wall_offset_us() -> int:
    """What the steady clock lacks of the wall clock. A process that is interrupted between the two readings
    would shift its whole trace, so that the quickest of several readings counts."""
    best_ns: int | None = None
    offset_ns = 0
    for _ in range(CLOCKS_READ_MAX):
        before_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        took_ns = time.monotonic_ns() - before_ns
        if best_ns is None or took_ns < best_ns:
            best_ns, offset_ns = took_ns, wall_ns - before_ns - took_ns // 2
        if took_ns <= CLOCKS_READ_NS:
            break
    return offset_ns // 1000


class NodeRecord:
    def __init__(
        self,
        config: NodeConfig,
        spec: StackSpec,
        stable: Records,
        key_ids: Sequence[int],
    ) -> None:
        self.failure = ""
        """Why nothing is written down any more."""
        self._inputs: InputRecorder | None = None
        self.trace_kinds = LEVELS.get(config.trace.level, frozenset())
        self._spool: Spool | None = None
        self._recorder: Recorder | None = None
        self._wall_us = wall_offset_us()
        if self.trace_kinds:
            self._open_trace(config)
        if config.trace.inputs:
            header = RecordingHeader(spec, dict(stable), self.trace_kinds, tuple(key_ids))
            config.trace_directory.mkdir(parents=True, exist_ok=True)
            name = f"inputs-{config.processor}-{stable.get('incarnation', 0) + 1}"
            self._inputs = InputRecorder(_unused(config.trace_directory, name), header)

    def _open_trace(self, config: NodeConfig) -> None:
        # Only a node that traces loads pyarrow.
        from totempole.trace.spool import Spool

        run, me = config.trace_run, config.processor
        self._spool = spool = Spool(config.trace_directory, run, me)
        self._recorder = Recorder(run, me, config.trace.level, spool)
        self._recorder.step = spool.last_step

    def begin(self, incarnation: int) -> None:
        if self._recorder is not None:
            self._recorder.incarnation = incarnation
            self._recorder.record(self._now_us(), "restart", layer="runtime")

    def end_inputs(self) -> None:
        """A new life of the processor cannot be replayed as the old one."""
        with self._going_on_without():
            if self._inputs is not None:
                self._inputs.close()
            self._inputs = None

    def left(self) -> None:
        """So that what was not delivered here is not missed (checkers)."""
        if self._recorder is not None:
            with self._going_on_without():
                self._recorder.record(self._now_us(), "leave", layer="runtime")

    def input(self, now_us: int, given: Input, effects: list[Effect]) -> None:
        if self._inputs is not None:
            with self._going_on_without():
                self._inputs.record(now_us, given, effects)

    def effects(self, now_us: int, effects: Iterable[Effect]) -> None:
        if self._recorder is not None:
            with self._going_on_without():
                self._recorder.effects(now_us + self._wall_us, effects)

    def flush(self) -> None:
        with self._going_on_without():
            if self._spool is not None:
                self._spool.flush()
            if self._inputs is not None:
                self._inputs.flush()

    def close(self) -> None:
        with self._going_on_without():
            if self._inputs is not None:
                self._inputs.close()
            if self._spool is not None:
                self._spool.close()

    @contextmanager
    def _going_on_without(self) -> Iterator[None]:
        """A trace that cannot be written ends as a legal prefix; the node orders messages all the same."""
        try:
            yield
        except TraceError as error:
            self.failure = str(error)
            self._spool = self._recorder = self._inputs = None

    def _now_us(self) -> int:
        return time.monotonic_ns() // 1000 + self._wall_us


def _unused(directory: Path, name: str) -> Path:
    """A life that ended before its first write leaves its number to the next one."""
    path = directory / f"{name}.totem"
    for again in count(2):
        if not path.exists():
            break
        path = directory / f"{name}-{again}.totem"
    return path
