"""The durable order's rows of the trace. A row is built only where the level asks for its kind.

Steps that move many runs at once, those of a handler, are told by what differs from what was told before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

from totempole.core.io import Scope
from totempole.corel.frames import (
    Agreed,
    Attempted,
    Begun,
    Colour,
    Committed,
    Frame,
    Greened,
    Placed,
    Promoted,
)
from totempole.corel.messages import (
    Acknowledge,
    Attempt,
    CaughtUp,
    Commit,
    Data,
    Fetch,
    Message,
    Round,
    State,
)
from totempole.corel.quorum import NO_SET, Formation, ReplicaSet
from totempole.corel.recovery import Plan
from totempole.corel.run import Run, RunId, RunKind, records_of
from totempole.corel.zones import Ordered, Zones, set_after
from totempole.types import ProcessorId

CRC_START = 1
"""Where digests begin, so that the digest of nothing is not 0, which stands for no digest."""

CUT_OFF = "cut off"
"""Written as a phase: a transitional view has come, so what follows is red."""

_COLOURS = {colour: colour.name.lower() for colour in Colour}
_RED, _YELLOW, _GREEN = (_COLOURS[colour] for colour in Colour)
_KINDS = {kind: kind.name.lower() for kind in RunKind}
_STEPS: dict[type[Frame], str] = {
    Placed: "placed",
    Promoted: "promoted",
    Greened: "greened",
    Agreed: "agreed",
    Committed: "committed",
    Begun: "mark",
}


class _Shown(NamedTuple):
    """A run that is not green, as the trace has it."""

    run: Run
    place: int
    """-1: it is red."""

    @property
    def colour(self) -> str:
        return _RED if self.place < 0 else _YELLOW


class LogTrace:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._on = scope.traces("colour")
        self._is_checked = scope.traces("acknowledge")
        self._barriers = scope.traces("barrier")
        self._digests = scope.traces("receive")
        """Whether contents are compared: not at the level that is cheap enough to leave on."""
        self._shown: dict[RunId, _Shown] = {}
        self._set: ReplicaSet = NO_SET
        self._committed = 0
        self._frames = 0
        self._zones = Zones()

    # The log

    def opened(self, zones: Zones, life: int, awaits: str, is_damaged: bool) -> None:
        self._zones = zones
        self._shown.clear()
        self._set = NO_SET
        self._committed = zones.committed.number
        if not self._on:
            return
        self._row(
            "log_open",
            life=life,
            disk=zones.disk,
            frames=zones.frames,
            position=zones.position,
            primary=zones.committed.number,
            voters=zones.committed.members,
            awaits=awaits,
            reason="damaged" if is_damaged else "",
            vector=_vector(zones),
            green_runs=zones.green_runs,
        )
        self._tell_set("open", zones.green_runs - 1, zones.replicas)
        self._frames = zones.frames
        self._tell_pending("open", ())

    def closed(self, why: str) -> None:
        if self._on:
            self._row("log_close", detail=why)

    def stepped(self, frame: Frame, ordered: list[Ordered], plan: Plan | None) -> None:
        """The journal has taken a step."""
        if not self._on:
            return
        self._frames = self._zones.frames
        match frame:
            case Placed(run, colour) if colour is not Colour.GREEN:
                self._placed(run, colour)
            case Promoted(runs):
                self._promoted(runs)
            case Greened():
                for each in ordered:
                    self._greened(each, "greened")
            case Attempted(formation):
                self._primary("attempted", formation, plan)
            case Agreed() | Committed() | Begun() | Placed():
                self._tell_pending("fetched" if isinstance(frame, Placed) else _STEPS[type(frame)], ordered)
                if isinstance(frame, Committed):
                    self._committed = frame.formation.number
                    self._primary("committed", frame.formation, plan)
                elif isinstance(frame, Begun):
                    position, vector = self._zones.position, _vector(self._zones)
                    self._row("fetched", reason="mark", position=position, vector=vector)
                    self._tell_set("mark", self._zones.green_runs - 1, self._zones.replicas)
            case _:
                pass
        self._learn()

    def accepted(self, run: Run) -> None:
        if not self._on:
            return
        columns = self._of(run)
        if run.kind is RunKind.RECORDS:
            records = records_of(run)
            columns |= {"log": records.log, "keys": records.keys}
            if records.fence is not None:
                name, number, low, high = records.fence
                columns |= {"fence": name, "fence_bounds": (low, high, number)}
        self._row("accept", **columns)

    def durable(self, frames: int) -> None:
        if self._is_checked:
            self._row("durable", frames=frames)

    # The handler

    def phase(
        self, old: str, new: str, why: str, round: Round, members: tuple[ProcessorId, ...], plan: Plan | None
    ) -> None:
        if not self._on:
            return
        columns = {"old_state": old, "new_state": new, "members": members, **_round(round)}
        zones = self._zones
        self._row("phase", primary=zones.committed.number, disk=zones.disk, detail=why, **columns)
        if new == "primary":
            self._primary("established", self._zones.committed, plan)

    def said(self, message: Message) -> None:
        """The message leaves."""
        if not self._is_checked:
            return
        match message:
            case Data() | Acknowledge():
                reason, frames, columns = "runs", message.frames, {"count": message.acknowledged}
                if not message.acknowledged:
                    return
            case State():
                reason, frames, columns = "state", message.frames, {"primary": message.committed.number}
            case Attempt():
                reason, frames, columns = "attempt", 0, {"primary": message.number}
            case Commit():
                reason, frames, columns = "commit", 0, {"primary": message.number}
            case CaughtUp():
                reason, frames, columns = "caught up", 0, {}
            case _:
                return
        self._row("acknowledge", reason=reason, frames=frames, **columns, **_round(message.round))

    def fetched(self, count: int, start: int) -> None:
        if self._on:
            self._row("fetched", reason="runs", count=count, place=start, position=self._zones.position)

    def recalled(self, asker: ProcessorId, fetch: Fetch) -> None:
        if self._scope.traces("recall"):
            self._row("recall", origin=asker, place=fetch.start, bytes=fetch.bytes_max)

    def barrier(self, what: str, count: int, place: int = -1) -> None:
        if self._barriers:
            self._row("barrier", reason=what, count=count, place=place)

    # Colours

    def _placed(self, run: Run, colour: Colour) -> None:
        zones = self._zones
        place = zones.green_runs + len(zones.yellow) - 1 if colour is Colour.YELLOW else -1
        self._colour(run, "", _COLOURS[colour], place, "placed")
        self._shown[run.id] = _Shown(run, place)

    def _promoted(self, runs: Iterable[RunId]) -> None:
        zones = self._zones
        yellow = {run.id: place for place, run in enumerate(zones.yellow, zones.green_runs)}
        for run in runs:
            shown = self._shown[run]
            self._colour(shown.run, shown.colour, _YELLOW, yellow[run], "promoted")
            self._shown[run] = _Shown(shown.run, yellow[run])

    def _greened(self, ordered: Ordered, step: str) -> None:
        run = ordered.run
        shown = self._shown.pop(run.id, None)
        repeats = {
            "repeats": tuple([index for index, _ in ordered.repeats]),
            "firsts": tuple([position for _, position in ordered.repeats]),
        }
        old = "" if shown is None else shown.colour
        kept_out = () if ordered.fenced is None else tuple(ordered.fenced)
        columns = {"position": ordered.position, "kept_out": kept_out, **repeats}
        self._colour(run, old, _GREEN, ordered.place, step, **columns)
        if run.kind is RunKind.CHANGE or run.kind is RunKind.PRIMARY:
            self._tell_set(_KINDS[run.kind], ordered.place, set_after(self._set, run))

    def _tell_pending(self, step: str, ordered: Iterable[Ordered]) -> None:
        """What differs from what was shown: first the runs that give up their places, then those that have
        become green, the yellow ones and the red ones."""
        zones = self._zones
        ordered = tuple(ordered)
        places = {each.run.id: each.place for each in ordered}
        places |= {run.id: place for place, run in enumerate(zones.yellow, zones.green_runs)}
        red = {run.id for run in zones.red}
        for name, shown in list(self._shown.items()):
            if name not in places and name not in red:
                self._colour(shown.run, shown.colour, "", shown.place, step)
                del self._shown[name]
            elif shown.place >= 0 and places.get(name) != shown.place:
                self._colour(shown.run, _YELLOW, _RED, shown.place, step)
                self._shown[name] = _Shown(shown.run, -1)
        for each in ordered:
            self._greened(each, step)
        for run in zones.yellow:
            self._show(run, places[run.id], step)
        for run in zones.red:
            self._show(run, -1, step)

    def _show(self, run: Run, place: int, step: str) -> None:
        known = self._shown.get(run.id)
        shown = self._shown[run.id] = _Shown(run, place)
        if known is None or known.place != place:
            self._colour(run, "" if known is None else known.colour, shown.colour, place, step)

    def _colour(self, run: Run, old: str, new: str, place: int, step: str, **columns: Any) -> None:
        self._row(
            "colour",
            old_state=old,
            new_state=new,
            place=place,
            reason=step,
            stamp=str(run.stamp),
            primary=self._zones.committed.number,
            frames=self._frames,
            **self._of(run),
            **columns,
        )

    def _of(self, run: Run) -> dict[str, Any]:
        return {
            "message": str(run.id),
            "origin": run.id.origin,
            "run_kind": _KINDS[run.kind],
            "count": run.count,
            "bytes": len(run.body),
            "digest": crc32(run.body, CRC_START) if self._digests else 0,
        }

    # Primaries and sets

    def _primary(self, what: str, formation: Formation, plan: Plan | None) -> None:
        members = () if plan is None else plan.members
        disks = () if plan is None else tuple([plan.disks.get(who, 0) for who in members])
        columns = {"members": members, "disks": disks, "voters": formation.members}
        self._row("primary", reason=what, primary=formation.number, frames=self._frames, **columns)

    def _learn(self) -> None:
        committed = self._zones.committed
        if committed.number != self._committed:
            self._committed = committed.number
            self._primary("learned", committed, None)

    def _tell_set(self, why: str, place: int, replicas: ReplicaSet) -> None:
        if replicas != self._set:
            self._set = replicas
            voters = replicas.voters.values()
            columns: dict[str, Any] = {
                "members": tuple(replicas.voters),
                "disks": tuple([voter.disk for voter in voters]),
                "weights": tuple([voter.weight for voter in voters]),
            }
            self._row(
                "replica_set", reason=why, place=place, rule=replicas.rule, floor=replicas.floor, **columns
            )

    def _row(self, kind: str, **columns: Any) -> None:
        columns.setdefault("green_runs", self._zones.green_runs)
        self._scope.trace(kind, columns)


def _vector(zones: Zones) -> tuple[str, ...]:
    return tuple([f"{origin}.{life}.{number}" for (origin, life), number in sorted(zones.vector.items())])


def _round(round: Round) -> dict[str, Any]:
    return {"view": str(round.view), "round": round.number}
