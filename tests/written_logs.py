"""Logs on disk as a replica writes them, for tests of readers: a segment is a mark and what follows it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from totempole.corel.frames import (
    Agreed,
    Attempted,
    Begun,
    Colour,
    Committed,
    Frame,
    Greened,
    Identified,
    Placed,
    encode,
)
from totempole.corel.quorum import NO_FORMATION, Formation, ReplicaSet, Voter
from totempole.corel.run import Hold, Run, RunId, RunKind, Stamp, pack_body, pack_records, primary_run
from totempole.corel.zones import Zones
from totempole.log.segments import Header, frame_head, seed_of, segment_name
from totempole.types import Fence

LOG, DISK, CLUSTER = 0xA11CE, 0xD15C, 7
LIFE = 1 << 20
TIME_US = 1_700_000_000_000_000


class WrittenLog:
    """A replica's log directory. What is appended is green at once."""

    def __init__(self, directory: Path, *, log: int = LOG, processor: int = 1) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.zones = Zones(recent_bytes=0)
        self.processor = processor
        self._log = log
        self._number = 0
        self._run = 0
        self._stamp = 0
        self._file = -1
        self.begin_segment()
        self._found()

    def _found(self) -> None:
        self.write(Identified(DISK + self.processor))
        self.write(Agreed(0, (), 0, NO_FORMATION, self._log))
        formation = Formation(1, (1, 2, 3))
        disks = {who: DISK + who for who in formation.members}
        founding = ReplicaSet({who: Voter(disk) for who, disk in disks.items()})
        self.write(Attempted(formation))
        self.write(Committed(formation, primary_run(formation, disks, founding), ()))
        self.green()

    def close(self) -> None:
        os.close(self._file)

    def begin_segment(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._number += 1
        zones = self.zones
        mark = zones.mark()
        header = Header(
            self.processor,
            CLUSTER,
            mark.log,
            mark.disk,
            self._number,
            mark.frames,
            mark.green_runs,
            mark.position,
            mark.time_us,
            0,
        )
        path = self.directory / segment_name(self._number)
        content = encode(mark)
        with open(path.with_suffix(".new"), "xb") as file:
            file.write(header.pack() + frame_head(seed_of(self._number), mark.frames, 0, content) + content)
        path.with_suffix(".new").rename(path)
        zones.frames += 1
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def write(self, *frames: Frame) -> None:
        out = []
        for frame in frames:
            self.zones.apply(frame)
            content = encode(frame)
            out += [frame_head(seed_of(self._number), self.zones.frames, 0, content), content]
        os.write(self._file, b"".join(out))

    def run(self, kind: RunKind, count: int, body: bytes, origin: int = 0) -> Run:
        self._run += 1
        self._stamp += 1
        who = origin or self.processor
        number = self.zones.vector.get((who, LIFE), 0) + 1
        stamp = Stamp(4, 1, self._stamp, 0)
        return Run(RunId(who, LIFE, number), stamp, TIME_US + self._run, kind, count, body)

    def place(
        self,
        payloads: Sequence[bytes],
        keys: tuple[str, ...] = (),
        *,
        log: str = "orders",
        origin: int = 0,
        fence: Fence | None = None,
    ) -> Run:
        """A yellow run."""
        body = pack_records(log, list(payloads), keys, fence)
        run = self.run(RunKind.RECORDS, len(payloads), body, origin)
        self.write(Placed(run, Colour.YELLOW))
        return run

    def green(self) -> None:
        self.write(Greened(self.zones.green_runs + len(self.zones.yellow)))

    def append(
        self,
        payloads: Sequence[bytes],
        keys: tuple[str, ...] = (),
        *,
        log: str = "orders",
        origin: int = 0,
        fence: Fence | None = None,
    ) -> Run:
        run = self.place(payloads, keys, log=log, origin=origin, fence=fence)
        self.green()
        return run

    def hold(self, reader: str, position: int) -> None:
        self.write(Placed(self.run(RunKind.HOLD, 0, pack_body(Hold(reader, position))), Colour.YELLOW))
        self.green()

    def trim(self, before: int) -> None:
        """Segments of lower numbers go."""
        for number in range(1, before):
            (self.directory / segment_name(number)).unlink(missing_ok=True)

    def begin_anew(self, donor: WrittenLog) -> None:
        """It was behind, and others have trimmed what it lacks: it goes on with the state of one of them."""
        self.write(Begun(donor.zones.mark()))
        self._stamp = donor._stamp
