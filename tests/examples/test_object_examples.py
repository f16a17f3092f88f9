"""The examples of replicated objects, as a user runs them, while a node and a copy are killed."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from test_examples import Starter

from daemons import Cluster, cluster, wait_until
from totempole.runtime.status import StatusError, read_status

pytestmark = pytest.mark.nodes

LIMIT_S = 30.0
SETTINGS = """token_loss_us = 300000
token_retransmission_us = 50000
consensus_us = 50000
[log]
enabled = true
replicas = [1, 2, 3]
"""


def wait_for_primary(them: Cluster) -> None:
    """All three replicas are in it."""

    def is_there(number: int) -> bool:
        try:
            log = read_status(them[number].directory).get("log") or {}
        except StatusError:
            return False
        return log.get("standing") == "primary" and log.get("members") == [1, 2, 3]

    wait_until(lambda: all(is_there(number) for number in (1, 2, 3)))


def test_the_total_of_a_bank_never_changes(tmp_path: Path) -> None:
    with cluster(3, tmp_path, SETTINGS) as them, ExitStack() as stack:
        wait_for_primary(them)
        start = Starter("bank", stack, tmp_path)
        copies = [start(them[number], "--transfers", "960") for number in (1, 2)]
        for copy in copies:
            copy.wait_for(r"total 100000 after \d+ transfers")
        them[3].end(signal.SIGKILL)
        wait_until(lambda: all(copy.process.poll() == 0 for copy in copies))
        for copy in copies:
            assert set(re.findall(r"total (\d+) after", copy.out)) == {"100000"}
