"""Who may connect: the kernel says who is there. Needs root, to be somebody else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from daemon_loop import daemon

NOBODY = 65_534
CONNECT = f"""
import os, socket, sys
os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect(sys.argv[1])
    try:
        sock.sendall(bytes.fromhex("0000001b01") + b'{{"name":"","version":5}}    ')
    except BrokenPipeError:
        pass  # the reason is there to be read
    print(sock.recv(1000).decode(errors="replace"))
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


def reply_to_nobody(path: Path) -> str:
    command = [sys.executable, "-I", "-c", CONNECT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("mode", "users", "reply"),
    [
        (0o666, (), f"user {NOBODY} may not connect"),
        (0o666, (str(NOBODY),), '"process":[1,1,1]'),
        (0o660, (str(NOBODY),), "Permission denied"),
    ],
)
def test_another_user(mode: int, users: tuple[str, ...], reply: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        with daemon(path, socket_mode=mode, users=users) as it:
            assert reply in reply_to_nobody(it.path)
            if "may not" in reply:
                assert it.snapshot()["refused"] == {"user": 1}
                assert it.logged[-1][1]["uid"] == NOBODY
