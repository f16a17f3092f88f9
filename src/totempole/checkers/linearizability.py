"""Is a history of concurrent calls linearisable? (Herlihy and Wing 1990.)

A history is a list of calls: who called what, when the call began, when it ended, and with which result. It
is linearisable if each call can be given one instant between its begin and its end, so that the sequential
model, asked at these instants, gives the same results. A call that never ended may have taken effect at any
time after its begin, or never.

The search is Wing and Gong's (1993) with Lowe's memo (2017): depth first over the calls that may come next,
never twice from the same state with the same calls done. Four things keep it short:
- A read that has ended and fits here is taken at once: it can be moved here from any later instant.
- A call that never ended is tried last, and only if it changes something.
- Calls are tried in the order in which the system says they took effect, if it does (`Call.hint`).
- Calls on different keys are judged apart, where the model says so (Herlihy and Wing's locality).

The search gives up after `steps_max` steps: the history is then undecided, and never called good.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Protocol

from totempole.checkers.verdict import Outcome

STEPS_MAX = 1_000_000
"""Steps of the model that a search takes for one partition, repeated ones included."""
ANSWERS_MAX = 6
"""Answers that would have been possible, in a report."""
SHOWN_BEFORE = 8
"""Calls before the failing one, in a report."""
TEXT_MAX = 200
"""Characters of one value in a report."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a history. Instants are of one clock: numbers of any kind that can be compared."""

    client: str
    operation: str
    arguments: tuple[Any, ...]
    began: float
    ended: float | None = None
    """None: the client never learned what became of it."""
    result: Any = None
    context: Any = None
    """What else the call was given, for models that ask: its place in an order, for instance."""
    hint: float | None = None
    """Where the system says that it took effect. Calls are tried in this order first, which makes the search
    of a good history short; it is never believed."""

    @property
    def is_pending(self) -> bool:
        return self.ended is None

    def __str__(self) -> str:
        shown = ", ".join(map(_text, self.arguments))
        answer = "never ended" if self.is_pending else f"-> {_text(self.result)}"
        until = "" if self.is_pending else f"{self.ended:.10g}"
        return f"[{self.began:.10g}, {until}] {self.client}: {self.operation}({shown}) {answer}"


class Model(Protocol):
    """A sequential object. States are immutable and hashable: equal states behave alike."""

    def start(self) -> Hashable: ...

    def step(self, state: Any, call: Call) -> tuple[Hashable, Any]:
        """The state after the call, and the answer. `ANYTHING` is an answer that fits every result.

        A model whose answers are not determined by its state (a token that only has to grow) looks at
        `call.result`.
        """
        ...

    def is_read(self, call: Call) -> bool:
        """Whether the call, with its result, changes nothing in any state. False if nothing is known."""
        ...

    def partition(self, call: Call) -> Hashable:
        """Calls of different partitions never influence each other. None for all, if nothing is known."""
        ...


class _Anything:
    def __repr__(self) -> str:
        return "anything"


ANYTHING = _Anything()


@dataclass(frozen=True, slots=True)
class Violation:
    """Why a history is not linearisable: its shortest prefix that is not."""

    call: Call
    """With the end of this call the history goes wrong."""
    concurrent: tuple[Call, ...]
    """Those that had begun, and had not ended before this one began."""
    before: tuple[Call, ...]
    """Those that had ended before it began."""
    answers: tuple[Any, ...]
    """What it could have answered: in each order that fits everything before."""
    partition: Hashable = None

    def __str__(self) -> str:
        lines = [
            f"not linearisable{'' if self.partition is None else f' (of {self.partition!r})'}: {self.call}"
        ]
        possible = " or ".join(map(_text, self.answers))
        if possible:
            lines.append(f"  no order of the calls gives this result; it could have been {possible}")
        else:
            lines.append("  no order of the calls fits what came before it and with it")
        if self.concurrent:
            lines.append("  concurrent with it:")
            lines += [f"    {call}" for call in self.concurrent]
        if self.before:
            more = len(self.before) - SHOWN_BEFORE
            lines.append(f"  before it{f' ({more} earlier ones left out)' if more > 0 else ''}:")
            lines += [f"    {call}" for call in self.before[-SHOWN_BEFORE:]]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Judgement:
    outcome: Outcome
    calls: int = 0
    steps: int = 0
    violation: Violation | None = None
    undecided: tuple[Hashable, ...] = ()
    """Partitions that were too hard."""

    @property
    def holds(self) -> bool:
        return self.outcome is Outcome.HOLDS

    def __str__(self) -> str:
        if self.violation is not None:
            return str(self.violation)
        if self.outcome is Outcome.UNDECIDED:
            return f"undecided after {self.steps} steps; too hard: {', '.join(map(repr, self.undecided))}"
        return f"linearisable: {self.calls} calls, {self.steps} steps"


