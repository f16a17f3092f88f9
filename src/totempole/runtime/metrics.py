"""The Prometheus endpoint: the status document as metrics, read afresh at each scrape.

Every counter of the document's `totals` is a metric `totempole_NAME_total`, so that what a driver begins to
count is seen without a change here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from totempole.errors import ConfigurationError
from totempole.runtime.config import MetricsConfig
from totempole.runtime.status import LOG_ALARMS, LOG_STANDINGS, NETWORK_STATES, STATES, Document, Snapshot

REQUEST_S = 5.0
"""How long a scraper may take to ask and to be answered."""

MEANINGS = {
    "messages_delivered": "Messages delivered to the application.",
    "packets_delivered": "Ring packets delivered in order.",
    "bytes_delivered": "Bytes of messages delivered to the application.",
    "packets_sent": "Ring packets sent, tokens included.",
    "bytes_sent": "Bytes of ring packets sent.",
    "packets_received": "Reads from the sockets, each a packet, a burst or a piece of one.",
    "bytes_received": "Bytes received.",
    "tokens": "Visits of the token.",
    "token_retransmissions": "Tokens passed on again.",
    "retransmissions": "Messages sent again because somebody asked.",
    "configuration_changes": "Configurations installed, transitional ones included.",
}
GAUGES = (
    ("uptime_seconds", "Since the node started.", ("uptime_s",), 1.0),
    ("segment_bytes", "The largest datagram that the node sends.", ("segment_bytes",), 1.0),
    ("send_queue_length", "Submissions that wait for the token.", ("queue", "send"), 1.0),
    ("send_queue_max", "Submissions that may wait.", ("queue", "send_max"), 1.0),
    ("outbox_bytes", "Messages that wait for a place in a packet.", ("queue", "application"), 1.0),
    ("ring_members_expected", "Processors that the ring should have.", ("expected", "count"), 1.0),
    ("ring_members_missing", "Expected processors that are not there.", ("expected", "missing"), 1.0),
    ("groups", "Groups that have members.", ("groups", "count"), 1.0),
    ("clients", "Programs connected.", ("clients", "clients"), 1.0),
    ("clients_queued_bytes", "What programs have not read yet.", ("clients", "queued_bytes"), 1.0),
    ("clients_large_bytes", "Large messages on their way in.", ("clients", "large_bytes"), 1.0),
    (
        "log_position",
        "Where the next green record goes.",
        ("log", "position"),
        1.0,
    ),
    ("log_green_runs", "Runs of records that are green.", ("log", "green_runs"), 1.0),
    ("log_yellow_runs", "Runs that a majority has begun to order.", ("log", "yellow_runs"), 1.0),
    ("log_yellow_bytes", "The same in bytes.", ("log", "yellow_bytes"), 1.0),
    ("log_red_runs", "Runs that wait for a majority.", ("log", "red_runs"), 1.0),
    ("log_red_bytes", "The same in bytes.", ("log", "red_bytes"), 1.0),
    ("log_unsent_bytes", "Records that wait to be sent to the replicas.", ("log", "unsent_bytes"), 1.0),
    ("log_unwritten_bytes", "Frames that wait for the disk.", ("log", "unwritten_bytes"), 1.0),
    (
        "log_time_ahead_seconds",
        "The order's time, ahead of this host's clock: leases end so much later.",
        ("log", "clocks", "order_ahead_us"),
        1e-6,
    ),
    (
        "log_retention_bytes",
        "Older records go when the log is larger; 0: none.",
        ("log", "retention_bytes"),
        1.0,
    ),
    ("log_primary", "The number of the last primary component.", ("log", "primary"), 1.0),
    ("lag_seconds", "How late the node last was for what it had to do.", ("lag", "last_ms"), 1e-3),
    ("lag_max_seconds", "The longest that it was ever late.", ("lag", "max_ms"), 1e-3),
)
NETWORK_COUNTERS = {
    "packets_sent": "Ring packets sent on the network, each once however many receive it.",
    "bytes_sent": "Bytes of ring packets sent on the network.",
    "packets_received": "Reads from the network's sockets, each a packet, a burst or a piece of one.",
    "bytes_received": "Bytes received on the network.",
}
"""Of a ring on several networks, by network."""
INFO = ("version", "processor", "cluster_id", "transport", "ring_kind", "address")


class StatusCollector(Collector):
    """Turns a document into metrics. What the document does not say is left out, never made up."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        document = self._snapshot()
        yield InfoMetricFamily("totempole_node", "What this node is.", _info(document))
        yield from _totals(document)
        yield from _by_label(document)
        yield from _gauges(document)
        yield from _ring(document)
        yield from _rotations(document.get("rotation_histogram"))
        if document.get("networks"):
            yield from _networks(document["networks"])
        if document.get("log"):
            yield from _log(document["log"])


