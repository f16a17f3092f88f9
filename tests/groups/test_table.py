"""The table of groups: who is in what, sorted; parts make up the whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from totempole.groups.body import Entry
from totempole.groups.table import Table
from totempole.types import ProcessId

memberships = st.dictionaries(
    st.tuples(st.sampled_from("ghk"), st.builds(ProcessId, st.integers(1, 4), st.just(1), st.integers(1, 3))),
    st.booleans().map(Entry),
    max_size=20,
)


def table_of(members: dict[tuple[str, ProcessId], Entry]) -> Table:
    table = Table()
    for (group, process), entry in members.items():
        table.put(group, process, entry)
    return table


def shown(table: Table) -> dict[tuple[str, ProcessId], Entry]:
    return {
        (group, process): entry for group in table.names for process, entry in table.entries(group).items()
    }


@given(memberships)
def test_members_and_groups_are_told_sorted(members: dict[tuple[str, ProcessId], Entry]) -> None:
    table = table_of(members)
    assert shown(table) == members
    assert table.names == sorted({group for group, _ in members})
    for group in "ghk":
        assert table.members(group) == tuple(sorted(process for name, process in members if name == group))
    for _, process in members:
        assert table.groups_of(process) == sorted(group for group, other in members if other == process)


@given(memberships)
def test_a_group_without_members_is_none(members: dict[tuple[str, ProcessId], Entry]) -> None:
    table = table_of(members)
    for group, process in members:
        table.remove(group, process)
    assert table.names == []
    assert table.members("g") == ()


@given(memberships, st.sets(st.integers(1, 4)))
def test_only_processes_of_those_who_came_along_are_kept(
    members: dict[tuple[str, ProcessId], Entry], kept: set[int]
) -> None:
    table = table_of(members)
    table.keep_processors(kept)
    assert shown(table) == {key: entry for key, entry in members.items() if key[1].processor in kept}


@given(memberships)
def test_the_parts_of_all_processors_make_up_the_table(
    members: dict[tuple[str, ProcessId], Entry],
) -> None:
    table, again = table_of(members), Table()
    for processor in range(1, 5):
        part = table.part_of(processor, frozenset((1, 2)))
        assert part.together == {1, 2}
        again.add_part(processor, 1, part)
    assert shown(again) == members
