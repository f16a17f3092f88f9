"""From a file's name to a scenario: scenario files, events files of appendix A, those in the package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from totempole import scenarios
from totempole.errors import ScenarioError, TotemError
from totempole.sim.conditions import Condition
from totempole.sim.events_file import PartitionEvent, events_scenario, parse_events
from totempole.sim.load import MESSAGE_BYTES
from totempole.sim.scenario import Scenario, Step, parse
from totempole.sim.script import ExpectCheckers, Setting, Traffic
from totempole.types import PROCESSOR_MAX, ProcessorId


@dataclass(frozen=True, slots=True)
class EventsOptions:
    """What appendix A gives to `cmm` and `pm` beside the events file. None: as it is by default."""

    processors: tuple[ProcessorId, ...] = ()
    network: int | None = None
    message_reception: float | None = None
    token_reception: float | None = None
    discard_limit: int | None = None
    size: int | None = None
    window: int | None = None
    each_time: int | None = None

    @property
    def given(self) -> list[str]:
        names = [item.name for item in fields(self)]
        return [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) not in (None, ())]

    @property
    def condition(self) -> Condition:
        """`cmm -m` and `-t`: all that is not said to be lost is received."""
        if self.message_reception is None and self.token_reception is None:
            return Condition()
        messages = 1.0 if self.message_reception is None else self.message_reception
        tokens = 1.0 if self.token_reception is None else self.token_reception
        return Condition(loss=round(1.0 - messages, 9), token_loss=round(1.0 - tokens, 9))

    @property
    def settings(self) -> tuple[Setting, ...]:
        """`pm -w` and `-e`."""
        values = (("window_packets", self.window), ("each_time_packets", self.each_time))
        return tuple(Setting(name, value) for name, value in values if value is not None)


def load_scenario(
    source: str,
    *,
    events: bool = False,
    options: EventsOptions | None = None,
    seed: int | None = None,
) -> Scenario:
    text, name = read_source(source)
    options = options or EventsOptions()
    if events or _looks_like_events(text):
        scenario = _from_events(text, name, options)
    elif options.given:
        raise ScenarioError(f"{name}: a scenario says this itself: leave out {', '.join(options.given)}")
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


def _from_events(text: str, name: str, options: EventsOptions) -> Scenario:
    """As appendix A runs it: a processor with its packet driver for each one named (`pm -c 101 -p`)."""
    events, processors = parse_events(text, name), options.processors
    scenario = events_scenario(
        _only(events, processors) if processors else events, name, network=options.network
    )
    if processors:
        scenario = replace(scenario, processors=tuple((str(me), me) for me in processors))
    size = MESSAGE_BYTES if options.size is None else options.size
    drivers = [Step(0, Traffic(me, size=size, shape="driver")) for me in scenario.names]
    return replace(
        scenario,
        settings=options.settings,
        condition=options.condition,
        discard_limit=options.discard_limit or 0,
        steps=(*drivers, *scenario.steps, Step(scenario.end_us, ExpectCheckers())),
    )


def _only(events: Sequence[PartitionEvent], processors: Sequence[ProcessorId]) -> list[PartitionEvent]:
    """The events as far as they concern the processors that take part."""
    kept = []
    for event in events:
        parts = (tuple(me for me in part if me in processors) for part in event.components)
        kept.append(event._replace(components=tuple(part for part in parts if part)))
    return kept
