"""Named breakages of replicated objects, and of the durable order as objects see it.

`mutation` makes programs of them. `totem fuzz --objects --mutants` hunts them.
"""

from __future__ import annotations

from functools import partial

from totempole.sim.fuzz.mutation import Mutant

_objects = partial(Mutant, package="objects")

OBJECT_MUTANTS: tuple[Mutant, ...] = (
    # Exactly once
    _objects(
        "a duplicate takes effect twice",
        "ObjectMachine._take_calls",
        "outcome = kept.get(number)",
        "outcome = None",
    ),
    _objects(
        "a forgotten client is taken for a new one",
        "ClientTable.enter",
        "if born < self.watermark or born > position:",
        "if born < 0:",
        1,
    ),
    _objects(
        "the watermark does not rise",
        "ClientTable.leave",
        "self.watermark = max(self.watermark, gone.position + 1)",
        "pass",
        1,
    ),
    _objects(
        "outcomes that are forgotten do not raise the floor",
        "Client.settle",
        "self.floor = floor",
        "pass",
    ),
    _objects(
        "a doubtful record goes again under new numbers",
        "ObjectHost._next_record",
        "return lane.again.pop(0)",
        "return self._record_of(lane, lane.again.pop(0).calls)",
    ),
    _objects(
        "a doubtful record is not sent again",
        "ObjectHost.doubtful",
        "self._again(found)",
        "self._answered(found)",
        3,
    ),
    _objects(
        "an open call is acknowledged",
        "Client.acknowledged",
        "next(iter(self.open), self.number + 1) - 1",
        "next(iter(self.open), self.number + 1)",
    ),
    _objects(
        "a call that was sent is said to have had no effect",
        "ObjectHost.give_up",
        "if pending.number or pending.is_done:",
        "if pending.is_done:",
    ),
    # Snapshots
    _objects(
        "the table is not in the snapshot",
        "ObjectMachine._resume",
        "self._table = ClientTable.of_rows(head.table, head.limits)",
        "self._table = ClientTable(head.limits)",
        2,
    ),
    _objects(
        "the watermark is not in the snapshot",
        "ClientTable.of_rows",
        "table.watermark = rows.watermark",
        "pass",
        29,
    ),
    _objects(
        "a snapshot one position ahead",
        "ObjectMachine._resume",
        "self.applied = head.applied",
        "self.applied = head.applied + 1",
        2,
    ),
    # Reads
    _objects(
        "a read without a barrier",
        "ObjectHost.read",
        "self._reads.append(pending)",
        "self._settle(pending)",
    ),
)

OBJECT_STAGED: tuple[Mutant, ...] = (
    _objects(
        "a settled number is applied again",
        "ObjectMachine._take_calls",
        "if number <= floor:",
        "if number < 0:",
    ),
    _objects(
        "a read before the place of its barrier is applied",
        "ObjectHost.barrier_passed",
        "if place <= self.place:",
        "if place >= 0:",
    ),
    Mutant(
        "a barrier without answers",
        "Barriers.settle",
        "not is_quorum(set(there))",
        "not self._me",
        package="corel",
    ),
)
"""Random seeds would have to be lucky: each has a scenario of its own (`tests/sim/object_stages.py`)."""
