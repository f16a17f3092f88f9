"""What the durable order writes (COReL): the runs that a replica has, their colours and places, the
primary components that it knows of, and what it has on disk before it says so to others.

A run is named in `message` as origin.life.number, and a primary's record as 0.number.1.
"""

from __future__ import annotations

from typing import NamedTuple

from totempole.trace.kinds import Kind, Level

RED, YELLOW, GREEN = "red", "yellow", "green"
"""Colours, as rows have them in old_state and new_state. Nothing: the replica does not have the run."""

ATTEMPTED, COMMITTED, ESTABLISHED, LEARNED = "attempted", "committed", "established", "learned"
"""The reasons of a `primary` row."""

OPENED = "open"
"""The reason of the `colour` rows that follow an opening."""

CUT_OFF = "cut off"
"""A phase: a transitional view has come, so what follows is red."""
CLOSED, PRIMARY, MINORITY, LOOKING_ON = "closed", "primary", "minority", "looking on"
HANDLER = frozenset({"exchanging", "agreeing", "attempting", "committing"})
"""The phases in which members of a view agree on what they have."""

ASKED, PASSED, FORGOTTEN = "asked", "passed", "forgotten"
"""The reasons of a `barrier` row."""

ALL = "all"
"""`awaits` of a replica for which a run is green once all members of the primary have acknowledged it."""


class CorelColumns(NamedTuple):
    run_kind: str = ""
    """accept, colour: records, primary, change or hold."""
    log: str = ""
    """accept: the log that the records are for."""
    keys: tuple[str, ...] = ()
    """accept: of each record, empty if it has none; or no keys at all."""
    fence: str = ""
    """accept: the name of the records' fence, if they have one."""
    fence_bounds: tuple[int, ...] = ()
    """accept: low, high and number of that fence."""
    stamp: str = ""
    """colour: of the run's first delivery, as ring@representative:seq:index."""
    place: int = -1
    """colour: of a green or yellow run, in the order, from 0; of one that falls back to red, the place that
    it gives up. replica_set: of the run that has changed the set. barrier: every run that was green anywhere
    when it was asked for is before this place."""
    position: int = -1
    """colour: of a green run's first record that takes one. log_open, fetched: of the next record."""
    repeats: tuple[int, ...] = ()
    """colour: the records of a green run whose key was there before, by index. They take no position."""
    firsts: tuple[int, ...] = ()
    """colour: for each of these the position of the first record with that key."""
    kept_out: tuple[int, ...] = ()
    """colour: of a green run that its fence has kept out, the mark that was in force and the position where
    it was set, -1 if it never was. None of its records takes a position."""
    primary: int = 0
    """The number of the primary component that the row is about, or of the last one that the replica
    knows."""
    voters: tuple[int, ...] = ()
    """primary: those of `members` whose disks count."""
    frames: int = 0
    """colour, primary: it is in the last of so many frames. durable, log_open: so many are on disk.
    acknowledge: so many must be on disk before it is said."""
    green_runs: int = 0
    """So many are green, when the row is written."""
    view: str = ""
    """The place of the view, as ring@representative:seq:index."""
    round: int = 0
    """How often the view's handler has begun."""
    life: int = 0
    """log_open: of the runs that the replica accepts from here on."""
    disk: int = 0
    """log_open, phase: the name of the replica's disk. 0: it has none yet."""
    disks: tuple[int, ...] = ()
    """primary, replica_set: of each of `members`."""
    weights: tuple[int, ...] = ()
    """replica_set: of each of `members`."""
    rule: str = ""
    """replica_set: majority or dynamic."""
    floor: int = 0
    """replica_set: with dynamic voting, the least number of members."""
    awaits: str = ""
    """log_open: whose acknowledgements make a run green, quorum or all."""
    vector: tuple[str, ...] = ()
    """log_open, fetched: the last run of each origin and life that the replica has."""


KINDS = (
    Kind("log_open", Level.DELIVERY, "a replica has opened its log; reason: damaged, if it has lost frames"),
    Kind("log_close", Level.DELIVERY, "the log has failed or is no longer wanted"),
    Kind("accept", Level.DELIVERY, "a replica has taken a run from a program; count: records in it"),
    Kind(
        "colour",
        Level.DELIVERY,
        "a run's colour changed from old_state to new_state; reason: by which step. At an opening, the runs "
        "that are not green follow",
    ),
    Kind("primary", Level.DELIVERY, "reason: attempted, committed, established or learned"),
    Kind("phase", Level.DELIVERY, "the handler moved from old_state to new_state; members: of the view"),
    Kind("replica_set", Level.DELIVERY, "the replicas whose disks count, from this green run on"),
    Kind(
        "fetched",
        Level.DELIVERY,
        "`count` green runs came; reason: mark, if the green prefix begins anew there",
    ),
    Kind("durable", Level.CHECKED, "so many frames are on disk"),
    Kind(
        "acknowledge",
        Level.CHECKED,
        "a replica says what needs its disk; reason: state, attempt, commit, caught up or runs; count: runs "
        "of this primary that are on its disk",
    ),
    Kind(
        "barrier",
        Level.CHECKED,
        "reason: asked, then passed or forgotten; count: so many barriers that programs of the replica have "
        "asked for in this life",
    ),
    Kind("recall", Level.PROTOCOL, "a replica reads its log for another; origin: that one"),
)
