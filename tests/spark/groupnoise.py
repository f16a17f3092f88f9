"""Events of groups drawn blindly from few values, so that all that can collide does: no run is like this, but
where two judges order, count or name things differently, these show it."""

from __future__ import annotations

from random import Random

from tracebuilder import TraceBuilder

from totempole.trace.schema import Row

EVENTS_MAX = 90
NODES = (1, 2)
NAMES = ("1.1.1", "1.1.2", "2.1.1", "2.1.2", "3.1.1")
"""The last one's node leaves no trace."""
RINGS = ("8@1", "12@1")
CONFIGURATIONS = ("8@1", "10@1", "12@1", "14@2")
"""Two regular ones, one transitional, and one that nobody installs."""


def noise(seed: int) -> list[Row]:
    chance = Random(seed)
    trace = TraceBuilder()
    trace.form(*NODES)
    trace.transitional("10@1", NODES)
    trace.regular("12@1", NODES)
    packets = [trace.originate(chance.choice(NODES), seq=seq) for seq in (1, 2)]
    for packet in packets:
        trace.receive(packet, *chance.sample(NODES, chance.choice((0, 1, 1))))
    for _ in range(chance.randint(10, EVENTS_MAX)):
        process = chance.choice(NAMES[:4])
        kind = chance.choice(tuple(_TELL))
        trace.row(int(process[0]), kind, layer="groups", process=process, **_TELL[kind](chance))
        trace.rows[-1] = trace.rows[-1]._replace(at_us=chance.randrange(300))
    return trace.rows


def _connection(chance: Random) -> dict[str, object]:
    return {"reason": chance.choice(("connect", "disconnect"))}


def _join(chance: Random) -> dict[str, object]:
    return {
        "group": chance.choice("gh"),
        chance.choice(("offers_state", "wants_state")): chance.random() < 0.7,
    }


def _leave(chance: Random) -> dict[str, object]:
    return {"group": chance.choice("gh")}


def _message(chance: Random) -> dict[str, object]:
    return {
        "message": f"{chance.choice(NAMES)}:{chance.randint(1, 4)}",
        "to": chance.choice((("g",), ("h",), ("g", "h"), ("h", "g"), ("x",), ())),
        "count": chance.choice((1, 1, 2, 3)),
        "bytes": chance.choice((1, 1, 1, 2)),
        "service": chance.choice(("agreed", "agreed", "safe")),
        "configuration": chance.choice(CONFIGURATIONS),
    }


def _place(chance: Random) -> dict[str, object]:
    return {"ring": chance.choice(RINGS), "seq": chance.randint(1, 3)}


def _send(chance: Random) -> dict[str, object]:
    return {**_message(chance), "digest": chance.choice((171, 171, 171, 0))}


def _deliver(chance: Random) -> dict[str, object]:
    own = {"index": chance.randint(0, 1), "digest": chance.choice((171, 171, 171, 205, 0))}
    return {**_message(chance), **_place(chance), "origin": chance.randint(1, 2), **own}


def _view(chance: Random) -> dict[str, object]:
    """Often of the same few, or nobody would ever go together with another."""
    members, together = (tuple(sorted(_some(chance))) for _ in range(2))
    columns: dict[str, object] = {
        **_place(chance),
        "configuration": chance.choice(CONFIGURATIONS),
        "configuration_kind": chance.choice(("regular", "transitional")),
    }
    changed = chance.choice(("configuration", "configuration", "join", "leave"))
    if chance.random() < 0.7:
        seq = chance.randint(1, 3)
        columns = {"ring": "8@1", "seq": seq, "configuration": "8@1", "configuration_kind": "regular"}
        changed = "configuration" if seq == 1 else "join"
    own = {"index": chance.choice((0, 0, 0, 1)), "processes": members, "together": together}
    return {**columns, "group": chance.choice("ggh"), "reason": changed, **own}


def _some(chance: Random) -> list[str]:
    at_random = chance.sample(NAMES, chance.randint(0, 4))
    return chance.choice((list(NAMES[:4]), list(NAMES[:4]), ["1.1.1", "2.1.1"], at_random, at_random))


def _safe(chance: Random) -> dict[str, object]:
    return {**_message(chance), **_place(chance), "index": chance.randint(0, 1)}


def _state(chance: Random) -> dict[str, object]:
    stage, peer = chance.choice(("asked", "given", "begins", "last")), chance.choice(NAMES)
    digest = chance.choice((171, 205, 0))
    if chance.random() < 0.3:
        stage, peer = chance.choice(("prefix", "state")), ""
    return {**_place(chance), "group": "g", "stage": stage, "peer": peer, "digest": digest}


_TELL = {
    "process": _connection,
    "group_join": _join,
    "group_leave": _leave,
    "group_send": _send,
    "group_deliver": _deliver,
    "group_view": _view,
    "group_safe": _safe,
    "group_state": _state,
}
