"""The status socket: one document for each reader, and every way in which there is no answer."""

from __future__ import annotations

import logging
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from status_document import healthy
from totempole.networks.events import NetworkState
from totempole.runtime import status
from totempole.runtime.status import (
    DOCUMENT_BYTES_MAX,
    SOCKET_NAME,
    SOCKET_PATH_BYTES_MAX,
    StatusError,
    StatusServer,
    is_operational,
    read_status,
)
from totempole.srp.states import State

LOGGER = logging.getLogger("totempole.test.status")
Serve = Callable[..., StatusServer]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    servers = []

    def start(snapshot: Any = healthy, directory: Path = tmp_path) -> StatusServer:
        servers.append(StatusServer(directory, snapshot, LOGGER))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def test_every_reader_gets_the_document(serve: Serve, tmp_path: Path) -> None:
    serve()
    assert [read_status(tmp_path) for _ in range(3)] == [healthy()] * 3


def test_each_answer_is_fresh(serve: Serve, tmp_path: Path) -> None:
    numbers = iter(range(10))
    serve(lambda: {"uptime_s": next(numbers)})
    assert [read_status(tmp_path)["uptime_s"] for _ in range(3)] == [0, 1, 2]


def test_only_the_nodes_user_gets_in(serve: Serve) -> None:
    assert stat.S_IMODE(serve().path.stat().st_mode) == 0o600


def test_closing_removes_the_socket(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    server.close()
    assert not server.path.exists()
    assert not server._thread.is_alive()
    with pytest.raises(StatusError, match="no node runs in this directory"):
        read_status(tmp_path)


def test_closing_leaves_another_nodes_socket_alone(serve: Serve, tmp_path: Path) -> None:
    first = serve()
    first.path.rename(tmp_path / "old")
    second = serve()
    first.close()
    assert read_status(tmp_path) == healthy()
    second.close()


def test_a_killed_nodes_socket_is_replaced(serve: Serve, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / SOCKET_NAME))
        left_behind.listen()
    with pytest.raises(StatusError, match="nobody answers: the node is gone"):
        read_status(tmp_path)
    serve()
    assert read_status(tmp_path) == healthy()


def test_a_running_nodes_socket_is_not(serve: Serve, tmp_path: Path) -> None:
    serve()
    with pytest.raises(StatusError, match="another node answers there: give this one a directory"):
        StatusServer(tmp_path, dict, LOGGER)
    assert read_status(tmp_path) == healthy()


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / SOCKET_NAME).write_text("mine")
    with pytest.raises(StatusError, match="is there and is no socket: move it away"):
        StatusServer(tmp_path, dict, LOGGER)
    assert (tmp_path / SOCKET_NAME).read_text() == "mine"


def test_a_long_path_is_no_obstacle(serve: Serve, tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120) / ("e" * 120)
    directory.mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    server = serve(directory=directory)
    assert len(os.fsencode(server.path)) > SOCKET_PATH_BYTES_MAX
    assert read_status(directory) == healthy()
    server.close()
    assert not server.path.exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_longest_short_path(serve: Serve, tmp_path: Path) -> None:
    room = SOCKET_PATH_BYTES_MAX - len(os.fsencode(tmp_path)) - len(SOCKET_NAME) - 2
    for length in (room, room + 1):
        directory = tmp_path / ("d" * length)
        directory.mkdir()
        serve(directory=directory)
        assert read_status(directory) == healthy()


def test_a_snapshot_that_fails_is_told_and_survived(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def snapshot() -> dict[str, Any]:
        raise KeyError("ring")

    serve(snapshot)
    for _ in range(2):
        with pytest.raises(StatusError, match="the node cannot tell its status: KeyError: 'ring'"):
            read_status(tmp_path)
    assert "status cannot be told" in caplog.text


def test_a_document_has_a_maximum(serve: Serve, tmp_path: Path) -> None:
    serve(lambda: {"long": "x" * DOCUMENT_BYTES_MAX})
    with pytest.raises(StatusError, match=r"a status of \d+ bytes is too long to tell"):
        read_status(tmp_path)


def test_a_reader_that_does_not_read_is_let_go(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "ANSWER_S", 0.05)
    answers = iter([{"long": "x" * (DOCUMENT_BYTES_MAX - 100)}, healthy()])
    serve(lambda: next(answers))
    with socket.socket(socket.AF_UNIX) as idle:
        idle.connect(str(tmp_path / SOCKET_NAME))
        assert read_status(tmp_path, wait_s=60) == healthy()


def test_a_node_that_is_stopped_does_not_hold_its_reader(serve: Serve, tmp_path: Path) -> None:
    go_on = threading.Event()

    def snapshot() -> dict[str, Any]:
        go_on.wait()
        return {}

    serve(snapshot)
    with pytest.raises(StatusError, match=r"no answer in 0\.05 s: the node is stopped or starved"):
        read_status(tmp_path, wait_s=0.05)
    go_on.set()


@pytest.mark.parametrize("answer", [b"", b"hello", b"[1]"])
def test_an_answer_that_is_no_status(tmp_path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET_NAME))
        listener.listen()

        def once() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(answer)

        thread = threading.Thread(target=once)
        thread.start()
        with pytest.raises(StatusError, match="that is no status: is this a totempole node"):
            read_status(tmp_path)
        thread.join()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    for directory in (tmp_path / "none", tmp_path / ("d" * 120) / ("e" * 120)):
        with pytest.raises(StatusError, match="no such socket: no node runs"):
            read_status(directory)


def test_the_states_are_the_protocols() -> None:
    assert tuple(state.name.lower() for state in State) == status.STATES
    assert tuple(state.name.lower() for state in NetworkState) == status.NETWORK_STATES
    assert is_operational({"state": "operational"})
    assert not is_operational({"state": "gather"})
    assert not is_operational({})
