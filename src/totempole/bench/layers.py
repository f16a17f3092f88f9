"""Where time goes, by layer: cProfile's own time of every function, summed up by package.

What is not ours (C functions, the standard library, code that dataclasses and named tuples generate) counts
for the package that calls it. The profiler makes small functions look dearer than they are: read the shares
as an indication, and the rates of an unprofiled run as the truth.
"""

from __future__ import annotations

import cProfile
import pstats
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import totempole

LAYERS = ("wire", "segment", "srp", "sim", "trace", "checkers")
OTHER = "other"
"""Types and effects at the root, and what nobody of ours called."""

DEPTH_MAX = 8
"""Foreign functions that call each other; beyond it, nobody is asked further."""

Function = tuple[str, int, str]
Breakdown = Mapping[str, float]
"""Seconds of own time by layer, the dearest first."""

_ROOT = str(Path(totempole.__file__).parent)


def profile(work: Callable[[], object]) -> Breakdown:
    profiler = cProfile.Profile()
    profiler.runcall(work)
    stats: dict[Function, Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    return by_layer(stats)


def by_layer(stats: Mapping[Function, Any]) -> Breakdown:
    """`stats` is what pstats has: (calls, primitive calls, own time, whole time, callers) by function."""
    seconds: dict[str, float] = defaultdict(float)
    for function, (_, _, own_s, _, callers) in stats.items():
        layer = layer_of(function[0])
        if layer is not None:
            seconds[layer] += own_s
        else:
            _charge(seconds, stats, callers, own_s, DEPTH_MAX)
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def layer_of(file: str) -> str | None:
    """The layer of a source file; None when it is not ours."""
    if not file.startswith(_ROOT):
        return None
    package = file[len(_ROOT) + 1 :].split("/")[0]
    return package if package in LAYERS else OTHER


def _charge(
    seconds: dict[str, float],
    stats: Mapping[Function, Any],
    callers: Mapping[Function, Any],
    own_s: float,
    depth: int,
) -> None:
    """Shares the time out among callers, each by the time that it made the function spend."""
    shares = {caller: max(spent[2], 0.0) for caller, spent in callers.items()}
    whole = sum(shares.values())
    if not whole or not depth:
        seconds[OTHER] += own_s
        return
    for caller, share in shares.items():
        layer = layer_of(caller[0])
        part_s = own_s * share / whole
        if layer is not None:
            seconds[layer] += part_s
        else:
            _charge(seconds, stats, stats[caller][4] if caller in stats else {}, part_s, depth - 1)
