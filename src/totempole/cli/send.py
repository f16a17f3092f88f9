"""`totem send`: messages to groups, from the command line, from lines on standard input, or from a file."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import select
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import totempole
from totempole.cli import options
from totempole.cli.event_text import on_one_line
from totempole.cli.reaching import WHERE, add_daemon, daemon_of, remarks, say
from totempole.client.events import Reconnected
from totempole.client.session import Session
from totempole.errors import SessionError, TotemError
from totempole.types import Service

READ_BYTES = 262_144
LINE_BYTES_MAX = 64 * 1024 * 1024
"""As long as a message may be by default. A file without line ends should not fill the memory."""

EXAMPLES = f"""\
examples:
  totem send orders 'buy 10'              one message to the group `orders`
  totem send orders,audit 'buy 10' 'no'   two messages, each to both groups
  totem send orders --safe 'buy 10'       delivered once every host of the ring has it
  tail -f app.log | totem send logs       each line is a message, sent as it comes
  totem send pictures --file cat.jpg      a whole file is one message

{WHERE}

You need not be in a group to send to it; a remark says when nobody is. Exits 0 when the daemon has accepted
all messages; what it has accepted is delivered to all members, as long as the daemon's host stays up. A pipe
survives the daemon's restart: a remark says how many messages may have been lost, and it exits 1 then.
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.mixed = True
    parser.add_argument("groups", metavar="GROUP[,GROUP…]", help="to whom; a comma within a name is \\,")
    parser.add_argument(
        "messages",
        nargs="*",
        default=[],
        metavar="MESSAGE",
        help="what; without any, each line of standard input",
    )
    parser.add_argument("--safe", action="store_true", help="deliver when all hosts of the ring have it")
    parser.add_argument("--file", type=Path, metavar="PATH", help="send this file as one message")
    add_daemon(parser)
    parser.set_defaults(run=run_send)


def run_send(arguments: argparse.Namespace) -> int:
    if arguments.messages and arguments.file:
        raise TotemError("send: give messages or --file, not both")
    where = daemon_of(arguments)
    to = names_in(arguments.groups)
    service = Service.SAFE if arguments.safe else Service.AGREED
    with remarks():
        if arguments.file:
            return totempole.run(send_all(where, to, [arguments.file.read_bytes()], service))
        if arguments.messages:
            return totempole.run(send_all(where, to, [*map(os.fsencode, arguments.messages)], service))
        if sys.stdin.isatty():
            say("each line is a message; end with Ctrl-D")
        return totempole.run(send_lines(where, to, service, sys.stdin.fileno()))


def names_in(text: str) -> tuple[str, ...]:
    """Names with commas between them; one within a name has a backslash before it."""
    return tuple(name.replace("\\,", ",") for name in re.split(r"(?<!\\),", text))


async def send_all(
    where: dict[str, Any], groups: Sequence[str], messages: Sequence[bytes], service: Service
) -> int:
    async with totempole.connect(**where, name="totem send", reconnect=False) as session:
        await session.multicast_many(groups, messages, service)
        _remark_empty(groups, await _accepted(session))
    return 0


async def send_lines(where: dict[str, Any], groups: Sequence[str], service: Service, descriptor: int) -> int:
    """Comes back to a daemon that goes away: 1 if messages may have been lost by that."""
    lost: list[int] = []
    async with totempole.connect(**where, name="totem send") as session:
        watching = asyncio.create_task(_watch(session, lost))
        async for lines in _lines(descriptor):
            await session.multicast_many(groups, lines, service)
        try:
            there = await _accepted(session)
        except SessionError:
            there = await _accepted(session)  # the daemon went away: once it is back, we know what was lost
        _remark_empty(groups, there)
        await asyncio.sleep(0)
    with suppress(SessionError):
        await watching
    return 1 if sum(lost) else 0


async def _accepted(session: Session) -> Collection[str]:
    """The groups that have members. The daemon answers in turn: when it has answered this, it has taken all
    that was sent before."""
    return (await session.groups()).keys()


def _remark_empty(groups: Sequence[str], there: Collection[str]) -> None:
    for name in dict.fromkeys(groups):
        if name not in there:
            say(f"group {on_one_line(name)} has no members: nobody receives what is sent to it")


async def _watch(session: Session, lost: list[int]) -> None:
    async for event in session.events():
        if isinstance(event, Reconnected):
            lost.append(event.unacknowledged)
            count = event.unacknowledged
            what = f"of the last {count:,} sent before, some may be lost" if count else "nothing was lost"
            say(f"the daemon is back; {what}")


async def _lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Lines without their ends, as many as there are at a time."""
    rest: list[bytes] = []
    size = 0
    while chunk := await _read(descriptor):
        *lines, last = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*rest, lines[0]))
            rest, size = [], 0
            yield lines
        rest.append(last)
        size += len(last)
        if size > LINE_BYTES_MAX:
            raise TotemError(f"send: a line is longer than {LINE_BYTES_MAX} bytes: is that a text?")
    if size:
        yield [b"".join(rest)]


async def _read(descriptor: int) -> bytes:
    """What there is, as soon as there is something; a file always has."""
    if _can_wait(descriptor):
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(descriptor, _wake, ready)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
    return os.read(descriptor, READ_BYTES)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _can_wait(descriptor: int) -> bool:
    with select.epoll() as poll:
        try:
            poll.register(descriptor, select.EPOLLIN)
        except PermissionError:
            return False
    return True
