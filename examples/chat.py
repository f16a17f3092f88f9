"""A chat: everyone reads the same lines in the same order, and sees who comes and goes between which lines.

    python examples/chat.py NAME [--room ROOM] [--socket PATH | --embed node.toml]

Start it in several terminals, on one host or on several. Ctrl-D leaves.

Members are known by their processes; who hears of new members tells them his name. When the network parts,
each side sees the other go, and talks on; when it heals, each sees the other come back.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable

from helping import either, options, run, session, show, typed

from totempole import Group, Messages, ProcessId, Reconnected, Session, View


async def main() -> None:
    parser = options(__doc__)
    parser.add_argument("name", help="what the others call you")
    parser.add_argument("--room", default="lobby", help="which room to enter: a group")
    arguments = parser.parse_args()
    async with session(arguments) as mine, mine.join(f"chat.{arguments.room}") as group:
        await either(listen(mine, group, arguments.name), talk(group, arguments.name, typed()))


async def talk(group: Group, name: str, lines: AsyncIterable[str]) -> None:
    async for line in lines:
        if line:
            await group.multicast(json.dumps({"name": name, "says": line}).encode())


async def listen(mine: Session, group: Group, name: str) -> None:
    names: dict[ProcessId, str] = {}
    async for event in group:
        match event:
            case Messages(sender=sender, payloads=payloads):
                for message in map(json.loads, payloads):
                    if sender not in names:
                        names[sender] = message["name"]
                        show("*", message["name"], "is here")
                    if "says" in message:
                        show(f"<{message['name']}>", message["says"])
            case View(members=members, together=together):
                for gone in [process for process in names if process not in members]:
                    show("*", names.pop(gone), "is gone")
                if set(members) - set(together):
                    await group.multicast(json.dumps({"name": name}).encode())
            case Reconnected():
                show("* the daemon was away: you may have missed something")
                names.clear()


if __name__ == "__main__":
    run(main())
