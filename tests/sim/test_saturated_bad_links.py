"""A link that is dead one way on a loaded ring: what healthy nodes of four still deliver, for each link.

The figures are those of docs/decisions/0016-bad-links-and-strangers.md. The LAN is slow, so that few packets
fill it; twelve seconds have about half of the configurations of the first minute in them.
"""

from __future__ import annotations

import pytest
from saturated_bad_links import FAULT_US, WITH_TOKEN, WITHOUT_TOKEN, Link, S, healthy, measure

from sweeps import first_of

BRIEFLY_US = 4 * S
"""Where nothing changes with time."""
MINUTE_US = 60 * S

REPEATED_PART = 0.75
"""Where others pass on what a link loses, a quarter of all messages is sent twice: at best 80 % of them."""
SHARE_MIN = 0.22
"""Of four senders that all have as much to send, the one that gets least of the ring."""
LEFT_OUT_PART = 0.8
"""Where an end of the link is left out: attempts to take it back stop the ring, most of them at first."""
OF_THREE_PART = 0.65
"""The same, with senders of a fixed rate, of which one is missing."""
CONFIGURATIONS_MAX = 5
WANTED_PART = 0.9
WANTED_CONFIGURATIONS = 10
"""In the first minute."""


def worst_part(link: Link, rate_per_s: float = 0.0, fault_us: int = FAULT_US) -> float:
    """Of the healthy nodes, the one that gets least of what it would get without the fault."""
    whole, found = measure(None, rate_per_s, fault_us), measure(link, rate_per_s, fault_us)
    return min(found.part(me, whole) for me in healthy(link))


def most_configurations(link: Link, rate_per_s: float = 0.0, fault_us: int = FAULT_US) -> int:
    return max(measure(link, rate_per_s, fault_us).configurations[me] for me in healthy(link))


RATE_PER_S = 11.0
"""Four of these need half of what the ring can carry."""


@pytest.mark.parametrize("link", first_of(WITHOUT_TOKEN), ids=str)
def test_at_full_load_a_link_without_the_token_costs_what_is_sent_twice(link: Link) -> None:
    assert worst_part(link, fault_us=BRIEFLY_US) >= REPEATED_PART
    assert not any(measure(link, fault_us=BRIEFLY_US).configurations.values())


@pytest.mark.parametrize("link", first_of(WITHOUT_TOKEN), ids=str)
def test_whoever_repeats_for_others_sends_as_much_as_they_do(link: Link) -> None:
    sent = measure(link, fault_us=BRIEFLY_US).from_sender
    assert min(sent[me] for me in (1, 2, 3, 4)) >= SHARE_MIN * sent.total()


@pytest.mark.parametrize("link", first_of([(1, 3), (1, 4), (2, 1)]), ids=str)
def test_at_half_load_a_link_without_the_token_costs_nothing(link: Link) -> None:
    assert worst_part(link, RATE_PER_S, BRIEFLY_US) >= 0.98
    assert not any(measure(link, RATE_PER_S, BRIEFLY_US).configurations.values())


@pytest.mark.parametrize("link", first_of(WITH_TOKEN), ids=str)
def test_at_full_load_a_link_with_the_token_costs_attempts(link: Link) -> None:
    assert worst_part(link) >= LEFT_OUT_PART
    assert 0 < most_configurations(link) <= CONFIGURATIONS_MAX


@pytest.mark.parametrize("link", first_of(WITH_TOKEN), ids=str)
def test_at_half_load_a_link_with_the_token_costs_attempts_and_a_sender(link: Link) -> None:
    """Whoever is left out cannot be heard on the ring: of four equal senders three are left."""
    assert OF_THREE_PART <= worst_part(link, RATE_PER_S) < WANTED_PART
    assert 0 < most_configurations(link, RATE_PER_S) <= CONFIGURATIONS_MAX


@pytest.mark.search
@pytest.mark.parametrize("link", WITH_TOKEN, ids=str)
def test_nine_tenths_and_ten_configurations_in_the_first_minute_at_full_load(link: Link) -> None:
    assert worst_part(link, fault_us=MINUTE_US) >= WANTED_PART
    assert most_configurations(link, fault_us=MINUTE_US) <= WANTED_CONFIGURATIONS


@pytest.mark.search
@pytest.mark.parametrize("link", WITH_TOKEN, ids=str)
def test_an_outsider_that_has_never_seen_the_load_breaks_up_nobody_else(link: Link) -> None:
    """Its timeouts are the settings: it was left out before the others began to send."""
    whole = measure(None, fault_us=MINUTE_US, idle_us=3 * S)
    found = measure(link, fault_us=MINUTE_US, idle_us=3 * S)
    assert min(found.part(me, whole) for me in healthy(link)) >= WANTED_PART
    assert max(found.configurations[me] for me in healthy(link)) <= WANTED_CONFIGURATIONS
