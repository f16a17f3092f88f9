"""What a run with process groups reached: the group layer's rare turns, and what programs did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from totempole.groups.body import HEAD_BYTES, RUN_BYTES
from totempole.groups.packing import pack_names
from totempole.sim.fuzz.coverage import FATES, FAULTS, RUNS
from totempole.sim.script import PROCESS_VERBS
from totempole.sim.script_parser import ring_config
from totempole.sim.script_runner import Outcome
from totempole.trace.schema import Row

BRANCHES = (
    "exchange begins",
    "exchange ends",
    "exchange abandoned",
    "sent again",
    "message begun again",
    "gave way to another of its number",
    "outlived another of its number",
)
"""Which the layer itself notes; and that doubles have met, with programs on both."""

TURNS = (
    *(f"regular view by {why}" for why in ("join", "leave", "disconnect", "configuration")),
    *(f"transitional view by {why}" for why in ("join", "leave", "disconnect", "configuration")),
    "parts of a group merged",
    "delivered in a transitional configuration",
    "safe notice",
    "safe notice in a transitional configuration",
    "several senders in one packet",
    "to several groups",
    "from an outsider",
    "message in two pieces",
    "message in many pieces",
    "message that just fits a packet",
    "message one byte too long for a packet",
    "message delivered in a later configuration",
    "state given",
    "state begun and nobody to give it",
    "state donor replaced",
    "state given up",
    "state across a change of configuration",
)

ACTS = (
    *(verb for verb in PROCESS_VERBS),
    "join",
    "quit",
    "multicast",
    "waited for room",
    "caught up",
    "disconnected as too slow",
)

EXPECTED = (
    *(f"fault: {name}" for name in FAULTS),
    *(f"fate: {name}" for name in FATES),
    *(f"run: {name}" for name in RUNS),
    *(f"branch: {name}" for name in BRANCHES),
    *(f"groups: {name}" for name in TURNS),
    *(f"process: {name}" for name in ACTS),
)
"""What a large search must have reached at least once."""


def group_coverage_of(outcome: Outcome) -> Counter[str]:
    """Beside `coverage_of`, which counts the faults and the branches."""
    assert outcome.programs is not None
    found = Counter({f"process: {name}": count for name, count in outcome.programs.acts.items()})
    config = ring_config(outcome.scenario.settings, outcome.scenario.processors[0][1])
    reader = _Reader(config.packet_bytes_max)
    reader.read(outcome.rows)
    found.update({f"groups: {name}": count for name, count in reader.found.items()})
    return +found


class _Reader:
    def __init__(self, packet_bytes_max: int) -> None:
        self.found: Counter[str] = Counter()
        self._room = packet_bytes_max - HEAD_BYTES - RUN_BYTES
        self._joined: set[tuple[str, str]] = set()
        self._begun: dict[tuple[str, str], Row] = {}
        self._sent: dict[str, Row] = {}
        self._packets: dict[tuple[int, str, int], str] = {}

    def read(self, rows: Iterable[Row]) -> None:
        readers = {
            "group_join": self._join,
            "group_send": self._send,
            "group_deliver": self._deliver,
            "group_view": self._view,
            "group_safe": self._safe,
            "group_state": self._state,
        }
        for row in rows:
            reader = readers.get(row.kind)
            if reader is not None:
                reader(row)

    def _join(self, row: Row) -> None:
        self._joined.add((row.process, row.group))
        self._begun.pop((row.process, row.group), None)

    def _send(self, row: Row) -> None:
        groups = row.groups.to
        self._sent[row.message] = row
        self.found["to several groups"] += len(groups) > 1
        self.found["from an outsider"] += not any((row.process, group) in self._joined for group in groups)
        room = self._room - len(pack_names(groups))
        self.found["message that just fits a packet"] += row.bytes == room
        self.found["message one byte too long for a packet"] += row.bytes == room + 1
        pieces = -(-row.bytes // room)
        self.found["message in two pieces"] += pieces == 2
        self.found["message in many pieces"] += pieces > 4

    def _deliver(self, row: Row) -> None:
        sender = row.message.partition(":")[0]
        first = self._packets.setdefault((row.node, row.ring, row.seq), sender)
        self.found["several senders in one packet"] += first != sender
        self.found["delivered in a transitional configuration"] += row.configuration != row.ring
        sent = self._sent.get(row.message)
        later = sent is not None and sent.configuration not in ("", row.configuration)
        self.found["message delivered in a later configuration"] += later

    def _view(self, row: Row) -> None:
        self.found[f"{row.configuration_kind} view by {row.reason}"] += 1
        merged = row.configuration_kind == "regular" and row.reason == "configuration"
        come = set(row.groups.processes) - set(row.groups.together)
        self.found["parts of a group merged"] += merged and bool(come)

    def _safe(self, row: Row) -> None:
        self.found["safe notice"] += 1
        self.found["safe notice in a transitional configuration"] += row.configuration != row.ring

    def _state(self, row: Row) -> None:
        stage = row.groups.stage
        key = (row.process, row.group)
        begun = self._begun.get(key)
        if stage == "begins":
            nobody = not row.groups.peer
            turn = {
                (False, True): "state begun and nobody to give it",
                (True, True): "state given up",
                (True, False): "state donor replaced",
            }.get((begun is not None, nobody))
            self._begun[key] = row
            if turn:
                self.found[turn] += 1
        elif stage == "last":
            self.found["state given"] += 1
            changed = begun is not None and begun.configuration != row.configuration
            self.found["state across a change of configuration"] += changed
            self._begun.pop(key, None)
