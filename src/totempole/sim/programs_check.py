"""What the simulator knows beyond the trace: what programs asked for and what they computed."""

from __future__ import annotations

from typing import cast

from totempole.checkers.verdict import Findings, Verdict
from totempole.corel.messages import GROUP, inbox
from totempole.groups import GroupLayer
from totempole.sim.processes import Process, Programs
from totempole.stack import ProcessorStack
from totempole.types import ProcessId, ProcessorId


def check_programs(programs: Programs, settled: bool) -> tuple[Verdict, ...]:
    """`settled`: the faults are over for long enough that everything asked for must have happened."""
    verdicts = [_replicas_agree(programs)]
    if settled:
        verdicts.append(_programs_settled(programs))
    return tuple(verdicts)


def _replicas_agree(programs: Programs) -> Verdict:
    """Applications that went from view to view together have the same state."""
    found = Findings("replicas-agree")
    for problem in programs.ledger.problems:
        found.violated(problem)
    return found.verdict()


def _programs_settled(programs: Programs) -> Verdict:
    """Every processor has the table that all programs together asked for, and nothing is under way."""
    found = Findings("programs-settled")
    wanted: dict[str, list[ProcessId]] = {}
    for process in programs.running:
        if process.connected:
            _check_process(process, found)
            for group in process.replicas:
                wanted.setdefault(group, []).append(process.id)
    for host in programs.world.hosts.values():
        replica = cast(ProcessorStack, host.stack).replica if host.alive else None
        if replica is not None and replica.is_joined:
            for group in (GROUP, inbox(host.me)):
                wanted.setdefault(group, []).append(replica.process)
    expected = {group: tuple(sorted(members)) for group, members in wanted.items()}
    for me, host in sorted(programs.world.hosts.items()):
        if host.alive:
            layer = cast(ProcessorStack, host.stack).groups
            assert layer is not None
            _check_layer(me, layer, expected, found)
    return found.verdict()


def _check_process(process: Process, found: Findings) -> None:
    me = [process.id.processor]
    if process.waiting:
        found.violated(f"{process.id} still waits to hand in {process.waiting} requests.", nodes=me)
    for replica in process.replicas.values():
        if replica.digest is None:
            found.violated(f"{process.id} never got the state of {replica.group}.", nodes=me)
    for sender, number in sorted(process.unsafe):
        found.violated(f"{process.id} was never told that {sender}:{number} is safe.", nodes=me)


def _check_layer(
    me: ProcessorId, layer: GroupLayer, expected: dict[str, tuple[ProcessId, ...]], found: Findings
) -> None:
    if not layer.views_in_force:
        found.violated(f"Node {me} has no views in force.", nodes=[me])
    elif layer.groups != expected:
        differing = sorted(
            group for group in {*expected, *layer.groups} if expected.get(group) != layer.groups.get(group)
        )
        shown = "; ".join(
            f"{name}: asked for {_listed(expected.get(name, ()))}, has {_listed(layer.groups.get(name, ()))}"
            for name in differing
        )
        found.violated(f"Node {me} has another table of groups than was asked for: {shown}.", nodes=[me])
    if layer.partial_bytes:
        found.violated(f"Node {me} still holds {layer.partial_bytes} bytes of pieces.", nodes=[me])
    if layer.waiting_bytes:
        found.violated(f"Node {me} still has {layer.waiting_bytes} bytes to send.", nodes=[me])


def _listed(members: tuple[ProcessId, ...]) -> str:
    return ", ".join(map(str, members)) or "nobody"
