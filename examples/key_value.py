"""A replicated key-value store over HTTP. Every copy answers for the same store, which is on disk.

    python examples/key_value.py [--port N] [--socket PATH | --embed node.toml]

    curl -X PUT -d red http://localhost:8080/colour    # at one copy
    curl http://localhost:8081/colour                  # at another one

The node needs a durable log (docs/log.md). A PUT or DELETE is answered when it is ordered and on the disks of
a majority; a GET has every write that was answered before it, wherever. Kill a copy or a node with -9, part
the network: what was answered stays, and nothing is done twice. A minority answers 503 to a GET and 504 to a
PUT, which waits on the node's disk, and may be done when the network heals.
"""

from __future__ import annotations

from helping import arguments_of, run, session
from http_store import serve

import totempole
from totempole.objects import ReplicatedDict


class Store:
    def __init__(self, replica: totempole.Replica[ReplicatedDict]) -> None:
        self.replica = replica.within(5.0)

    async def get(self, key: str) -> bytes | None:
        value: bytes | None = await self.replica.read(ReplicatedDict.get, key)
        return value

    async def put(self, key: str, value: bytes) -> None:
        await self.replica.call(ReplicatedDict.set, key, value)

    async def delete(self, key: str) -> None:
        await self.replica.call(ReplicatedDict.pop, key)


async def main() -> None:
    arguments = arguments_of(__doc__, port=8080)
    async with session(arguments) as mine, mine.replica(ReplicatedDict, "store") as replica:
        await serve(Store(replica), arguments.port)


if __name__ == "__main__":
    run(main())
