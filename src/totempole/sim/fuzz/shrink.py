"""Reduces a failing scenario to a small one that fails in the same way.

Steps go first, in ever smaller pieces (delta debugging), then processors that nothing mentions any more, then
settings, then noise and drift. Where the failure is that something never came to be, the repairs that begin
the calm stay: without them nothing would have to. Other failures do without the calm, and then the file asks
only that the checkers hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from totempole.errors import ScenarioError
from totempole.groups import GroupConfig
from totempole.sim.conditions import Buffers, DiskSpeed, Lan
from totempole.sim.contract import StackFactory
from totempole.sim.fuzz.trial import try_scenario
from totempole.sim.script import (
    Action,
    Ambush,
    Expectation,
    ExpectCheckers,
    ExpectSettled,
    Multicast,
    Partition,
    ProcessAction,
    Scenario,
    Send,
    Setting,
    Step,
    Traffic,
    When,
)
from totempole.sim.script_faults import OnDisk, SetKeys, Stray
from totempole.sim.script_runner import last_fault_us
from totempole.types import ProcessorId

TRIALS_MAX = 2_000


class Shrinker:
    """Keeps the smallest scenario seen that still violates one of the same properties."""

    def __init__(
        self,
        scenario: Scenario,
        violated: tuple[str, ...],
        stack: StackFactory | None = None,
        progress: Callable[[int, int], None] = lambda _trials, _steps: None,
        trials_max: int = TRIALS_MAX,
    ) -> None:
        self.best = scenario
        self.trials = 0
        self._violated = set(violated)
        self._endpoint = stack
        self._progress = progress
        self._trials_max = trials_max

    def shrink(self) -> Scenario:
        self._do_without_calm()
        before = None
        while before != self.best and self.trials < self._trials_max:
            before = self.best
            self._drop_steps()
            self._thin_traffic()
            self._drop_processors()
            self._simplify_settings()
        return self.best

    def _do_without_calm(self) -> None:
        hold = tuple(
            replace(step, action=ExpectCheckers()) if isinstance(step.action, ExpectSettled) else step
            for step in self.best.steps
        )
        self._try(replace(self.best, steps=hold))

    def _try(self, candidate: Scenario) -> bool:
        if self.trials >= self._trials_max or candidate == self.best:
            return False
        self.trials += 1
        try:
            verdict, _ = try_scenario(candidate, self._endpoint)
        except ScenarioError:
            # Without one setting, another may have become impossible.
            return False
        fails_alike = bool(self._violated & set(verdict.violated))
        if fails_alike:
            self.best = candidate
        self._progress(self.trials, len(self.best.steps))
        return fails_alike

    def _drop_steps(self) -> None:
        calm_us = last_fault_us(self.best) if _must_settle(self.best) else self.best.end_us
        piece = max(1, len(self.best.steps) // 2)
        while piece >= 1:
            start = 0
            while start < len(self.best.steps):
                steps = self.best.steps
                kept = tuple(step for step in steps[start : start + piece] if not _removable(step, calm_us))
                shorter = steps[:start] + kept + steps[start + piece :]
                if not self._try(replace(self.best, steps=shorter)):
                    start += piece
            piece //= 2

    def _thin_traffic(self) -> None:
        for index, step in enumerate(self.best.steps):
            for lighter in _lighter(step):
                steps = list(self.best.steps)
                steps[index] = lighter
                self._try(replace(self.best, steps=tuple(steps)))

    def _drop_processors(self) -> None:
        for _, processor in self.best.processors:
            others = tuple(item for item in self.best.processors if item[1] != processor)
            left = ((step.at_us, _without(step.action, processor)) for step in self.best.steps)
            steps = tuple(Step(at_us, action) for at_us, action in left if action is not None)
            if others:
                settings = tuple(_settings_without(self.best.settings, processor))
                self._try(replace(self.best, processors=others, settings=settings, steps=steps))

    def _simplify_settings(self) -> None:
        self._try(replace(self.best, settings=_ring_kind(self.best.settings)))
        for setting in self.best.settings:
            kept = tuple(item for item in self.best.settings if item != setting)
            if setting not in _ring_kind(self.best.settings):
                self._try(replace(self.best, settings=kept))
        self._try(replace(self.best, drift_ppm=0))
        self._try(replace(self.best, buffers=Buffers()))
        self._try(replace(self.best, disk=DiskSpeed()))
        self._try(replace(self.best, lan=Lan()))
        if not any(isinstance(step.action, SetKeys) for step in self.best.steps):
            self._try(replace(self.best, sealed=False))
        if self.best.groups is not None:
            self._try(replace(self.best, groups=GroupConfig()))


def _ring_kind(settings: tuple[Setting, ...]) -> tuple[Setting, ...]:
    return tuple(setting for setting in settings if setting.field == "ring_kind")


def _must_settle(scenario: Scenario) -> bool:
    return any(isinstance(step.action, ExpectSettled) for step in scenario.steps)


def _removable(step: Step, calm_us: int) -> bool:
    if isinstance(step.action, Expectation):
        return False
    return isinstance(step.action, Send | Traffic | ProcessAction) or step.at_us < calm_us


def _settings_without(settings: tuple[Setting, ...], processor: ProcessorId) -> Iterator[Setting]:
    for setting in settings:
        left = tuple(me for me in setting.processors if me != processor)
        if left or not setting.processors:
            yield replace(setting, processors=left)


def _without(action: Action, processor: ProcessorId) -> Action | None:
    """What is left of an action in a world where the processor does not exist."""
    named = (getattr(action, field, None) for field in ("processor", "source", "target", "to", "by"))
    if processor in named:
        return None
    if isinstance(action, When):
        inner = _without(action.action, processor)
        return replace(action, action=inner) if isinstance(inner, Ambush) else None
    if isinstance(action, Partition):
        parts = [tuple(me for me in part if me != processor) for part in action.components]
        return replace(action, components=tuple(part for part in parts if part)) if any(parts) else None
    return action


def _lighter(step: Step) -> Iterator[Step]:
    action = step.action
    if isinstance(action, Send) and action.count > 1:
        yield replace(step, action=replace(action, count=action.count // 2))
    if isinstance(action, Send) and action.size > 10:
        yield replace(step, action=replace(action, size=10))
    if isinstance(action, Multicast) and (action.units, action.count, action.size) != (1, 1, 10):
        yield replace(step, action=replace(action, units=1, count=1))
        yield replace(step, action=replace(action, units=1, count=1, size=10))
    if isinstance(action, Traffic):
        yield replace(step, action=Send(action.processor, 1, 10))
    if isinstance(action, When):
        # Of a sequence of aimed actions a shorter one may do, or the last of them at any moment.
        yield replace(step, action=action.action)
    if isinstance(action, Partition) and action.sharp:
        yield replace(step, action=replace(action, sharp=False))
    if isinstance(action, Stray) and action.count > 1:
        yield replace(step, action=replace(action, count=1))
    if isinstance(action, OnDisk) and len(action.lost) > 1:
        yield from (replace(step, action=replace(action, lost=(name,))) for name in action.lost)
