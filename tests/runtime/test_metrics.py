"""The Prometheus endpoint: every number of the document, under its name, and nothing made up."""

from __future__ import annotations

import logging
import re
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from status_document import healthy, on_two_networks
from totempole.errors import ConfigurationError
from totempole.runtime.config import MetricsConfig
from totempole.runtime.metrics import MetricsServer, StatusCollector

LOGGER = logging.getLogger("totempole.test.metrics")


class Scrape:
    """What Prometheus reads."""

    def __init__(self, server: MetricsServer) -> None:
        url = f"http://127.0.0.1:{server.port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            self.text = answer.read().decode()
        families = text_string_to_metric_families(self.text)
        self.values = {
            (sample.name, *sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
        }

    def __getitem__(self, key: Any) -> float:
        return self.values[key if isinstance(key, tuple) else (key,)]


@pytest.fixture
def document() -> dict[str, Any]:
    return healthy()


@pytest.fixture
def server(document: dict[str, Any]) -> Iterator[MetricsServer]:
    server = MetricsServer(_free(), lambda: document, LOGGER)
    yield server
    server.close()


def _free() -> MetricsConfig:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return MetricsConfig(port=probe.getsockname()[1])


def test_what_the_document_says(server: MetricsServer, document: dict[str, Any]) -> None:
    document["dropped"] = {"cluster": 4, "seal": 2}
    document["kernel_refused"] = {"ENETUNREACH": 7}
    document["lag"]["alarms"] = 5
    scrape = Scrape(server)
    assert scrape["totempole_up"] == 1
    assert scrape["totempole_messages_delivered_total"] == 1_000_000
    assert scrape["totempole_bytes_delivered_total"] == 64_000_000
    assert scrape["totempole_packets_sent_total"] == 5_000
    assert scrape["totempole_configuration_changes_total"] == 3
    assert scrape["totempole_lag_alarms_total"] == 5
    assert scrape["totempole_dropped_total", "cluster"] == 4
    assert scrape["totempole_dropped_total", "seal"] == 2
    assert scrape["totempole_kernel_refused_total", "ENETUNREACH"] == 7
    assert scrape["totempole_send_queue_length"] == 3
    assert scrape["totempole_send_queue_max"] == 300
    assert scrape["totempole_outbox_bytes"] == 17_000
    assert scrape["totempole_lag_max_seconds"] == pytest.approx(0.0045)
    assert scrape["totempole_ring_members"] == 3
    assert scrape["totempole_sealed"] == 1
    assert scrape["totempole_offload", "send"] == 1
    assert scrape["totempole_state", "operational"] == 1
    assert scrape["totempole_state", "gather"] == 0
    assert re.search(r'totempole_node_info\{[^}]*version="0\.1\.0"', scrape.text)


def test_members_and_those_who_are_missing(server: MetricsServer, document: dict[str, Any]) -> None:
    assert "totempole_ring_members_expected" not in Scrape(server).text
    document["members"] = [1, 7]
    document["expected"] = {"count": 3, "missing": 1}
    scrape = Scrape(server)
    assert scrape["totempole_ring_members_expected"] == 3
    assert scrape["totempole_ring_members_missing"] == 1
    assert {key[1] for key in scrape.values if key[0] == "totempole_ring_member"} == {"1", "7"}


def test_each_network_of_several(server: MetricsServer, document: dict[str, Any]) -> None:
    assert "totempole_network_" not in Scrape(server).text
    document |= on_two_networks()
    scrape = Scrape(server)
    assert scrape["totempole_network_state", "left", "in_service"] == 1
    assert scrape["totempole_network_state", "right", "in_service"] == 0
    assert scrape["totempole_network_state", "right", "faulty"] == 1
    assert scrape["totempole_network_loss_ratio", "right", "3"] == 0.875
    assert scrape["totempole_network_bad_paths", "left"] == 0
    assert scrape["totempole_network_bad_paths", "right"] == 2
    assert scrape["totempole_network_packets_sent_total", "left"] == 900
    assert scrape["totempole_network_bytes_sent_total", "right"] == 250_000
    assert scrape["totempole_network_packets_received_total", "left"] == 1_800
    assert scrape["totempole_network_bytes_received_total", "left"] == 2_000_000
    assert scrape["totempole_network_refused_total", "ENETUNREACH", "right"] == 7


def test_rotations_are_a_histogram_that_adds_up(server: MetricsServer) -> None:
    scrape = Scrape(server)
    name = "totempole_rotation_seconds"
    counts = [scrape[f"{name}_bucket", bound] for bound in ("0.0001", "0.001", "0.01", "+Inf")]
    assert counts == [5, 95, 99, 100]
    assert scrape[f"{name}_count"] == 100
    assert scrape[f"{name}_sum"] == pytest.approx(0.062345)


def test_each_scrape_is_fresh(server: MetricsServer, document: dict[str, Any]) -> None:
    assert Scrape(server)["totempole_messages_delivered_total"] == 1_000_000
    document["totals"]["messages_delivered"] += 1
    document["totals"]["something_new"] = 4
    scrape = Scrape(server)
    assert scrape["totempole_messages_delivered_total"] == 1_000_001
    assert scrape["totempole_something_new_total"] == 4


def test_what_is_not_said_is_left_out() -> None:
    names = {
        metric.name for metric in StatusCollector(lambda: {"state": "gather"}).collect() if metric.samples
    }
    assert names == {"totempole_node", "totempole_state"}


def test_a_snapshot_that_fails_is_told_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([None, healthy()])

    def snapshot() -> dict[str, Any]:
        answer = next(answers)
        if answer is None:
            raise RuntimeError("not yet")
        return answer

    server = MetricsServer(_free(), snapshot, LOGGER)
    try:
        assert Scrape(server).values == {("totempole_up",): 0}
        assert "metrics cannot be told" in caplog.text
        assert Scrape(server)["totempole_up"] == 1
    finally:
        server.close()


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = MetricsConfig(port=taken.getsockname()[1])
        with pytest.raises(
            ConfigurationError, match=rf"\[metrics\] address = 127\.0\.0\.1, port = {config.port}: Address"
        ):
            MetricsServer(config, dict, LOGGER)


def test_closing_frees_the_port() -> None:
    config = _free()
    for _ in range(2):
        server = MetricsServer(config, healthy, LOGGER)
        assert Scrape(server)["totempole_up"] == 1
        server.close()
        assert not server._thread.is_alive()
