"""The papers' measurements without faults: throughput and latency (Totem §4.4, Totem CACM "Performance").

A delivery's row in the trace bears the instant at which its packet was taken from the buffer. The time that
the machine needs to receive it is added here, since an application has the message no sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from totempole.errors import TotemError
from totempole.sim.paper import faults, replication
from totempole.sim.paper.machines import MACHINES, MS, Machine, S, lossy
from totempole.sim.paper.ring import PaperRing
from totempole.trace.schema import Row

WARM_UP_US = 500 * MS

Measures = Mapping[str, Sequence[float]]
"""The samples of one experiment, by what they measure. Units stand last in the names."""


def throughput(
    machine: Machine, seed: int, *, size: int, one_sender: bool = False, duration_us: int = 3 * S
) -> float:
    """Messages ordered per second when all, or one, send all that they can (figure 4.18)."""
    ring = PaperRing(machine, seed)
    ring.saturate(size, [machine.processors // 2 + 1] if one_sender else None)
    world = ring.world
    world.run_for(WARM_UP_US)
    before = world.hosts[1].delivered
    world.run_for(duration_us)
    if world.counters["overflowed"]:
        raise TotemError(f"{machine.name}, {size} bytes: receive buffers overflowed; the window is too large")
    return (world.hosts[1].delivered - before) * S / duration_us


@dataclass(frozen=True, slots=True)
class Latencies:
    """In microseconds, each from the message's submission."""

    to_all_us: list[float]
    """One for each message: until the last processor has delivered it (figure 4.20)."""
    each_us: list[float]
    """One for each delivery by a processor that did not send the message (figure 7)."""
    rotation_us: list[float]
    """From one token visit at a processor to the next."""


def latency(
    machine: Machine,
    seed: int,
    *,
    rate_per_s: float,
    safe: bool = False,
    poisson: bool = True,
    size: int = 1_000,
    loss: float = 0.0,
    processors: int | None = None,
    duration_us: int = 3 * S,
) -> Latencies:
    """Latencies of messages that arrive at a rate."""
    ring = PaperRing(machine, seed, processors=processors, condition=lossy(loss), level="protocol")
    world = ring.world
    start_us = world.now_us
    stop_us = start_us + duration_us
    ring.arrive(rate_per_s, size, poisson=poisson, safe=safe, until_us=stop_us)
    world.run_until(stop_us)
    submitted = {row.message: row.at_us for row in world.rows if row.kind == "submit"}
    ring.drain(len(submitted))
    taking_us = machine.taking_us(0 if safe else size)
    waits = dict.fromkeys(submitted, 0.0)
    each_us = []
    for message, wait_us, is_own in _waits(world.rows, submitted):
        waits[message] = max(waits[message], wait_us + taking_us)
        if not is_own:
            each_us.append(wait_us + taking_us)
    return Latencies(list(waits.values()), each_us, _rotations(world.rows, start_us, stop_us))


def _waits(rows: Sequence[Row], submitted: Mapping[str, int]) -> Iterator[tuple[str, float, bool]]:
    for row in rows:
        if row.kind == "deliver":
            yield row.message, row.at_us - submitted[row.message], row.node == row.origin


def _rotations(rows: Sequence[Row], start_us: int, stop_us: int) -> list[float]:
    visits = [row.at_us for row in rows if row.kind == "token" and row.node == 1]
    return [later - sooner for sooner, later in pairwise(visits) if start_us <= sooner and later <= stop_us]


# By name, as a table of experiments has them


def _throughput(machine: Machine, seed: int, **parameters: Any) -> Measures:
    return {"messages_per_s": [throughput(machine, seed, **parameters)]}


def _replication(machine: Machine, seed: int, **parameters: Any) -> Measures:
    rate_per_s = replication.throughput(machine, seed, **parameters)
    return {"messages_per_s": [rate_per_s], "kb_per_s": [rate_per_s * parameters["size"] / 1_000]}


def _latency(machine: Machine, seed: int, *, measures: Sequence[str], **parameters: Any) -> Measures:
    found = latency(machine, seed, **parameters)
    return {name: getattr(found, name) for name in measures}


def _token_loss(machine: Machine, seed: int, **parameters: Any) -> Measures:
    return {"gone_us": faults.token_losses(machine, seed, **parameters)}


def _crash(machine: Machine, seed: int, **parameters: Any) -> Measures:
    found = faults.crashes(machine, seed, **parameters)
    return {
        "detection_us": [crash.detection_us for crash in found],
        "recovery_us": [crash.recovery_us for crash in found],
    }


EXPERIMENTS: Mapping[str, Callable[..., Measures]] = {
    "throughput": _throughput,
    "latency": _latency,
    "token loss": _token_loss,
    "crash": _crash,
    "replication": _replication,
}


def run_experiment(name: str, seed: int, parameters: Mapping[str, Any]) -> Measures:
    """One experiment of a table: `parameters` names the machine beside what the experiment takes."""
    others = dict(parameters)
    machine = MACHINES[others.pop("machine")]
    return EXPERIMENTS[name](machine, seed, **others)
