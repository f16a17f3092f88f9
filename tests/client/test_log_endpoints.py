"""Where a program reads the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from totempole import blocking
from totempole.client.log_endpoints import log_endpoints
from totempole.errors import SessionError


def test_one_socket_or_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOTEMPOLE_SOCKET", raising=False)
    assert [str(each) for each in log_endpoints()] == ["/var/lib/totempole/clients-log.sock"]
    assert [str(each) for each in log_endpoints(Path("/a/clients.sock"))] == ["/a/clients-log.sock"]
    several = log_endpoints(["/a/clients.sock", Path("/b/clients-log.sock")])
    assert [str(each) for each in several] == ["/a/clients-log.sock", "/b/clients-log.sock"]
    assert blocking.log_reader(path=["/a/clients.sock", "/b/clients.sock"]).endpoints == several


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(SessionError, match="empty list of sockets"):
        log_endpoints([])
