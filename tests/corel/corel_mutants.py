"""Broken replicas, which the model must tell from true ones.

Each differs from `totempole.corel` in one place, as in the mutants of the protocols below. The package is
loaded afresh, without its own assertions: the model must notice from outside.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest.mock import patch

from corel_properties import Violation
from corel_walk import Walk

from totempole.corel.layer import Replica
from totempole.sim.fuzz import mutation
from totempole.sim.fuzz.mutation import Mutant

SHARED = ("totempole.corel.commands", "totempole.corel.events")
"""What the model and a broken replica say to each other."""

BROKEN = (Violation, AssertionError, KeyError, IndexError, ValueError, AttributeError)
"""How a broken replica gives itself away: a property does not hold, or it fails in the middle of a step."""


def mutant(name: str, where: str, old: str, new: str, seed: int = 0) -> Mutant:
    """`seed`: of a walk that gives it away. Those without one have a scenario of their own."""
    return Mutant(name, where, old, new, seed, "corel")


MUTANTS = (
    # The disk before the word
    mutant(
        "acknowledges what is queued",
        "Tally.take",
        "self._frames.append((frames, self.taken, is_own))",
        "self.durable = self.awaited = self.taken",
    ),
    mutant(
        "says at once what waits for the disk",
        "Journal.gate",
        "if self.durable >= self.zones.frames and (not self._gate):",
        "if True:",
        seed=3,
    ),
    mutant(
        "says that a run is durable when it is delivered",
        "Replica.appended",
        "self.requests.became_durable(journal.durable)",
        "self.requests.became_durable(self.zones.frames)",
        seed=39,
    ),
    # Acknowledgements past the order
    mutant(
        "a hint before the disk",
        "Ordering._acknowledgement",
        "self.tally.durable",
        "self.tally.taken",
        seed=366,
    ),
    mutant(
        "a hint counts for runs that have not come",
        "Ordering.take_hint",
        "min(message.acknowledged, self.tally.taken)",
        "message.acknowledged",
    ),
    mutant(
        "a hint of any round counts",
        "Ordering.take_hint",
        "message.round == member.round",
        "True",
    ),
    mutant(
        "a hint of any log counts",
        "Ordering.take_hint",
        "message.log == plan.log",
        "True",
    ),
    mutant(
        "a hint counts after a transitional view",
        "Replica.told_unordered",
        "not member.is_ordering",
        "member.phase is not Phase.PRIMARY",
    ),
    mutant(
        "hints in a view with one who does not take them",
        "Ordering.begin",
        "all((each.takes_hints for each in states.values()))",
        "True",
    ),
    mutant(
        "a lost hint is not made good",
        "Ordering.expired",
        "self._acknowledge_in_order()",
        "pass",
        seed=1,
    ),
    # Views
    mutant(
        "no states without new members",
        "ViewHandler.begin_view",
        "self._begin_round(Round(Stamp.of(view.place), 1), 'a new view')",
        "if member.phase.value not in ('primary', 'minority') or "
        "{m.processor for m in view.together} != set(member.members):\n"
        "        self._begin_round(Round(Stamp.of(view.place), 1), 'a new view')\n"
        "    else:\n        member.is_cut = False",
    ),
    mutant(
        "no states where members are the same",
        "ViewHandler.begin_view",
        "self._begin_round(Round(Stamp.of(view.place), 1), 'a new view')",
        "if member.phase.value not in ('primary', 'minority') or "
        "(member.round.view and self._before != member.members):\n"
        "        self._begin_round(Round(Stamp.of(view.place), 1), 'a new view')\n"
        "    member.is_cut = False\n    self._before = member.members",
    ),
    mutant(
        "yellow in a transitional view",
        "Member.is_ordering",
        "self.phase is Phase.PRIMARY and (not self.is_cut)",
        "self.phase is Phase.PRIMARY",
    ),
    mutant(
        "runs are taken before the handler ends",
        "Ordering.take_data",
        "if member.phase not in TAKING:",
        "if member.phase in (Phase.CLOSED, Phase.LOOKING_ON):",
    ),
    mutant(
        "runs passed over are not sent again",
        "Outbox.restart",
        "self._sent = 0",
        "pass",
        seed=1,
    ),
    mutant(
        "one state is not waited for",
        "ViewHandler.take_state",
        "self._states.keys() != set(member.members)",
        "len(self._states) < max(1, len(member.members) - 1)",
        seed=1,
    ),
    # Recovery
    mutant(
        "the shortest yellow zone wins",
        "_fitness",
        "(state.committed.number, state.length, -state.recent_from, -who)",
        "(state.committed.number, -state.length, -state.recent_from, -who)",
    ),
    mutant(
        "the longest zone wins, whoever has it",
        "_fitness",
        "(state.committed.number, state.length, -state.recent_from, -who)",
        "(state.length, state.committed.number, -state.recent_from, -who)",
    ),
    mutant(
        "what the representative lacks stays yellow",
        "Zones._agree",
        "self._add_red(run)",
        "self._add_yellow(run)",
        seed=1,
    ),
    mutant(
        "red in the order of arrival",
        "Zones._add_red",
        "insort(self.red, run, key=_stamp)",
        "self.red.append(run)",
    ),
    mutant(
        "a run that is sent again gets a new stamp",
        "Ordering.take_data",
        "else:\n        run = msgspec.structs.replace(run, stamp=stamp)",
        "run = msgspec.structs.replace(run, stamp=stamp)",
        seed=1,
    ),
    # Establishing
    mutant(
        "commits at the first attempt",
        "ViewHandler.take_attempt",
        "if self._said >= self._voters:\n        self._commit(plan)",
        "self._commit(plan)",
    ),
    mutant(
        "establishes at the first commit",
        "ViewHandler.take_commit",
        "if self._said >= self._voters:\n        self._establish(plan)",
        "self._establish(plan)",
    ),
    mutant(
        "the attempt is not written",
        "Zones.apply",
        "self.attempted = frame.formation.number\n            self.attempts.append(frame.formation)",
        "self.attempts = [frame.formation]",
        seed=1,
    ),
    mutant(
        "the commit is not written",
        "Zones._commit",
        "self.committed = formation",
        "self.committed = formation if formation.number == 1 else self.committed",
        seed=1,
    ),
    mutant(
        "a majority of the view",
        "ReplicaSet.is_majority",
        "self._is_majority(self.present(disks), self.voters)",
        "len(disks) > 1 or self._is_majority(self.present(disks), self.voters)",
        seed=36,
    ),
    mutant(
        "half is enough",
        "ReplicaSet._is_majority",
        "return first in set(there)",
        "return True",
        seed=10,
    ),
    mutant(
        "weights do not count",
        "ReplicaSet.is_durable",
        "return self.is_majority(acknowledged)",
        "return 2 * len(self.present(acknowledged)) > len(self.voters)",
    ),
    mutant(
        "the green set alone",
        "Zones.sets",
        "if run.kind in CHANGES:",
        "if self.replicas is NO_SET:",
    ),
    mutant(
        "attempts do not count in dynamic voting",
        "ReplicaSet.may_form",
        "[committed, *(each for each in attempts if each.number > committed.number)]",
        "[committed]",
    ),
    mutant(
        "disks do not count",
        "ReplicaSet.present",
        "if processor in self.voters and self.voters[processor].disk == disk",
        "if processor in self.voters",
    ),
    mutant(
        "all of the primary, whatever the set",
        "Ordering._is_durable",
        "if self._member.config.acknowledgements == 'all' and (not self._voters <= there):\n"
        "        return False",
        "if self._member.config.acknowledgements == 'all':\n        return self._voters <= there",
    ),
    # Step 7
    mutant(
        "new runs do not wait for old ones",
        "Outbox.pump",
        "            return\n        self._unsent.popleft()\n        if each is not None:\n"
        "            yield (each.run, True)\n    if self._again:\n        return",
        "            break\n        self._unsent.popleft()\n        if each is not None:\n"
        "            yield (each.run, True)",
    ),
    mutant(
        "figure 3.7 is ignored",
        "Outbox.pump",
        "            return\n        self._unsent.popleft()\n        if each is not None:",
        "            pass\n        self._unsent.popleft()\n"
        "        if each is not None and each.sender == self._me:",
    ),
    mutant(
        "nobody sends old runs",
        "senders",
        "if not plan.is_had_by_all(run.id)",
        "if False",
        seed=1,
    ),
    mutant(
        "reds that some lack are committed",
        "ViewHandler._commit",
        "for run in zones.red if plan.is_had_by_all(run.id)",
        "for run in zones.red",
        seed=1,
    ),
    mutant(
        "a run that is there is not promoted",
        "Ordering.take_data",
        "is_ordering and message.again and zones.is_red(run.id)",
        "False",
        seed=2,
    ),
    # Catching up, stepping aside
    mutant(
        "fetched runs leave yellow ones where they are",
        "Zones._fetch",
        "self._yellow_to_red()",
        "pass",
    ),
    mutant(
        "begins with what the donor had committed",
        "Zones._begin",
        "self._commit(mark.established)",
        "self._commit(mark.committed)",
    ),
    mutant(
        "begins with all that the donor had",
        "without_pending",
        "vector[who] = min(vector[who], run.id.number - 1)",
        "pass",
    ),
    mutant(
        "a mark forgets the keys",
        "Zones._load",
        "self.keys = OrderedDict((((log, key), position) for log, key, position in mark.keys))",
        "self.keys = OrderedDict()",
        seed=14,
    ),
    mutant(
        "a mark forgets yellow runs",
        "Zones._load",
        "for run in mark.yellow:\n        self._add_yellow(run)",
        "pass",
        seed=20,
    ),
    mutant(
        "who steps aside does not listen",
        "Replica._step_aside",
        "Phase.LEAVING if member.phase in TAKING else Phase.CLOSED",
        "Phase.CLOSED",
    ),
    mutant(
        "who steps aside does not hear of rounds",
        "Replica._step_aside",
        "self._left = member.round",
        "pass",
    ),
    mutant(
        "who comes back has not left",
        "Replica.told",
        "member.enter(Phase.CLOSED, 'it has left, and come back')",
        "pass",
    ),
    mutant(
        "all that a primary takes in is green",
        "Zones.yellow_while",
        "return count",
        "pass",
    ),
    mutant(
        "all that a primary takes in is green",
        "Zones.yellow_while",
        "return count",
        "pass",
    ),
    mutant(
        "a run behind a cut is taken",
        "Ordering.take_data",
        "member.is_cut and (not message.again) and (sender != member.me)",
        "False",
    ),
    mutant(
        "a recall does not wait for the green line",
        "CatchUp.answer",
        "self._journal.gate(lambda: self._recall(asker, fetch))",
        "self._recall(asker, fetch)",
    ),
    mutant(
        "attempts of one number are one",
        "plan_for",
        "(each.number, each.members): each",
        "(each.number, ()): each",
    ),
    mutant(
        "a primary is known by who is there",
        "Zones._obey",
        "Formation(primary.number, primary.voters)",
        "Formation(primary.number, tuple(sorted(primary.disks)))",
        seed=7,
    ),
    mutant(
        "removed members are waited for",
        "ReplicaSet._counting",
        "[each for each in members if each in self.voters] or self.voters",
        "[each for each in members if each in self.voters]",
    ),
    mutant(
        "a repeated key takes a position",
        "Ordered.positions",
        "self.run.count - len(self.repeats)",
        "self.run.count",
        seed=1,
    ),
    mutant(
        "a life is named by numbers",
        "Replica._new_life",
        "if self.member.entropy:",
        "if False:",
    ),
    mutant(
        "a disk is named by numbers",
        "Member.draw_name",
        "int(self._draw() * 2 ** 62) ^ self.entropy",
        "int(self._draw() * 2 ** 62)",
    ),
    mutant(
        "nobody has seen anything of a disk",
        "is_rolled_back",
        "shown.processor == who and shown.disk == mine.disk and _has_lost(mine, shown)",
        "False",
    ),
    mutant(
        "the disk is rolled back and votes",
        "_has_lost",
        "return shown.frames > (later[0].frames if later else state.frames)",
        "return shown.frames > state.frames",
    ),
)


@cache
def broken(which: Mutant) -> Any:
    """The replica's class."""
    with patch.object(mutation, "SHARED", mutation.SHARED + SHARED):
        return mutation._mutated(which, "layer").Replica


def gives_away(which: Mutant, seed: int) -> str:
    """How the mutant's walk from this seed ends, if not well."""
    base: type[Replica] = broken(which)
    walk = Walk(seed, base)
    try:
        walk.run()
    except BROKEN as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""
