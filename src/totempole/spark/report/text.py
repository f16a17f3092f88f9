"""Numbers as people read them: three digits and a unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_TIMES = ((1_000_000.0, "s"), (1_000.0, "ms"), (1.0, "µs"))
_THOUSANDS = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))

MEMBERS_NAMED = 7
"""Larger configurations are shown by their number of members, or by the first and the last."""


def time_text(time_us: float) -> str:
    """Microseconds as 850 µs, 1.25 ms, 12.5 s."""
    if time_us == 0:
        return "0"
    size, unit = _unit(abs(time_us), _TIMES)
    return f"{_digits(time_us / size)} {unit}"


def count_text(number: float) -> str:
    """12, 3.4k, 1.25M."""
    size, unit = _unit(abs(number), _THOUSANDS)
    return f"{_digits(number / size)}{unit}"


def bytes_text(number: float) -> str:
    size, unit = _unit(abs(number), _BYTES)
    return f"{_digits(number / size)} {unit}"


def members_text(members: Sequence[int], installed: frozenset[int], name: Callable[[int], str] = str) -> str:
    """`{1 2 3}`, and `{(1) 2 3}` when 1 did not install it (figure 4.16)."""
    names = [name(me) if me in installed else f"({name(me)})" for me in members]
    if len(members) > MEMBERS_NAMED:
        run_on = members[-1] - members[0] == len(members) - 1
        names = [names[0], "..", names[-1]] if run_on else [f"{len(members)} members"]
    return f"{{{' '.join(names)}}}"


def _unit(number: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """Rounded to three digits, 999.7 ms are a second."""
    return next((each for each in units if number >= each[0] * 0.9995), units[-1])


def _digits(number: float) -> str:
    """Three digits, and none after the point that says nothing."""
    shown = (
        f"{number:.2f}"
        if abs(number) < 9.995
        else f"{number:.1f}"
        if abs(number) < 99.95
        else f"{number:.0f}"
    )
    return shown.rstrip("0").rstrip(".") if "." in shown else shown
