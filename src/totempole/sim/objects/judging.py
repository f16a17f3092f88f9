"""Was it right? The histories of simulated programs, their states and their receipts, judged.

The judge has an order of its own: the runs on all disks, applied to a machine that no fault has touched. It
does not believe that machine alone: the history is also judged by the plain class, whatever the log says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from totempole.checkers.linearizability import judge
from totempole.checkers.verdict import Findings, Outcome, Verdict
from totempole.corel.layer import Replica
from totempole.corel.member import Phase
from totempole.corel.run import RunKind, records_of
from totempole.corel.zones import Ordered
from totempole.errors import CodecError
from totempole.objects import records
from totempole.objects.machine import ObjectMachine
from totempole.objects.ordered import CALLS_PER_POSITION
from totempole.objects.records import Calls
from totempole.sim.objects.history import history_of
from totempole.sim.objects.program import Receipt
from totempole.sim.objects.programs import ObjectPrograms
from totempole.sim.objects.subject import Context
from totempole.stack import ProcessorStack
from totempole.trace.layers.objects import DONE, RAISED, REFUSED
from totempole.trace.schema import Row

STEPS_MAX = 300_000

CallName = tuple[str, int]
"""Client and number."""


@dataclass(slots=True)
class Reference:
    """The order, and what a machine makes of it."""

    machine: ObjectMachine[Any]
    end: int = 0
    """Runs before this place are known without a gap."""
    applied: dict[CallName, records.Outcome] = field(default_factory=dict)
    """The first outcome of each call."""
    taken: set[CallName] = field(default_factory=set)
    """Those that the object has looked at, whatever became of them."""
    repeated: int = 0
    """Calls that came again, and were answered as the first time."""
    too_old: int = 0
    places: dict[CallName, Context] = field(default_factory=dict)
    """Where each call stands first."""
    digests: dict[int, bytes] = field(default_factory=dict)
    """By place: behind all runs before it."""


def reference_of(programs: ObjectPrograms, wanted: set[int]) -> Reference:
    """`wanted`: places at which the digest is needed."""
    found: dict[int, Ordered] = {}
    for host in programs.world.hosts.values():
        assert host.log_disk is not None, "a scenario with objects has a log"
        for ordered in host.log_disk.ordered():
            found.setdefault(ordered.place, ordered)
    reference = Reference(ObjectMachine(programs.subject.type))
    while True:
        if reference.end in wanted:
            reference.digests[reference.end] = reference.machine.digest()
        ordered_or_none = found.get(reference.end)
        if ordered_or_none is None:
            return reference
        _apply(reference, ordered_or_none, programs.subject.log)
        reference.end += 1


def _apply(reference: Reference, ordered: Ordered, log: str) -> None:
    if ordered.run.kind is not RunKind.RECORDS or ordered.fenced is not None:
        return
    content = records_of(ordered.run)
    if content.log != log:
        return
    for offset, payload in enumerate(content.payloads):
        position = ordered.position + offset
        for outcome in reference.machine.apply(payload, position, ordered.time_us):
            name = outcome.client, outcome.number
            reference.repeated += outcome.position != position
            reference.too_old += outcome.kind is records.Kind.TOO_OLD
            if outcome.position == position and outcome.kind is not records.Kind.TOO_OLD:
                reference.taken.add(name)
                if outcome.kind <= records.Kind.RAISED:
                    reference.applied.setdefault(name, outcome)
        try:
            record = records.decode(payload)
        except CodecError:
            continue
        if isinstance(record, Calls):
            for index, call in enumerate(record.calls):
                name = record.client, call.number
                if name in reference.applied:
                    context = Context(position, reference.machine.time_us, record.client, index)
                    reference.places.setdefault(name, context)


def check_objects(programs: ObjectPrograms, rows: list[Row], settled: bool) -> tuple[Verdict, ...]:
    """`settled`: the faults are over for so long that everybody must have caught up."""
    lives = [program.life for program in programs.programs.values() if program.life is not None]
    reference = reference_of(programs, {life.host.place for life in lives})
    programs.acts["repeated"] = reference.repeated
    programs.acts["too old"] = reference.too_old
    verdicts = [
        _linearizable(programs, rows, reference),
        _outcomes(rows, reference),
        _states(programs, reference),
        _once(rows, reference),
    ]
    if settled and _has_primary(programs):
        verdicts.append(_settled(programs, reference))
    return tuple(verdicts)


def _linearizable(programs: ObjectPrograms, rows: list[Row], reference: Reference) -> Verdict:
    found = Findings("object-linearizable")
    names = {row.message: (row.process, row.count) for row in _results(rows)}
    for entry, pending in programs.unanswered():
        if pending.client is not None:
            names.setdefault(entry.name, (pending.client.id, pending.number))
    for receipt in programs.receipts:
        names.setdefault(receipt.entry.name, (receipt.client, receipt.number))
    placed = {entry: reference.places[name] for entry, name in names.items() if name in reference.places}
    calls = history_of(rows, programs.subject, placed)
    judgement = judge(calls, programs.subject.model(), steps_max=STEPS_MAX)
    programs.acts["history judged"] += 1
    if judgement.outcome is Outcome.VIOLATED:
        found.violated(str(judgement.violation))
    elif judgement.outcome is Outcome.UNDECIDED:
        found.undecided(str(judgement))
        programs.acts["history too hard"] += 1
    return found.verdict()


def _results(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.kind == "result" and row.process]


def _outcomes(rows: list[Row], reference: Reference) -> Verdict:
    """What programs were told is what the order says, in whatever life and from whatever snapshot."""
    found = Findings("object-outcomes")
    for row in _results(rows):
        if row.reason not in (DONE, REFUSED, RAISED):
            continue
        name = row.process, row.count
        expected = reference.applied.get(name)
        if expected is None:
            found.violated(f"Call {row.message} ({name}) was told, and is not in the order.", row)
            continue
        answer = expected.value.hex() if expected.kind is records.Kind.DONE else expected.text
        position = row.seq // CALLS_PER_POSITION
        if (answer, expected.position) != (row.new_state, position):
            found.violated(
                f"Call {row.message} ({name}) was told {row.reason} {row.new_state} at {position}; the order "
                f"has {answer} at {expected.position}.",
                row,
            )
    return found.verdict()


def _once(rows: list[Row], reference: Reference) -> Verdict:
    """No call is applied twice, and none that was said to have had no effect."""
    found = Findings("object-exactly-once")
    extra = reference.machine.commands - len(reference.taken)
    if extra > 0:
        found.violated(f"{extra} calls were applied more than once.")
    for row in rows:
        if row.kind == "result" and row.reason not in (DONE, REFUSED, RAISED) and row.process:
            name = row.process, row.count
            if name in reference.applied:
                found.violated(
                    f"Call {row.message} ({name}) was said to have no effect, and was applied.", row
                )
    return found.verdict()


def _states(programs: ObjectPrograms, reference: Reference) -> Verdict:
    """Programs that have taken the same runs hold the same."""
    found = Findings("object-states")
    for divergence in programs.divergences:
        found.violated(divergence)
    for program in programs.programs.values():
        if program.life is None:
            continue
        host = program.life.host
        expected = reference.digests.get(host.place)
        if expected is not None and host.machine.digest() != expected:
            found.violated(
                f"Program {program.name} holds another state than the order gives, behind {host.place} runs "
                f"({host.machine.commands} commands, {reference.machine.commands} at the end).",
                nodes=[program.processor],
            )
    return found.verdict()


def _settled(programs: ObjectPrograms, reference: Reference) -> Verdict:
    """Everybody has caught up, nobody waits, and what was promised has come."""
    found = Findings("object-settled")
    is_disk_lost = bool(programs.world.faults["log disk"])
    for program in programs.programs.values():
        life, me = program.life, [program.processor]
        if life is None or not programs.world.hosts[program.processor].alive:
            continue
        if life.host.place < reference.end:
            found.violated(f"{program.name} has taken {life.host.place} of {reference.end} runs.", nodes=me)
        # What was on a disk that is lost is lost (docs/log.md, red stays): its host still waits for it.
        waiting = [call for call in life.host.unapplied if not (call.is_durable and is_disk_lost)]
        if waiting:
            call = waiting[0]
            found.violated(
                f"{program.name} still waits for {len(waiting)} calls; the first is {call.method} "
                f"({call.client and call.client.id}, {call.number}). {life.host.refusal}",
                nodes=me,
            )
        if any(caller.is_waiting for caller in life.callers):
            found.violated(f"{program.name} has callers that still wait.", nodes=me)
    _check_receipts(programs, reference, found)
    return found.verdict()


def _check_receipts(programs: ObjectPrograms, reference: Reference, found: Findings) -> None:
    """A call with a receipt is in the order, unless the only disk that had it was lost, or its client was
    forgotten meanwhile: then the host calls anew, under another name."""
    if programs.world.faults["log disk"]:
        return
    names: dict[str, list[Receipt]] = {}
    for receipt in programs.receipts:
        names.setdefault(receipt.entry.name, []).append(receipt)
    for entry, receipts in names.items():
        if any((each.client, each.number) in reference.applied for each in receipts):
            continue
        last = receipts[-1]
        if not reference.machine.is_settled(last.client, last.number, last.born):
            found.violated(
                f"Call {entry} ({last.client}, {last.number}) has a receipt, and is not in the order."
            )


def _has_primary(programs: ObjectPrograms) -> bool:
    """All nodes that are up are in one primary component."""
    replicas = [
        cast(Replica, cast(ProcessorStack, host.stack).replica)
        for host in programs.world.hosts.values()
        if host.alive
    ]
    return bool(replicas) and all(replica.phase.value == Phase.PRIMARY.value for replica in replicas)
