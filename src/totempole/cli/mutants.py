"""Broken protocols by name (`--mutant NAME`), and the hunt for all of them (`totem fuzz --mutants`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from totempole.cli.output import Screen, table
from totempole.errors import TotemError
from totempole.sim.fuzz.group_mutants import GROUP_HARMLESS, GROUP_MUTANTS, GROUP_STAGED, GROUP_UNNOTICED
from totempole.sim.fuzz.mutants import BY_HAND, HARMLESS, MUTANTS, STAGED, UNNOTICED, Mutant, hunt
from totempole.sim.fuzz.network_mutants import NETWORK_MUTANTS, NETWORK_STAGED
from totempole.sim.fuzz.object_mutants import OBJECT_MUTANTS, OBJECT_STAGED
from totempole.sim.fuzz.pools import open_pool

EVERY = (
    *(*MUTANTS, *STAGED, *BY_HAND, *UNNOTICED, *HARMLESS),
    *(*GROUP_MUTANTS, *GROUP_STAGED, *GROUP_UNNOTICED, *GROUP_HARMLESS),
    *(*NETWORK_MUTANTS, *NETWORK_STAGED),
    *(*OBJECT_MUTANTS, *OBJECT_STAGED),
)
"""Of the ring, of process groups, of rings on several networks, and of replicated objects."""


def find_mutant(name: str) -> Mutant:
    """By its name, or a part of it that no other has; hyphens may stand for spaces."""
    wanted = name.replace("-", " ").lower()
    exact = [mutant for mutant in EVERY if mutant.name.replace("-", " ").lower() == wanted]
    found = exact or [mutant for mutant in EVERY if wanted in mutant.name.replace("-", " ").lower()]
    if len(found) == 1:
        return found[0]
    problem = "several mutants are called that" if found else "no mutant is called that"
    among = ", ".join(mutant.name for mutant in found) or "totem fuzz --mutants lists them"
    raise TotemError(f"--mutant {name}: {problem}: {among}")


def show_list(screen: Screen) -> None:
    shown = table("mutant", "in", "instead of")
    for mutant in EVERY:
        shown.add_row(mutant.name, f"{mutant.package}/{mutant.module}.py", " ".join(mutant.old.split()))
    screen.print(shown)
    screen.print(
        "\nHunt those of the ring (srp): totem fuzz --mutants --seeds 0:500; those of groups: with --groups; "
        "those of several networks: with --networks any; those of objects: with --objects. "
        "One: totem fuzz --mutant NAME --shrink"
    )


class Kill(NamedTuple):
    """`seed` is None for a mutant that survived."""

    mutant: str
    seed: int | None
    violated: tuple[str, ...]


def hunt_all(screen: Screen, seeds: range, jobs: int, mutants: Sequence[Mutant] = MUTANTS) -> bool:
    """Whether the seeds give all of them away."""
    kills: dict[str, Kill] = {}
    with screen.progress("hunting mutants", len(mutants)) as advance:
        for kill in _kills([(mutant, seeds) for mutant in mutants], jobs):
            kills[kill.mutant] = kill
            survivors = sum(found.seed is None for found in kills.values())
            advance(len(kills), f"{survivors} survived" if survivors else "")
    found = [kills[mutant.name] for mutant in mutants]
    _show(screen, found, seeds)
    screen.save_json(_data(found, seeds))
    return all(kill.seed is not None for kill in found)


def _kills(tasks: Sequence[tuple[Mutant, range]], jobs: int) -> Iterator[Kill]:
    if jobs <= 1:
        yield from map(_kill, tasks)
        return
    with open_pool(max(1, min(jobs, len(tasks)))) as pool:
        yield from pool.imap_unordered(_kill, tasks)


def _kill(task: tuple[Mutant, range]) -> Kill:
    mutant, seeds = task
    found = hunt(mutant, seeds)
    return Kill(mutant.name, None, ()) if found is None else Kill(mutant.name, found[0], found[1].violated)


def _show(screen: Screen, kills: Sequence[Kill], seeds: range) -> None:
    shown = table("mutant", "first killing seed", "property", title="Mutants", right=("first killing seed",))
    for kill in kills:
        if kill.seed is None:
            shown.add_row(kill.mutant, "[bold red]none[/]", "[bold red]survived[/]")
        else:
            more = f" and {len(kill.violated) - 1} more" if len(kill.violated) > 1 else ""
            shown.add_row(kill.mutant, str(kill.seed), kill.violated[0] + more)
    screen.print(shown)
    survived = [kill.mutant for kill in kills if kill.seed is None]
    verdict = f"[bold red]{len(survived)} survived[/]" if survived else "[bold green]all caught[/]"
    screen.print(f"\n{len(kills)} mutants, seeds {seeds.start}:{seeds.stop}: {verdict}")


def _data(kills: Sequence[Kill], seeds: range) -> dict[str, Any]:
    return {
        "first": seeds.start,
        "stop": seeds.stop,
        "holds": all(kill.seed is not None for kill in kills),
        "mutants": [
            {"mutant": kill.mutant, "seed": kill.seed, "violated": list(kill.violated)} for kill in kills
        ],
    }