def _info(document: Document) -> dict[str, str]:
    return {name: str(document[name]) for name in INFO if name in document}


def _totals(document: Document) -> Iterator[Metric]:
    totals = dict(document.get("totals", {}))
    if "configuration_changes" in document:
        totals["configuration_changes"] = document["configuration_changes"]
    if "alarms" in document.get("lag", {}):
        totals["lag_alarms"] = document["lag"]["alarms"]
    for name, value in totals.items():
        meaning = MEANINGS.get(name, f"{name.replace('_', ' ').capitalize()}.")
        yield CounterMetricFamily(f"totempole_{name}", meaning, value=value)


def _by_label(document: Document) -> Iterator[Metric]:
    yield _counters("dropped", "Packets dropped.", "reason", document.get("dropped", {}))
    yield _counters(
        "kernel_refused", "Sends that the kernel refused.", "errno", document.get("kernel_refused", {})
    )


def _counters(name: str, meaning: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"totempole_{name}", meaning, labels=[label])
    for value, count in values.items():
        family.add_metric([str(value)], count)
    return family


def _gauges(document: Document) -> Iterator[Metric]:
    for name, meaning, path, unit in GAUGES:
        value = _at(document, path)
        if value is not None:
            yield GaugeMetricFamily(f"totempole_{name}", meaning, value=value * unit)


