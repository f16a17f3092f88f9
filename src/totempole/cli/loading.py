"""From a file's name to a scenario: scenario files, events files of appendix A, those in the package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from totempole import scenarios
from totempole.errors import ScenarioError, TotemError
from totempole.sim.events_file import PartitionEvent, events_scenario, parse_events
from totempole.sim.scenario import Scenario, Step, parse
from totempole.sim.script import ExpectCheckers, Traffic
from totempole.types import PROCESSOR_MAX, ProcessorId


def load_scenario(
    source: str, *, events: bool = False, processors: Sequence[ProcessorId] = (), seed: int | None = None
) -> Scenario:
    text, name = read_source(source)
    if events or _looks_like_events(text):
        scenario = _from_events(text, name, processors)
    elif processors:
        raise ScenarioError(f"{name}: it names its processors itself: leave out --processors")
    else:
        scenario = parse(text, name)
    return scenario if seed is None else replace(scenario, seed=seed)


def read_source(source: str) -> tuple[str, str]:
    """A file's text and name; the name of a packaged scenario will do where there is no such file."""
    path = Path(source)
    if path.exists():
        try:
            return path.read_text(encoding="utf-8"), source
        except (OSError, UnicodeDecodeError) as error:
            raise TotemError(f"{source}: cannot be read: {error}") from error
    packaged = scenarios.find(source)
    if packaged is None:
        known = ", ".join(scenarios.names())
        raise TotemError(f"{source}: no such file; scenarios that come with totempole: {known}")
    return scenarios.read(packaged), packaged


def parse_processors(words: Sequence[str]) -> tuple[ProcessorId, ...]:
    found = []
    for word in " ".join(words).replace(",", " ").split():
        if not word.isdecimal() or not 1 <= int(word) <= PROCESSOR_MAX:
            raise TotemError(f"--processors {word}: give numbers from 1 to {PROCESSOR_MAX}")
        found.append(int(word))
    return tuple(sorted(set(found)))


def _looks_like_events(text: str) -> bool:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return next((line for line in lines if line), "").startswith("partition:")


def _from_events(text: str, name: str, processors: Sequence[ProcessorId]) -> Scenario:
    """As appendix A runs it: a processor with its packet driver for each one named (`pm -c 101 -p`)."""
    events = parse_events(text, name)
    scenario = events_scenario(_only(events, processors) if processors else events, name)
    if processors:
        scenario = replace(scenario, processors=tuple((str(me), me) for me in processors))
    drivers = [Step(0, Traffic(me, shape="driver")) for me in scenario.names]
    return replace(scenario, steps=(*drivers, *scenario.steps, Step(scenario.end_us, ExpectCheckers())))


def _only(events: Sequence[PartitionEvent], processors: Sequence[ProcessorId]) -> list[PartitionEvent]:
    """The events as far as they concern the processors that take part."""
    kept = []
    for event in events:
        parts = (tuple(me for me in part if me in processors) for part in event.components)
        kept.append(event._replace(components=tuple(part for part in parts if part)))
    return kept
