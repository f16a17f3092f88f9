"""The small parts of the daemon, each alone: settings, credentials, the listener, the pool, accounts, the
log."""

from __future__ import annotations

import logging
import os
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daemon_loop import Remembering
from hypothesis import given
from hypothesis import strategies as st

from totempole.daemon.account import Account, send_weight
from totempole.daemon.config import MIB, ClientsConfig, parse_address
from totempole.daemon.credentials import allowed_uids, peer_of, uid_of
from totempole.daemon.identity import EMBEDDED, Identity
from totempole.daemon.log import COMPLAINTS_MAX, INTERVAL_US, Complaints
from totempole.daemon.pool import LargePool
from totempole.daemon.socket_file import UnixListener
from totempole.daemon.turns import ROUND_US, Turns
from totempole.errors import ConfigurationError, NetworkError
from totempole.groups import GroupConfig
from totempole.session import SEND_OVERHEAD

# Settings

TLS = {"tls_certificate": Path("c"), "tls_key": Path("k"), "tls_authorities": Path("a")}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"clients_max": 0}, r"clients_max = 0: give a whole number from 1"),
        ({"enabled": 1}, "enabled = 1: give true or false"),
        ({"socket": 5}, "socket = 5: give a path"),
        ({"socket": Path("x" * 108)}, "at most 107 bytes"),
        ({"socket_mode": 0o1777}, "socket_mode = 1023: give permissions in octal digits"),
        ({"users": [0]}, "give a list of users"),
        ({"users": ("",)}, "give a list of users"),
        (
            {"listen": "10.0.0.1:5410"},
            'listen = "10.0.0.1:5410": without TLS nobody is let in: give tls_cert',
        ),
        ({"listen": "here:1", **TLS}, "give ADDRESS:PORT"),
        ({"listen": "10.0.0.1", **TLS}, "give ADDRESS:PORT"),
        ({"listen": "10.0.0.1:99999", **TLS}, "give ADDRESS:PORT"),
        ({"tls_key": Path("k")}, 'tls_key = "k": it is for programs on other hosts'),
        ({"client_receive_bytes_max": 400 * MIB}, "memory_bytes_max = 536870912: half of it"),
        ({"credit_bytes": 1_000}, "credit_bytes = 1000: give a whole number from 65536"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text.replace("(", r"\(")):
        ClientsConfig(**settings)


def test_memory_holds_the_largest_message() -> None:
    config = ClientsConfig(memory_bytes_max=100 * MIB)
    with pytest.raises(
        ConfigurationError, match=r"memory_bytes_max = 104857600.*message_bytes_max = 67108864"
    ):
        config.check_with(GroupConfig())
    replace(config, memory_bytes_max=129 * MIB).check_with(GroupConfig())


def test_addresses() -> None:
    assert parse_address("10.0.0.1:5410") == ("10.0.0.1", 5410)
    assert parse_address("[fd00::1]:0") == ("fd00::1", 0)
    assert ClientsConfig(listen="0.0.0.0:1", **TLS).address == ("0.0.0.0", 1)
    assert ClientsConfig().address is None


# Credentials


def test_the_kernel_says_who_is_there() -> None:
    one, two = socket.socketpair()
    with one, two:
        assert peer_of(one) == Identity(pid=os.getpid(), uid=os.getuid())


def test_users_by_name_and_number() -> None:
    assert allowed_uids(()) == {0, os.geteuid()}
    assert allowed_uids(("root", "4711")) == {0, os.geteuid(), 4711}
    assert uid_of("root") == 0
    with pytest.raises(
        ConfigurationError, match=r'users = \["nobody-such"\]: this host knows no such user; .* give one'
    ):
        uid_of("nobody-such")


def test_who_somebody_is_in_words() -> None:
    assert str(Identity(pid=3, uid=5)) == "pid 3 uid 5"
    assert str(Identity(certificate="spark.example")) == "certificate spark.example"
    assert str(EMBEDDED) == "client embedded"


# The listener


def test_the_socket_has_its_mode_and_goes_with_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listener = UnixListener(path, 0o640)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    listener.close()
    assert not path.exists()


def test_a_stale_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
        killed.listen()
    listener = UnixListener(path, 0o600)
    with pytest.raises(NetworkError, match="another daemon listens there"):
        UnixListener(path, 0o600)
    listener.close()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(NetworkError, match="is no socket"):
        UnixListener(path, 0o600)
    assert path.read_text() == "precious"