def _at(document: Any, path: Iterable[str]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def _ring(document: Document) -> Iterator[Metric]:
    state = GaugeMetricFamily("totempole_state", "1 for the state that the node is in.", labels=["state"])
    for name in STATES:
        state.add_metric([name], float(document.get("state") == name))
    yield state
    if "members" in document:
        members = len(document["members"])
        yield GaugeMetricFamily("totempole_ring_members", "Processors of the ring.", value=members)
        yield _members(document["members"])
    if "sealed" in document:
        sealed = float(document["sealed"])
        yield GaugeMetricFamily("totempole_sealed", "1 if packets are sealed with a key.", value=sealed)
    yield from _offload(document.get("offload", {}))


def _members(members: Iterable[int]) -> Metric:
    family = GaugeMetricFamily(
        "totempole_ring_member", "1 for each processor of the ring.", labels=["processor"]
    )
    for processor in members:
        family.add_metric([str(processor)], 1.0)
    return family


def _offload(offload: Mapping[str, Any]) -> Iterator[Metric]:
    family = GaugeMetricFamily("totempole_offload", "1 where UDP offload is in use.", labels=["direction"])
    for direction in ("send", "receive"):
        if direction in offload:
            family.add_metric([direction], float(offload[direction]))
    yield family


def _rotations(histogram: Mapping[str, Any] | None) -> Iterator[Metric]:
    """The document counts each bucket for itself, Prometheus all up to it."""
    if histogram is None:
        return
    bounds = [str(bound_us / 1e6) for bound_us in histogram["buckets_us"]] + ["+Inf"]
    buckets, seen = [], 0
    for bound, count in zip(bounds, histogram["counts"], strict=True):
        seen += count
        buckets.append((bound, float(seen)))
    yield HistogramMetricFamily(
        "totempole_rotation_seconds", "Times between visits of the token.", buckets, histogram["sum_us"] / 1e6
    )


def _networks(networks: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    state = GaugeMetricFamily(
        "totempole_network_state", "1 for the state that the network is in.", labels=["network", "state"]
    )
    loss = GaugeMetricFamily(
        "totempole_network_loss_ratio",
        "Of what a sender sent lately on the network: the share that did not come here.",
        labels=["network", "sender"],
    )
    bad = GaugeMetricFamily(
        "totempole_network_bad_paths", "Pairs of which one does not hear the other.", labels=["network"]
    )
    refused = CounterMetricFamily(
        "totempole_network_refused", "Sends that the kernel refused.", labels=["network", "errno"]
    )
    for network in networks:
        name = network["name"]
        for each in NETWORK_STATES:
            state.add_metric([name, each], float(network["state"] == each))
        for sender, share in network["loss"].items():
            loss.add_metric([name, sender], share)
        bad.add_metric([name], len(network["bad_paths"]))
        for errno, count in network["refused"].items():
            refused.add_metric([name, errno], count)
    yield from (state, loss, bad, refused)
    for counter, meaning in NETWORK_COUNTERS.items():
        values = {network["name"]: network[counter] for network in networks}
        yield _counters(f"network_{counter}", meaning, "network", values)


def _log(log: Mapping[str, Any]) -> Iterator[Metric]:
    standing = GaugeMetricFamily(
        "totempole_log_standing", "1 for what the log's replica can do.", labels=["standing"]
    )
    for name in LOG_STANDINGS:
        standing.add_metric([name], float(log.get("standing") == name))
    yield standing
    missing = len(log.get("missing", []))
    yield GaugeMetricFamily("totempole_log_missing", "Replicas that do not take part.", value=missing)
    failed = float(bool(log.get("failure")))
    yield GaugeMetricFamily("totempole_log_failed", "1 while the log cannot be used.", value=failed)
    # All kinds from the start: a series that begins with its first alarm shows Prometheus no increase.
    alarms = dict.fromkeys(LOG_ALARMS, 0) | log.get("alarms", {})
    yield _counters("log_alarms", "Alarms of the log.", "kind", alarms)
    clocks = GaugeMetricFamily(
        "totempole_log_clock_ahead_seconds",
        "Replicas whose hosts' clocks are far ahead of this host's, as their last records showed.",
        labels=["processor"],
    )
    for who, ahead_us in log.get("clocks", {}).get("ahead_us", {}).items():
        clocks.add_metric([who], ahead_us * 1e-6)
    yield clocks
    yield from _oldest_hold(log.get("oldest_hold"))


def _oldest_hold(hold: Mapping[str, Any] | None) -> Iterator[Metric]:
    behind = GaugeMetricFamily(
        "totempole_log_hold_behind_records",
        "The oldest hold of a reader: positions behind.",
        labels=["reader"],
    )
    kept = GaugeMetricFamily(
        "totempole_log_hold_kept_bytes",
        "What the oldest hold keeps on disk that retention_bytes would let go.",
        labels=["reader"],
    )
    if hold:
        behind.add_metric([hold["reader"]], hold["behind"])
        kept.add_metric([hold["reader"]], hold["kept_bytes"])
    yield from (behind, kept)


class MetricsServer:
    """Listens from construction on; answers on threads of its own."""

    def __init__(self, config: MetricsConfig, snapshot: Snapshot, logger: logging.Logger) -> None:
        registry = CollectorRegistry()
        registry.register(_Careful(snapshot, logger))
        try:
            self._server, self._thread = start_http_server(config.port, config.address, registry)
        except OSError as error:
            raise ConfigurationError(
                f"[metrics] address = {config.address}, port = {config.port}: {error.strerror}; "
                "choose another address or port, or port = 0 for no metrics"
            ) from error
        # A scraper that says nothing must not keep a thread for ever.
        handler = cast("type", self._server.RequestHandlerClass)
        self._server.RequestHandlerClass = type("Handler", (handler,), {"timeout": REQUEST_S})
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Careful(StatusCollector):
    """A scrape that fails is told in the log, and answered with one metric that says so."""

    def __init__(self, snapshot: Snapshot, logger: logging.Logger) -> None:
        super().__init__(snapshot)
        self._logger = logger

    def describe(self) -> Iterator[Metric]:
        return iter(())  # nothing is asked of the node before it runs

    def collect(self) -> Iterator[Metric]:
        try:
            metrics = list(super().collect())
        except Exception:
            self._logger.exception("metrics cannot be told")
            metrics = []
        yield GaugeMetricFamily("totempole_up", "1 if the node could tell its status.", value=bool(metrics))
        yield from metrics
