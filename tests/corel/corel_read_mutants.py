"""Replicas with broken read barriers, which walks with reads must tell from true ones."""

from __future__ import annotations

from corel_mutants import BROKEN, broken, mutant
from corel_walk import Walk, weather_with_reads

from totempole.sim.fuzz.mutation import Mutant

READ_MUTANTS = (
    mutant(
        "a barrier passes when the own question is delivered",
        "Barriers.settle",
        "not is_quorum(set(there)) or ",
        "",
        seed=3,
    ),
    mutant(
        "one answer is enough",
        "Barriers.settle",
        "not is_quorum(set(there))",
        "len(there) < 2",
        seed=111,
    ),
    mutant(
        "answers of an earlier primary count",
        "Barriers.restart",
        "self._answered.clear()",
        "pass",
        seed=3,
    ),
    mutant(
        "answers to the question before count",
        "Barriers.settle",
        "if count >= number",
        "if count >= number - 1",
        seed=3,
    ),
    mutant(
        "answers to any question count",
        "Barriers.settle",
        "if count >= number",
        "if count",
        seed=3,
    ),
    mutant(
        "who asks joins the question under way",
        "Barriers.wait",
        "self._waiting.append(_Asker(process, request))",
        "(self._asking if self._is_under_way else self._waiting).append(_Asker(process, request))",
        seed=64,
    ),
    mutant(
        "yellow runs do not count where another waits for fewer disks",
        "Ordering._line",
        "return replicas.is_durable(disks, voters)",
        "return self._is_durable(there)",
    ),
    mutant(
        "yellow runs do not count where another has counted its own disk",
        "Ordering._line",
        "before + may_be_durable(taken, answers, plan.members, is_enough)",
        "0",
    ),
    mutant(
        "answers say nothing of disks",
        "Ordering._tend_barriers",
        "AnswerBarriers(plan.log, member.round, answered, self.tally.durable)",
        "AnswerBarriers(plan.log, member.round, answered, 0)",
    ),
    mutant(
        "answers say what was acknowledged in the order",
        "Ordering._tend_barriers",
        "AnswerBarriers(plan.log, member.round, answered, self.tally.durable)",
        "AnswerBarriers(plan.log, member.round, answered, self.tally.told)",
    ),
    mutant(
        "who has not answered has nothing on its disk",
        "may_be_durable",
        "answers.get(who, most) >= count",
        "answers.get(who, 0) >= count",
    ),
    mutant(
        "yellow runs do not count where another has a change of the set as green",
        "Ordering._line",
        "if len(zones.sets) > 1:",
        "if False:",
    ),
    mutant(
        "passes before all of it is green",
        "Barriers.settle",
        " or green_runs < self._line(there)",
        "",
        seed=3,
    ),
    mutant(
        "a majority of the view",
        "Ordering._tend_barriers",
        "self._is_quorum",
        "lambda there: 2 * len(there) > len(member.members)",
        seed=27,
    ),
    mutant(
        "a majority of the voters that are there",
        "Ordering._tend_barriers",
        "self._is_quorum",
        "lambda there: 2 * len(there & self._voters) > len(self._voters)",
        seed=111,
    ),
    mutant(
        "a majority by numbers",
        "Ordering._tend_barriers",
        "self._is_quorum",
        "lambda there: 2 * len(there & set(self._voters)) > len(member.zones.replicas.voters)",
        seed=337,
    ),
    mutant(
        "answers to the own question only",
        "Barriers.asked",
        "self._owed = self._asked",
        "pass",
        seed=1,
    ),
    mutant(
        "who gets a vote later owes nothing",
        "Ordering._tend_barriers",
        "if any((member.me in each.voters for each in member.zones.sets)):\n"
        "        answered = barriers.answer()\n        if answered:\n"
        "            member.send(AnswerBarriers(plan.log, member.round, answered, self.tally.durable))",
        "answered = barriers.answer()\n"
        "    if answered and any((member.me in each.voters for each in member.zones.sets)):\n"
        "        member.send(AnswerBarriers(plan.log, member.round, answered, self.tally.durable))",
    ),
    mutant(
        "a question is not asked again",
        "Barriers.restart",
        "self._is_under_way = False",
        "pass",
        seed=1,
    ),
    mutant(
        "who asked before is forgotten by a new primary",
        "Barriers.restart",
        "self._waiting = [*self._asking, *self._waiting]",
        "pass",
        seed=1,
    ),
    mutant(
        "a process that is gone is told",
        "Barriers.forget",
        "self._waiting = [each for each in self._waiting if each.process != process]",
        "pass",
        seed=1,
    ),
)


def gives_away(which: Mutant, seed: int) -> str:
    """How the mutant's walk from this seed ends, if not well."""
    walk = Walk(seed, broken(which), weather_with_reads(seed))
    try:
        walk.run()
    except BROKEN as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""
