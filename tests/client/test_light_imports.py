"""A program that talks to a daemon loads neither the ring nor its cryptography."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES_BELOW = 15
MODULES_OF_A_SESSION_BELOW = 20
"""Also what is loaded when a session is made."""
LIST_MODULES = "import sys; print(*sys.modules)"

PROGRAMS = {
    "the package": "import totempole.client",
    "asyncio": "import totempole; totempole.connect",
    "asyncio, all public names": "from totempole import connect, Group, Messages, Reconnect, Tls, View",
}
A_SESSION = "import totempole; totempole.connect('/nowhere')"


def modules_after(program: str) -> set[str]:
    command = [sys.executable, "-c", f"{program}; {LIST_MODULES}"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "totempole"}


def packages(modules: set[str]) -> set[str]:
    return {name.split(".")[1] for name in ours(modules) if "." in name}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_program_loads_few_modules(program: str) -> None:
    assert len(ours(modules_after(program))) < MODULES_BELOW


def test_a_session_is_made_of_few_modules() -> None:
    assert len(ours(modules_after(A_SESSION))) < MODULES_OF_A_SESSION_BELOW


@pytest.mark.parametrize("program", [*PROGRAMS.values(), A_SESSION, "import totempole; totempole.blocking"])
def test_a_program_loads_no_ring_and_no_cryptography(program: str) -> None:
    modules = modules_after(program)
    assert packages(modules) <= {"client", "errors", "groups", "session", "types"}
    assert "cryptography" not in modules


def test_of_groups_a_program_loads_events_and_packing_only() -> None:
    modules = modules_after("import totempole; totempole.connect")
    of_groups = {name for name in modules if name.startswith("totempole.groups")}
    assert of_groups == {"totempole.groups", "totempole.groups.events", "totempole.groups.packing"}


def test_the_count_sees_a_heavy_import() -> None:
    """The measure itself: a node loads the ring and its seals, and the count shows it."""
    modules = modules_after("import totempole; totempole.Node")
    assert {"srp", "wire", "runtime"} <= packages(modules)
    assert len(ours(modules)) > MODULES_BELOW
