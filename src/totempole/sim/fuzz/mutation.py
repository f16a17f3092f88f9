"""A protocol with one piece of its source replaced, compiled beside the true one and run in its place."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from totempole.sim.contract import EndpointFactory
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.plan import plan
from totempole.sim.fuzz.trial import Verdict, try_scenario
from totempole.sim.grouped import Grouped
from totempole.sim.replay import jittered

SHARED = ("totempole.groups.events",)
"""What a broken layer says must be of the types that the simulator knows."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    module: str
    """Of its package."""
    old: str
    """Stands exactly once in the module's source."""
    new: str
    seed: int = 0
    """One that is known to give it away, so that a test need not look for it each time."""
    package: str = "srp"


class _MutatingLoader(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Loads the protocol package from its files, with one text replaced in one of them."""

    def __init__(self, mutant: Mutant, directory: str) -> None:
        self._mutant = mutant
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
        with open(path, "rb") as file:
            source = file.read().decode()
        if path.endswith(f"/{self._mutant.module}.py"):
            found = source.count(self._mutant.old)
            assert found == 1, f"mutant {self._mutant.name!r}: its text stands {found} times in {path}"
            source = source.replace(self._mutant.old, self._mutant.new)
        return source.encode()

    @staticmethod
    def source_to_code(data: Any, path: Any = "<string>") -> CodeType:  # type: ignore[override]
        """Without the protocol's own assertions: a checker must notice, from outside."""
        return compile(data, path, "exec", dont_inherit=True, optimize=1)

    def path_stats(self, path: str) -> dict[str, int]:
        raise OSError("never from a cache")


def mutated_endpoint(mutant: Mutant) -> EndpointFactory:
    """The endpoint of the broken protocol; the true one stays as it was."""
    if mutant.package == "groups":
        return Grouped(layer=_mutated(mutant, "layer").GroupLayer)
    return jittered(_mutated(mutant, "endpoint").Endpoint)


def _mutated(mutant: Mutant, module: str) -> Any:
    """The module of the mutant's package, with the whole package loaded afresh around it."""
    root = f"totempole.{mutant.package}"
    package = importlib.import_module(root)
    true_modules = {name: module for name, module in sys.modules.items() if _within(name, root)}
    finder = _MutatingLoader(mutant, package.__path__[0])
    for name in true_modules:
        if name not in SHARED:
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
    endpoint = mutated_endpoint(mutant)
    planned = group_plan if mutant.package == "groups" else plan
    for seed in seeds:
        verdict, _ = try_scenario(planned(seed), endpoint)
        if verdict.violated:
            return seed, verdict
    return None
