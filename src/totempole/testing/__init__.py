"""Tests of programs, without a cluster.

`cluster` runs one's own asyncio programs on simulated nodes, in virtual time (docs/testing.md); `run` and
`seeds` run such tests, and `Fault` is one fault of theirs.

For replicated objects: `twins` finds what a class does differently from process to process, `simulate` runs
it under faults, and `assert_linearizable` judges what clients were told (`History`).
"""

from totempole.checkers.class_model import ClassModel, Raised
from totempole.checkers.linearizability import ANYTHING, Call, Judgement, Model, judge
from totempole.testing.clusters import Cluster, Unsettled, Violated, cluster
from totempole.testing.faults import Fault
from totempole.testing.linearizability import (
    History,
    NotLinearizable,
    OpenCall,
    Undecided,
    assert_linearizable,
)
from totempole.testing.programs import Crashed, Program
from totempole.testing.real_nodes import NotPossible
from totempole.testing.running import SeedFailed, run, seeds
from totempole.testing.simulation import Operation, SimulationFailed, SimulationReport, Unknown, simulate
from totempole.testing.twins import Difference, TwinsDiffer, twins
from totempole.testing.virtual_loop import NotSimulated, TimeOver

__all__ = [
    "ANYTHING",
    "Call",
    "ClassModel",
    "Cluster",
    "Crashed",
    "Difference",
    "Fault",
    "History",
    "Judgement",
    "Model",
    "NotLinearizable",
    "NotPossible",
    "NotSimulated",
    "OpenCall",
    "Operation",
    "Program",
    "Raised",
    "SeedFailed",
    "SimulationFailed",
    "SimulationReport",
    "TimeOver",
    "TwinsDiffer",
    "Undecided",
    "Unknown",
    "Unsettled",
    "Violated",
    "assert_linearizable",
    "cluster",
    "judge",
    "run",
    "seeds",
    "simulate",
    "twins",
]
