"""Three nodes on one laptop, typed as the page about nodes has it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daemons import LIMIT_S, PORTS, wait_until
from totempole.runtime.status import StatusError, read_status

PAGE = Path(__file__).parents[2] / "docs/node.md"


@pytest.mark.nodes
def test_what_the_page_types_makes_a_ring_of_three(tmp_path: Path) -> None:
    """On another port than the page's, and in a session of its own, to be ended."""
    (block,) = re.findall(r"^```\n(for n in .*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    nodes, _, rest = block.partition("done\n")
    port = PORTS[-1] + 10
    nodes = nodes.replace("--set expected=3", f"--set expected=3 --set network.port={port}")
    command = f"{sys.executable} -m totempole "
    listening, sending = (
        re.sub("^totem ", command, line).rstrip(" &") for line in rest.splitlines() if "greetings" in line
    )
    script = nodes.replace("totem node", f"{command}node") + "done\nwait\n"
    shell = subprocess.Popen(
        ["sh", "-c", script], cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_until(lambda: [members(tmp_path, number) for number in (1, 2, 3)] == [[1, 2, 3]] * 3)
        wait_until((tmp_path / "node-2/clients.sock").exists)
        listener = subprocess.Popen(
            [*listening.split(), "--count", "1"], cwd=tmp_path, stdout=subprocess.PIPE
        )
        with listener:
            wait_until(lambda: b"greetings" in run(f"{command}groups --config node-1.toml", tmp_path))
            run(sending, tmp_path)
            assert listener.communicate(timeout=LIMIT_S)[0] == b"hello\n"
        run(f"{command}status --config node-1.toml", tmp_path)
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def members(directory: Path, number: int) -> list[int]:
    try:
        return list(read_status(directory / f"node-{number}")["members"])
    except StatusError:
        return []


def run(command: str, directory: Path) -> bytes:
    done = subprocess.run(command.split(), cwd=directory, stdout=subprocess.PIPE, check=True, timeout=LIMIT_S)
    return done.stdout
