"""What people ask of a node's log: other replicas, or less of the past. `control.py` brings it here.

A change of the replica set is a run of the log's own: it is done when it is green, at the same place for all.
What would leave the log without a quorum is refused before it is ordered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from totempole.corel.commands import ChangeReplicas
from totempole.corel.events import LogAnswer, Lost, Placed
from totempole.corel.layer import Replica
from totempole.errors import ConfigurationError, SessionError, TotemError
from totempole.runtime.control import ADD, NO_LOG, REPLACE, TRIM, LogRequest
from totempole.runtime.driver import Driver
from totempole.runtime.node_log import OWN_PROCESS

STOPPED = "the node has stopped before it was done"


class LogRequests:
    """For one thread, which waits; `give_up` is for another."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._waiting: _Waiting | None = None
        self._requests = 0
        self._over = False

    def carry_out(self, request: LogRequest) -> dict[str, Any]:
        """The answer (control.py). Raises ConfigurationError for what cannot be asked."""
        if self._driver.log is None:
            raise ConfigurationError(NO_LOG)
        if request.ask == TRIM:
            steps = [self._trim(request.position)]
        elif request.ask == REPLACE:
            steps = [self._change(request.other, request.weight), self._change(request.processor, 0)]
        else:
            steps = [self._change(request.processor, request.weight if request.ask == ADD else 0)]
        who = {"processor": self._driver.config.processor}
        told: dict[str, Any] = {}
        for number, step in enumerate(steps):
            told = self._wait_for(step, request.wait_s)
            if told["outcome"] != "done":
                return {**who, **told, "steps_done": number}
        return {**who, **told}

    def give_up(self) -> None:
        """The node is about to end."""
        self._over = True
        if self._waiting is not None:
            self._waiting.answer("unknown", why=STOPPED)

    def _wait_for(self, step: Callable[[_Waiting], None], wait_s: float) -> dict[str, Any]:
        self._requests += 1
        waiting = self._waiting = _Waiting(self._requests)
        if self._over:
            return {"outcome": "unknown", "why": STOPPED}
        driver, log = self._driver, self._driver.log
        assert log is not None, "only a node with a log is asked"

        def begin() -> None:
            log.listeners.append(waiting.hear)
            try:
                step(waiting)
            except TotemError as error:
                waiting.answer("refused", why=str(error))

        driver.call(begin)
        waiting.answered.wait(wait_s)
        driver.call(lambda: log.listeners.remove(waiting.hear))
        return waiting.told or {"outcome": "unknown"}

    # On the driver's thread

    def _change(self, processor: int, weight: int) -> Callable[[_Waiting], None]:
        def begin(waiting: _Waiting) -> None:
            replica = self._driver.replica
            assert replica is not None, "a node with a log has a replica"
            if _is_so(replica, processor, weight):
                waiting.answer("done", already=True, replicas=_replicas(replica))
                return
            _check_quorum(replica, processor, weight)
            waiting.done = lambda: {"already": False, "replicas": _replicas(replica)}
            self._driver.feed(ChangeReplicas(OWN_PROCESS, waiting.number, processor, weight))

        return begin

    def _trim(self, position: int) -> Callable[[_Waiting], None]:
        def begin(waiting: _Waiting) -> None:
            log = self._driver.log
            assert log is not None, "the node has a log"
            waiting.answer("done", segments=log.trim(position))

        return begin


class _Waiting:
    def __init__(self, number: int) -> None:
        self.number = number
        self.answered = threading.Event()
        self.told: dict[str, Any] = {}
        self.done: Callable[[], dict[str, Any]] = dict

    def answer(self, outcome: str, **fields: Any) -> None:
        if not self.answered.is_set():
            self.told = {"outcome": outcome, **fields}
            self.answered.set()

    def hear(self, answer: LogAnswer) -> None:
        if answer.request != self.number:
            return
        if isinstance(answer, Placed):
            self.answer("done", **self.done())
        elif isinstance(answer, Lost):
            self.answer("unknown", why=answer.why)


def _replicas(replica: Replica) -> list[int]:
    return sorted(replica.zones.replicas.voters)


def _is_so(replica: Replica, processor: int, weight: int) -> bool:
    voter = replica.zones.sets[-1].voters.get(processor) if replica.zones.sets else None
    if voter is None:
        return not weight
    plan = replica.plan
    disk = plan.disks.get(processor) if plan is not None else None
    return bool(weight) and voter.weight == weight and voter.disk == disk


def _check_quorum(replica: Replica, processor: int, weight: int) -> None:
    """Whether those who are connected could still order after the change."""
    plan, sets = replica.plan, replica.zones.sets
    if plan is None or not sets:
        return  # the replica itself says what is wrong
    after = sets[-1].changed(processor, plan.disks.get(processor, 0) if weight else 0, weight)
    if after.is_majority(plan.disks):
        return
    there = sorted(after.present(plan.disks))
    raise SessionError(
        f"the replicas would be {_names(after.voters)}, and of these only {_names(there)} are connected, no "
        "majority: nothing could be ordered any more. Bring back one of the others first, or remove one that "
        "is gone"
    )


def _names(processors: Any) -> str:
    return ", ".join(map(str, sorted(processors))) or "none"
