"""What redundant-networks.md says is so: settings, states, every sentence on a fault, refusals, metrics."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from itertools import combinations, permutations
from pathlib import Path

import pytest

from status_document import on_two_networks
from totempole.cli.command import _parser
from totempole.cli.network import show
from totempole.cli.output import Screen
from totempole.networks.diagnosis import Bad, diagnose
from totempole.networks.events import NetworkState
from totempole.networks.reports import Row
from totempole.networks.service import Service
from totempole.rrp.config import NETWORKS_MAX, STYLES
from totempole.rrp.paths import Finding, Lost
from totempole.runtime import hints
from totempole.runtime.config import NodeConfig, build
from totempole.runtime.control import WAIT_S
from totempole.runtime.metrics import StatusCollector
from totempole.runtime.network_shown import _NAMES
from totempole.settings import sections_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/redundant-networks.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(text: str) -> list[str]:
    """What stands in backticks at the beginning of the rows of tables."""
    return re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


# Settings


def test_the_two_hosts_are_of_one_ring_on_two_networks() -> None:
    first, second = (build(tomllib.loads(text), Path("/")) for text in blocks("toml"))
    assert (first.processor, second.processor) == (1, 2)
    assert first.redundancy == second.redundancy
    for one, other in zip(first.networks, second.networks, strict=True):
        assert one.name == other.name
        assert one.address != other.address
    assert [network.name for network in first.networks] == ["left", "right"]


def test_settings_that_the_page_names_exist() -> None:
    known = {item.name for kind in (NodeConfig, *sections_of(NodeConfig).values()) for item in fields(kind)}
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)(?: = [^`]*)?`", PAGE))
    named = {name for name in named if not name.startswith("totempole_")}
    assert named - {state.name.lower() for state in NetworkState} <= known


def test_the_styles_are_all_of_them() -> None:
    assert first_cells(section("Which style")) == ["style", *STYLES[1:]]


def test_the_numbers() -> None:
    assert NETWORKS_MAX == 7
    assert "up to seven networks" in PAGE
    assert f"{WAIT_S:g} unless given" in PAGE


def test_programs_in_the_page_compile_and_name_what_there_is() -> None:
    (text,) = blocks("python")
    exec(compile(text, "redundant-networks.md", "exec"), {})


@pytest.mark.parametrize("words", re.findall(r"^ *totem (network \w+ left)$", PAGE, re.MULTILINE))
def test_commands_in_the_page_are_understood(words: str) -> None:
    assert _parser().parse_args(words.split()).network == "left"


# States and faults


def test_the_states_are_all_of_them() -> None:
    assert sorted(first_cells(section("States"))) == sorted(state.name.lower() for state in NetworkState)


def bare(text: str) -> str:
    """Without the numbers of processors."""
    text = re.sub(r"\d+(, \d+)*", "N", text.strip().removeprefix("; "))
    return re.sub(r"^split into N( and N)+$", "split into N and N", text)


def sentences() -> set[str]:
    """What can be said of rings of two to four members on which nothing comes through on some paths, or of
    which some do not have the network."""
    found = {bare(diagnose([], (1, 2, 3), (2, 3)))}
    for count in (2, 3, 4):
        members = range(1, count + 1)
        paths = [*permutations(members, 2)]
        for size in range(1, len(paths) + 1):
            for pairs in combinations(paths, size):
                bad = [Bad(sender, receiver, True, 0) for sender, receiver in pairs]
                found.update(map(bare, diagnose(bad, members).split("; ")))
    return found


def manners() -> set[str]:
    """What can be added of how a path is bad."""
    said = "2 does not hear 1"
    texts = (
        diagnose([Bad(1, 2, dead, lost)], (1, 2, 3))
        for dead in (True, False)
        for lost in range(2 * max(Lost))
        if lost or dead
    )
    return {text.removeprefix(said).strip() for text in texts} - {""}


def test_every_sentence_on_a_fault_is_explained() -> None:
    sentence, manner = section("What the faults mean").split("What may follow:")
    assert {bare(cell) for cell in first_cells(sentence)} == sentences()
    added = set(first_cells(manner))
    assert {cell for cell in added if "wired together" not in cell} == manners()
    assert len(added) == len(manners()) + 1


def test_every_fault_has_a_hint() -> None:
    for said in sentences() - {"and N more paths"}:
        for added in ("", *(f" {manner}" for manner in manners())):
            assert hints.network_fault(said + added)
    assert "one network" in hints.network_fault("wired together with right")
    assert hints.network_fault("") == ""
    told = [*(words for words, _ in hints._NETWORK_FAULTS), hints.WIRED_TOGETHER[0]]
    assert all(any(word in cell for cell in first_cells(section("What the faults mean"))) for word in told)


# Requests


def row(*findings: Finding, out: int = 0) -> Row:
    return Row(out, 0, (), findings, 2)


def agreed(service: Service) -> Service:
    service.install((1, 2, 3))
    for member in (1, 2, 3):
        service.take_row(member, row())
    return service


def refusals() -> set[str]:
    fresh = Service(("left", "right"))
    fresh.install((1, 2))
    said = [fresh.drain(0), fresh.restore(0)]
    service = agreed(Service(("left", "right")))
    said += [service.restore(0)]
    assert isinstance(service.drain(0), list)
    said += [service.drain(0), service.drain(1)]
    service = agreed(Service(("left", "right")))
    service.take_row(1, row(Finding(0, 2, True, 0)))
    service.take_row(1, row(Finding(0, 2, True, 0), Finding(1, 3, True, 0)))
    service.take_row(2, row(Finding(1, 3, True, 0)))
    said += [service.drain(0)]
    assert all(isinstance(answer, str) for answer in said)
    return {bare(str(answer)) for answer in said}


def test_every_refusal_is_explained() -> None:
    named = {bare(cell) for cell in first_cells(section("Taking a switch down"))}
    assert named == refusals()


# What is shown


def test_the_table_in_the_page_is_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "118")
    show(Screen(), on_two_networks())
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    (shown,) = re.findall(r"^```\n(network .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert shown.splitlines() == printed


def test_metrics_that_the_page_names_exist() -> None:
    families = StatusCollector(on_two_networks).collect()
    there = {sample.name for family in families for sample in family.samples}
    named = set(re.findall(r"`(totempole_\w+)", PAGE))
    assert named == {name for name in there if name.startswith("totempole_network_")}


def test_log_lines_that_the_page_names_are_written() -> None:
    named = set(re.findall(r"(?:info|warning) `([^`]+)`", PAGE))
    assert named >= set(_NAMES.values())
    sources = (ROOT / "src/totempole/runtime").glob("*.py")
    source = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert all(f'"{name}"' in source for name in (*named, "network request refused"))
    assert "`network request refused` (warning)" in PAGE
