"""A protocol with one piece of its code replaced, compiled beside the true one and run in its place.

A mutant names a function of the package, or a table, and what to replace in it. The place is looked up in
whatever module it stands, and its code is compared as `ast.unparse` writes it: without comments, doc strings
and line breaks. So a mutant outlives new formatting, and a function that moves to another file.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from totempole.groups.config import GroupConfig
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.network_plan import Ways, network_plan
from totempole.sim.fuzz.object_plan import object_plan
from totempole.sim.fuzz.plan import plan
from totempole.sim.fuzz.trial import Verdict, try_scenario
from totempole.sim.objects.programs import ObjectParts
from totempole.sim.script import Scenario
from totempole.sim.stacks import SIM_PARTS, RealStack

SHARED = tuple(
    f"totempole.{name}"
    for name in (
        *("groups.commands", "groups.events", "srp.alarms", "srp.commands", "srp.packets"),
        *("networks.commands", "networks.events", "rrp.alarms", "rrp.commands", "rrp.config", "rrp.hello"),
    )
)
"""What a broken layer says must be of the types that the simulator knows."""

SHARED_BY_PROGRAMS = tuple(
    f"totempole.{name}"
    for name in (
        *("corel.commands", "corel.events", "corel.frames", "corel.quorum", "corel.run", "corel.zones"),
        *("objects.codec", "objects.commands", "objects.ordered", "objects.records"),
    )
)
"""And of those that programs with replicated objects know."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    where: str
    """A function of its package, like `Ring.answer`, or a table, like `TABLE`."""
    old: str
    """Stands exactly once in that code. Quotes of either kind are the same."""
    new: str
    seed: int = 0
    """One that is known to give it away, so that a test need not look for it each time."""
    package: str = "srp"

    @property
    def module(self) -> str:
        """Where the code stands at present."""
        return self._found()[0]

    @property
    def source(self) -> str:
        """The whole module, with the code replaced."""
        return self._found()[1]

    def _found(self) -> tuple[str, str]:
        places = [place for place in _places(self.package) if place.name == self.where]
        assert len(places) == 1, f"mutant {self.name!r}: {self.where} stands in {len(places)} places"
        place = places[0]
        old, new = (text.replace('"', "'") for text in (self.old, self.new))
        count = place.code.count(old)
        assert count == 1, f"mutant {self.name!r}: its text stands {count} times in\n{place.code}"
        return place.module, place.module_with(place.code.replace(old, new))


@dataclass(frozen=True, slots=True)
class Place:
    """A function or a table of a package."""

    module: str
    name: str
    code: str
    """As `ast.unparse` writes it."""
    source: str
    """Of the whole module."""
    first_line: int
    """Decorators included. Lines are counted from 0."""
    stop_line: int
    indent: int

    def module_with(self, code: str) -> str:
        """The module's source with other code in this place."""
        lines = self.source.splitlines()
        lines[self.first_line : self.stop_line] = [" " * self.indent + line for line in code.splitlines()]
        return "\n".join([*lines, ""])


@cache
def _places(package: str) -> tuple[Place, ...]:
    directory = Path(importlib.import_module(f"totempole.{package}").__path__[0])
    files = sorted(directory.glob("*.py"))
    return tuple(place for file in files for place in places_in(file.stem, file.read_text()))


def places_in(module: str, source: str) -> Iterator[Place]:
    yield from _places_among(module, source, ast.parse(source).body, "")


