"""Scenarios, whole: read one (`parse`), play it (`run`), tell what happened (`render_story`).

The language, one command a line:

    processors p=101 q=102 r=103        # or plain numbers
    seed 7
    set token_loss_us 100000            # any RingConfig field; `for p q` for some only
    absent r                            # not started until `restart r`
    drift 100                           # clocks are off by up to 100 ppm
    condition loss=0.05 delay=100..300  # lan, costs, buffers and disk are set the same way
    sealed                              # under a seal, with key 1 at first
    network a delay=100..300 capacity=3 # and network b …: several networks under the ring
    redundancy style=passive            # how it uses them
    at 1.5s partition (p q) (r) sharp   # sharp: what is under way is lost too
    at 2s heal
    at 2s crash p                       # restart, pause, resume, leave, retire
    at 2s crash-within p after=3        # at an input with more effects, after three of them
    at 2s move p                        # to another address
    at 2s double p                      # another node with p's number; single p: without it again
    at 2s slow p 10
    at 2s cut p q                       # one way; mend p q; sever p q: until it is mended
    at 2s mute p on a                   # deafen, cure; cut, partition, heal, loss, … take `on a` too
    at 2s wire a b                      # joined by mistake; drain a by p, restore a by p
    at 2s disk p wipe                   # lose NUMBERS, rollback 3, slow 50ms..500ms, stick, mend
    at 2s show token from p to r        # misdirect, reflect, replay … after=500ms
    at 2s keys p 2 1                    # seals with key 2, accepts 1; segments p 600
    at 2s loss 0.2                      # or condition … [from p] [to q]
    at 2s send p 20 size=1000 safe
    at 2s load p rate=100 size=1000 safe=0.5 until=5s shape=poisson
    at 2s drop-next token from p to q count=1
    at 2s when "promise given" by q after 1 partition (q) (r)
    at 2s when "recovery failed" when "gather>commit" crash p
    at 2s join p.a orders donor state   # with a line `groups` above: programs p.a, p.b on p
    at 2s multicast p.a orders,stock units=3 count=2 size=100 safe notice
    at 2s process p.a stall             # connect, disconnect, crash, wake; quit p.a orders
    at 2s append p orders units=3       # with a line `log p q r` above: records for the durable order
    at 2s read p 3                      # so many programs ask for a barrier
    at 3s expect members p (p q r)
    at 3s expect network a faulty at p
    end 10s
    expect configurations q: {p q r} [q r] {q r}
    expect delivered q 20
    expect checkers hold
    expect rollbacks noticed
"""

from __future__ import annotations

from totempole.sim.script import Scenario, Step
from totempole.sim.script_parser import parse
from totempole.sim.script_runner import Outcome, build, perform, run
from totempole.sim.story import render_story

__all__ = ["Outcome", "Scenario", "Step", "build", "parse", "perform", "render_story", "run"]
