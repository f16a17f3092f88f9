"""What the documents say about the code is still so."""

from __future__ import annotations

import re
from pathlib import Path

from state_table import drawn, said_of, shown

from totempole.sim.fuzz.coverage import TRANSITIONS
from totempole.srp.machine import OWN_TABLE, TABLE, TIMER_TABLE
from totempole.srp.states import Event, State

DOCS = Path(__file__).parents[2] / "docs"


def test_the_state_diagram_shows_just_the_transitions_that_a_search_must_reach() -> None:
    text = (DOCS / "architecture.md").read_text()
    drawn = set(re.findall(r"^    (\w+) --> (\w+):", text, re.MULTILINE))
    reached = {tuple(name.split()[0].split(">")) for name in TRANSITIONS}
    assert drawn == reached


def test_the_reader_is_told_the_true_number_of_events_and_states() -> None:
    text = (DOCS / "architecture.md").read_text()
    assert (len(Event), len(State)) == (20, 6)
    assert "each of twenty events does in each of six" in " ".join(text.split())


def test_the_table_of_events_and_states_is_the_codes() -> None:
    """`python tests/docs/state_table.py` draws it again."""
    assert shown() == drawn()


def test_every_cell_of_the_table_says_something_short() -> None:
    for row in (*TABLE.values(), *TIMER_TABLE.values(), *OWN_TABLE.values()):
        assert all(0 < len(said_of(cell)) <= 56 for cell in row)


def test_links_between_documents_lead_somewhere() -> None:
    root = DOCS.parent
    for page in [*DOCS.rglob("*.md"), root / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