def _places_among(module: str, source: str, body: Sequence[ast.stmt], prefix: str) -> Iterator[Place]:
    for node in body:
        match node:
            case ast.ClassDef(name=name):
                yield from _places_among(module, source, node.body, f"{prefix}{name}.")
            case (
                ast.FunctionDef(name=name)
                | ast.Assign(targets=[ast.Name(id=name)])
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
                first_line = min(part.lineno for part in (node, *decorators)) - 1
                assert node.end_lineno is not None
                code = ast.unparse(_without_doc_string(node))
                yield Place(module, prefix + name, code, source, first_line, node.end_lineno, node.col_offset)


def _without_doc_string(node: ast.stmt) -> ast.stmt:
    if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
        node.body = node.body[1:] or [ast.Pass()]
    return node


class _MutatingLoader(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Loads the protocol package from its files, with the mutant's code in one of them."""

    def __init__(self, mutant: Mutant, directory: str) -> None:
        self._file = f"{directory}/{mutant.module}.py"
        self._source = mutant.source
        self._package = f"totempole.{mutant.package}"
        self._directory = directory

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _within(fullname, self._package):
            return None
        package = fullname == self._package
        name = "__init__" if package else fullname.rpartition(".")[2]
        return importlib.util.spec_from_file_location(
            fullname,
            f"{self._directory}/{name}.py",
            loader=self,
            submodule_search_locations=[self._directory] if package else None,
        )

    def get_filename(self, fullname: str) -> str:
        name = "__init__" if fullname == self._package else fullname.rpartition(".")[2]
        return f"{self._directory}/{name}.py"

    def get_data(self, path: str) -> bytes:
        return self._source.encode() if path == self._file else Path(path).read_bytes()

    @staticmethod
    def source_to_code(data: Any, path: Any = "<string>") -> CodeType:  # type: ignore[override]
        """Without the protocol's own assertions: a checker must notice, from outside."""
        return compile(data, path, "exec", dont_inherit=True, optimize=1)

    def path_stats(self, path: str) -> dict[str, int]:
        raise OSError("never from a cache")


def mutated_stack(mutant: Mutant) -> RealStack:
    """A stack with the broken layer in it; the true layer stays as it was."""
    if mutant.package == "groups":
        layer = _mutated(mutant, "layer").GroupLayer
        return RealStack(GroupConfig(), parts=replace(SIM_PARTS, groups=layer))
    if mutant.package == "networks":
        return RealStack(parts=replace(SIM_PARTS, networks=_mutated(mutant, "layer").Networks))
    if mutant.package == "rrp":
        layer = _mutated(mutant, "layer")
        broken = replace(SIM_PARTS, replicator=layer.Replicator, accounts=layer.Accounts)
        return RealStack(parts=broken)
    if mutant.package == "corel":
        replica = _mutated(mutant, "layer", SHARED_BY_PROGRAMS).Replica
        return RealStack(GroupConfig(), parts=replace(SIM_PARTS, replica=replica))
    if mutant.package == "objects":
        return RealStack(GroupConfig())
    engine = _mutated(mutant, "engine").SingleRing
    return RealStack(parts=replace(SIM_PARTS, engines={"totem": engine}))


def mutated_objects(mutant: Mutant) -> ObjectParts | None:
    """What programs with a replicated object are made of, if that is what is broken."""
    if mutant.package != "objects":
        return None
    host = _mutated(mutant, "host", SHARED_BY_PROGRAMS)
    machine = host.ObjectMachine
    return ObjectParts(machine, host.ObjectHost, machine.snapshot.__globals__["Snapshot"])


def _mutated(mutant: Mutant, module: str, shared: tuple[str, ...] = ()) -> Any:
    """The module of the mutant's package, with the whole package loaded afresh around it, but for what is
    shared."""
    root = f"totempole.{mutant.package}"
    package = importlib.import_module(root)
    true_modules = {name: module for name, module in sys.modules.items() if _within(name, root)}
    finder = _MutatingLoader(mutant, package.__path__[0])
    for name in true_modules:
        if name not in SHARED and name not in shared:
            del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(f"{root}.{module}")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _within(name, root)]:
            del sys.modules[name]
        sys.modules.update(true_modules)
        # Importing a submodule also sets it on its parent package.
        setattr(sys.modules["totempole"], mutant.package, package)


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def hunt(mutant: Mutant, seeds: Sequence[int]) -> tuple[int, Verdict] | None:
    """The first of the seeds that gives the mutant away."""
    stack, object_parts = mutated_stack(mutant), mutated_objects(mutant)
    for seed in seeds:
        for scenario in scenarios_for(mutant, seed):
            verdict, _ = try_scenario(scenario, stack, object_parts)
            if verdict.violated:
                return seed, verdict
    return None


def scenarios_for(mutant: Mutant, seed: int) -> Iterator[Scenario]:
    """Those of a seed that are to give the mutant away."""
    if mutant.package in ("corel", "objects"):
        yield object_plan(seed)
    elif mutant.package in ("rrp", "networks"):
        yield network_plan(Ways(only_networks=True), seed)
        yield network_plan(Ways(), seed)
    else:
        yield group_plan(seed) if mutant.package == "groups" else plan(seed)
