"""Scenarios played with the real protocol."""

from __future__ import annotations

from pathlib import Path

from totempole.sim.scenario import parse, run
from totempole.trace.told import told

GOLDEN = Path(__file__).parent / "golden"

SPLIT = (GOLDEN / "split.scenario").read_text()


def test_met_expectations_leave_no_failures() -> None:
    assert run(parse(SPLIT, "split")).failures == []


def test_all_unmet_expectations_are_collected() -> None:
    wrong = SPLIT.replace("expect members p (p)", "expect members p (p q)")
    wrong = wrong.replace("delivered q 15", "delivered q 16").replace(
        "{q r} [q r] {p q r}", "{q r} [q] {p q r}"
    )
    failures = run(parse(wrong, "wrong")).failures
    assert len(failures) == 3
    assert failures[0] == "wrong: at 600ms expect members p (p q): its regular configuration is {p}"
    assert failures[1].startswith("wrong: at 1500ms expect configurations q: ")
    assert failures[1].endswith("{p q r} [q r] {q r} [q r] {p q r}")
    assert failures[2] == "wrong: at 1500ms expect delivered q 16: it has delivered 15"


def test_the_absent_start_when_they_are_told() -> None:
    text = "processors 1 2\nabsent 2\nat 200ms expect members 1 (1)\nat 200ms restart 2\nend 1s\n"
    outcome = run(parse(text + "expect members 1 (1 2)\n"))
    assert outcome.failures == []


def test_a_lost_token_is_told_in_the_rows() -> None:
    text = "processors 1 2\nat 300ms drop-next token from 1 count=1\nend 600ms\nexpect members 1 (1 2)\n"
    outcome = run(parse(text))
    assert outcome.failures == []
    assert "dropped token from 1" in [told(row) for row in outcome.rows]
    assert outcome.world.counters["filtered"] == 1


def test_every_fault_of_the_language_is_performed() -> None:
    text = """
    processors 1 2 3
    at 200ms pause 1
    at 210ms resume 1
    at 210ms slow 2 3
    at 220ms cut 1 2
    at 230ms mend 1 2
    at 240ms loss 0.1
    at 250ms load 1 shape=driver
    at 250ms load 2 shape=steady rate=10 until=300ms
    at 250ms load 3 shape=saturate until=260ms
    at 300ms condition loss=0
    at 400ms leave 3
    at 500ms crash 2
    at 600ms restart 2
    end 1500ms
    expect members 1 (1 2)
    """
    outcome = run(parse(text))
    assert outcome.failures == []
    assert sorted(outcome.world.faults) == sorted(
        ["pause", "resume", "slow", "cut", "mend", "condition", "leave", "crash", "restart"]
    )
