"""What is known of runs beside their rows, as a file next to their traces: `terms.json`.

    {"RUN": {"complete": true, "same_clock": true,
             "expectation": {"at_us": 1, "groups": [[1, 2]], "bound_us": 9},
             "calm": [[1, 10, 100]], "shared": [], "lossless": [],
             "alarmed": [[2, 50, 90, "3 cannot send"]]}}

The simulator writes it: it knows when a run has ended quiescent and who could hear whom. A node does not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from totempole.checkers.terms import Alarmed, Calm, Liveness, Terms
from totempole.errors import TraceError

TERMS_FILE = "terms.json"

STRETCHES = ("calm", "shared", "lossless")


def write_terms(directory: Path, known: Mapping[str, Terms]) -> None:
    """Adds these runs to the directory's file, in one step."""
    file = directory / TERMS_FILE
    together = (_read(file) if file.exists() else {}) | dict(known)
    partial = file.with_name(f"{TERMS_FILE}.{os.getpid()}")
    data = {run: to_json(terms) for run, terms in sorted(together.items())}
    partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, file)


def read_terms(directory: Path) -> dict[str, Terms]:
    """Of all such files below the directory."""
    found: dict[str, Terms] = {}
    for file in sorted(directory.rglob(TERMS_FILE)):
        for run, terms in _read(file).items():
            if found.setdefault(run, terms) != terms:
                raise TraceError(f"{file}: run {run!r} has other terms in another file")
    return found


def _read(file: Path) -> dict[str, Terms]:
    try:
        return {str(run): from_json(told) for run, told in json.loads(file.read_text("utf-8")).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(f"{file}: not what is known of runs ({error}); move it away") from None


def to_json(terms: Terms) -> dict[str, Any]:
    wanted = terms.expectation
    told: dict[str, Any] = {"complete": terms.complete, "same_clock": terms.same_clock}
    if wanted is not None:
        groups = [sorted(group) for group in wanted.groups]
        told["expectation"] = {"at_us": wanted.at_us, "groups": groups, "bound_us": wanted.bound_us}
    for name in STRETCHES:
        if getattr(terms, name):
            told[name] = [[calm.from_us, calm.settled_us, calm.to_us] for calm in getattr(terms, name)]
    if terms.alarmed:
        told["alarmed"] = [[each.network, each.from_us, each.told_us, each.why] for each in terms.alarmed]
    return told


def from_json(told: Any) -> Terms:
    wanted = told.get("expectation")
    expectation = None
    if wanted is not None:
        groups = tuple(tuple(map(int, group)) for group in wanted["groups"])
        expectation = Liveness(int(wanted["at_us"]), groups, int(wanted["bound_us"]))
    stretches = {name: tuple(Calm(*map(int, times)) for times in told.get(name, ())) for name in STRETCHES}
    alarmed = tuple(Alarmed(int(a), int(b), int(c), str(why)) for a, b, c, why in told.get("alarmed", ()))
    return Terms(bool(told["complete"]), bool(told["same_clock"]), expectation, alarmed=alarmed, **stretches)
