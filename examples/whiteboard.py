"""A shared whiteboard: who joins later gets the picture as of its place in the order, and misses no stroke.

    python examples/whiteboard.py [--socket PATH | --embed node.toml]

Type `put 3 1 #` to draw a character at column 3, row 1; `show` to see the board; Ctrl-D to leave.

Every member can give the board to a joiner (`state=`). It is asked between two strokes, goes on drawing while
the board is on its way, and another takes over if it dies meanwhile. The joiner begins with that board, and
the strokes that follow are just those that are not in it.

Each spot keeps the place in the order of its last stroke. Places can be compared everywhere, also after the
network was parted: then the first member of each side sends its board, and on every spot the later stroke
stays.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable

from helping import either, options, run, session, show, typed

from totempole import Group, Messages, Place, Reconnected, Session, State, View

COLUMNS, ROWS = 24, 8

Stroke = tuple[list[int], str]
"""When, as a list that sorts as places do, and what."""


class Board:
    def __init__(self) -> None:
        self.spots: dict[str, Stroke] = {}

    def put(self, spot: str, ink: str, place: Place, number: int) -> None:
        (ring, seq, _), index = place
        self.merge({spot: ([*ring, seq, index, number], ink)})

    def merge(self, spots: dict[str, Stroke]) -> None:
        for spot, stroke in spots.items():
            self.spots[spot] = max(stroke, self.spots.get(spot, stroke), key=lambda stroke: stroke[0])

    def snapshot(self) -> bytes:
        return json.dumps(self.spots, sort_keys=True).encode()

    def __str__(self) -> str:
        ink = {spot: stroke[1] for spot, stroke in self.spots.items()}
        return "\n".join(
            "".join(ink.get(f"{column} {row}", ".") for column in range(COLUMNS)) for row in range(ROWS)
        )


async def main() -> None:
    board = Board()
    async with (
        session(options(__doc__).parse_args()) as mine,
        mine.join("whiteboard", state=board.snapshot, want_state=True) as group,
    ):
        await either(watch(mine, group, board), draw(group, board, typed()))


async def draw(group: Group, board: Board, lines: AsyncIterable[str]) -> None:
    async for line in lines:
        match line.split():
            case ["put", column, row, ink] if column.isdecimal() and row.isdecimal() and len(ink) == 1:
                await group.multicast(json.dumps({"spot": f"{column} {row}", "ink": ink}).encode())
            case ["show"]:
                show(board)
            case _:
                show("put COLUMN ROW CHARACTER, or show")


async def watch(mine: Session, group: Group, board: Board) -> None:
    async for event in group:
        match event:
            case Messages(payloads=payloads, place=place):
                for number, message in enumerate(map(json.loads, payloads)):
                    if "spot" in message:
                        board.put(message["spot"], message["ink"], place, number)
                        show("drawn at", message["spot"])
                    else:
                        board.merge(message["board"])
            case State(data=data):
                board.merge(json.loads(data or b"{}"))
                show("the board has", len(board.spots), "spots")
            case View(kind="regular", members=members, together=together, strangers=strangers):
                show(len(members), "draw")
                if strangers and together[:1] == (mine.process,):
                    await group.multicast(json.dumps({"board": board.spots}).encode())
            case Reconnected():
                show("the daemon was away; the board comes again")


if __name__ == "__main__":
    run(main())
