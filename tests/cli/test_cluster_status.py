"""`totem status --cluster`: every node asked, in one ring, in parts, and where nobody answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from daemons import cluster, wait_until
from status_document import healthy, with_log
from totempole.cli import main
from totempole.cli.cluster_status import NO_PORT, Seen, is_whole, parts
from totempole.runtime.config import NodeConfig
from totempole.runtime.metrics import StatusCollector
from totempole.runtime.status import StatusServer


def node(processor: int, *members: int, **more: Any) -> Seen:
    return Seen(processor=processor, members=members, state="operational", cluster_id=1, **more)


def test_whole_is_when_all_answer_and_see_just_each_other() -> None:
    assert is_whole([node(1, 1, 2), node(2, 1, 2)])
    assert not is_whole([node(1, 1, 2), node(2, 1, 2, missing=1)])
    assert not is_whole([node(1, 1), node(2, 2)])
    assert not is_whole([node(1, 1, 2), Seen(processor=2, problem="no answer")])
    assert not is_whole([node(1, 1, 2), Seen(processor=2, members=(1, 2), state="operational", cluster_id=2)])
    assert not is_whole([node(1, 1, 2), Seen(processor=2, members=(1, 2), state="gather", cluster_id=1)])
    assert parts([node(1, 1), node(2, 2, 3), node(3, 2, 3)]) == [[1], [2, 3]]


@pytest.mark.parametrize("document", [healthy(), with_log()], ids=["plain", "with a log"])
def test_metrics_say_of_a_node_what_its_status_says(document: dict[str, Any]) -> None:
    document |= {"expected": {"count": 4, "missing": 1}, "clients": {"clients": 9}}
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: document))
    by_metrics = Seen.of_metrics(generate_latest(registry).decode(), "this host")
    assert by_metrics == Seen.of_document(document)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["status", *words, "--json", "-"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("networks", [(), ("left", "right")], ids=["one network", "two networks"])
@pytest.mark.nodes
def test_three_nodes_and_one_that_is_gone(
    networks: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster(3, tmp_path, networks=networks, start=False) as them:
        for daemon in them.daemons.values():
            config = NodeConfig.load(daemon.file)
            port = config.network.port + 4
            metrics = f'\n[metrics]\naddress = "{config.network.address}"\nport = {port}\n'
            daemon.file.write_text(daemon.file.read_text() + metrics)
        them.start()
        words = ("--config", str(them[1].file), "--cluster")
        code, found = asked(capsys, *words)
        assert (code, found["whole"], found["parts"]) == (0, True, [[1, 2, 3]])
        assert [each["processor"] for each in found["nodes"]] == [1, 2, 3]
        assert asked(capsys, "--config", str(them[1].file))[0] == 0
        them[2].end()
        wait_until(lambda: them[1].members() == them[3].members() == [1, 3])
        code, found = asked(capsys, *words)
        assert (code, found["whole"], found["parts"]) == (3, False, [[1, 3]])
        assert [each["problem"] for each in found["nodes"]] == ["", "no answer: Connection refused", ""]
        assert [each["missing"] for each in found["nodes"]] == [1, 0, 1]
        assert main(["status", *words]) == 3
        text = " ".join(capsys.readouterr().out.split())
        assert "! no answer from 2" in text
        assert "! 1 of 3 expected members are missing" in text
        places = [each["place"] for each in found["nodes"]][1:]
        code, found = asked(capsys, "--cluster", *places)
        assert (code, found["parts"]) == (3, [[1, 3]])
        assert asked(capsys, "--cluster", places[0])[0] == 2


def test_nodes_without_a_metrics_port_are_not_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = healthy() | {"addresses": {"1": ["10.0.0.1:5400"], "2": ["10.0.0.2:5400"]}}
    server = StatusServer(tmp_path, lambda: document, logging.getLogger("totempole.test.cluster"))
    try:
        code, found = asked(capsys, "--directory", str(tmp_path), "--cluster")
    finally:
        server.close()
    assert code == 3
    assert [each["problem"] for each in found["nodes"]] == ["", NO_PORT]


def test_a_place_has_a_port(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--cluster", "10.0.0.1"]) == 2
    assert "--cluster 10.0.0.1: give ADDRESS:PORT, like 10.0.0.1:9464" in capsys.readouterr().err
