"""`totem verify --follow`: verdicts of a running cluster, until Ctrl-C."""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from totempole.checkers.terms import Terms
from totempole.cli.event_text import on_one_line
from totempole.cli.output import Screen
from totempole.errors import TotemError

if TYPE_CHECKING:
    from totempole.spark.follow import Update

PAUSE_S = 1.0
"""Between two looks for new rows. A node hands its rows on by the thousand, or after a second."""


def follow(screen: Screen, arguments: argparse.Namespace) -> int:
    """Exits 1 if something was violated."""
    from totempole.spark import follow as following
    from totempole.spark.cancellable import run_cancellable
    from totempole.spark.session import open_session

    if len(arguments.traces) != 1 or not arguments.traces[0].is_dir():
        raise TotemError("verify: --follow takes one directory, which a running cluster writes to")
    updates: list[dict[str, Any]] = []
    told: set[following.Told] = set()

    def tell(update: Update) -> None:
        updates.append(_data(update))
        _show(screen, update)

    otherwise = Terms(arguments.complete, arguments.same_clock)
    with _state(arguments.tables) as state, open_session("totem verify", arguments.master) as spark:
        screen.print(f"following {arguments.traces[0]}; Ctrl-C ends it", style="dim")

        def look() -> None:
            """All that is there by now, in one batch that is never cut short."""
            query = following.follow(
                spark, arguments.traces[0], Path(state), tell, otherwise=otherwise, told=told
            )
            query.awaitTermination()

        with suppress(KeyboardInterrupt):
            while True:
                run_cancellable(spark, look, cancel=lambda: None)
                time.sleep(PAUSE_S)
    screen.save_json({"updates": updates})
    return 1 if any(update["violations"] for update in updates) else 0


def _state(kept: Path | None) -> Any:
    return _Kept(kept / "follow") if kept else tempfile.TemporaryDirectory(prefix="totem-follow-")


class _Kept:
    def __init__(self, place: Path) -> None:
        self._place = place

    def __enter__(self) -> str:
        self._place.mkdir(parents=True, exist_ok=True)
        return str(self._place)

    def __exit__(self, *error: object) -> None: ...


def _show(screen: Screen, update: Update) -> None:
    counts = {"holds": 0, "violated": 0, "undecided": 0}
    for found in update.outcomes.values():
        for outcome, count in found.items():
            counts[outcome] += count
    latencies = "; ".join(
        f"{service} p50 {found[0] / 1000:.1f} p99 {found[1] / 1000:.1f} ms"
        for service, found in update.latencies_us.items()
    )
    style = "bold red" if counts["violated"] else "green"
    told = f"{counts['holds']} hold, {counts['violated']} violated[/], {counts['undecided']} undecided"
    screen.print(
        f"{time.strftime('%H:%M:%S')}  {update.events:>8,} new events of {update.total:,}  [{style}]{told}  "
        f"{latencies}"
    )
    for violation in update.violations:
        screen.print(f"  [bold red]{violation['property']}[/], run {violation['run']}: ", end="")
        screen.long(on_one_line(violation["text"]))


def _data(update: Update) -> dict[str, Any]:
    return {
        "batch": update.batch,
        "events": update.events,
        "total": update.total,
        "runs": list(update.runs),
        "violations": update.violations,
        "latencies_us": {service: list(found) for service, found in update.latencies_us.items()},
    }
