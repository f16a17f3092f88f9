"""`totempole.run`: in a running loop, and upon SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from loopback import LIMIT_S, a_place

import totempole
from totempole.errors import TotemError


async def main() -> int:
    await asyncio.sleep(0)
    return 7


def test_a_program_runs() -> None:
    assert totempole.run(main()) == 7


def test_on_another_thread() -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(totempole.run(main())))
    thread.start()
    thread.join()
    assert found == [7]


def test_in_a_running_loop_it_says_what_to_write() -> None:
    """As in Jupyter. A coroutine that is never awaited would warn, and warnings are errors here."""

    async def cell() -> None:
        with pytest.raises(TotemError, match=r"runs here already, as in Jupyter: write `await main\(\)`"):
            totempole.run(main())

    asyncio.run(cell())
    gc.collect()


def test_forgotten_parentheses_are_told() -> None:
    with pytest.raises(TypeError, match=r"write `totempole\.run\(main\(\)\)`, with the parentheses"):
        totempole.run(main)  # type: ignore[arg-type]


def test_a_cancelled_program_is_no_terminated_one() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        totempole.run(cancelled())


PROGRAM = """
import asyncio, logging, sys
import totempole

async def main():
    async with totempole.Node(sys.argv[1]) as session, session.join("orders"):
        try:
            print("in", flush=True)
            await asyncio.sleep(600)
        finally:
            print("cleaning up", flush=True)

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
totempole.run(main())
"""

SETTINGS = """
processor = 1
directory = "node"
[network]
address = "{address}"
port = {port}
[security]
unsealed = true
"""


def test_sigterm_leaves_the_ring(tmp_path: Path) -> None:
    """A real process with an embedded node: its blocks end, the node leaves, and it exits with 0."""
    file = tmp_path / "node.toml"
    command = [sys.executable, "-c", PROGRAM, str(file)]
    with a_place() as place:
        file.write_text(SETTINGS.format(address=place.address(1), port=place.port))
        said = _terminated(command)
    assert "cleaning up" in said
    assert any(line.startswith("left the ring") for line in said[said.index("cleaning up") :])
    assert any(line.startswith("regular configuration") and "members=1" in line for line in said)


def _terminated(command: list[str]) -> list[str]:
    """What it said, until and after its SIGTERM."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        said = []
        for line in program.stdout:
            said.append(line.strip())
            if line == "in\n":
                program.send_signal(signal.SIGTERM)
        assert program.wait(LIMIT_S) == 0, said
    return said


def test_a_handler_of_the_programs_own_stays() -> None:
    async def kept() -> bool:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        return bool(seen)

    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        assert totempole.run(kept())
    finally:
        signal.signal(signal.SIGTERM, before)


def test_afterwards_the_signal_is_the_systems_again() -> None:
    totempole.run(main())
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
