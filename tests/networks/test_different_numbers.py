"""Members of a ring that have different numbers of networks agree on those that all have."""

from __future__ import annotations

import pytest

from totempole.networks.diagnosis import Bad, diagnose
from totempole.networks.events import NetworkState
from totempole.networks.reports import MAGIC, ReportKind, Request, Row, pack_request, pack_row, unpack
from totempole.networks.service import Change, Service
from totempole.rrp.config import NETWORKS_MAX
from totempole.rrp.paths import Finding

IN, SICK, FAULTY, DRAINED, PROBATION = NetworkState
TWO, THREE = Row(0, 0, (), (), 2), Row(0, 0, (), (), 3)


# Reports


@pytest.mark.parametrize("networks", range(2, NETWORKS_MAX + 1))
def test_a_row_of_any_number_of_networks_is_read_back(networks: int) -> None:
    last = networks - 1
    row = Row(1 << last, 1, ((0, last),), (Finding(last, 3, True, 5),), networks)
    assert unpack(pack_row(row)) == row


@pytest.mark.parametrize(
    "row",
    [
        Row(0, 0, (), (), 1),
        Row(0, 0, (), (), NETWORKS_MAX + 1),
        Row(4, 0, (), (), 2),
        Row(0, 4, (), (), 2),
        Row(0, 0, ((0, 2),), (), 2),
        Row(0, 0, ((1, 0),), (), 2),
        Row(0, 0, (), (Finding(2, 1, True, 0),), 2),
    ],
)
def test_a_row_of_networks_that_its_processor_cannot_have_is_none(row: Row) -> None:
    assert unpack(pack_row(row)) is None


def test_a_row_that_is_cut_short_or_goes_on_is_none() -> None:
    data = pack_row(Row(0, 0, ((0, 1),), (Finding(1, 2, True, 5),), 2))
    assert all(unpack(data[:length]) is None for length in range(len(MAGIC), len(data)))
    assert unpack(data + b"\0") is None


def test_a_request_may_be_of_a_network_that_is_not_here() -> None:
    request = Request(ReportKind.DRAIN, NETWORKS_MAX - 1)
    assert unpack(pack_request(request)) == request
    assert unpack(pack_request(Request(ReportKind.DRAIN, NETWORKS_MAX))) is None


# The service


def services(*networks: int) -> list[Service]:
    """Of processors with so many networks each, who have come together."""
    names = "abcdefg"
    found = [Service(names[:number]) for number in networks]
    for service in found:
        service.install(range(1, len(networks) + 1))
        for me, number in enumerate(networks, 1):
            service.take_row(me, THREE._replace(networks=number))  # each has its own past
    return found


def told(services: list[Service], origin: int, row: Row) -> list[Change]:
    """All take a row, and say the same of it."""
    first, *others = [service.take_row(origin, row) for service in services]
    assert all(other == first for other in others)
    return first


def all_states(service: Service) -> list[NetworkState]:
    return [service.state_of(number) for number in range(service.known)]


def test_what_some_member_lacks_is_faulty_and_comes_by_probation() -> None:
    found = services(2, 3, 2)
    assert [service.states for service in found] == [[IN, IN], [IN, IN, FAULTY], [IN, IN]]
    assert found[1].why == ["", "", "not configured at 1, 3"]
    told(found, 1, THREE)
    assert [all_states(service) for service in found] == [[IN, IN, FAULTY]] * 3
    assert told(found, 3, THREE) == [Change(2, FAULTY, PROBATION, "")]
    assert [service.reinstate(2) for service in found] == [[Change(2, PROBATION, IN, "")]] * 3


def test_what_is_wrong_between_those_who_have_it_is_told_too() -> None:
    found = services(3, 3, 2, 3)
    told(found, 1, THREE._replace(findings=(Finding(2, 2, True, 1),)))
    assert found[0].why[2] == "not configured at 3; 1 does not hear 2"
    assert diagnose([Bad(3, 1, True, 0)], (1, 2, 3), (3,)) == "not configured at 3"


def test_one_that_lacks_the_last_network_in_service_has_others_taken_again() -> None:
    found = services(3, 3)
    for service in found:
        service.drain(0)
        service.drain(1)
    assert all_states(found[0]) == [DRAINED, DRAINED, IN]
    told(found, 2, TWO)
    assert [all_states(service) for service in found] == [[IN, IN, FAULTY]] * 2
    found = services(3, 3)
    told(found, 1, THREE._replace(findings=(Finding(1, 2, True, 1),)))
    for service in found:
        service.drain(0)
    assert all_states(found[0]) == [DRAINED, FAULTY, IN]
    told(found, 2, TWO)
    assert all_states(found[0]) == [DRAINED, IN, FAULTY], "it is the last one left"
    assert not found[0].is_whole


def test_a_drained_network_stays_so_while_anybody_has_it() -> None:
    found = services(3, 3)
    for service in found:
        service.drain(2)
    assert told(found, 1, TWO) == []
    assert all_states(found[0]) == [IN, IN, DRAINED]
    assert [service.restore(2) for service in found] == [
        [Change(2, DRAINED, FAULTY, "not configured at 1")]
    ] * 2
    for service in found:
        service.drain(2)
    told(found, 2, TWO)
    assert all_states(found[1]) == [IN, IN]
    assert found[1].state_of(2) is FAULTY
    assert found[1].drained == 0


def test_on_a_new_configuration_only_common_networks_count() -> None:
    """All that all have is drained or out: it begins in service."""
    service = Service("abc")
    service.install((1, 2))
    service.take_row(1, Row(0b010, 0b001, (), (), 3))
    service.take_row(2, Row(0, 0, (), (), 2))
    assert service.states == [DRAINED, IN, FAULTY]
    service.install((1, 2))
    service.take_row(1, Row(0, 0b111, (), (), 3))
    service.take_row(2, Row(0, 0, (), (), 2))
    assert service.states == [IN, IN, DRAINED]


def test_wires_to_a_network_that_not_all_have_are_not_told() -> None:
    """Not all know its name, and all say the same."""
    found = services(3, 2)
    assert told(found, 1, THREE._replace(crossed=((0, 2),))) == []
    assert told(found, 1, THREE._replace(crossed=((0, 1),)))[0].why == "wired together with b"
