"""Networks in the log, on the page of `totem status`, and in the table and answers of `totem network`."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from rich.console import Console

from status_document import healthy, on_two_networks
from totempole.cli import network_text
from totempole.cli.network import NotInTimeError, show, tell
from totempole.cli.output import Screen
from totempole.cli.status import page
from totempole.networks.events import NetworkChanged, NetworkRefused, NetworkState
from totempole.runtime.control import Request
from totempole.runtime.network_shown import log_line
from totempole.types import OrderKey, RingId

KEY = OrderKey(RingId(12, 1), 345, RingId(12, 1))
IN, SICK, FAULTY = NetworkState.IN_SERVICE, NetworkState.SICK, NetworkState.FAULTY
DRAINED, PROBATION = NetworkState.DRAINED, NetworkState.PROBATION


@pytest.mark.parametrize(
    ("old", "new", "why", "level", "name"),
    [
        (IN, SICK, "fault", "WARNING", "network out of service"),
        (IN, FAULTY, "fault", "WARNING", "network out of service"),
        (FAULTY, FAULTY, "known better", "WARNING", "network out of service"),
        (IN, DRAINED, "", "WARNING", "network drained"),
        (IN, IN, "fault of the last one", "WARNING", "network in service"),
        (IN, IN, "", "INFO", "network in service"),
        (FAULTY, PROBATION, "", "INFO", "network on probation"),
        (PROBATION, IN, "", "INFO", "network in service"),
        (DRAINED, IN, "", "INFO", "network in service"),
        (DRAINED, FAULTY, "fault", "WARNING", "network out of service"),
    ],
)
def test_a_change_is_a_line(old: NetworkState, new: NetworkState, why: str, level: str, name: str) -> None:
    line = log_line(NetworkChanged(1, "right", old, new, why, KEY))
    assert (logging.getLevelName(line.level), line.name) == (level, name)
    assert line.fields == {
        "network": "right",
        "state": new.name.lower(),
        "before": old.name.lower(),
        "fault": why or "none",
        "ring": "12@1",
        "seq": 345,
    }


def test_a_refusal_is_a_warning() -> None:
    line = log_line(NetworkRefused(0, "left", "no other network is in service"))
    assert (line.level, line.name) == (logging.WARNING, "network request refused")
    assert line.fields == {"network": "left", "reason": "no other network is in service"}


def text_of(thing: Any) -> str:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(thing)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def test_the_page_of_a_ring_on_several_networks() -> None:
    document = on_two_networks()
    document["networks"][1]["bad_paths"][1]["dead"] = False
    text = text_of(page(document))
    for line in (
        "networks       passive, each message on 1 of 2; 1 in service",
        "network left   in service",
        "               multicast at 10.0.1.1 port 5400, eth1, datagrams of 1,472 bytes",
        "               no loss; 75% of what this node sent; everyone hears everyone",
        "network right  faulty: 3 cannot send",
        "               loss 87.5% from 3; 25% of what this node sent; "
        "1 does not hear 3, 2 does not hear 3 in part",
        "! network right, faulty: 3 cannot send: "
        "this host's card, its outgoing firewall, or the switch port's input",
    ):
        assert line in text.splitlines()
    assert "just changed" not in text
    document["redundancy"]["agreed"] = False
    assert "the ring has just changed, states may be old" in text_of(page(document))


def test_the_page_of_one_network_is_as_it_was() -> None:
    text = text_of(page(healthy()))
    assert "network   multicast at 10.0.0.1 port 5400, datagrams of 1,472 bytes" in text
    assert "networks" not in text


def test_the_table_of_networks(capsys: pytest.CaptureFixture[str]) -> None:
    document = on_two_networks()
    document["networks"][1]["bad_paths"][1]["dead"] = False
    assert show(Screen(), document) == 1
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[1].split() == ["left", "in", "service", "0.0%", "75%", "eth1", "10.0.1.1", "port", "5400"]
    assert lines[2].split()[:5] == ["right", "faulty", "87.5%", "25%", "eth2"]
    assert [line.split() for line in lines[4:8]] == [
        ["right:", "hears", "1", "2", "3"],
        ["1", ".", "yes", "no"],
        ["2", "yes", ".", "in", "part"],
        ["3", "yes", "yes", "."],
    ]
    assert lines[8].startswith("! network right, faulty: 3 cannot send")


def test_a_network_whose_interface_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    document = on_two_networks()
    document["networks"][1] |= {"interface": "", "absence": "interface eth2 with address 10.0.2.1 is gone"}
    text = text_of(page(document))
    assert "multicast at 10.0.2.1 port 5400, no interface, datagrams" in text
    assert "! network right is absent on this host: interface eth2 with address 10.0.2.1 is gone" in text
    show(Screen(), document)
    assert "25%  none" in capsys.readouterr().out


def test_many_bad_paths_are_counted() -> None:
    network = on_two_networks()["networks"][1]
    network["bad_paths"] = [{"sender": 1, "receiver": other, "dead": True} for other in range(2, 9)]
    assert network_text.hearing(network).endswith("5 does not hear 1, and 3 more")


def test_drained_networks_are_well_and_one_that_is_wired_to_another_is_not() -> None:
    document = on_two_networks()
    document["networks"][1] |= {"state": "drained", "why": "", "bad_paths": []}
    assert show(Screen(), document) == 0
    document["networks"][0]["why"] = "wired together with right"
    assert show(Screen(), document) == 1


@pytest.mark.parametrize(
    ("ask", "answer", "code", "said"),
    [
        (
            "drain",
            {"outcome": "done", "ring": "8@1", "seq": 5},
            0,
            "is drained on all nodes, at 5 of ring 8@1",
        ),
        ("drain", {"outcome": "done", "already": True}, 0, "is drained already"),
        ("drain", {"outcome": "refused", "why": "no"}, 1, "is not drained: no"),
        ("restore", {"outcome": "done", "state": "in_service", "why": ""}, 0, "is restored on all nodes"),
        (
            "restore",
            {"outcome": "done", "state": "faulty", "why": "3 cannot send"},
            1,
            "! it is faulty: 3 cannot",
        ),
        (
            "restore",
            {"outcome": "done", "state": "in_service", "why": "wired together with b"},
            1,
            "! it is in service: wired together with b",
        ),
    ],
)
def test_outcomes(
    ask: str, answer: dict[str, Any], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tell(Screen(), Request(ask, "a"), {"network": "a", "processor": 1, "why": "", **answer}) == code
    assert said in capsys.readouterr().out


def test_what_is_not_known_to_be_done_may_be_later() -> None:
    with pytest.raises(NotInTimeError, match="network a: the node has stopped before it was done") as caught:
        tell(
            Screen(),
            Request("drain", "a"),
            {"outcome": "unknown", "network": "a", "why": "the node has stopped before it was done"},
        )
    assert caught.value.may_pass
