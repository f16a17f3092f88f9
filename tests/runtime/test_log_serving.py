"""runtime.log_serving: the process that serves a node's log."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from loopback import a_place
from members import node_config

from totempole.log_service.settings import ServiceSettings, encode_settings
from totempole.runtime import log_serving
from totempole.runtime.log_serving import LogServing


def test_one_that_is_closed_as_it_starts_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its pipe closed before the settings are written, the thread would end and leave the process."""
    closers: list[threading.Thread] = []

    def encode(settings: ServiceSettings) -> bytes:
        closers.append(threading.Thread(target=serving.close))
        closers[0].start()
        closers[0].join(0.2)
        return encode_settings(settings)

    monkeypatch.setattr(log_serving, "encode_settings", encode)
    with a_place() as place:
        serving = LogServing(node_config(place, 1, tmp_path), lambda *_, **__: None, lambda _: None)
        serving.start()
        serving._thread.join()
        closers[0].join()
    assert serving.document()["pid"] is None
    assert serving.document()["last_exit"] is not None
