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
from typing import cast

from totempole.core.effects import Effect, Tell
from totempole.core.order import InstallConfiguration
from totempole.errors import ConfigurationError
from totempole.jitter import jitter
from totempole.runtime.recording import (
    KeyIds,
    RecordedInput,
    RecordingHeader,
    RecordingReader,
    effects_digest,
)
from totempole.srp.commands import Rekey
from totempole.stack import ProcessorStack, build
from totempole.types import Configuration
from totempole.wire.seal import Key, Keyring

Keys = Mapping[int, Key]
BuildStack = Callable[[RecordingHeader], ProcessorStack]

EFFECTS_SHOWN = 12
"""Of the input that differs; each on one line of at most EFFECT_LETTERS."""
EFFECT_LETTERS = 160


@dataclass(frozen=True, slots=True)
class Difference:
    """The first input whose effects are not those recorded."""

    index: int
    """Counted from 0."""
    input: str
    """Its kind."""
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
    """By kind, those that agreed."""
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


def stack_builder(keys: Keys) -> BuildStack:
    """The stack as the recording describes it, sealed with these keys if it says that it was sealed."""

    def make(header: RecordingHeader) -> ProcessorStack:
        keyring = keyring_of(KeyIds(header.key_ids), keys) if header.key_ids else None
        draw = jitter(header.spec.processor, header.stable)
        return build(header.spec, header.stable, header.trace_kinds, keyring, draw)

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
    make_stack: BuildStack | None = None,
    keys: Keys | None = None,
    inputs_max: int | None = None,
) -> ReplayReport:
    """Stops at the first difference, or after `inputs_max` inputs."""
    keys = keys or {}
    reader = RecordingReader(path)
    try:
        report = ReplayReport(reader.header)
        stack = (make_stack or stack_builder(keys))(reader.header)
        inputs: Iterable[RecordedInput] = islice(iter(reader), inputs_max)
        _replay(report, stack, inputs, keys)
        report.ended = reader.ended
        return report
    finally:
        reader.close()


def _replay(report: ReplayReport, stack: ProcessorStack, inputs: Iterable[RecordedInput], keys: Keys) -> None:
    state = None
    for index, each in enumerate(inputs):
        report.first_us = report.first_us if index else each.now_us
        effects, difference = _feed(stack, index, each, keys)
        if difference is not None:
            report.difference = difference
            return
        report.last_us = each.now_us
        report.deliveries = stack.ring.delivered
        report.inputs[type(each.given).__name__] += 1
        _note(report, each.now_us, effects)
        if stack.ring.state is not state:
            state = stack.ring.state
            report.states[state.name.lower()] += 1


def _feed(
    stack: ProcessorStack, index: int, each: RecordedInput, keys: Keys
) -> tuple[list[Effect], Difference | None]:
    given, name = each.given, type(each.given).__name__
    if isinstance(given, Rekey):
        given = Rekey(keyring_of(cast(KeyIds, given.keyring), keys))
    try:
        effects = stack.feed(each.now_us, given)
    except Exception as error:
        # Whatever it is: the node that was recorded went on.
        text = f"it raises {type(error).__name__}: {error}"
        return [], Difference(index, name, each.now_us, text)
    if effects_digest(effects) == each.digest:
        return effects, None
    text = f"its {len(effects)} effects are not those recorded"
    return effects, Difference(index, name, each.now_us, text, _shown(effects))


def _note(report: ReplayReport, now_us: int, effects: Iterable[Effect]) -> None:
    for effect in effects:
        if type(effect) is Tell and type(effect.event) is InstallConfiguration:
            report.configurations.append(Installed(now_us, effect.event.configuration))


def _shown(effects: list[Effect]) -> tuple[str, ...]:
    lines = [_brief(repr(effect)) for effect in effects[:EFFECTS_SHOWN]]
    if len(effects) > EFFECTS_SHOWN:
        lines.append(f"and {len(effects) - EFFECTS_SHOWN} more")
    return tuple(lines)


def _brief(text: str) -> str:
    return text if len(text) <= EFFECT_LETTERS else text[: EFFECT_LETTERS - 1] + "…"
