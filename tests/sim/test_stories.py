"""Stories of the ring's rarest transitions: a scenario, and what `totem sim --story` prints of it.

Each scenario in golden/ says at its top what to see. After a change that is meant to change a story, write
them anew and review the difference:

    TOTEM_REWRITE_GOLDEN=1 pytest tests/sim/test_stories.py && git diff tests/sim/golden

`# story from 990ms to 2s` leaves out what comes before and after, such as how the first ring was formed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from totempole.sim.scenario import Outcome, parse, render_story, run

GOLDEN = Path(__file__).parent / "golden"
REWRITE = "TOTEM_REWRITE_GOLDEN"
PART = re.compile(r"^# story from (\d+)ms(?: to (\d+)ms)?$", re.MULTILINE)

NAMES = sorted(file.stem for file in GOLDEN.glob("*.scenario"))
RARE = {
    "a-disk-is-rolled-back": "join of a former life",
    "a-full-ring-refuses-a-newcomer": "no room on the ring",
    "a-laggard-is-expelled": "laggard not taken back yet",
    "a-leave-in-gather": "graceful leave",
    "a-life-gives-way-to-a-double": "gave way to another of its number",
    "a-member-gives-up-the-new-ring": "new ring given up by a member",
    "a-member-refuses-the-commit-token": "new ring refused by a member",
    "commit-token-lost-on-its-second-rotation": "commit token lost on its second rotation",
    "failure-to-receive": "failure to receive",
    "idle-rings-meet": "idle rings meet",
    "joins-held-back": "join held back",
    "recovery-fails-after-a-promise": "recovery failed after a promise",
}
"""The branch that each story is told for."""


def story_of(text: str, outcome: Outcome) -> str:
    part = PART.search(text)
    first_ms, last_ms = (int(part[1]), int(part[2] or 0)) if part else (0, 0)
    last_us = 1_000 * last_ms or outcome.rows[-1].at_us
    told = [row for row in outcome.rows if 1_000 * first_ms <= row.at_us <= last_us]
    return render_story(told, outcome.scenario.names)


@pytest.mark.parametrize("name", NAMES)
def test_the_story_is_golden(name: str) -> None:
    text = (GOLDEN / f"{name}.scenario").read_text()
    outcome = run(parse(text, name), level="checked")
    story = story_of(text, outcome)
    golden = GOLDEN / f"{name}.story"
    if os.environ.get(REWRITE):
        golden.write_text(story)
    assert outcome.failures == []
    assert story == golden.read_text()


@pytest.mark.parametrize(("name", "branch"), RARE.items(), ids=RARE)
def test_the_story_tells_what_it_is_told_for(name: str, branch: str) -> None:
    assert f" branch {branch}\n" in (GOLDEN / f"{name}.story").read_text()


def test_no_story_is_without_its_scenario() -> None:
    assert sorted(file.stem for file in GOLDEN.glob("*.story")) == NAMES
    assert {"split", *RARE} == set(NAMES)
