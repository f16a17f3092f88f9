"""What the pages about running a node say is still so: settings, metrics, log lines, files."""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from status_document import with_log
from totempole.cli.command import _parser
from totempole.runtime.config import NodeConfig, build
from totempole.runtime.metrics import MEANINGS, StatusCollector
from totempole.settings import sections_of, settings_of

ROOT = Path(__file__).parents[2]
PAGES = ("node.md", "tuning.md", "networks-without-multicast.md")
LEAST: dict[str, Any] = {
    "processor": 1,
    "directory": "/tmp",
    "network": {"address": "10.0.0.1"},
    "security": {"unsealed": True},
}
"""What a block of settings may leave out."""


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for name in PAGES:
        for text in re.findall(rf"^```{language}\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL):
            yield name, text


@pytest.mark.parametrize(("name", "text"), [*blocks("toml")])
def test_settings_in_the_pages_can_be_used(name: str, text: str) -> None:
    build({**LEAST, **tomllib.loads(text)}, Path("/"))


@pytest.mark.parametrize(("name", "text"), [*blocks("python")])
def test_programs_in_the_pages_run(name: str, text: str) -> None:
    exec(compile(text, name, "exec"), {})


def test_settings_that_the_pages_name_exist() -> None:
    known = {item.name for kind in (NodeConfig, *sections_of(NodeConfig).values()) for item in fields(kind)}
    for name in PAGES:
        named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)(?: = [^`]*)?`", page(name)))
        assert {word for word in named if not word.startswith("totempole_")} <= known, name


def test_metrics_that_the_page_names_exist() -> None:
    document = with_log()
    document["totals"] |= dict.fromkeys(MEANINGS, 0)
    document |= {
        "dropped": {"seal": 1},
        "kernel_refused": {"EPERM": 1},
        "expected": {"count": 3, "missing": 0},
    }
    there = {
        sample.name for family in StatusCollector(lambda: document).collect() for sample in family.samples
    }
    there |= {"totempole_up", "totempole_rotation_seconds"}
    assert set(re.findall(r"`(totempole_\w+)", page("node.md"))) <= there


def test_log_lines_that_the_page_names_are_written() -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for part in ("runtime", "daemon")
        for path in (ROOT / "src/totempole" / part).glob("*.py")
    )
    source = source.replace('f"{configuration.kind.value} configuration"', '"regular configuration"')
    named = re.findall(r"(?:info|warning|error) `([^`]+)`", page("node.md"))
    assert len(named) > 10
    for name in named:
        assert f'"{name}"' in source, name


def test_the_examples_are_three_hosts_of_one_cluster() -> None:
    files = sorted((ROOT / "examples/three-hosts").glob("*.toml"))
    found = [NodeConfig.load(file, places=False) for file in files]
    assert [(config.processor, config.network.address) for config in found] == [
        (1, "10.0.0.1"),
        (2, "10.0.0.2"),
        (3, "10.0.0.3"),
    ]
    assert (
        len({(config.ring, config.network.port, config.network.group, config.security) for config in found})
        == 1
    )


def test_the_service_starts_a_command_that_there_is() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "packaging/totempole.service")
    service = unit["Service"]
    program, *arguments = service["ExecStart"].split()
    assert (Path(program).name, service["Type"], service["RestartPreventExitStatus"]) == (
        "totem",
        "notify",
        "2",
    )
    parsed = _parser().parse_args(arguments)
    assert parsed.config == "/etc/totempole/node.toml"
    assert f"/var/lib/{service['StateDirectory']}" == settings_of(NodeConfig)["directory"].metadata["example"]


def test_the_numbers_in_the_pages() -> None:
    port = NodeConfig.load(ROOT / "examples/three-hosts/node-1.toml", places=False).network.port
    assert f"UDP ports {port} and {port + 1}" in page("node.md")
