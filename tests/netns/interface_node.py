"""A node that a test controls by its standard input: a line with a command in, a line of JSON out."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))

from members import Member

from totempole.runtime.config import NodeConfig


def report(member: Member) -> dict[str, Any]:
    driver = member.driver
    networks = driver.networks
    messages = list(member.messages)
    return {
        "messages": len(messages),
        "digest": hashlib.sha256(b"\n".join(messages)).hexdigest(),
        "members": list(member.members),
        "configurations": len(member.kinds),
        "states": [state.name for state in driver.stack.networks[0].service.states],
        "there": [network.is_there for network in networks],
        "refused": [dict(network.sockets.refused) for network in networks],
        "why": driver.stack.networks[0].service.why,
        "crossed": driver.stack.replicators[0].crossed,
        "segment_bytes": [network.segment_bytes for network in networks],
        "log": member.log.lines,
        "error": repr(member.error) if member.error else "",
    }


def main(file: str) -> None:
    member = Member(NodeConfig.load(file))
    member.start()
    print("started", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["send", name, count]:
                for number in range(int(count)):
                    member.send(f"{name}-{number}".encode().ljust(50 * (number % 40) + 20, b"."))
                print("sent", flush=True)
            case ["report"]:
                print(json.dumps(report(member)), flush=True)
    member.stop()


if __name__ == "__main__":
    main(sys.argv[1])
