"""Where processors are: the static list wins, the rest is learned and resolved, and all of it is bounded."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from loopback import LIMIT_S, wait_until

from totempole.learned_addresses import LEARNED_MAX, STRANGER_US
from totempole.runtime.addresses import AddressBook, Resolver
from totempole.runtime.config import NetworkConfig, Peer
from totempole.runtime.sockets import Address

OWN = ("10.0.0.1", 5400)


def mesh(**settings: Any) -> NetworkConfig:
    settings.setdefault("peers_dns", "ring.example.org")
    return NetworkConfig(address=OWN[0], transport="mesh", **settings)


STATIC = (Peer(1, "10.0.0.1"), Peer(2, "10.0.0.2"), Peer(3, "10.0.0.3", 6000))


def test_multicast_goes_to_the_group_whatever_is_learned() -> None:
    book = AddressBook(NetworkConfig(address=OWN[0]))
    assert book.everyone == (("239.192.54.1", 5400),)
    assert book.token_address(2) is None
    book.learn(2, ("10.0.0.2", 5400), just_now=True, now_us=0)
    assert book.token_address(2) == ("10.0.0.2", 5401)
    assert book.data_address(2) == ("10.0.0.2", 5400)
    assert book.everyone == (("239.192.54.1", 5400),)


def test_a_static_list_without_oneself() -> None:
    book = AddressBook(mesh(peers=STATIC, peers_dns=""))
    assert book.everyone == (("10.0.0.2", 5400), ("10.0.0.3", 6000))
    assert book.token_address(3) == ("10.0.0.3", 6001)


def test_the_static_list_is_the_last_word() -> None:
    book = AddressBook(mesh(peers=STATIC))
    book.learn(2, ("10.9.9.9", 5400), just_now=True, now_us=0)
    assert book.data_address(2) == ("10.0.0.2", 5400)
    assert ("10.9.9.9", 5400) not in book.everyone


def test_whoever_is_not_in_the_list_is_learned_and_moves() -> None:
    book = AddressBook(mesh(peers=STATIC))
    book.learn(7, ("10.0.0.7", 5400), just_now=True, now_us=0)
    assert ("10.0.0.7", 5400) in book.everyone
    book.learn(7, ("10.0.0.8", 5402), just_now=True, now_us=0)
    assert book.token_address(7) == ("10.0.0.8", 5403)
    assert ("10.0.0.7", 5400) not in book.everyone
    assert ("10.0.0.8", 5402) in book.everyone


def test_what_may_be_repeated_is_good_for_joins_only_and_moves_nobody() -> None:
    book = AddressBook(mesh(peers=STATIC))
    book.learn(7, ("10.0.0.7", 5400), just_now=False, now_us=0)
    assert book.data_address(7) is None
    assert ("10.0.0.7", 5400) not in book.everyone
    assert ("10.0.0.7", 5400) in book.perhaps_everyone
    book.learn(7, ("10.0.0.8", 5400), just_now=True, now_us=0)
    book.learn(7, ("10.0.0.66", 5400), just_now=False, now_us=0)
    assert book.data_address(7) == ("10.0.0.8", 5400)
    assert set(book.perhaps_everyone) == set(book.everyone)


def test_who_has_gone_is_forgotten_but_not_a_member() -> None:
    book = AddressBook(mesh(peers=STATIC))
    for processor in (7, 8, 9):
        book.learn(processor, (f"10.0.0.{processor}", 5400), just_now=True, now_us=0)
    book.learn(9, ("10.0.0.9", 5400), just_now=True, now_us=STRANGER_US)
    book.forget_strangers(STRANGER_US, members=(8,))
    assert book.data_address(7) is not None
    book.forget_strangers(STRANGER_US + 1, members=(8,))
    assert [book.data_address(processor) is None for processor in (7, 8, 9)] == [True, False, False]
    assert ("10.0.0.7", 5400) not in book.everyone


def test_what_is_learned_is_bounded() -> None:
    book = AddressBook(NetworkConfig(address=OWN[0]))
    for processor in range(1, LEARNED_MAX + 11):
        book.learn(processor, ("10.0.0.9", processor % 60_000 + 1), just_now=True, now_us=0)
    assert book.data_address(10) is None
    assert book.data_address(11) is not None
    assert book.data_address(LEARNED_MAX + 10) is not None


def test_resolved_addresses_replace_the_old_ones_and_leave_oneself_out() -> None:
    book = AddressBook(mesh())
    assert book.everyone == ()
    book.set_resolved([OWN, ("10.0.0.2", 5400), ("10.0.0.3", 5400), ("10.0.0.3", 5400)])
    assert book.everyone == (("10.0.0.2", 5400), ("10.0.0.3", 5400))
    book.set_resolved([("10.0.0.4", 5400)])
    assert book.everyone == (("10.0.0.4", 5400),)


def test_one_address_from_several_sources_is_one() -> None:
    book = AddressBook(mesh(peers=STATIC))
    book.set_resolved([("10.0.0.2", 5400), ("10.0.0.5", 5400)])
    book.learn(5, ("10.0.0.5", 5400), just_now=True, now_us=0)
    assert sorted(book.everyone) == [("10.0.0.2", 5400), ("10.0.0.3", 6000), ("10.0.0.5", 5400)]


@pytest.mark.parametrize("own", ["fd00::1", "fd00:0:0::1", "FD00::1"])
def test_oneself_is_left_out_however_the_address_is_written(own: str) -> None:
    peers = (Peer(1, "fd00:0::0:1"), Peer(2, "fd00::2"))
    book = AddressBook(NetworkConfig(address=own, transport="mesh", peers=peers))
    assert book.everyone == (("fd00::2", 5400),)


# The resolver


Answer = Callable[..., Any]


def answers(*addresses: str, family: int = socket.AF_INET) -> list[Any]:
    return [(family, socket.SOCK_DGRAM, 17, "", (address, 5400)) for address in addresses]


class Found:
    """Runs a resolver against a getaddrinfo of the test's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Answer, **settings: Any) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.found: list[list[Address]] = []

        def getaddrinfo(*arguments: Any) -> Any:
            self.asked.append(arguments)
            return answer(len(self.asked))

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        self.resolver = Resolver(mesh(**settings), self.found.append)

    def __enter__(self) -> Found:
        self.resolver.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.resolver.stop()
        self.resolver.join(LIMIT_S)
        assert not self.resolver.is_alive()


