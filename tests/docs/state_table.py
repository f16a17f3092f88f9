"""The table of docs/architecture.md that says what each event does in each state, drawn from the code.

`python tests/docs/state_table.py` writes it into the document.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from totempole.srp.machine import OWN_TABLE, TABLE, TIMER_TABLE
from totempole.srp.phase import Phase
from totempole.srp.states import State

DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"
BEGIN = "<!-- drawn by tests/docs/state_table.py -->\n"
END = "<!-- end of what is drawn -->\n"

NOTHING = {Phase.drop: "drop", Phase.idle: "-"}


def said_of(cell: Callable[..., None]) -> str:
    """The first line of the method's doc string, in small letters."""
    if cell in NOTHING:
        return NOTHING[cell]
    line = (cell.__doc__ or "").splitlines()[0].rstrip(".")
    return line[0].lower() + line[1:]


def drawn() -> str:
    states = [state.name.capitalize() for state in State]
    lines = [["event", *states], ["---"] * (1 + len(states))]
    for event, row in {**TABLE, **TIMER_TABLE, **OWN_TABLE}.items():
        lines.append([event.name.lower().replace("_", " "), *map(said_of, row)])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def shown() -> str:
    """What the document has at present."""
    return DOCUMENT.read_text().split(BEGIN)[1].split(END)[0]


if __name__ == "__main__":
    DOCUMENT.write_text(DOCUMENT.read_text().replace(BEGIN + shown() + END, BEGIN + drawn() + END))
