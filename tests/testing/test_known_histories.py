"""The checker is judged: by histories whose verdicts are known, and by a judge that tries every order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations
from random import Random
from typing import Any

import pytest
from known_histories import BAD, GOOD
from sequential_models import CLASSES, MODELS, drawn

from sweeps import first_of
from totempole.checkers.class_model import ClassModel, Raised
from totempole.checkers.linearizability import ANYTHING, Call, Model, judge
from totempole.checkers.verdict import Outcome


def tried(calls: list[Call], model: Model) -> bool:
    """Whether any order of the calls fits: all orders of all subsets that have the calls that ended."""
    ended = [call for call in calls if not call.is_pending]
    pending = [call for call in calls if call.is_pending]
    return any(
        _fits(order, model)
        for count in range(len(pending) + 1)
        for some in combinations(pending, count)
        for order in permutations([*ended, *some])
    )


def _fits(order: tuple[Call, ...], model: Model) -> bool:
    state: Any = model.start()
    for place, call in enumerate(order):
        if any(later.ended is not None and later.ended < call.began for later in order[place:]):
            return False
        state, answer = model.step(state, call)
        if not call.is_pending and answer is not ANYTHING and answer != call.result:
            return False
    return True


def test_there_are_enough() -> None:
    assert len(GOOD) >= 30
    assert len(BAD) >= 30


@pytest.mark.parametrize(("name", "model", "drawing"), GOOD, ids=[name for name, _, _ in GOOD])
def test_good(name: str, model: str, drawing: str) -> None:
    calls = drawn(drawing)
    assert judge(calls, MODELS[model]).outcome is Outcome.HOLDS
    assert judge(calls, ClassModel(CLASSES[model])).outcome is Outcome.HOLDS
    assert tried(calls, ClassModel(CLASSES[model]))


@pytest.mark.parametrize(("name", "model", "drawing"), BAD, ids=[name for name, _, _ in BAD])
def test_bad(name: str, model: str, drawing: str) -> None:
    calls = drawn(drawing)
    judgement = judge(calls, MODELS[model])
    assert judgement.outcome is Outcome.VIOLATED
    assert judgement.violation is not None
    assert not tried(calls, ClassModel(CLASSES[model]))


# Random ones


def operations(random: Random, model: str) -> tuple[str, tuple[Any, ...]]:
    some, who = random.randrange(3), random.choice("ab")
    choices: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
        "register": [("read", ()), ("write", (some,)), ("cas", (some, random.randrange(3))), ("add", (1,))],
        "store": [("put", (who, some)), ("get", (who,)), ("delete", (who,)), ("add", (who, 1))],
        "lock": [("acquire", (who,)), ("release", (who,)), ("owner", ())],
        "queue": [("put", (some,)), ("take", ()), ("size", ())],
    }
    return random.choice(choices[model])


def executed(
    random: Random, model: str, count: int, clients: int, pending: float = 0.15, hints: bool = False
) -> list[Call]:
    """A linearisable history: each call takes effect at an instant of its own between begin and end."""
    plans = []
    for client in range(clients):
        now = random.random()
        for _ in range(count // clients):
            began = now + random.expovariate(1.0)
            effect = began + random.expovariate(1.0)
            now = effect + random.expovariate(1.0)
            plans.append([f"c{client}", *operations(random, model), began, effect, now])
            if random.random() < pending:
                plans[-1][5] = None
                # Its client goes on under another name. It takes effect late, or never.
                plans[-1][4] += random.choice((0.0, 5.0, float("inf")))
    held = CLASSES[model]()
    calls = []
    for client, operation, arguments, began, effect, ended in sorted(plans, key=lambda plan: plan[4]):
        if effect == float("inf"):
            calls.append(Call(client, operation, arguments, began))
            continue
        try:
            result = getattr(held, operation)(*arguments)
        except Exception as error:
            result = Raised(type(error).__name__, str(error))
        hint = effect if hints else None
        result = None if ended is None else result
        calls.append(Call(client, operation, arguments, began, ended, result, hint=hint))
    random.shuffle(calls)
    return calls


def corrupted(random: Random, calls: list[Call]) -> list[Call]:
    """One result is another, or comes at another time: often no longer linearisable."""
    ended = [place for place, call in enumerate(calls) if not call.is_pending]
    if len(ended) < 2:
        return calls
    one, other = random.sample(ended, 2)
    mine, theirs = calls[one], calls[other]
    changed = list(calls)
    change = random.randrange(3)
    if change == 0:
        changed[one] = replace(mine, result=theirs.result)
    elif change == 1:  # it happened at the other's time
        changed[one] = replace(mine, began=theirs.began, ended=theirs.ended)
    else:  # it ended as soon as it began
        changed[one] = replace(mine, ended=mine.began)
    return changed


KINDS = ("register", "store", "lock", "queue")


@pytest.mark.parametrize("model", KINDS)
def test_executions_are_good(model: str) -> None:
    for seed in range(60):
        random = Random(f"{model}/{seed}")
        size, pending = random.choice(((10, 0.2), (40, 0.05)))
        calls = executed(random, model, size, random.choice((2, 5, 8)), pending)
        judgement = judge(calls, MODELS[model])
        assert judgement.outcome is Outcome.HOLDS, f"seed {seed}: {judgement}"


@pytest.mark.parametrize("model", KINDS)
def test_long_executions_with_hints_are_good(model: str) -> None:
    for seed in range(4):
        calls = executed(Random(f"{model}/{seed}/long"), model, 400, 20, hints=True)
        judgement = judge(calls, MODELS[model])
        assert judgement.outcome is Outcome.HOLDS, f"seed {seed}: {judgement}"
        assert judgement.steps < 60_000


@pytest.mark.parametrize("model", first_of(KINDS))
def test_hints_are_not_believed(model: str) -> None:
    for seed in range(60):
        random = Random(f"{model}/{seed}/hints")
        calls = executed(random, model, 6, 3, pending=0.2, hints=True)
        if random.random() < 0.8:
            calls = corrupted(random, calls)
        calls = [replace(call, hint=random.choice((None, random.random()))) for call in calls]
        assert judge(calls, MODELS[model]).holds is tried(calls, MODELS[model]), f"seed {seed}"


@pytest.mark.parametrize("model", first_of(KINDS))
def test_the_same_verdicts_as_by_trying_every_order(model: str) -> None:
    found = {True: 0, False: 0}
    for seed in range(150):
        random = Random(f"{model}/{seed}/small")
        calls = executed(random, model, 6, random.choice((2, 3)), pending=0.2)
        if random.random() < 0.8:
            calls = corrupted(random, calls)
        expected = tried(calls, MODELS[model])
        found[expected] += 1
        for each in (MODELS[model], ClassModel(CLASSES[model])):
            judgement = judge(calls, each)
            assert judgement.holds is expected, f"seed {seed}: {judgement}"
    assert min(found.values()) > 10, found


def prefixes(calls: list[Call]) -> Iterator[list[Call]]:
    for end in sorted(call.ended for call in calls if call.ended is not None):
        yield [
            call
            if call.ended is not None and call.ended <= end
            else Call(call.client, call.operation, call.arguments, call.began)
            for call in calls
            if call.began <= end
        ]


@pytest.mark.parametrize("model", first_of(KINDS))
def test_a_violation_is_the_shortest_prefix_that_fails(model: str) -> None:
    seen = 0
    for seed in range(120):
        random = Random(f"{model}/{seed}/prefix")
        calls = corrupted(random, executed(random, model, 16, 4))
        whole = ClassModel(CLASSES[model])
        judgement = judge(calls, whole)
        if judgement.violation is None:
            continue
        seen += 1
        bad = next(prefix for prefix in prefixes(calls) if not judge(prefix, whole).holds)
        assert max(call.ended for call in bad if call.ended is not None) == judgement.violation.call.ended
        told = [judgement.violation.call, *judgement.violation.concurrent, *judgement.violation.before]
        assert {(call.client, call.began) for call in told} == {(call.client, call.began) for call in bad}
    assert seen > 10


def test_too_hard_is_undecided_and_never_good() -> None:
    """Twelve writes at once, and a value that none of them wrote: every order has to be tried."""
    calls = [Call(f"c{number}", "add", (1 << number,), 0, 10, None) for number in range(12)]
    calls = [Call(call.client, "write", (number,), 0, 10) for number, call in enumerate(calls)]
    calls.append(Call("r", "read", (), 0, 10, 99))
    adds = [Call(f"c{number}", "add", (1 << number,), 0) for number in range(14)]
    adds.append(Call("r", "read", (), 1, 2, -1))
    assert judge(calls, MODELS["register"]).outcome is Outcome.VIOLATED
    judgement = judge(adds, MODELS["register"], steps_max=5_000)
    assert judgement.outcome is Outcome.UNDECIDED
    assert not judgement.holds
    assert "undecided" in str(judgement)
    assert judgement.steps <= 5_100


def test_undecided_keys_do_not_hide_a_violation() -> None:
    hard = [Call(f"c{number}", "add", ("x", 1 << number), 0) for number in range(14)]
    hard.append(Call("r", "get", ("x",), 1, 2, -1))
    bad = [Call("a", "put", ("y", 1), 0, 1), Call("a", "get", ("y",), 2, 3, 5)]
    judgement = judge([*hard, *bad], MODELS["store"], steps_max=2_000)
    assert judgement.outcome is Outcome.VIOLATED
    assert judgement.violation is not None
    assert judgement.violation.partition == "y"


def test_what_a_report_says() -> None:
    calls = drawn(
        """
        A: [write 1] [write 2       ]
        B:             [read=2 ] [read=1]
        C:                  [write 7 >
        """
    )
    text = str(judge(calls, MODELS["register"]))
    assert text.splitlines()[0] == "not linearisable: [33, 41] B: read() -> 1"
    assert "it could have been 2 or 7" in text
    assert "C: write(7) never ended" in text
    assert "B: read() -> 2" in text


def test_a_call_that_ends_before_it_begins_is_no_history() -> None:
    with pytest.raises(ValueError, match="ends before it begins"):
        judge([Call("a", "read", (), 2, 1, 0)], MODELS["register"])


class Tokens:
    """A lock whose tokens grow: a model that looks at results."""

    def start(self) -> tuple[str | None, int]:
        return None, 0

    def step(self, state: tuple[str | None, int], call: Call) -> tuple[tuple[str | None, int], Any]:
        holder, last = state
        if call.operation == "release":
            return (None, last), None
        if holder is not None:
            return state, None
        if call.is_pending:
            return (call.client, last), ANYTHING
        return ((call.client, call.result), call.result) if (call.result or 0) > last else (state, "more")

    def is_read(self, call: Call) -> bool:
        return False

    def partition(self, call: Call) -> None:
        return None


def test_a_model_may_leave_answers_open() -> None:
    good = "A: [acquire=5] [release]\nB:    [acquire=none]     [acquire=9]"
    assert judge(drawn(good), Tokens()).holds
    bad = "A: [acquire=5] [release]\nB:                      [acquire=4]"
    assert judge(drawn(bad), Tokens()).outcome is Outcome.VIOLATED
    late = "A: [acquire >\nB:   [acquire=none] [release] [acquire=3]"
    assert judge(drawn(late), Tokens()).holds
