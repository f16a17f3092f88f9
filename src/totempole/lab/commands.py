"""The system's tools, in batches: one process for many changes, so that a lab is up in 100 ms."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence

from totempole.errors import TotemError

TOOLS = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}
"""What is called, and the Debian package that has it."""

COMMAND_S_MAX = 30.0
"""No command of ours takes a second; one that hangs must not hang the tests."""

_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


class LabError(TotemError):
    """A lab could not be built or changed. The text has the command and what it said."""


def find_tool(name: str) -> str | None:
    return shutil.which(name, path=_PATH)


def tool(name: str) -> str:
    found = find_tool(name)
    if found is None:
        raise LabError(f"no program {name!r}: install the package {TOOLS.get(name, name)}")
    return found


def inside(namespace: str, argv: Sequence[str]) -> list[str]:
    """`ip netns exec` becomes the program: the process id is its own. And /sys shows the namespace."""
    return [tool("ip"), "netns", "exec", namespace, *argv]


def run(argv: Sequence[str], text: str | None = None) -> str:
    """What the command printed; LabError when it failed."""
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=COMMAND_S_MAX)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{' '.join(argv)}: {error}") from error
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise LabError(f"{' '.join(argv)}: {said}" + (f"\n{text}" if text else ""))
    return done.stdout


def ip(lines: Iterable[str], namespace: str | None = None, *, go_on: bool = False) -> None:
    """`go_on`: a line that fails does not stop those after it, and is no error."""
    where = [] if namespace is None else ["-n", namespace]
    batch = "\n".join(lines) + "\n"
    if not go_on:
        run([tool("ip"), *where, "-batch", "-"], batch)
        return
    argv = [tool("ip"), "-force", *where, "-batch", "-"]
    subprocess.run(argv, input=batch, capture_output=True, text=True, timeout=COMMAND_S_MAX)


def tc(lines: Iterable[str], namespace: str) -> None:
    run([tool("tc"), "-n", namespace, "-batch", "-"], "\n".join(lines) + "\n")


def nft(rules: str, namespace: str) -> None:
    """All of the rules or none: nft applies its input as one transaction."""
    run(inside(namespace, [tool("nft"), "-f", "-"]), rules)
