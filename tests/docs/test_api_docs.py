"""The API reference is what the docstrings say, and nothing that is public is without one."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

import totempole

SCRIPT = Path(__file__).parents[2] / "scripts" / "api_reference.py"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = spec_from_file_location("api_reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_page_is_current(reference: ModuleType) -> None:
    current = reference.PAGE.read_text(encoding="utf-8")
    assert current == reference.page(), f"run python {SCRIPT.relative_to(SCRIPT.parents[1])}"


def test_every_public_name_is_in_the_reference_once(reference: ModuleType) -> None:
    named = [name for names in reference.SECTIONS.values() for name in names]
    assert sorted([*named, "blocking"]) == sorted(totempole.__all__), "see SECTIONS in the script"


def test_nothing_public_is_without_a_docstring(reference: ModuleType) -> None:
    assert reference.missing() == []


BARE = """
class Bare:
    def method(self): ...

    @property
    def told(self):
        "So it is."
"""


def test_the_search_finds_what_has_none(
    reference: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measure itself."""
    (tmp_path / "totempole_bare.py").write_text(BARE)
    monkeypatch.syspath_prepend(tmp_path)
    bare = import_module("totempole_bare").Bare
    found = {member.name: member.text for member in reference.members("Bare", bare)}
    assert found == {"method": "", "told": "So it is."}


def test_internal_names_exist(reference: ModuleType) -> None:
    """A list of exceptions does not outlive them."""
    for name in reference.INTERNAL["Session"]:
        assert any(hasattr(each, name) for each in (totempole.Session, totempole.blocking.Session)), name


def test_dir_lists_the_public_names_before_any_is_loaded() -> None:
    program = (
        "import totempole; print(*dir(totempole)); import sys; print('totempole.runtime' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    names, loaded = told.splitlines()
    assert set(totempole.__all__) <= set(names.split())
    assert [name for name in names.split() if name[0] != "_" and name not in totempole.__all__] == []
    assert loaded == "False"


def test_every_public_name_is_there() -> None:
    for name in totempole.__all__:
        getattr(totempole, name)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        totempole.no_such_name  # noqa: B018
