"""A redundant ring's networks as text: for `totem status` and `totem network`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from totempole.cli.output import table
from totempole.runtime import hints

WELL = ("in_service", "drained")
STYLES = {"in_service": "green", "drained": "cyan", "probation": "yellow"}
"""Of states; the others are red."""

Network = Mapping[str, Any]


def rows(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """For the page of `totem status`."""
    networks, redundancy = document["networks"], document.get("redundancy", {})
    working = sum(network["state"] == "in_service" for network in networks)
    copies = redundancy.get("copies", "?")
    style = f"{redundancy.get('style', '?')}, each message on {copies} of {len(networks)}"
    unsettled = "" if redundancy.get("agreed", True) else "; the ring has just changed, states may be old"
    yield "networks", f"{style}; {working} in service{unsettled}"
    for network in networks:
        fault = f": {network['why']}" if network["why"] else ""
        yield f"network {network['name']}", f"{state(network)}{fault}"
        yield "", f"{where(network)}, datagrams of {network['segment_bytes']:,} bytes"
        yield "", f"{loss(network)}; {share(network)} of what this node sent; {hearing(network)}"


def warnings(networks: Sequence[Network]) -> Iterator[str]:
    """What a person should look at."""
    for network in networks:
        if network.get("absence"):
            yield f"network {network['name']} is absent on this host: {network['absence']}"
        if network["why"]:
            advice = hints.network_fault(network["why"])
            yield f"network {network['name']}, {state(network)}: {network['why']}: {advice}"
        elif network["state"] == "drained":
            yield f"network {network['name']} is drained: totem network restore {network['name']}"


def overview(networks: Sequence[Network]) -> Table:
    """For `totem network`: a line for each."""
    right = ("loss", "sent")
    names = ("network", "state", "loss", "sent", "interface", "address", "what is wrong")
    shown = table(*names, right=right)
    for column in shown.columns[:-1]:
        column.no_wrap = True
    for network in networks:
        style = STYLES.get(network["state"], "bold red")
        shown.add_row(
            escape(network["name"]),
            f"[{style}]{state(network)}[/]",
            f"{worst(network)[0]:.1%}",
            share(network),
            network["interface"] or "none",
            network["address"],
            escape(network["why"]),
        )
    return shown


def matrix(network: Network, members: Sequence[int]) -> Table:
    """Who hears whom: a row for each receiver, a column for each sender."""
    bad = {(path["receiver"], path["sender"]): path["dead"] for path in network["bad_paths"]}
    shown = table(f"{escape(network['name'])}: hears", *map(str, members))
    for receiver in members:
        cells = ["." if receiver == sender else _cell(bad, receiver, sender) for sender in members]
        shown.add_row(f"[bold]{receiver}[/]", *cells)
    return shown


def _cell(bad: Mapping[tuple[int, int], bool], receiver: int, sender: int) -> str:
    dead = bad.get((receiver, sender))
    return "yes" if dead is None else "[bold red]no[/]" if dead else "[yellow]in part[/]"


def state(network: Network) -> str:
    return str(network["state"]).replace("_", " ")


def where(network: Network) -> str:
    return f"{network['transport']} at {network['address']}, {network['interface'] or 'no interface'}"


def worst(network: Network) -> tuple[float, str]:
    """The largest share that did not come, and whose that was."""
    return max(((share, sender) for sender, share in network["loss"].items()), default=(0.0, ""))


def loss(network: Network) -> str:
    share, sender = worst(network)
    return f"loss {share:.1%} from {sender}" if share else "no loss"


def share(network: Network) -> str:
    return f"{network['share_sent']:.0%}"


def hearing(network: Network) -> str:
    """The paths that all members know to be bad."""
    bad = network["bad_paths"]
    said = [
        f"{path['receiver']} does not hear {path['sender']}{'' if path['dead'] else ' in part'}"
        for path in bad[:4]
    ]
    more = [f"and {len(bad) - len(said)} more"] if len(bad) > len(said) else []
    return ", ".join(said + more) or "everyone hears everyone"
