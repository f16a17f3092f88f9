"""The key-value store that one writes first: an embedded node, state for joiners, no word of partitions."""

from __future__ import annotations

import json

from helping import arguments_of, either, run, session
from http_store import serve

import totempole


class NaiveStore:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def snapshot(self) -> bytes:
        return json.dumps(self.values).encode()

    async def listen(self, group: totempole.Group) -> None:
        self.group = group
        async for event in group:
            match event:
                case totempole.State(data=data):
                    self.values = json.loads(data or b"{}")
                case totempole.Messages(payloads=payloads):
                    for payload in payloads:
                        key, value = json.loads(payload)
                        self.values[key] = value

    async def get(self, key: str) -> bytes | None:
        value = self.values.get(key)
        return None if value is None else value.encode()

    async def put(self, key: str, value: bytes) -> None:
        await (await self.group.multicast(json.dumps([key, value.decode()]).encode())).delivered()

    async def delete(self, key: str) -> None:
        raise NotImplementedError


async def main() -> None:
    arguments, store = arguments_of(__doc__, port=8080), NaiveStore()
    async with (
        session(arguments) as mine,
        mine.join("store", state=store.snapshot, want_state=True) as group,
    ):
        await either(store.listen(group), serve(store, arguments.port))


if __name__ == "__main__":
    run(main())
