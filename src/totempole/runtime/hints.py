"""What a reason that a node counts packets under most likely means, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from totempole.srp.alarms import FormerLife

NO_ADDRESS = "no address"
"""Counts with what the kernel refuses, though it was not asked: nobody knows where the processor is."""

NETWORK_ABSENT = "network absent"
"""The same for one of several networks whose interface is not there."""

_OTHER_VERSION = "a node of another version of the protocol is there"
_DROPPED = {
    "cluster": "another cluster uses this network and port: give each its own port or multicast_group",
    "ring kind": "a node of the other ring_kind is there: give all the same",
    "version": _OTHER_VERSION,
    "segment version": _OTHER_VERSION,
    "type": "a node whose ring is on several networks is there, or one of another version: give all the "
    "same [[network]] tables and [redundancy]",
    "key": "somebody seals with a key that is not in this node's key file: copy the file, then SIGHUP",
    "seal": "packets that are forged, damaged, or sealed with another key of the same number",
    "echo of our own": "this node's own packets come back: a loop in the network, or somebody repeats them",
    "unsealed": "somebody sends without a seal: set key_file there",
}
_NO_KEYS = "somebody seals, and this node has no keys: set key_file here"


def dropped(reason: str, sealed: bool) -> str:
    """For packets that were dropped on arrival; empty where the reason says it all."""
    return _NO_KEYS if reason == "key" and not sealed else _DROPPED.get(reason, "")


def former_life(effect: FormerLife) -> str:
    """For a processor whose number of lives has gone back."""
    return (
        f"processor {effect.processor} has incarnation {effect.incarnation} and once had {effect.latest}: if "
        "its directory came from a backup, or its clock was set back, stop it, remove the directory and "
        "start it again; if not, somebody repeats its packets"
    )


_NETWORK_FAULTS = (
    ("not configured at", "give these hosts the same [[network]] table, and send their nodes SIGHUP"),
    ("interface is down", "bring the interface up again (`ip link`), or mend its cable"),
    ("large datagrams only", "something on the way takes smaller datagrams: set the same MTU everywhere"),
    ("multicast only", "a switch that forgets multicast groups: it needs an IGMP querier, or no snooping"),
    ("tokens only", "a firewall or an access list that stops the token's port: open both ports"),
    ("packets are lost", "a bad cable or port, a duplex mismatch, or overload: look at error counters"),
    ("nobody hears anybody", "the switch itself, or a setting that all hosts share"),
    ("split into", "the link between two switches, or a VLAN that ends between them"),
    ("cannot send or receive", "cable, port or card of this host"),
    ("cannot send", "this host's card, its outgoing firewall, or the switch port's input"),
    ("cannot receive", "this host's card, its incoming firewall, or the switch port's output"),
    ("does not hear", "the way between these two hosts: firewalls, ARP, or the list of peers"),
)
"""What `networks.diagnosis` says, and what to look at. The first that fits counts."""

WIRED_TOGETHER = ("wired together", "the two are one network: separate them, or they will fail together")


def network_fault(why: str) -> str:
    """For what is wrong with a network of a redundant ring; empty if nothing is."""
    found = next(([advice] for words, advice in _NETWORK_FAULTS if words in why), [])
    if WIRED_TOGETHER[0] in why:
        found.append(WIRED_TOGETHER[1])
    return "; ".join(found)


def refused(reason: str) -> str:
    """For packets that could not be sent."""
    if reason == NO_ADDRESS:
        return "of every two nodes of a mesh, one must have the other in its peers or peers_dns"
    if reason == NETWORK_ABSENT:
        return "an interface of this host is gone: they went by other networks, if at all"
    return "the kernel refused them"
