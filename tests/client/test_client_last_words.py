"""A daemon that hangs up has said why: a session hears that though its own words find nobody."""

from __future__ import annotations

import asyncio
import socket

import pytest

from totempole.client.session import Session
from totempole.errors import SessionError
from totempole.session import Refused
from totempole.session.codec import encode


def test_why_it_was_turned_away_before_it_said_a_word() -> None:
    async def main() -> None:
        ours, daemons = socket.socketpair()
        with daemons:
            daemons.sendall(encode(Refused(0, "user 1001 may not connect")))
        async with Session.over(ours):
            pass

    with pytest.raises(SessionError, match="refused the session: user 1001 may not connect"):
        asyncio.run(main())
