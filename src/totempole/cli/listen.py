"""`totem listen`: a group's messages as lines, as they are delivered; several groups in one order."""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import signal
import sys
from contextlib import AsyncExitStack
from typing import Any, get_args

import totempole
from totempole.cli import options
from totempole.cli.event_text import as_json, as_raw, as_remark, as_text
from totempole.cli.reaching import WHERE, add_daemon, daemon_of, remarks, say
from totempole.client.endpoint import Reconnect
from totempole.client.events import Event, Messages
from totempole.client.protocol import PolicyName
from totempole.types import ProcessId

LOOK_S = 0.5
"""How often it looks whether anyone still reads its output."""

EXAMPLES = f"""\
examples:
  totem listen orders                     the group's messages, a line each
  totem listen orders audit --long        two groups in one order, with group and sender
  totem listen orders --json | jq .text   an object per line: messages, views and the rest
  totem listen orders --count 10          stop after ten messages
  totem listen pictures --raw --count 1 > cat.jpg

{WHERE}

Bytes that are no text, and what would move the cursor, are shown as \\x1b; a line is a message, so a line end
in one is shown as \\n. Views are remarks on standard error, from a line `# …`; so is what was missed when the
daemon was away, or when this program was too slow (docs/groups.md). Ctrl-C or SIGTERM ends it; so does
the end of whoever reads its output. Exits 0 then.
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.mixed = True
    parser.add_argument("groups", nargs="+", metavar="GROUP", help="what to listen to")
    parser.add_argument("--count", type=options.at_least_one, metavar="N", help="stop after N messages")
    parser.add_argument("--long", action="store_true", help="groups and sender before each message")
    parser.add_argument("--views", action="store_true", help="remarks in place, on standard output")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="a JSON object for each message and each event")
    shape.add_argument("--raw", action="store_true", help="the messages' bytes, with nothing in between")
    parser.add_argument(
        "--policy",
        choices=get_args(PolicyName),
        default="shed",
        help="when the output is not read for long: shed drops messages and says so (the default), the "
        "others end the session",
    )
    add_daemon(parser)
    parser.set_defaults(run=run_listen)


def run_listen(arguments: argparse.Namespace) -> int:
    printer = Printer(arguments)
    try:
        with remarks():
            totempole.run(listen(arguments, printer))
    except (KeyboardInterrupt, asyncio.CancelledError):
        say(f"{printer.count:,} messages")
    except BrokenPipeError:
        # Nobody reads any more, which is no trouble. Python would try once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


async def listen(arguments: argparse.Namespace, printer: Printer) -> None:
    where: dict[str, Any] = daemon_of(arguments)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    forever = Reconnect(give_up_s=None)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            totempole.connect(**where, name="totem listen", reconnect=forever)
        )
        events = session.events()
        for group in dict.fromkeys(arguments.groups):
            await stack.enter_async_context(session.join(group, policy=arguments.policy))
        printing, watching = asyncio.create_task(_print(events, printer)), asyncio.create_task(_readerless())
        try:
            await asyncio.wait((printing, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            if not printing.done():
                printing.cancel()
        if printing.done() and not printing.cancelled():
            printing.result()


async def _print(events: Any, printer: Printer) -> None:
    async for event in events:
        if printer.print(event):
            return


async def _readerless() -> None:
    """Returns when the other end of the pipe is closed: a quiet group would not let us notice."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    while not poll.poll(0):
        await asyncio.sleep(LOOK_S)


class Printer:
    """Each event as it comes, flushed: whoever reads should not wait for a buffer to fill."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.count = 0
        self._arguments = arguments
        self._members: dict[str, tuple[ProcessId, ...]] = {}

    def print(self, event: Event) -> bool:
        """Whether that was the last one."""
        limit = self._arguments.count
        if isinstance(event, Messages):
            payloads = event.payloads
            if limit is not None:
                payloads = payloads[: limit - self.count]
            self._write(self._shown(event, payloads))
            self.count += len(payloads)
        elif self._arguments.json:
            self._write(as_json(event))
        else:
            self._remark(as_remark(event, self._members))
        return limit is not None and self.count >= limit

    def _shown(self, event: Messages, payloads: Any) -> bytes:
        if self._arguments.raw:
            return as_raw(payloads)
        if self._arguments.json:
            return as_json(event, payloads)
        return as_text(event, payloads, self._arguments.long)

    def _remark(self, text: str) -> None:
        if not self._arguments.views:
            say(text)
        else:
            self._write(f"# {text}\n".encode())

    def _write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
