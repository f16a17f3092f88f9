"""The events file of appendix A, as it stands: `partition: 40000000 193 (100 104 105) (101 103)`.

Event type, simulation time in microseconds, network, and the processors of each component.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from totempole.errors import ScenarioError
from totempole.sim.script import Partition, Scenario, Step
from totempole.sim.script_parser import fail
from totempole.types import PROCESSOR_MAX, ProcessorId

LINE = re.compile(r"partition:\s+(\d+)\s+(\d+)\s+((?:\([\d\s]*\)\s*)+)$")
SHAPE = "write `partition: TIME_US NETWORK (PROCESSORS) (PROCESSORS)…`, as in appendix A"

SETTLE_US = 20_000_000
"""How long a run goes on after its last event, unless told."""


class PartitionEvent(NamedTuple):
    at_us: int
    network: int
    components: tuple[tuple[ProcessorId, ...], ...]


def parse_events(text: str, name: str = "events") -> list[PartitionEvent]:
    """The events of a file; `name` is what errors call it. Empty lines and # comments are passed over."""
    events: list[PartitionEvent] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if words:
            event = _parse_line(name, number, words)
            if events and event.at_us < events[-1].at_us:
                fail(name, number, words, "time goes backwards: put the lines in order of time")
            events.append(event)
    return events


def _parse_line(name: str, number: int, line: str) -> PartitionEvent:
    kind = line.partition(":")[0]
    if kind != "partition":
        fail(name, number, line, f"unknown event {kind!r}: the only event is `partition:`; {SHAPE}")
    match = LINE.match(line)
    if not match:
        fail(name, number, line, SHAPE)
    components = tuple(
        tuple(int(member) for member in part.split()) for part in re.findall(r"\(([^)]*)\)", match[3])
    )
    everyone = [member for component in components for member in component]
    if not all(components):
        fail(name, number, line, "an empty component: name the processors that are in it")
    if len(set(everyone)) < len(everyone):
        fail(name, number, line, "a processor is there twice: name each one once")
    if not all(1 <= member <= PROCESSOR_MAX for member in everyone):
        fail(name, number, line, f"processors are numbered from 1 to {PROCESSOR_MAX}")
    return PartitionEvent(int(match[1]), int(match[2]), components)


def events_scenario(
    events: Iterable[PartitionEvent],
    name: str = "events",
    *,
    network: int | None = None,
    end_us: int | None = None,
    seed: int = 1,
) -> Scenario:
    """A scenario of the processors named, on one network of the file."""
    chosen = list(events)
    networks = sorted({event.network for event in chosen})
    if network is None and len(networks) > 1:
        raise ScenarioError(
            f"{name}: events on networks {', '.join(map(str, networks))}: choose one with --network"
        )
    if network is not None and network not in networks:
        raise ScenarioError(
            f"{name}: no events on network {network}: give one of {', '.join(map(str, networks))}"
        )
    chosen = [event for event in chosen if network in (None, event.network)]
    if not chosen:
        raise ScenarioError(f"{name}: no events: {SHAPE}")
    processors = sorted({me for event in chosen for part in event.components for me in part})
    steps = tuple(Step(event.at_us, Partition(event.components)) for event in chosen)
    return Scenario(
        name=name,
        processors=tuple((str(me), me) for me in processors),
        end_us=chosen[-1].at_us + SETTLE_US if end_us is None else end_us,
        seed=seed,
        steps=steps,
    )
