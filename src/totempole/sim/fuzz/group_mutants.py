"""Named breakages of the group layer, as `mutants` has them of the ring. Their seeds are `group_plan`'s."""

from __future__ import annotations

from totempole.sim.fuzz.mutants import Mutant


def _mutant(name: str, where: str, old: str, new: str, seed: int = 0) -> Mutant:
    return Mutant(name, where, old, new, seed, package="groups")


GROUP_MUTANTS: tuple[Mutant, ...] = (
    # Epochs: what is sent in one configuration counts in no other
    _mutant(
        "packets of a stale epoch taken",
        "GroupLayer.deliver",
        "if epoch == self._membership.epoch:",
        "if epoch != self._membership.exchanging:",
    ),
    _mutant(
        "what came back is not sent again",
        "GroupLayer.deliver",
        "self._came_back += [unit for unit in units if unit.kind is not RunKind.TABLE]",
        "pass",
    ),
    _mutant(
        "what came back is sent again in the wrong order",
        "Lanes.send_again",
        "for unit in reversed(list(dict.fromkeys(units))):",
        "for unit in list(dict.fromkeys(units)):",
    ),
    _mutant(
        "a message in pieces goes on where it was",
        "Lanes.send_again",
        "queue[0].sent = 0",
        "pass",
        2,
    ),
    _mutant("pieces kept across a configuration", "GroupLayer.install", "self._partials.clear()", "pass", 18),
    _mutant(
        "what came back of outsiders is not sent again",
        "GroupLayer.deliver",
        "self._came_back += [unit for unit in units if unit.kind is not RunKind.TABLE]",
        "mine = self._processes\n"
        "            self._came_back += [unit for unit in units if unit.kind is not RunKind.TABLE and "
        "(unit.lane[0] not in mine or mine[unit.lane[0]].groups)]",
    ),
    _mutant(
        "what came back goes behind what waits",
        "Lanes.send_again",
        "queue.appendleft(unit)",
        "queue.append(unit)",
    ),
    _mutant(
        "messages sent while tables are exchanged",
        "GroupLayer._pump",
        "packed = self._lanes.take(membership.exchanging, only=TABLE_LANE)",
        "packed = self._lanes.take(membership.exchanging)",
        1,
    ),
    # The exchange of tables
    _mutant(
        "the exchange ends one part early",
        "Membership.add_part",
        "if self._parts.keys() != self._members:",
        "if len(self._parts) < max(1, len(self._members) - 1):",
    ),
    _mutant(
        "the exchange is not begun again",
        "Membership.install",
        "self._lineage = self._lineage or frozenset((self._me,))\n    self._parts.clear()",
        "self._lineage = self._lineage or frozenset((self._me,))",
        4,
    ),
    _mutant(
        "those of the last configuration alone count as come along",
        "Membership._install_transitional",
        "self._lineage = members if self._lineage is None else self._lineage & members",
        "self._lineage = members",
        28,
    ),
    _mutant(
        "everyone counts as come along",
        "Membership._tell_new_views",
        "for process in old if process.processor in lineage and process in entries",
        "for process in old if process in entries",
        3,
    ),
    _mutant(
        "processes of lost processors kept",
        "Membership._install_transitional",
        "self._table.keep_processors(members)",
        "pass",
        10,
    ),
    _mutant(
        "no transitional view",
        "Membership._install_transitional",
        "self._tell_view(group, old, place, 'configuration')",
        "pass",
    ),
    _mutant(
        "no regular view after a transitional one",
        "Membership._tell_new_views",
        "if new != old or together != old or group in self._unsettled:",
        "if new != old or together != old:",
    ),
    _mutant(
        "who did not come along joins",
        "Membership.join",
        "if self._is_out(process) or process in self._table.entries(group):",
        "if process in self._table.entries(group):",
        12,
    ),
    _mutant(
        "only those of the own processor count as come along",
        "Membership._tell_new_views",
        "for process in old if process.processor in lineage and process in entries",
        "for process in old if process.processor == self._me and process in entries",
    ),
    _mutant(
        "who came along before the last table counts too",
        "Membership.add_part",
        "self.epoch, self.exchanging, self._lineage = (self.exchanging, None, None)",
        "self.epoch, self.exchanging = (self.exchanging, None)",
    ),
    _mutant(
        "a part of a stale exchange counts",
        "GroupLayer.deliver",
        "epoch == self._membership.exchanging",
        "self._membership.exchanging is not None and (epoch == self._membership.exchanging or not own)",
        26,
    ),
    _mutant(
        "a part with the processes of others",
        "Table.part_of",
        "if process.processor == processor:",
        "if process.processor <= processor:",
    ),
    # Joining, leaving, delivering
    _mutant(
        "joins take effect before their place",
        "GroupLayer._join",
        "local.groups.add(group)",
        "local.groups.add(group)\n"
        "    from totempole.groups.body import Entry\n"
        "    early = ProcessId(self._me, self.incarnation, process)\n"
        "    self._membership._put(group, early, Entry(donor))",
    ),
    _mutant(
        "messages to those who left",
        "Membership._remove",
        "self._table.remove(group, process)\n    self._local.pop(group, None)",
        "self._table.remove(group, process)",
    ),
    _mutant(
        "a message to two groups delivered for each",
        "Membership.local_of",
        "return tuple(sorted({number for group in groups for number in self.local(group)}))",
        "return tuple(sorted([number for group in groups for number in self.local(group)]))",
        2,
    ),
    _mutant(
        "a message to several groups delivered to the first",
        "Membership.local_of",
        "if len(groups) == 1:",
        "if groups:",
        2,
    ),
    _mutant(
        "a lane not first in, first out",
        "Lanes.add",
        "self._queue(unit.lane).append(unit)",
        "self._queue(unit.lane).appendleft(unit)",
    ),
    _mutant(
        "a disconnect overtakes messages",
        "GroupLayer._disconnect",
        "self._lanes.add(Unit(RunKind.DISCONNECT, (process, False), count=len(local.groups)))",
        "self._lanes.add(Unit(RunKind.DISCONNECT, (process, True), count=len(local.groups)))",
        12,
    ),
    _mutant(
        "service forgotten in a packet",
        "_Packing.takes",
        "return unit.service is self.service",
        "return True",
    ),
    _mutant(
        "a leave told as a disconnect",
        "Membership.leave",
        "why: str='leave'",
        "why: str='disconnect'",
    ),
    _mutant(
        "a disconnect told as a leave",
        "Membership.disconnect",
        "self.leave(places, process, group, 'disconnect')",
        "self.leave(places, process, group)",
    ),
    _mutant(
        "a disconnect lost", "GroupLayer._disconnect", "if local.has_joined:", "if not local.has_joined:"
    ),
    _mutant(
        "a disconnect leaves one group",
        "Membership.disconnect",
        "for group in groups:",
        "for group in groups[:1]:",
        2,
    ),
    _mutant("two views at one place", "Places.next", "self._next += 1", "pass"),
    _mutant(
        "numbers of messages given twice",
        "GroupLayer._multicast",
        "local.number_next += count",
        "local.number_next += 1",
    ),
    # State
    _mutant(
        "donor not replaced when it leaves",
        "Membership.leave",
        "self._replace_source(group, process, place)",
        "pass",
        39,
    ),
    _mutant(
        "state of a donor that was replaced taken",
        "Membership.state",
        "if entry is None or (entry.source, entry.asked) != (sender, asked):",
        "if entry is None or entry.source is None:",
        34,
    ),
    _mutant(
        "a donor that waits for state itself",
        "Membership._find_source",
        "entry.donor and (entry.source is None)",
        "entry.donor",
        2,
    ),
    _mutant(
        "a joiner that has its state waits on",
        "Membership.state",
        "self._put(group, joiner, Entry(entry.donor, info=entry.info))",
        "pass",
    ),
    _mutant(
        "state as of a place one later",
        "Membership._find_source",
        "self._tell_one(source, StateAsked(group, joiner, place))",
        "self._tell_one(source, StateAsked(group, joiner, Place(place.key, place.index + 1)))",
    ),
    _mutant(
        "nobody is told that there is no state",
        "Membership._find_source",
        "self._tell_one(joiner, StateBegins(group, source, place))",
        "if source is not None:\n        self._tell_one(joiner, StateBegins(group, source, place))",
    ),
    _mutant(
        "a donor that never offered",
        "Membership._find_source",
        "entry.donor and (entry.source is None)",
        "entry.source is None",
    ),
    _mutant(
        "the last donor by number",
        "Membership._find_source",
        "source = min(",
        "source = max(",
        1,
    ),
    # News of safety
    _mutant("notices before safe", "GroupLayer._take_messages", "if self._is_safe(place):", "if place:"),
    _mutant(
        "notices on any news",
        "GroupLayer.safe",
        "while notices and notices[0][0] <= up_to.key:",
        "while notices:",
    ),
    _mutant(
        "notices lost with the configuration",
        "GroupLayer._tell_all_safe",
        "while self._notices:\n        self._tell_safe(*self._notices.popleft()[1:])",
        "self._notices.clear()",
    ),
    _mutant(
        "safe as far as on another ring",
        "GroupLayer._is_safe",
        "place.key <= self._safe_key",
        "place.key.seq <= self._safe_key.seq",
        1,
    ),
    _mutant(
        "notices told twice",
        "GroupLayer._tell_safe",
        "self._tell(here, notice)",
        "self._tell(here, notice)\n        self._tell(here, notice)",
    ),
)
"""Noticed in a random run, each at its seed."""

GROUP_UNNOTICED: tuple[Mutant, ...] = ()
"""Breakages for which no seed and no scenario is known."""

GROUP_STAGED: tuple[Mutant, ...] = (
    _mutant(
        "pieces of state and of messages confused",
        "Partials.add",
        "lane = (sender, run.kind == RunKind.STATE)",
        "lane = (sender, False)",
    ),
    _mutant(
        "donor not replaced when it is lost",
        "Membership._tell_new_views",
        "if entry.source is not None:",
        "if entry.source == 0:",
    ),
    _mutant(
        "a donor that did not come along goes on",
        "Membership._check_source",
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
        "Lanes._fill_from",
        "if self._fill(packing, lane, len(turns) > 1):",
        "if self._fill(packing, lane, False):",
    ),
    _mutant(
        "small messages wait for a packet of a large one",
        "Lanes._length_of_piece",
        "turn = min(room, TURN_BYTES) if in_company and left > WHOLE_BYTES else room",
        "turn = room",
    ),
)
"""Changes that break no promise, with the argument for it. No seed may give one away."""
