"""A node's log: opened at its start, written by a thread of its own, closed and opened again when it fails.

A log that cannot be opened, or that fails, stops its replica and never its node. It is tried again every
RETRY_US, as a fresh opening: what a failed write left behind is read from the disk, never assumed.

All methods are for the driver's thread, but for `document`. Opening and closing may take long (a segment is
read, a disk hangs), so that both happen on a thread.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from secrets import randbits
from threading import Thread
from typing import Any, Protocol

from totempole.core.effects import Append, Recall, Trim
from totempole.core.inputs import Appended, Input, Recalled
from totempole.corel.commands import CloseLog, OpenLog
from totempole.corel.events import Fenced, LogAlarm, LogAnswer, Placed, Standing, StandingChanged, Unknown
from totempole.corel.fences import Fences
from totempole.corel.frames import decode
from totempole.corel.layer import Replica
from totempole.corel.zones import Zones, replay
from totempole.errors import SessionError, StorageError, StorageFullError, TotemError
from totempole.log.reader import LogReader
from totempole.runtime.config import NodeConfig
from totempole.runtime.log_clocks import Clocks
from totempole.runtime.log_holds import holds_in_words, oldest_hold
from totempole.runtime.log_serving import LogServing
from totempole.runtime.log_store import LogStore

RETRY_US = 5_000_000

FENCES_SHOWN = 100
"""Marks that the status names; a log may have thousands."""
OWN_PROCESS = 0
"""Of requests that people make of the node (log_requests.py). Programs are numbered from 1."""

CLOSING_S_MAX = 10.0
"""How long a node that ends waits for the disk to take what it was given."""

LOCATING_MAX = 4
"""Searches of the disk at the same time. Further ones are told that nothing is known."""


class Host(Protocol):
    """What a log needs of the driver."""

    def feed(self, given: Input) -> None: ...

    def at(self, due_us: int, function: Callable[[], None]) -> None: ...

    def now_us(self) -> int: ...

    def wall_us(self) -> int:
        """This host's clock."""
        ...

    def call(self, function: Callable[[], None]) -> None:
        """For any thread."""
        ...


