"""Scenario files that come with the package: the paper's figures and its events file, and the demo's runs."""

from __future__ import annotations

from importlib.resources import files

SUFFIXES = (".scenario", ".events")


def names() -> list[str]:
    return sorted(item.name for item in files(__name__).iterdir() if item.name.endswith(SUFFIXES))


def find(name: str) -> str | None:
    """The file's name, with or without its ending; None when there is no such file."""
    return next((known for known in names() if name in (known, known.rpartition(".")[0])), None)


def read(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def about(name: str) -> str:
    """The first comment of the file. Appendix A's has none, and is to stay as it stands."""
    first = read(name).partition("\n")[0]
    return first.lstrip("# ") if first.startswith("#") else "The events file of appendix A"