def judge(calls: Iterable[Call], model: Model, *, steps_max: int = STEPS_MAX) -> Judgement:
    """Judges a history by the model. `steps_max`: of each partition."""
    partitions: dict[Hashable, list[Call]] = {}
    for call in calls:
        partitions.setdefault(model.partition(call), []).append(call)
    count, steps = 0, 0
    undecided: list[Hashable] = []
    for name, part in partitions.items():
        search = _Search(part, model, steps_max)
        outcome = search.run()
        count += len(part)
        steps += search.steps
        if outcome is Outcome.VIOLATED:
            violation = _explain(search, model, name, steps_max)
            return Judgement(outcome, count, steps, violation)
        if outcome is Outcome.UNDECIDED:
            undecided.append(name)
    if undecided:
        return Judgement(Outcome.UNDECIDED, count, steps, undecided=tuple(undecided))
    return Judgement(Outcome.HOLDS, count, steps)


@dataclass(slots=True)
class _Node:
    """A choice: the calls that are done, the state after them, and what else may come next."""

    done: int
    state: Hashable
    returns: int
    """So many calls, in the order of their ends, are done; the next is not."""
    untried: Iterator[int]
    hint: float
    """Of the call that was chosen last."""


@dataclass(slots=True)
class _Search:
    """Of one partition."""

    calls: list[Call]
    model: Model
    steps_max: int
    steps: int = 0
    deepest: int = 0
    """So many returns could be passed."""
    answers: list[Any] = field(default_factory=list)
    """What the model says for the first call that could never be passed."""
    _ends: list[int] = field(default_factory=list)
    """Calls that have ended, in the order of their ends."""
    _begun: list[int] = field(default_factory=list)
    """For each of these a mask of the calls that began before that end."""
    _rank: list[tuple[int, float]] = field(default_factory=list)
    """In which order calls are tried: by their hints; then those that end first, then those that never do."""
    _reads: int = 0
    """A mask of the calls that have ended and change nothing."""
    _known: dict[tuple[Hashable, int], tuple[Hashable, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for call in self.calls:
            if call.ended is not None and call.ended < call.began:
                raise ValueError(f"the call ends before it begins: {call}")
        self.calls = sorted(self.calls, key=lambda call: call.began)
        self._ends = [index for index, call in enumerate(self.calls) if not call.is_pending]
        self._ends.sort(key=lambda index: _end(self.calls[index]))
        self._rank = [_rank(call) for call in self.calls]
        begun = 0
        for index in self._ends:
            self._reads |= self.model.is_read(self.calls[index]) << index
            end = _end(self.calls[index])
            while begun < len(self.calls) and self.calls[begun].began <= end:
                begun += 1
            self._begun.append((1 << begun) - 1)

    def run(self) -> Outcome:
        if not self._ends:
            return Outcome.HOLDS
        seen: set[tuple[int, Hashable]] = set()
        stack = [self._settle(0, self.model.start(), 0, -inf)]
        while stack:
            node = stack[-1]
            if node.returns == len(self._ends):
                return Outcome.HOLDS
            if self.steps > self.steps_max:
                return Outcome.UNDECIDED
            index = next(node.untried, None)
            if index is None:
                stack.pop()
                continue
            state, answer = self._step(node.state, index)
            if not self._fits(index, answer, node) or (self.calls[index].is_pending and state == node.state):
                continue
            hinted = self.calls[index].hint
            hint = node.hint if hinted is None else max(hinted, node.hint)
            after = self._settle(node.done | 1 << index, state, node.returns, hint)
            if (after.done, state) not in seen:
                seen.add((after.done, state))
                stack.append(after)
        return Outcome.VIOLATED

    def _settle(self, done: int, state: Hashable, returns: int, hint: float) -> _Node:
        """Takes what can be taken without a choice."""
        calls, ends = self.calls, self._ends
        while True:
            while returns < len(ends) and done >> ends[returns] & 1:
                returns += 1
            if returns == len(ends):
                self.deepest = returns
                return _Node(done, state, returns, iter(()), hint)
            if returns > self.deepest:
                self.deepest = returns
                self.answers.clear()
            open_ones = self._begun[returns] & ~done
            taken = 0
            for index in _bits(open_ones & self._reads):
                if _is(self._step(state, index)[1], calls[index].result):
                    taken |= 1 << index
            if not taken:
                untried = sorted(_bits(open_ones), key=lambda index: self._preference(index, hint))
                return _Node(done, state, returns, iter(untried), hint)
            done |= taken

    def _preference(self, index: int, hint: float) -> tuple[int, float]:
        """What never ended and has been passed over where its hint says is not likely to happen now."""
        rank = self._rank[index]
        return (2, rank[1]) if rank[1] < hint and self.calls[index].is_pending else rank

    def _fits(self, index: int, answer: Any, node: _Node) -> bool:
        call = self.calls[index]
        if call.is_pending or _is(answer, call.result):
            return True
        is_first = index == self._ends[node.returns] and node.returns == self.deepest
        if is_first and len(self.answers) < ANSWERS_MAX and answer not in self.answers:
            self.answers.append(answer)
        return False

    def _step(self, state: Hashable, index: int) -> tuple[Hashable, Any]:
        self.steps += 1
        known = self._known.get((state, index))
        if known is None:
            known = self._known[state, index] = self.model.step(state, self.calls[index])
        return known

    def prefix(self, returns: int) -> list[Call]:
        """The history as it was when so many calls had ended."""
        end = _end(self.calls[self._ends[returns - 1]])
        return [
            replace(call, ended=None, result=None) if call.ended is not None and call.ended > end else call
            for call in self.calls
            if call.began <= end
        ]

    def last_of(self, returns: int) -> Call:
        return self.calls[self._ends[returns - 1]]


def _explain(search: _Search, model: Model, name: Hashable, steps_max: int) -> Violation:
    """Every prefix that the search has passed is good. What a call answers later may be why a shorter one
    failed: so the prefixes are judged as they were at the time."""
    last = len(search._ends)
    returns, answers = search.deepest + 1, search.answers
    while returns < last:
        shorter = _Search(search.prefix(returns), model, steps_max)
        if shorter.run() is not Outcome.HOLDS:
            answers = shorter.answers
            break
        returns += 1
    failing = search.last_of(returns)
    prefix = [call for call in search.calls if call.began <= _end(failing) and call is not failing]
    concurrent = [call for call in prefix if _ends_after(call, failing.began)]
    before = sorted((call for call in prefix if not _ends_after(call, failing.began)), key=_end)
    return Violation(failing, tuple(concurrent), tuple(before), tuple(answers), name)


def _rank(call: Call) -> tuple[int, float]:
    if call.hint is not None:
        return 0, call.hint
    return 1, inf if call.ended is None else call.ended


def _end(call: Call) -> float:
    assert call.ended is not None, "only calls that have ended have an end"
    return call.ended


def _ends_after(call: Call, instant: float) -> bool:
    """A call that ends at the very instant is concurrent: clocks are not finer."""
    return call.ended is None or call.ended >= instant


def _is(answer: Any, result: Any) -> bool:
    return answer is ANYTHING or bool(answer == result)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
