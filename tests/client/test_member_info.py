"""What members say of themselves: in views, through changes of the ring, and in the table of groups."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from daemon_loop import daemon
from rich.console import Console

import totempole
from totempole import Group, State, View, blocking
from totempole.cli.event_text import as_json
from totempole.cli.groups import document, page
from totempole.errors import CodecError, SessionError
from totempole.groups.body import Entry, Part, pack_part, unpack_part
from totempole.groups.packing import INFO_BYTES_MAX
from totempole.session import Groups
from totempole.testing import Cluster, Program, cluster, run
from totempole.types import NO_RING, OrderKey, Place, ProcessId, RingId


class Named:
    """A member that says its node's name, and keeps the last view and its states."""

    def __init__(self, group: Group, views: list[View], states: list[State]) -> None:
        self.group = group
        self.views = views
        self.states = states

    @property
    def names(self) -> dict[int, bytes]:
        return {member.processor: info for member, info in self.views[-1].info.items()}


@asynccontextmanager
async def named(node: int, log: list[Named]) -> AsyncIterator[Named]:
    async def read(member: Named) -> None:
        async for event in member.group:
            if isinstance(event, View):
                member.views.append(event)
            elif isinstance(event, State):
                member.states.append(event)

    info = b"node %d" % node if node != 3 else b""
    async with (
        totempole.connect() as session,
        session.join("g", info=info, state=lambda: b"state", want_state=True) as group,
    ):
        member = Named(group, [], [])
        log.append(member)
        task = asyncio.create_task(read(member))
        try:
            yield member
        finally:
            task.cancel()


async def members(c: Cluster) -> dict[int, Program[Named]]:
    log: list[Named] = []
    found = {node: await c.start(node, named, node, log) for node in c.nodes}
    await c.settled()
    return found


def test_views_have_what_members_said_also_after_a_partition_and_with_state() -> None:
    async def test() -> None:
        async with cluster(3, seed=1) as c:
            programs = await members(c)
            told = {1: b"node 1", 2: b"node 2"}
            assert all(program.value.names == told for program in programs.values())
            assert [len(program.value.states) for program in programs.values()] == [1, 1, 1]
            c.part([1], [2, 3])
            await c.settled()
            assert programs[1].value.names == {1: b"node 1"}
            assert programs[3].value.names == {2: b"node 2"}
            c.heal()
            await c.settled()
            assert all(program.value.names == told for program in programs.values())
            async with totempole.connect(c.socket(3)) as session:
                groups = await session.groups()
                assert {member.processor: info for member, info in groups.info["g"].items()} == told
                assert [member.processor for member in groups["g"]] == [1, 2, 3]

    run(test)


def test_sides_that_met_name_the_strangers() -> None:
    """Each began alone, with nothing. When they meet, each is told, and by the same view."""

    async def test() -> None:
        async with cluster(3, seed=2) as c:
            c.part([1], [2], [3])
            await c.settled()
            programs = await members(c)
            for program in programs.values():
                (state,) = program.value.states
                assert state.data is None
                assert not any(view.strangers for view in program.value.views)
            c.heal()
            await c.settled()
            for node, program in programs.items():
                met = {member.processor for view in program.value.views for member in view.strangers}
                assert met == {1, 2, 3} - {node}
                assert len(program.value.states) == 1, "nobody chooses for it"

    run(test)


def test_a_member_that_meets_strangers_while_it_waits_is_given_their_state() -> None:
    async def test() -> None:
        async with cluster(3, seed=3) as c:
            programs = await members(c)
            c.crash(1)
            await c.settled()
            c.restart(1)
            await c.settled()
            (state,) = programs[1].value.states
            assert state.data == b"state", "its node has met the others before it let the program in"

    run(test)


def test_a_join_or_a_leave_brings_no_strangers(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, blocking.connect(it.path) as one, one.join("g", info=b"one") as group:
        with blocking.connect(it.path) as two, two.join("g"):
            first, second = group.next(60.0), group.next(60.0)
        third = group.next(60.0)
        for view in (first, second, third):
            assert isinstance(view, View)
            assert view.strangers == ()
            assert dict(view.info) == {one.process: b"one"}
            assert hash(view)
        assert one.groups().info == {"g": {one.process: b"one"}}


def test_what_is_too_long_or_no_bytes_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, blocking.connect(it.path) as session:
        with pytest.raises(SessionError, match="info of 513 bytes: give at most 512"):
            session.join("g", info=bytes(INFO_BYTES_MAX + 1))
        with pytest.raises(TypeError, match="info is bytes, not str"):
            session.join("g", info="text")  # type: ignore[arg-type]
        with session.join("g", info=bytes(INFO_BYTES_MAX)) as group:
            view = group.next(60.0)
            assert isinstance(view, View)
            assert view.info == {session.process: bytes(INFO_BYTES_MAX)}

    async def main() -> None:
        async with totempole.connect(it.path) as session:
            with pytest.raises(SessionError, match="info of 513 bytes"):
                session.join("g", info=bytes(INFO_BYTES_MAX + 1))

    with daemon(tmp_path) as it:
        totempole.run(main())


def test_the_table_that_nodes_exchange_has_it_only_where_it_is_given() -> None:
    part = Part(frozenset((1,)), {7: {"g": Entry(True), "h": Entry(info=b"x")}})
    assert unpack_part(pack_part(part)) == part
    assert b'"g":[true,null,null]' in pack_part(part)
    for wrong in ("6g", "00" * (INFO_BYTES_MAX + 1), 5):
        content = {"together": [1], "processes": {"7": {"g": [True, None, None, wrong]}}}
        with pytest.raises(CodecError):
            unpack_part(json.dumps(content).encode())


def test_totem_groups_and_listen_show_it() -> None:
    one, two = ProcessId(1, 9, 2), ProcessId(2, 9, 3)
    groups = Groups({"g": (one, two), "h": (two,)}, {"g": {one: b"http://10.0.0.1:80\n"}})
    console = Console(width=120, record=True)
    console.print(page(groups))
    assert r"1.9.2 (http://10.0.0.1:80\n) 2.9.3" in console.export_text()
    assert document(groups) == {
        "groups": {"g": ["1.9.2", "2.9.3"], "h": ["2.9.3"]},
        "info": {"g": {"1.9.2": {"text": "http://10.0.0.1:80\n"}}},
    }
    place = Place(OrderKey(RingId(1, 1), 0, NO_RING), 0)
    view = View("regular", "g", (one,), (one,), place, "join", {one: b"\xff"})
    assert json.loads(as_json(view))["info"] == {"1.9.2": {"base64": "/w=="}}
