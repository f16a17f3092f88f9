"""Who is in which group: the table that every processor of a configuration has alike.

It changes only at places of the total order, so that all who deliver the same have the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from totempole.groups.body import Entry, Part
from totempole.types import ProcessId, ProcessorId

Members = dict[ProcessId, Entry]


class Table:
    def __init__(self) -> None:
        self._groups: dict[str, Members] = {}

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def names(self) -> list[str]:
        return sorted(self._groups)

    def members(self, group: str) -> tuple[ProcessId, ...]:
        return tuple(sorted(self._groups.get(group, ())))

    def entries(self, group: str) -> Mapping[ProcessId, Entry]:
        return self._groups.get(group, {})

    def groups_of(self, process: ProcessId) -> list[str]:
        return sorted(group for group, members in self._groups.items() if process in members)

    def put(self, group: str, process: ProcessId, entry: Entry) -> None:
        assert group, "a group has a name"
        self._groups.setdefault(group, {})[process] = entry

    def remove(self, group: str, process: ProcessId) -> None:
        members = self._groups[group]
        assert process in members, "only a member is removed"
        del members[process]
        if not members:
            del self._groups[group]

    def keep_processors(self, kept: Iterable[ProcessorId]) -> None:
        kept = frozenset(kept)
        for group, members in list(self._groups.items()):
            assert members, "a group has members"
            left = {process: entry for process, entry in members.items() if process.processor in kept}
            if left:
                self._groups[group] = left
            else:
                del self._groups[group]

    def part_of(self, processor: ProcessorId, together: frozenset[ProcessorId]) -> Part:
        """What that processor's own processes are in."""
        processes: dict[int, dict[str, Entry]] = {}
        for group, members in self._groups.items():
            for process, entry in members.items():
                if process.processor == processor:
                    processes.setdefault(process.number, {})[group] = entry
        return Part(together, processes)

    def add_part(self, processor: ProcessorId, incarnation: int, part: Part) -> None:
        for number, groups in part.processes.items():
            for group, entry in groups.items():
                self.put(group, ProcessId(processor, incarnation, number), entry)