def test_only_its_own_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listener = UnixListener(path, 0o600)
    path.unlink()
    path.write_text("somebody else's")
    listener.close()
    assert path.exists()


def test_a_place_where_no_socket_can_be(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="No such file or directory"):
        UnixListener(tmp_path / "missing" / "s", 0o600)
    with pytest.raises(NetworkError, match="at most 107 bytes"):
        UnixListener(tmp_path / ("x" * 120), 0o600)


# The pool


@given(st.lists(st.integers(1, 100), min_size=1, max_size=30))
def test_the_pool_is_never_overdrawn_and_serves_in_order(sizes: list[int]) -> None:
    pool: LargePool[int] = LargePool(100)
    for number, size in enumerate(sizes):
        pool.ask(number, size)
    served: list[int] = []
    lent: list[int] = []
    while len(served) < len(sizes):
        fresh = pool.granted()
        served += fresh
        lent += fresh
        assert pool.bytes == sum(sizes[number] for number in lent) <= 100
        pool.give_back(sizes[lent.pop(0)])
    assert served == list(range(len(sizes)))


def test_who_has_gone_does_not_hold_up_the_others() -> None:
    pool: LargePool[str] = LargePool(10)
    for name, size in (("a", 6), ("b", 6), ("c", 4)):
        pool.ask(name, size)
    assert pool.granted() == ["a"]
    pool.withdraw("b")
    assert pool.granted() == ["c"]
    assert pool.waiting == 0


# Accounts


def test_credit_grows_as_the_ring_takes() -> None:
    account = Account(1_000_000)
    assert account.spend(400_000)
    account.add(400_000 - SEND_OVERHEAD)
    assert account.news() is None
    account.taken(400_000 - SEND_OVERHEAD)
    assert account.news() == 1_400_000
    assert account.news(in_passing=True) is None


def test_small_news_waits_for_company() -> None:
    account = Account(1_000_000)
    account.spend(1_000)
    account.add(744)
    account.taken(744)
    assert account.news() is None
    assert account.news(in_passing=True) == 1_001_000


def test_more_than_the_credit_is_noticed() -> None:
    account = Account(1_000)
    assert account.spend(1_000)
    assert not account.spend(1)


def test_requests_are_not_spent_but_slow_the_credit_down() -> None:
    account = Account(1_000_000)
    for _ in range(3_000):
        account.add(1_000 - SEND_OVERHEAD)
    assert account.overloaded
    account.spend(500_000)
    assert account.news() is None
    for _ in range(3_000):
        account.taken(1_000 - SEND_OVERHEAD)
    assert not account.overloaded
    assert account.news() == 1_500_000


def test_large_messages_are_the_pools() -> None:
    account = Account(1_000_000)
    weight = send_weight(("g",), 5_000_000)
    account.add_large(weight, 5_000_006)
    account.add(10)
    assert account.taken(10) == 0
    assert account.lends
    assert account.taken(weight) == 5_000_006
    assert not account.lends


# Turns


class Talker:
    """A client that always has more, and takes as long as it is given."""

    def __init__(self, clock: list[int], cost_us: int) -> None:
        self.turns = 0
        self.wants_turn = True
        self._clock = clock
        self._cost_us = cost_us

    def take_turn(self) -> None:
        self.turns += 1
        self._clock[0] += self._cost_us


def test_a_round_is_bounded_and_turns_go_round() -> None:
    clock = [0]
    turns = Turns(lambda: clock[0])
    talkers = [Talker(clock, 900) for _ in range(10)]
    for talker in talkers:
        turns.add(talker)  # type: ignore[arg-type]
    assert sum(talker.turns for talker in talkers) <= ROUND_US // 900 + 1
    for _ in range(40):
        before = clock[0]
        turns.begin_round()
        assert clock[0] - before < ROUND_US + 900
    counts = [talker.turns for talker in talkers]
    assert max(counts) - min(counts) <= 1


# The log


def test_complaints_are_limited_and_the_rest_is_counted() -> None:
    logger, log = logging.Logger("test"), Remembering()
    logger.addHandler(log)
    complaints = Complaints(logger)
    for number in range(COMPLAINTS_MAX + 7):
        complaints.write(number, "trouble", name="x")
    assert len(log.events) == COMPLAINTS_MAX
    complaints.write(2 * INTERVAL_US, "trouble", name="y")
    assert log.events[-1] == ("trouble", {"name": "y", "left_out_before": 7})