def test_a_name_of_many_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    with Found(monkeypatch, lambda turn: answers("10.0.0.1", "10.0.0.2")) as found:
        wait_until(lambda: found.found)
    assert found.found == [[("10.0.0.1", 5400), ("10.0.0.2", 5400)]]
    assert found.asked == [("ring.example.org", 5400, socket.AF_INET, socket.SOCK_DGRAM)]


def test_the_name_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with Found(monkeypatch, lambda turn: answers(f"10.0.0.{turn}"), peers_dns_refresh_s=1) as found:
        wait_until(lambda: len(found.found) >= 2)
    assert found.found[:2] == [[("10.0.0.1", 5400)], [("10.0.0.2", 5400)]]


def test_a_name_that_fails_is_asked_soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[str] = []

    def answer(turn: int) -> Any:
        if turn == 1:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        failures.append(found.resolver.failure)
        return answers("10.0.0.2")

    with Found(monkeypatch, answer, peers_dns_refresh_s=3_600) as found:
        wait_until(lambda: found.found)
    assert failures == ["ring.example.org: Temporary failure in name resolution"]
    assert found.resolver.failure == ""


def test_a_name_that_cannot_be_asked_for_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A label of more than 63 letters is a UnicodeError of Python's, not an OSError."""

    def answer(turn: int) -> Any:
        if turn == 1:
            raise UnicodeError("label too long")
        return answers("10.0.0.2")

    crashes: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", crashes.append)
    with Found(monkeypatch, answer) as found:
        wait_until(lambda: found.found or crashes)
    assert not crashes


def test_stopping_does_not_wait_for_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with Found(monkeypatch, lambda turn: answers("10.0.0.2"), peers_dns_refresh_s=86_400) as found:
        wait_until(lambda: found.found)