class NodeLog:
    def __init__(
        self,
        config: NodeConfig,
        replica: Callable[[], Replica],
        host: Host,
        log: Callable[..., None],
        tell_client: Callable[[LogAnswer], None],
    ) -> None:
        """`replica` is that of the present life; `log` writes a line; `tell_client` hands an answer to the
        client that has asked."""
        self.listeners: list[Callable[[LogAnswer], None]] = []
        """Called with the answers to the node's own requests."""
        self.failure = ""
        """Why there is no log at present."""
        self.alarms: Counter[str] = Counter()
        self.last_alarm = ""
        self._config = config
        self._replica = replica
        self._host = host
        self._log = log
        self._tell_client = tell_client
        self._opening: _Opening | None = None
        self._locating = 0
        self._clocks = Clocks()
        self._serving = LogServing(config, self._say, self._unreadable) if config.log.serve else None
        self._is_serving = False
        self._is_closed = False

    # Opening

    def begin(self) -> None:
        """A life has begun: its replica has no log yet."""
        if self._serving is not None and not self._is_serving:
            self._is_serving = True
            self._serving.start()
        self._open_again()

    def _say(self, *line: Any, **fields: Any) -> None:
        """Writes a line, from any thread."""
        self._host.call(lambda: self._log(*line, **fields))

    def _unreadable(self, damage: str) -> None:
        """Found by the log service, on any thread."""
        text = (
            f"{damage}. This replica goes on without them. To have them here again, stop the node, move its "
            "log's directory away and start it: it gets all from the others"
        )
        self._host.call(lambda: self.alarmed(LogAlarm("damaged", self._config.processor, text)))

    def _open_again(self) -> None:
        if self._is_closed:
            return
        self._opening = _Opening(self, self._opening)
        self._opening.start()

    def _opened(self, opening: _Opening, found: OpenLog) -> None:
        if opening is not self._opening or self._is_closed:
            return  # a new life has begun meanwhile, and opens the log again
        opening.is_open = True
        if self.failure:
            self._log(logging.INFO, "the log is open again")
        self.failure = ""
        damage = opening.damage
        if damage:
            text = f"{damage}: this disk counts as a new one until the others have taken it in"
            self.alarmed(LogAlarm("damaged", self._replica().me, text))
        assert found.zones is not None, "it was worked out by who opened the log"
        self._log(logging.INFO, "log opened", position=found.zones.position, runs=found.zones.green_runs)
        try:
            self._host.feed(found)
        except SessionError as error:  # the groups below take no more members
            self._failed(opening, error)

    def _failed(self, opening: _Opening, error: Exception) -> None:
        """It could not be opened, or a write has failed."""
        if opening is not self._opening:
            return
        text = str(error) if isinstance(error, TotemError) else f"{type(error).__name__}: {error}"
        if isinstance(error, StorageFullError):
            text += holds_in_words(self._replica().zones.holds)
        if text != self.failure:
            what = "the log has failed" if opening.is_open else "the log cannot be opened"
            self._log(logging.ERROR, what, reason=text, again_s=RETRY_US // 1_000_000)
            self.alarms["failed"] += 1
        self.failure = text
        if opening.is_open:
            opening.is_open = False
            self._host.feed(CloseLog(text))
        self._host.at(self._host.now_us() + RETRY_US, self._open_again)

    def leave(self) -> None:
        """The node leaves its ring: the log is not opened any more."""
        self._is_closed = True

    def close(self) -> None:
        """The node ends."""
        self._is_closed = True
        if self._serving is not None:
            self._serving.close()
        opening, self._opening = self._opening, None
        if opening is None:
            return
        closing = Thread(target=opening.close, name="totempole-log-closing", daemon=True)
        closing.start()
        closing.join(CLOSING_S_MAX)
        if closing.is_alive():
            self._log(logging.WARNING, "the log's disk does not answer: ending without it")

    # Effects and events

    def execute(self, effect: Append | Recall | Trim) -> None:
        opening = self._opening
        if opening is None or not opening.is_open or opening.store is None:
            return  # it has failed, and the replica hears of it next
        match effect:
            case Append(ticket, frames, is_segment):
                opening.store.append(ticket, frames, is_segment)
            case Recall(ticket, start, bytes_max):
                opening.store.recall(ticket, start, bytes_max)
            case Trim(position, keep_bytes):
                opening.store.trim_to(position, keep_bytes)

    def trim(self, position: int) -> int:
        """Removes segments that hold only records before this position: how many. Raises SessionError if a
        reader's hold, or the log's end, is before it."""
        opening, zones = self._opening, self._replica().zones
        if opening is None or not opening.is_open or opening.store is None:
            raise SessionError(f"this node has no log open: {self.failure or 'it is being opened'}")
        for reader, held in sorted(zones.holds.items()):
            if held < position:
                raise SessionError(
                    f"reader {reader!r} holds what comes from position {held} on: trim up to there, or "
                    f"release it with `totem log hold {reader} --release`"
                )
        if position > zones.position:
            raise SessionError(f"the log ends at position {zones.position}: give at most that")
        return opening.store.trim_to(position)

    # What it has answered

    def answered(self, answer: LogAnswer) -> None:
        if answer.process == OWN_PROCESS:
            for listener in tuple(self.listeners):
                listener(answer)
        elif isinstance(answer, Unknown) and not answer.is_held:
            self._locate(answer)
        else:
            self._tell_client(answer)

    def _locate(self, question: Unknown) -> None:
        """Looks on the disk for a run that the replica has no memory of: it has been green for long, or since
        before the node's start."""
        if self._locating >= LOCATING_MAX:
            self._tell_client(question)
            return
        self._locating += 1
        Thread(target=self._look, args=(question,), name="totempole-log-locate", daemon=True).start()

    def _look(self, question: Unknown) -> None:
        process, request, run, _ = question
        found: Placed | Fenced | Unknown = question
        try:
            ordered = LogReader(self._config.log_directory).locate(run)
        except (TotemError, OSError) as error:
            failure = str(error)
            self._host.call(lambda: self._log(logging.WARNING, "the log cannot be read", reason=failure))
        else:
            if ordered is not None and ordered.fenced is not None:
                found = Fenced(process, request, run, *ordered.fenced)
            elif ordered is not None:
                found = Placed(process, request, run, ordered.position, ordered.positions, ordered.repeats)

        def done() -> None:
            self._locating -= 1
            self._tell_client(found)

        self._host.call(done)

    def standing_changed(self, told: StandingChanged) -> None:
        is_usual = told.standing in (Standing.PRIMARY, Standing.FORMING) or self._is_closed
        level = logging.INFO if is_usual else logging.WARNING
        members = ",".join(map(str, told.members))
        self._log(level, f"log {told.standing}", primary=told.primary, members=members, reason=told.why)

    def alarmed(self, alarm: LogAlarm) -> None:
        self.alarms[alarm.kind] += 1
        self.last_alarm = alarm.text
        self._log(logging.ERROR, "log alarm", kind=alarm.kind, replica=alarm.processor, text=alarm.text)

    def watch(self) -> None:
        """Called a few times a second."""
        replica = self._replica()
        if replica.is_open:
            times, now_us = replica.take_times(), self._host.wall_us()
            for alarm in self._clocks.compare(replica.me, times, replica.zones.time_us, now_us):
                self.alarmed(alarm)

    # What is shown

    def document(self) -> dict[str, Any]:
        """For the status, on any thread: every value is read once."""
        replica = self._replica()
        zones, plan = replica.zones, replica.plan
        disks = plan.disks if plan is not None else {}
        voters = zones.replicas.voters
        replicas = [
            {
                "processor": who,
                "disk": f"{voter.disk:016x}",
                "weight": voter.weight,
                "is_present": disks.get(who) == voter.disk,
                "unacknowledged_runs": _unacknowledged(replica, who),
            }
            for who, voter in sorted(voters.items())
        ]
        founders = () if voters else replica.config.replicas
        missing = [each["processor"] for each in replicas if not each["is_present"]]
        red_bytes = zones.red_bytes
        return {
            "standing": replica.standing.value,
            "failure": self.failure,
            "log": f"{zones.log:016x}",
            "disk": f"{zones.disk:016x}",
            "primary": zones.committed.number,
            "members": list(plan.members) if plan is not None else [],
            "behind": list(plan.onlookers) if plan is not None else [],
            "position": zones.position,
            "green_runs": zones.green_runs,
            "yellow_runs": len(zones.yellow),
            "yellow_bytes": max(0, zones.pending_bytes - red_bytes),
            "red_runs": len(zones.red),
            "red_bytes": red_bytes,
            "unsent_bytes": replica.outbox.bytes,
            "unwritten_bytes": replica.journal.waiting_bytes,
            "replicas": replicas,
            "missing": missing or [who for who in founders if who not in replica.members],
            "holds": dict(zones.holds),
            "oldest_hold": oldest_hold(dict(zones.holds), zones.position, self._held_bytes),
            "retention_bytes": self._config.log.retention_bytes,
            "fences": fences_document(zones.fences),
            "clocks": self._clocks.document(zones.time_us, self._host.wall_us()),
            "alarms": dict(self.alarms),
            "last_alarm": self.last_alarm,
            "service": self._serving.document() if self._serving is not None else None,
        }

    def _held_bytes(self, position: int, end: int) -> int:
        """Of what a hold keeps; without retention_bytes nothing would go without it."""
        opening, retention = self._opening, self._config.log.retention_bytes
        store = opening.store if opening is not None else None
        return store.held_bytes(position, end, retention) if store is not None and retention else 0


def fences_document(fences: Fences) -> dict[str, Any]:
    latest = fences.latest(FENCES_SHOWN)
    keys = ("name", "number", "position")
    return {"count": len(fences), "latest": [dict(zip(keys, row, strict=True)) for row in latest]}


def _unacknowledged(replica: Replica, who: int) -> int | None:
    """Runs of this primary component that the member has not acknowledged; None: it is not in it."""
    plan, tally = replica.plan, replica.tally
    if replica.standing is not Standing.PRIMARY or plan is None or who not in plan.members:
        return None
    return max(0, tally.taken - tally.acknowledged.get(who, 0))


def _replayed(frames: tuple[bytes, ...], recent_bytes: int) -> Zones:
    """On the thread that opens the log: it takes long, and frames that contradict each other fail here."""
    try:
        return replay(map(decode, frames), recent_bytes)
    except (AssertionError, KeyError, IndexError) as error:
        raise StorageError(
            f"the log's frames contradict each other ({error}): move the log's directory away; the replica "
            "begins with an empty one, and gets all from the others"
        ) from error


class _Opening:
    """One opening of the log, with the thread that makes it. Its store answers here, on its own thread."""

    def __init__(self, owner: NodeLog, before: _Opening | None) -> None:
        self.is_open = False
        self.store: LogStore | None = None
        self._owner = owner
        self._before = before
        self.damage = ""
        self._thread = Thread(target=self._run, name="totempole-log-opening", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        owner = self._owner
        if self._before is not None:
            self._before.close()
            self._before = None
        try:
            self.store = store = self._open_store(owner._config)
            opened = store.opened
            self.damage = opened.damage
            zones = _replayed(opened.frames, owner._config.log.recent_bytes)
            found = OpenLog(opened.frames, opened.kept_from, opened.is_damaged, zones, randbits(62))
        except Exception as error:  # whatever it is, the node goes on, and tries again
            failure = error
            owner._host.call(lambda: owner._failed(self, failure))
            return
        owner._host.call(lambda: owner._opened(self, found))

    def _open_store(self, config: NodeConfig) -> LogStore:
        return LogStore.open(
            config.log_directory,
            config.processor,
            config.ring.cluster_id,
            appended=self.appended,
            recalled=self.recalled,
            failed=self.failed,
            damaged=self.damaged,
            segment_bytes=config.log.segment_bytes,
            sync=config.log.sync,
        )

    def close(self) -> None:
        """Waits for the thread, and for what was given to the store."""
        if self._thread.is_alive():
            self._thread.join()
        if self.store is not None:
            self.store.close()
            self.store = None

    # The store's answers, on threads of its own

    def appended(self, tickets: tuple[int, ...]) -> None:
        self._give([Appended(ticket) for ticket in tickets])

    def recalled(self, answer: Recalled) -> None:
        self._give([answer])

    def _give(self, answers: Sequence[Appended | Recalled]) -> None:
        owner = self._owner

        def feed() -> None:
            for answer in answers:
                if owner._opening is self and self.is_open:
                    owner._host.feed(answer)

        owner._host.call(feed)

    def damaged(self, text: str) -> None:
        """Old records cannot be read: the log goes on without them."""
        owner = self._owner
        owner._host.call(lambda: owner.alarmed(LogAlarm("damaged", owner._config.processor, text)))

    def failed(self, error: StorageError) -> None:
        owner = self._owner
        owner._host.call(lambda: owner._failed(self, error))
