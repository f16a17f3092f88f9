"""A verb loads its own module and what that needs, and not the other verbs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest

from daemons import Daemon, cluster
from totempole.cli.command import VERBS

LIST_MODULES = "import sys; from totempole.cli import main; main({arguments!r}); print(*sys.modules)"

LIGHT = {
    "send": ["send", "--help"],
    "listen": ["listen", "--help"],
    "groups": ["groups", "--help"],
    "status": ["status", "--directory", "/nonexistent"],
    "network": ["network", "--directory", "/nonexistent"],
}
HEAVY = {"bench", "checkers", "daemon", "lab", "sim", "spark", "srp", "trace", "wire"}
HEAVY_OUTSIDE = {"cryptography", "matplotlib", "numpy", "pandas", "prometheus_client", "pyarrow", "pyspark"}
MODULES_MAX = 25


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with cluster(1, tmp_path_factory.mktemp("node")) as ring:
        yield ring[1]


def modules_after(*arguments: str) -> set[str]:
    program = LIST_MODULES.format(arguments=list(arguments))
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "totempole"}


def packages(modules: set[str]) -> set[str]:
    return {name.split(".")[1] for name in ours(modules) if "." in name}


def loaded_verbs(modules: set[str]) -> set[str]:
    return {verb.name for verb in VERBS if f"totempole.cli.{verb.module}" in modules}


@pytest.mark.parametrize("verb", LIGHT)
def test_what_people_type_often_loads_little(verb: str) -> None:
    modules = modules_after(*LIGHT[verb])
    assert loaded_verbs(modules) == {verb}
    assert not packages(modules) & HEAVY
    assert not modules & HEAVY_OUTSIDE
    assert len(ours(modules)) <= MODULES_MAX


def test_send_loads_little_while_it_sends(node: Daemon) -> None:
    modules = modules_after("send", "orders", "buy 10", "--socket", str(node.socket))
    check_acting("send", modules)


def test_status_loads_little_while_it_shows(node: Daemon) -> None:
    modules = modules_after("status", "--directory", str(node.directory))
    check_acting("status", modules)


def check_acting(verb: str, modules: set[str]) -> None:
    assert loaded_verbs(modules) == {verb}
    assert not packages(modules) & HEAVY
    assert not modules & HEAVY_OUTSIDE
    assert len(ours(modules)) <= MODULES_MAX


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["tell"], []], ids=repr)
def test_the_command_itself_loads_no_verb(arguments: list[str]) -> None:
    assert loaded_verbs(modules_after(*arguments)) == set()


def test_the_measure_sees_a_heavy_verb() -> None:
    modules = modules_after("sim", "--help")
    assert loaded_verbs(modules) == {"sim"}
    assert {"sim", "srp", "wire"} <= packages(modules) & HEAVY


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_of_the_table_is_there(verb: object) -> None:
    assert callable(import_module(f"totempole.cli.{verb.module}").add)  # type: ignore[attr-defined]


def test_help_tells_every_verb_of_the_table() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "totempole", "--help"], check=True, capture_output=True, text=True
    )
    text = " ".join(done.stdout.split())
    assert all(f" {verb.name} {verb.summary}" in text for verb in VERBS)


@pytest.mark.parametrize("module", ["totempole.cli.dev", "totempole.testing", "totempole.lab.local_cluster"])
def test_a_cluster_on_this_machine_needs_no_extra(module: str) -> None:
    """`pip install totempole` is enough for `totem dev` and for tests of one's own program."""
    program = f"import sys; sys.modules['pyarrow'] = sys.modules['numpy'] = None; import {module}"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
