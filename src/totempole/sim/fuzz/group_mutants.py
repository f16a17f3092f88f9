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
        2,
    ),
    _mutant("pieces kept across a configuration", "layer", "self._partials.clear()", "pass", 18),
    _mutant(
        "what came back of outsiders is not sent again",
        "layer",
        "self._came_back += [unit for unit in units if unit.kind is not RunKind.TABLE]",
        "mine = self._processes\n"
        "                self._came_back += [\n"
        "                    unit\n"
        "                    for unit in units\n"
        "                    if unit.kind is not RunKind.TABLE\n"
        "                    and (unit.lane[0] not in mine or mine[unit.lane[0]].groups)\n"
        "                ]",
    ),
    _mutant(
        "what came back goes behind what waits",
        "lanes",
        "                queue.appendleft(unit)",
        "                queue.append(unit)",
    ),
    _mutant(
        "messages sent while tables are exchanged",
        "layer",
        "packed = self._lanes.take(membership.exchanging, only=TABLE_LANE)",
        "packed = self._lanes.take(membership.exchanging)",
        1,
    ),
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
        20,
    ),
    _mutant(
        "those of the last configuration alone count as come along",
        "membership",
        "self._lineage = members if self._lineage is None else self._lineage & members",
        "self._lineage = members",
        20,
    ),
    _mutant(
        "everyone counts as come along",
        "membership",
        "for process in old if process.processor in lineage and process in entries",
        "for process in old if process in entries",
        3,
    ),
    _mutant(
        "processes of lost processors kept",
        "membership",
        "self._table.keep_processors(members)",
        "pass",
        10,
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
        10,
    ),
    _mutant(
        "only those of the own processor count as come along",
        "membership",
        "for process in old if process.processor in lineage and process in entries",
        "for process in old if process.processor == self._me and process in entries",
    ),
    _mutant(
        "who came along before the last table counts too",
        "membership",
        "self.epoch, self.exchanging, self._lineage = self.exchanging, None, None",
        "self.epoch, self.exchanging = self.exchanging, None",
    ),
    _mutant(
        "a part of a stale exchange counts",
        "layer",
        "elif epoch == self._membership.exchanging:",
        "elif self._membership.exchanging is not None and (\n"
        "                epoch == self._membership.exchanging or not own\n"
        "            ):",
        1,
    ),
    _mutant(
        "a part with the processes of others",
        "table",
        "                if process.processor == processor:",
        "                if process.processor <= processor:",
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
        8,
    ),
    _mutant(
        "service forgotten in a packet",
        "lanes",
        "return unit.service is self.service",
        "return True",
    ),
    _mutant(
        "a leave told as a disconnect",
        "membership",
        'group: str, why: str = "leave") -> None:',
        'group: str, why: str = "disconnect") -> None:',
    ),
    _mutant(
        "a disconnect told as a leave",
        "membership",
        'self.leave(places, process, group, "disconnect")',
        "self.leave(places, process, group)",
    ),
    _mutant("a disconnect lost", "layer", "if local.has_joined:", "if not local.has_joined:"),
    _mutant(
        "a disconnect leaves one group",
        "membership",
        "        for group in groups:\n            self.leave",
        "        for group in groups[:1]:\n            self.leave",
        2,
    ),
    _mutant("two views at one place", "membership", "        self._next += 1", "        pass"),
    _mutant(
        "numbers of messages given twice",
        "layer",
        "local.number_next += count",
        "local.number_next += 1",
    ),
    # State
    _mutant(
        "donor not replaced when it leaves",
        "membership",
        "            self._replace_source(group, process, place)\n",
        "",
        39,
    ),
    _mutant(
        "state of a donor that was replaced taken",
        "membership",
        "if entry is None or (entry.source, entry.asked) != (sender, asked):",
        "if entry is None or entry.source is None:",
        34,
    ),
    _mutant(
        "a donor that waits for state itself",
        "membership",
        "if process != joiner and entry.donor and entry.source is None",
        "if process != joiner and entry.donor",
        2,
    ),
    _mutant(
        "a joiner that has its state waits on",
        "membership",
        "            self._put(group, joiner, Entry(entry.donor))\n",
        "            pass\n",
    ),
    _mutant(
        "state as of a place one later",
        "membership",
        "self._tell_one(source, StateAsked(group, joiner, place))",
        "self._tell_one(source, StateAsked(group, joiner, Place(place.key, place.index + 1)))",
    ),
    _mutant(
        "nobody is told that there is no state",
        "membership",
        "        self._tell_one(joiner, StateBegins(group, source, place))",
        "        if source is not None:\n"
        "            self._tell_one(joiner, StateBegins(group, source, place))",
    ),
    _mutant(
        "a donor that never offered",
        "membership",
        "if process != joiner and entry.donor and entry.source is None",
        "if process != joiner and entry.source is None",
    ),
    _mutant(
        "the last donor by number",
        "membership",
        "source = min(",
        "source = max(",
        1,
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
    ),
    _mutant(
        "safe as far as on another ring",
        "layer",
        "(place.key.ring_id == ring_id and place.key.seq <= seq)",
        "(place.key.seq <= seq)",
        4,
    ),
    _mutant(
        "notices told twice",
        "layer",
        "            self._tell(here, notice)",
        "            self._tell(here, notice)\n            self._tell(here, notice)",
    ),
)
"""Noticed in a random run, each at its seed."""

GROUP_UNNOTICED: tuple[Mutant, ...] = ()
"""Breakages for which no seed and no scenario is known."""

GROUP_STAGED: tuple[Mutant, ...] = (
    _mutant(
        "pieces of state and of messages confused",
        "partial",
        "lane = (sender, run.kind == RunKind.STATE)",
        "lane = (sender, False)",
    ),
    _mutant(
        "donor not replaced when it is lost",
        "membership",
        "                if entry.source is not None:\n                    self._check_source",
        "                if entry.source == 0:\n                    self._check_source",
    ),
    _mutant(
        "a donor that did not come along goes on",
        "membership",
        "if source is not None and source.processor in part.together:",
        "if source is not None:",
    ),
)
"""Each noticed in a scenario that is made for it, one of tests/fuzz/staged."""

GROUP_HARMLESS: tuple[Mutant, ...] = (
    # Harmless, for no promise is about how a packet is shared, and nobody waits longer than a bound. The lane
    # that is first in a packet changes from packet to packet (`Lanes.take` rotates the turns), so a message
    # that fits a packet is sent after at most as many packets as there are lanes, whatever the lane in front
    # takes for itself (tests/groups/test_lanes.py has that bound). These cost the others latency, no more.
    _mutant(
        "one lane takes the whole packet",
        "lanes",
        "if self._fill(packing, lane, len(turns) > 1):",
        "if self._fill(packing, lane, False):",
    ),
    _mutant(
        "small messages wait for a packet of a large one",
        "lanes",
        "turn = min(room, TURN_BYTES) if in_company and left > WHOLE_BYTES else room",
        "turn = room",
    ),
)
"""Changes that break no promise, with the argument for it. No seed may give one away."""
