"""A recorded node's inputs give the transmissions that they gave, byte for byte."""

from __future__ import annotations

from replayed_node import feed, recorded, sent, stack


def test_a_recorded_node_sends_what_it_sent() -> None:
    node = recorded()
    fresh = stack(node["header"])
    for number, (method, now_us, arguments, expected) in enumerate(node["inputs"]):
        assert sent(feed(fresh, method, now_us, arguments)) == expected, f"input {number}: {method}"
