"""Names the part that failed, from what all members report of one network (RRP §3).

RRP tells the order and contents of the reports to the user, who is to work out the fault. The reports of all
members together say it: a matrix of who hears whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from totempole.rrp.paths import Lost
from totempole.types import ProcessorId


class Bad(NamedTuple):
    """A bad path of one network: `receiver` does not hear `sender`."""

    sender: ProcessorId
    receiver: ProcessorId
    dead: bool
    lost: int


def diagnose(bad: Sequence[Bad], members: Sequence[ProcessorId], lacking: Sequence[ProcessorId] = ()) -> str:
    """What is wrong, the same at every member; empty if nothing is. `lacking` are members that do not have
    the network."""
    members = [member for member in members if member not in lacking]
    said = [f"not configured at {_list(lacking)}"] if lacking else []
    bad = [path for path in bad if path.sender in members and path.receiver in members]
    said.append(_fault(bad, members))
    return "; ".join(filter(None, said))


def _fault(bad: Sequence[Bad], members: Sequence[ProcessorId]) -> str:
    if not bad:
        return ""
    pairs = {(path.sender, path.receiver) for path in bad}
    part = _part(pairs, sorted(members))
    manner = _manner(bad)
    return f"{part}{manner}"


def _part(pairs: set[tuple[ProcessorId, ProcessorId]], members: list[ProcessorId]) -> str:
    others = len(members) - 1
    every = {(one, other) for one in members for other in members if one != other}
    if pairs == every:
        return "nobody hears anybody"
    mute = [one for one in members if sum(sender == one for sender, _ in pairs) == others]
    deaf = [one for one in members if sum(receiver == one for _, receiver in pairs) == others]
    explained = {pair for pair in pairs if pair[0] in mute or pair[1] in deaf}
    if explained == pairs:
        return _hosts(mute, deaf, len(members))
    components = _components(every - pairs, members)
    between = {(one, other) for one, other in every if components[one] != components[other]}
    if len(set(components.values())) > 1 and pairs == between:
        sides: dict[int, list[ProcessorId]] = {}
        for member in members:
            sides.setdefault(components[member], []).append(member)
        return "split into " + " and ".join(_list(side) for side in sides.values())
    return _paths(sorted(pairs))


def _hosts(mute: list[ProcessorId], deaf: list[ProcessorId], count: int) -> str:
    both = [one for one in mute if one in deaf]
    if count == 2 and not both:
        mute = mute or deaf  # of two, who is to blame cannot be told
        return _paths([(mute[0], deaf[0])] if deaf and mute[0] != deaf[0] else [])
    said = [f"{_list(both)} cannot send or receive"] if both else []
    only_mute = [one for one in mute if one not in both]
    only_deaf = [one for one in deaf if one not in both]
    if only_mute:
        said.append(f"{_list(only_mute)} cannot send")
    if only_deaf:
        said.append(f"{_list(only_deaf)} cannot receive")
    return "; ".join(said)


def _components(
    good: Iterable[tuple[ProcessorId, ProcessorId]], members: Sequence[ProcessorId]
) -> dict[ProcessorId, int]:
    """Members that hear each other, directly or through others, have the same number: the least of them."""
    component = {member: member for member in members}
    changed = True
    links = sorted(good)
    while changed:
        changed = False
        for one, other in links:
            least = min(component[one], component[other])
            if component[one] != least or component[other] != least:
                component[one] = component[other] = least
                changed = True
    return component


def _paths(pairs: Sequence[tuple[ProcessorId, ProcessorId]]) -> str:
    said = [f"{receiver} does not hear {sender}" for sender, receiver in pairs[:4]]
    more = len(pairs) - len(said)
    return "; ".join(said) + (f"; and {more} more paths" if more else "")


def _manner(bad: Sequence[Bad]) -> str:
    """How the paths are bad, where it is not simply that nothing comes."""
    if all(path.lost & Lost.INTERFACE for path in bad):
        return " (its interface is down)"
    if not all(path.dead for path in bad):
        return " in part: packets are lost"
    lost = 0
    for path in bad:
        lost |= path.lost
    if lost & Lost.LONG and not lost & (Lost.SHORT | Lost.TOKENS):
        return ", large datagrams only"
    if lost & Lost.SHORT and lost & Lost.NOT_TOKENS and not lost & Lost.TOKENS:
        return ", multicast only"
    return ", tokens only" if lost == Lost.TOKENS else ""


def _list(members: Sequence[ProcessorId]) -> str:
    return ", ".join(map(str, members))
