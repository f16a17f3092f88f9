"""Was it right? Each property of Totem (ch. 3, §4.5) and of Totem CACM's groups is a named check of a trace.

`check(rows)` indexes the rows once and returns a `Report` with one verdict for each of `PROPERTIES`: it
holds, it is violated (by whom, over which messages, at which steps), or a prefix cannot tell yet.
"""

from totempole.checkers.properties import LAYERS, PROPERTIES, check
from totempole.checkers.property import Property, Scope
from totempole.checkers.terms import Liveness
from totempole.checkers.verdict import Outcome, Report, Verdict, Violation

__all__ = [
    "LAYERS",
    "PROPERTIES",
    "Liveness",
    "Outcome",
    "Property",
    "Report",
    "Scope",
    "Verdict",
    "Violation",
    "check",
]
