"""Named breakages of the group layer, as `mutants` has them of the ring. Their seeds are `group_plan`'s."""

from __future__ import annotations

from totempole.sim.fuzz.mutants import Mutant


def _mutant(name: str, module: str, old: str, new: str, seed: int = 0) -> Mutant:
    return Mutant(name, module, old, new, seed, package="groups")


GROUP_MUTANTS: tuple[Mutant, ...] = (
    # Epochs: what is sent in one configuration counts in no other
    _mutant(
        "packets of a stale epoch taken",
        "layer",
        "if epoch == self._membership.epoch:",
        "if epoch != self._membership.exchanging:",
    ),
    _mutant(
        "what came back is not sent again",
        "layer",
        "self._came_back += [unit for unit in units if unit.kind is not RunKind.TABLE]",
        "pass",
    ),
    _mutant(
        "what came back is sent again in the wrong order",
        "lanes",
        "for unit in reversed(list(dict.fromkeys(units))):",
        "for unit in list(dict.fromkeys(units)):",
    ),
    _mutant(
        "a message in pieces goes on where it was",
        "lanes",
        "            queue[0].sent = 0",
        "            pass",
        49,
    ),
    _mutant("pieces kept across a configuration", "layer", "self._partials.clear()", "pass", 2),
    # The exchange of tables
    _mutant(
        "the exchange ends one part early",
        "membership",
        "if self._parts.keys() != self._members:",
        "if len(self._parts) < max(1, len(self._members) - 1):",
    ),
    _mutant(
        "the exchange is not begun again",
        "membership",
        "        self._parts.clear()\n        return self._table.part_of(self._me, self._lineage)",
        "        return self._table.part_of(self._me, self._lineage)",
        30,
    ),
    _mutant(
        "those of the last configuration alone count as come along",
        "membership",
        "self._lineage = members if self._lineage is None else self._lineage & members",
        "self._lineage = members",
        1,
    ),
    _mutant(
        "everyone counts as come along",
        "membership",
        "for process in old if process.processor in lineage and process in entries",
        "for process in old if process in entries",
        1,
    ),
    _mutant(
        "processes of lost processors kept",
        "membership",
        "self._table.keep_processors(members)",
        "pass",
        1,
    ),
    _mutant(
        "no transitional view",
        "membership",
        'self._tell_view(group, old, place, "configuration")',
        "pass",
    ),
    _mutant(
        "no regular view after a transitional one",
        "membership",
        "if new != old or together != old or group in self._unsettled:",
        "if new != old or together != old:",
    ),
    _mutant(
        "who did not come along joins",
        "membership",
        "if self._is_out(process) or process in self._table.entries(group):",
        "if process in self._table.entries(group):",
        3,
    ),
    # Joining, leaving, delivering
    _mutant(
        "joins take effect before their place",
        "layer",
        "        local.groups.add(group)\n",
        "        local.groups.add(group)\n"
        "        from totempole.groups.body import Entry\n"
        "        early = ProcessId(self._me, self.incarnation, process)\n"
        "        self._membership._put(group, early, Entry(donor))\n",
    ),
    _mutant(
        "messages to those who left",
        "membership",
        "        self._table.remove(group, process)\n        self._local.pop(group, None)",
        "        self._table.remove(group, process)",
    ),
    _mutant(
        "a message to two groups delivered for each",
        "membership",
        "return tuple(sorted({number for group in groups for number in self.local(group)}))",
        "return tuple(sorted([number for group in groups for number in self.local(group)]))",
        2,
    ),
    _mutant(
        "a message to several groups delivered to the first",
        "membership",
        "if len(groups) == 1:",
        "if groups:",
        2,
    ),
    _mutant(
        "a lane not first in, first out",
        "lanes",
        "self._queue(unit.lane).append(unit)",
        "self._queue(unit.lane).appendleft(unit)",
    ),
    _mutant(
        "a disconnect overtakes messages",
        "layer",
        "        self._lanes.add(Unit(RunKind.DISCONNECT, (process, False), count=len(local.groups)))",
        "        self._lanes.add(Unit(RunKind.DISCONNECT, (process, True), count=len(local.groups)))",
        2,
    ),
    _mutant(
        "service forgotten in a packet",
        "lanes",
        "return unit.service is self.service",
        "return True",
    ),
    # State
    _mutant(
        "donor not replaced when it leaves",
        "membership",
        "            self._replace_source(group, process, place)\n",
        "",
        7,
    ),
    _mutant(
        "donor not replaced when it is lost",
        "membership",
        "                if entry.source is not None:\n                    self._check_source",
        "                if entry.source == 0:\n                    self._check_source",
        18,
    ),
    _mutant(
        "state of a donor that was replaced taken",
        "membership",
        "if entry is None or (entry.source, entry.asked) != (sender, asked):",
        "if entry is None or entry.source is None:",
        10,
    ),
    _mutant(
        "a donor that waits for state itself",
        "membership",
        "if process != joiner and entry.donor and entry.source is None",
        "if process != joiner and entry.donor",
    ),
    _mutant(
        "a donor that did not come along goes on",
        "membership",
        "if source is not None and source.processor in part.together:",
        "if source is not None:",
        27,
    ),
    # News of safety
    _mutant("notices before safe", "layer", "if self._is_safe(place):", "if place:"),
    _mutant(
        "notices on any news",
        "layer",
        "while notices and notices[0][0] == effect.ring_id and notices[0][1] <= effect.seq:",
        "while notices:",
    ),
    _mutant(
        "notices lost with the configuration",
        "layer",
        "        while self._notices:\n            self._tell_safe(*self._notices.popleft()[2:])",
        "        self._notices.clear()",
        3,
    ),
)

GROUP_UNNOTICED: tuple[Mutant, ...] = ()
"""Breakages that no checker noticed: what the search is still blind to."""
