"""The recipes of examples/cookbook, as modules."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[2] / "examples"
COOKBOOK = EXAMPLES / "cookbook"


def load(path: Path) -> ModuleType:
    name = f"cookbook_{path.stem}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def recipe(name: str) -> ModuleType:
    return load(COOKBOOK / f"{name}.py")
