"""What programs add to the order: records, holds and changes of the replica set, each checked and made a run.

Who waits for a run is told by `requests`; when it is sent, `outbox` knows.

Deviation from COReL:
- Messages are not stored before they are sent. A run is named by its origin's life, so nothing that a crash
  loses can be confused with what follows; and it was promised to nobody.
"""

from __future__ import annotations

from totempole.corel.commands import AppendRecords, ChangeReplicas, SetHold
from totempole.corel.member import Member, Phase
from totempole.corel.run import Change, Hold, Records, RunKind, pack_body
from totempole.errors import CodecError, SessionError
from totempole.groups.packing import Batch

NAME_BYTES_MAX = 100
HOLDS_MAX = 65_536
"""Readers that hold the log. Every replica keeps all, and each segment of its log begins with them."""


class Submissions:
    def __init__(self, member: Member, run_bytes_max: int) -> None:
        self._member = member
        self._run_bytes_max = run_bytes_max

    def append_records(self, command: AppendRecords) -> None:
        self._check(command.log)
        try:
            count = len(Batch(command.batch))
        except CodecError as error:
            raise SessionError(f"records that are not packed as they should be: {error}") from None
        if command.keys and len(command.keys) != count:
            raise SessionError(f"{len(command.keys)} keys for {count} records: give one for each, or none")
        if command.fence is not None and command.fence.problem:
            raise SessionError(command.fence.problem)
        body = pack_body(Records(command.log, command.batch, command.keys, command.fence))
        self._submit(command.process, command.request, RunKind.RECORDS, count, body, command.time_us)

    def set_hold(self, command: SetHold) -> None:
        self._check(command.reader)
        holds = self._member.zones.holds
        if len(holds) >= HOLDS_MAX and command.reader not in holds:
            raise SessionError(
                f"{len(holds)} readers hold the log, as many as can: release those that nobody needs "
                "(`totem log holds`, `totem log hold NAME --release`)"
            )
        body = pack_body(Hold(command.reader, command.position))
        self._submit(command.process, command.request, RunKind.HOLD, 0, body, 0)

    def change_replicas(self, command: ChangeReplicas) -> None:
        """Only a replica that takes part can be added: it has caught up, and its disk is known."""
        member = self._member
        plan = member.plan
        if member.phase is not Phase.PRIMARY or plan is None:
            raise SessionError("this replica is not with a majority: the replica set cannot change now")
        processor, disk = command.processor, 0
        if command.weight:
            if processor not in plan.disks:
                raise SessionError(
                    f"processor {processor} does not take part: start it with a log, wait until it has "
                    "caught up, then add it"
                )
            disk = plan.disks[processor]
        elif processor not in member.zones.replicas.voters:
            raise SessionError(f"processor {processor} is no replica")
        elif len(member.zones.sets[-1].voters) == 1:
            raise SessionError(f"processor {processor} is the last replica: add another first")
        body = pack_body(Change(processor, disk, command.weight))
        self._submit(command.process, command.request, RunKind.CHANGE, 0, body, 0)

    def _check(self, name: str) -> None:
        if not self._member.is_open:
            raise SessionError("this node has no log open: see `totem log status`")
        if not 1 <= len(name.encode(errors="replace")) <= NAME_BYTES_MAX:
            raise SessionError(f"name {name[:40]!r}: give 1 to {NAME_BYTES_MAX} bytes")

    def _submit(
        self, process: int, request: int, kind: RunKind, count: int, body: bytes, time_us: int
    ) -> None:
        member = self._member
        if len(body) > self._run_bytes_max:
            raise SessionError(
                f"{len(body)} bytes to be appended at once: give at most {self._run_bytes_max}, half of "
                "message_bytes_max"
            )
        held = member.zones.red_bytes + member.outbox.bytes
        if member.phase is not Phase.PRIMARY and held + len(body) > member.config.red_bytes_max:
            raise SessionError(
                f"no majority of the replicas is connected, and {held} bytes wait for one, as many as "
                "red_bytes_max allows: try again when there is a majority"
            )
        run = member.outbox.add(kind, count, body, time_us)
        member.trace.accepted(run)
        member.requests.accept(process, request, run.id)
