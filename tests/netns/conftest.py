"""The ring on hosts of its own: network namespaces, for which it takes root."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from group_stage import GroupStageMaker, group_staged
from netns_stage import StageMaker, staged

from totempole.lab import missing

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "log"))  # for its power cuts


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if HERE in item.path.parents]
    reason = missing() if mine else ""
    for item in mine if reason else ():
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def stage(tmp_path: Path) -> StageMaker:
    """`with stage(hosts=4) as ring:` starts a cluster; when the block ends, it is judged by its traces."""

    def make(hosts: int, **options: Any) -> Any:
        return staged(tmp_path, hosts, **options)

    return make


@pytest.fixture
def groups(tmp_path: Path) -> GroupStageMaker:
    """`with groups(hosts=4) as stage:` starts daemons; when the block ends, they and their programs are
    judged."""

    def make(hosts: int, **options: Any) -> Any:
        return group_staged(tmp_path, hosts, **options)

    return make
