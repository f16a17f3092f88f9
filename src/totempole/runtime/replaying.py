"""Feeds a recording to a fresh protocol object: the same inputs give the same effects (docs/architecture.md).

Nothing is sent: effects are only compared with what the recording says they were. A replay of a sealed node
needs its keys, every one that it had while it was recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from totempole.effects import Deliver, Effect, InstallConfiguration
from totempole.errors import ConfigurationError
from totempole.groups import GroupLayer
from totempole.groups.over_ring import over_ring
from totempole.jitter import jitter
from totempole.runtime.recording import (
    KeyIds,
    RecordedInput,
    RecordingHeader,
    RecordingReader,
    effects_digest,
)
from totempole.srp.endpoint import Endpoint
from totempole.types import Configuration
from totempole.wire.seal import Key, Keyring

Keys = Mapping[int, Key]
MakeEndpoint = Callable[[RecordingHeader], Any]

EFFECTS_SHOWN = 12
"""Of the input that differs; each on one line of at most EFFECT_LETTERS."""
EFFECT_LETTERS = 160


@dataclass(frozen=True, slots=True)
class Difference:
    """The first input whose effects are not those recorded."""

    index: int
    """Counted from 0."""
    method: str
    now_us: int
    text: str
    found: tuple[str, ...] = ()
    """The effects that it has now, for eyes."""


@dataclass(frozen=True, slots=True)
class Installed:
    now_us: int
    configuration: Configuration


@dataclass(slots=True)
class ReplayReport:
    """All that a replay saw, as far as it went."""

    header: RecordingHeader
    inputs: Counter[str] = field(default_factory=Counter)
    """By method, those that agreed."""
    states: Counter[str] = field(default_factory=Counter)
    """How often an input ended in a state other than the one before."""
    configurations: list[Installed] = field(default_factory=list)
    deliveries: int = 0
    first_us: int = 0
    last_us: int = 0
    difference: Difference | None = None
    ended: str | None = None
    """Why the recording ended; None if it was not read to its end."""

    @property
    def agreed(self) -> int:
        return self.inputs.total()

    @property
    def identical(self) -> bool:
        return self.difference is None


def endpoint_maker(keys: Keys) -> MakeEndpoint:
    """Groups over the single ring, sealed with these keys if the recording says that it was sealed."""

    def make(header: RecordingHeader) -> GroupLayer:
        keyring = keyring_of(KeyIds(header.key_ids), keys) if header.key_ids else None
        kinds = header.trace_kinds
        draw = jitter(header.processor, header.stable)
        endpoint = Endpoint(header.processor, header.config, header.stable, kinds, keyring, draw)
        return over_ring(endpoint, header.config, header.groups, kinds)

    return make


def keyring_of(ids: KeyIds, keys: Keys) -> Keyring:
    for key_id in ids:
        if key_id not in keys:
            raise ConfigurationError(
                f"the node was sealed with key {key_id}: give the key file that has it (--key-file)"
            )
    return Keyring(tuple(keys[key_id] for key_id in ids))


def replay(
    path: Path,
    make_endpoint: MakeEndpoint | None = None,
    keys: Keys | None = None,
    inputs_max: int | None = None,
) -> ReplayReport:
    """Stops at the first difference, or after `inputs_max` inputs."""
    keys = keys or {}
    reader = RecordingReader(path)
    try:
        report = ReplayReport(reader.header)
        endpoint = (make_endpoint or endpoint_maker(keys))(reader.header)
        inputs: Iterable[RecordedInput] = islice(iter(reader), inputs_max)
        _replay(report, endpoint, inputs, keys)
        report.ended = reader.ended
        return report
    finally:
        reader.close()


def _replay(report: ReplayReport, endpoint: Any, inputs: Iterable[RecordedInput], keys: Keys) -> None:
    state = None
    ring: Any = endpoint.order if isinstance(endpoint, GroupLayer) else endpoint
    for index, each in enumerate(inputs):
        report.first_us = report.first_us if index else each.now_us
        effects, difference = _feed(endpoint, index, each, keys)
        if difference is not None:
            report.difference = difference
            return
        report.last_us = each.now_us
        report.inputs[each.method] += 1
        _note(report, each.now_us, effects)
        if ring.state is not state:
            state = ring.state
            report.states[state.name.lower()] += 1


def _feed(
    endpoint: Any, index: int, each: RecordedInput, keys: Keys
) -> tuple[list[Effect], Difference | None]:
    arguments = [keyring_of(item, keys) if type(item) is KeyIds else item for item in each.arguments]
    try:
        effects: list[Effect] = getattr(endpoint, each.method)(each.now_us, *arguments)
    except Exception as error:
        # Whatever it is: the node that was recorded went on.
        text = f"it raises {type(error).__name__}: {error}"
        return [], Difference(index, each.method, each.now_us, text)
    if effects_digest(effects) == each.digest:
        return effects, None
    text = f"its {len(effects)} effects are not those recorded"
    return effects, Difference(index, each.method, each.now_us, text, _shown(effects))


def _note(report: ReplayReport, now_us: int, effects: Iterable[Effect]) -> None:
    for effect in effects:
        if type(effect) is Deliver:
            report.deliveries += 1
        elif type(effect) is InstallConfiguration:
            report.configurations.append(Installed(now_us, effect.configuration))


def _shown(effects: list[Effect]) -> tuple[str, ...]:
    lines = [_brief(repr(effect)) for effect in effects[:EFFECTS_SHOWN]]
    if len(effects) > EFFECTS_SHOWN:
        lines.append(f"and {len(effects) - EFFECTS_SHOWN} more")
    return tuple(lines)


def _brief(text: str) -> str:
    return text if len(text) <= EFFECT_LETTERS else text[: EFFECT_LETTERS - 1] + "…"
