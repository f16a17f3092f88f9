"""Scenario files: what they say, what they may not say, and writing them back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from totempole.errors import ScenarioError
from totempole.rrp.config import RedundancyConfig
from totempole.sim.conditions import Condition, Lan
from totempole.sim.scenario import parse
from totempole.sim.script import (
    DropNext,
    ExpectCheckers,
    ExpectConfigurations,
    ExpectDelivered,
    ExpectMembers,
    Heal,
    OnInterface,
    OnLink,
    OnProcessor,
    OnService,
    Partition,
    ScenarioNetwork,
    Send,
    SetCondition,
    Setting,
    Slow,
    Step,
    Traffic,
    When,
    Wire,
)
from totempole.sim.script_faults import LimitSegments, Stray
from totempole.sim.settings_text import parse_time, time_text
from totempole.types import RingKind, Service

WHOLE = """
# everything the language has
processors p=101 q=102 r=103
seed 7
set token_loss_us 100000        # a field of RingConfig
set ring_kind accelerated for p q
absent r
drift 50
condition loss=0.05 token_loss=0.01 delay=100..300 late=0.001 late_us=1s..2s
lan bandwidth=1250000 shared=yes overhead_bytes=38
costs event=1500 sent_byte=0.25
buffers data_bytes=65536
disk latency=1ms..5ms torn=0.1
at 500us restart r
at 1.5s partition (p q) (r)
at 1.5s heal
at 2s crash p
at 2s pause q
at 2s resume q
at 2s leave q
at 2s slow p 2.5
at 2s cut p q
at 2s mend p q
at 2s loss 0.2
at 2s condition duplicate=0.1 from p to q
at 2s condition token_loss=same
at 2s send p 20 size=1000 safe
at 2s send p 3
at 2s load p rate=100 size=1000 safe=0.5 until=5s
at 2s load q shape=saturate
at 2s drop-next token from p count=2
at 2s drop-next commit-token to q
at 3s expect members p (q p)
end 10s
expect configurations q: {p q r} [q r] {q r}
expect delivered q 20
expect checkers hold
"""
LATE = (1_000_000, 2_000_000)
P, Q, R = 101, 102, 103


def test_every_command_is_read() -> None:
    scenario = parse(WHOLE, "whole")
    base = Condition(loss=0.05, token_loss=0.01, delay_us=(100, 300), late=0.001, late_us=LATE)
    lossy = Condition(loss=0.2, token_loss=0.01, delay_us=(100, 300), late=0.001, late_us=LATE)
    assert scenario.processors == (("p", P), ("q", Q), ("r", R))
    assert scenario.settings == (
        Setting("token_loss_us", 100_000),
        Setting("ring_kind", RingKind.ACCELERATED, (P, Q)),
    )
    assert (scenario.seed, scenario.absent, scenario.drift_ppm, scenario.condition) == (7, (R,), 50, base)
    assert (scenario.lan.bandwidth_bytes_per_s, scenario.lan.shared) == (1_250_000, True)
    assert scenario.disk.latency_us == (1_000, 5_000)
    assert [step.action for step in scenario.steps] == [
        OnProcessor("restart", R),
        Partition(((P, Q), (R,))),
        Heal(),
        OnProcessor("crash", P),
        OnProcessor("pause", Q),
        OnProcessor("resume", Q),
        OnProcessor("leave", Q),
        Slow(P, 2.5),
        OnLink("cut", P, Q),
        OnLink("mend", P, Q),
        SetCondition(lossy),
        SetCondition(
            Condition(
                loss=0.2, token_loss=0.01, delay_us=(100, 300), late=0.001, late_us=LATE, duplicate=0.1
            ),
            P,
            Q,
        ),
        SetCondition(Condition(loss=0.2, delay_us=(100, 300), late=0.001, late_us=LATE)),
        Send(P, 20, 1000, Service.SAFE),
        Send(P, 3),
        Traffic(P, 100, 1000, 0.5, 5_000_000),
        Traffic(Q, shape="saturate"),
        DropNext("token", P, None, 2),
        DropNext("commit-token", None, Q, 1),
        ExpectMembers(P, (P, Q)),
        ExpectConfigurations(Q, ((True, (P, Q, R)), (False, (Q, R)), (True, (Q, R)))),
        ExpectDelivered(Q, 20),
        ExpectCheckers(),
    ]
    assert scenario.steps[0] == Step(500, OnProcessor("restart", R))
    assert scenario.steps[-1].at_us == scenario.end_us == 10_000_000


def test_text_round_trips() -> None:
    scenario = parse(WHOLE, "whole")
    text = scenario.to_text()
    assert parse(text, "whole") == scenario
    assert parse(text, "whole").to_text() == text


NETWORKS = """\
processors p=1 q=2 r=3
condition delay=100..300
network a
network b bandwidth=1250000 shared=yes delay=200..900 segment_bytes=1400 capacity=3
network c loss=0.01
redundancy style=active-passive copies=2 tokens=one hello=100000
at 1s cut p q on a
at 1s sever p q
at 1s mend p q on c
at 1s mute p on a
at 1s deafen q
at 1s cure q on b
at 1s wire a b
at 1s drain c by r
at 1s restore c by p
at 1s partition (p) (q r) sharp on b
at 1s heal on b
at 1s loss 0.2 on c
at 1s condition duplicate=0.1 from p to q on a
at 1s condition loss=0.5
at 1s drop-next token from p count=2 on b
at 1s replay hello from p to q count=3 after=500ms on c
at 1s segments p 600 on a
at 1s when "promise given" mute p on c
end 2s
"""


def test_networks_are_read() -> None:
    scenario = parse(NETWORKS, "networks")
    base = Condition(delay_us=(100, 300))
    assert scenario.networks == (
        ScenarioNetwork("a"),
        ScenarioNetwork("b", Lan(1_250_000, shared=True), Condition(delay_us=(200, 900)), 1_400, 3),
        ScenarioNetwork("c", condition=replace(base, loss=0.01)),
    )
    assert scenario.redundancy == RedundancyConfig(
        style="active-passive", copies=2, tokens="one", hello_us=100_000
    )
    assert [step.action for step in scenario.steps] == [
        OnLink("cut", 1, 2, "a"),
        OnLink("sever", 1, 2),
        OnLink("mend", 1, 2, "c"),
        OnInterface("mute", 1, "a"),
        OnInterface("deafen", 2),
        OnInterface("cure", 2, "b"),
        Wire("a", "b"),
        OnService("drain", "c", 3),
        OnService("restore", "c", 1),
        Partition(((1,), (2, 3)), sharp=True, network="b"),
        Heal("b"),
        SetCondition(replace(base, loss=0.2), network="c"),
        SetCondition(replace(base, duplicate=0.1), 1, 2, "a"),
        SetCondition(replace(base, loss=0.5)),
        DropNext("token", 1, None, 2, "b"),
        Stray("replay", "hello", 1, 2, 3, 500_000, "c"),
        LimitSegments(1, 600, "a"),
        When("promise given", OnInterface("mute", 1, "c")),
    ]
    assert parse(scenario.to_text(), "networks") == scenario


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("network a\nnetwork b\nend 1s", "say how the ring uses them, `redundancy style=passive`"),
        ("redundancy style=passive\nend 1s", r"there is 0 network; give a \[\[network\]\] table for each"),
        ("network a\nredundancy style=active\nend 1s", "there is 1 network"),
        ("network a\nnetwork a", "network a was given before"),
        ("network delay=1..2", "name it"),
        ("network a speed=3\nnetwork b\nredundancy style=active\nend 1s", "network a: 'speed=3' is not"),
        ("network a capacity=0\nnetwork b\nredundancy style=active\nend 1s", "network a: '0' is not"),
        ("redundancy style=round-robin", "style"),
        ("redundancy style=active copies=2", "copies = 2: only"),
        ("at 1s cut 1 2 on a", "there is one network here"),
        ("at 1s drain a by 1", "there is one network here"),
        ("network a\nnetwork b\nat 1s heal on c", "unknown network 'c': give one of a, b"),
        ("network a\nnetwork b\nat 1s wire a a", "give two networks"),
        ("network a\nnetwork b\nat 1s drain a of 1", "write `drain a by p`"),
    ],
)
def test_mistakes_about_networks_are_named(lines: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        parse(f"processors 1 2\n{lines}\n")


def test_plain_numbers_are_names() -> None:
    scenario = parse("processors 1 2\nend 1s\n")
    assert scenario.processors == (("1", 1), ("2", 2))
    assert parse(scenario.to_text()) == scenario


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("explode", "unknown command 'explode': give one of processors, seed"),
        ("crash p", "crash needs a time: write `at 1.5s crash p`"),
        ("at 1s explode p", "unknown action 'explode': give one of crash"),
        ("at soon crash p", "'soon' is not a time"),
        ("at 5 crash p", "'5' is not a time"),
        ("at 0.5us crash p", "finer than a microsecond"),
        ("at 500ms crash p", "time goes backwards"),
        ("end 500ms", "time goes backwards"),
        ("at 1s crash x", "unknown processor 'x': give one of p, q"),
        ("at 1s crash", "write `crash p`"),
        ("at 1s cut p", "write `cut p q`"),
        ("at 1s partition p q", r"write `partition \(p q\) \(r s\)`"),
        ("at 1s partition (p) (p q)", "in two components"),
        ("at 1s partition (p) ()", "empty list"),
        ("at 1s slow p quickly", "'quickly' is not a number"),
        ("at 1s loss 1.5", "loss = 1.5: give a probability"),
        ("at 1s condition weather=bad", "'weather=bad' is not allowed here: .*loss, token_loss"),
        ("at 1s condition delay=9..1", "give least..greatest"),
        ("at 1s condition loss=0.1 from", "`from` needs a processor"),
        ("at 1s send p", "write `send p 20"),
        ("at 1s send p none", "'none' is not a whole number of at least 1"),
        ("at 1s send p 5 politely", "'politely' is not allowed here"),
        ("at 1s load p shape=round", "'round' is not allowed here: give one of poisson"),
        ("at 1s load p safe=2", "give 0 to 1"),
        ("at 1s drop-next parcel from p", "'parcel' is not allowed here: give one of token, commit-token"),
        ("at 1s expect miracles", "unknown expectation 'miracles': give one of members"),
        ("expect members p q", r"write `expect members p \(p q r\)`"),
        ("expect configurations p {p}", "write `expect configurations q:"),
        ("expect configurations p: (p)", "write `expect configurations"),
        ("expect delivered p", "write `expect delivered q 20`"),
        ("expect checkers fail", "write `expect checkers hold`"),
        ("seed 3", "seed belongs before the first `at`"),
        ("processors r", "the processors were given before"),
    ],
)
def test_a_bad_line_is_named_with_what_is_allowed(line: str, problem: str) -> None:
    text = f"processors p=1 q=2\nat 1s heal\n{line}  # why\nend 2s\n"
    with pytest.raises(ScenarioError, match=rf"^bad\.txt, line 3: .*{problem}"):
        parse(text, "bad.txt")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("set patience 4", "unknown setting 'patience': give one of cluster_id, ring_kind"),
        ("set window_packets many", "'many' is not a whole number"),
        ("set window_packets", "write `set FIELD VALUE`"),
        ("set ring_kind square", "'square' is not allowed here: give one of classic, accelerated"),
        ("seed x", "'x' is not a whole number"),
        ("lan shared=maybe", "'maybe' is neither yes nor no"),
        ("lan bandwidth=fast", "'fast' is not a whole number"),
        ("absent z", "unknown processor 'z'"),
    ],
)
def test_a_bad_header_is_named(line: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=rf"^bad\.txt, line 2: .*{problem}"):
        parse(f"processors p=1 q=2\n{line}\nend 1s\n", "bad.txt")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no processors"),
        ("end 1s", "no processors"),
        ("processors p=1\n", "no end"),
        ("at 1s heal\nprocessors p=1\nend 2s", "line 1: .*no processors yet"),
        ("processors p=1 p=2\nend 1s", "p=2 is there twice"),
        ("processors p=1 q=1\nend 1s", "q=1 is there twice"),
        ("processors p=0\nend 1s", "'0' is not a whole number of at least 1"),
        ("processors p=4294967296\nend 1s", "above the greatest"),
        ("processors p=1\nend 1s\nat 2s heal", "nothing but expectations may follow"),
        ("processors p=1\nset join_us 99000000\nend 1s", "join_us = 99000000 is above consensus_us"),
    ],
)
def test_a_bad_whole_is_named(text: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        parse(text, "bad.txt")


@pytest.mark.parametrize("text", ["0us", "1us", "1500us", "2ms", "3s", "61s"])
def test_times_round_trip(text: str) -> None:
    assert time_text(parse_time(text)) == text
    assert parse_time("1.5s") == 1_500_000
