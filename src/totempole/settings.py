"""What a setting is: its meaning, what it may be, and how it is written in a TOML file.

A settings class is a frozen dataclass whose fields carry a `Kind` (`setting`). The protocols' settings know
nothing of files: their fields carry only a meaning and a range (`whole_number`), and get their kind from
their default.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, cast

from totempole.errors import ConfigurationError

T = TypeVar("T")

UNLIMITED = 2**62
"""A greatest value that is not worth telling."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The values that a setting takes: in a file (`takes`, `read`, `show`) and in a program (`accepts`)."""

    allowed: str
    """What may be given, as an error and a comment say it."""
    takes: Callable[[Any], bool]
    accepts: Callable[[Any], bool]
    read: Callable[[Any], Any] = lambda raw: raw
    show: Callable[[Any], Any] = lambda value: value
    bare: bool = False
    """Written on the command line without quotes: `--set logging.level=debug`."""


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def whole(least: int, most: int) -> Kind:
    def fits(value: Any) -> bool:
        return _is_whole(value, least, most)

    limits = f"from {least} to {most}" if most < UNLIMITED else f"of at least {least}"
    return Kind(f"a whole number {limits}", fits, fits)


def wholes(least: int, most: int) -> Kind:
    """A list of whole numbers."""

    def fits(value: Any, kind: type[Sequence[Any]]) -> bool:
        return isinstance(value, kind) and all(_is_whole(item, least, most) for item in value)

    return Kind(
        f"a list of whole numbers from {least} to {most}, like [1, 2, 3]",
        takes=lambda raw: fits(raw, list),
        accepts=lambda value: fits(value, tuple),
        read=tuple,
        show=list,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def words(choices: Iterable[str]) -> Kind:
    known = tuple(choices)
    return Kind(f"one of {', '.join(known)}", known.__contains__, known.__contains__, bare=True)


def names_of(kind: type[Enum]) -> Kind:
    """The members of an enumeration, by their names in small letters."""
    by_name = {member.name.lower(): member for member in kind}
    return Kind(
        f"one of {', '.join(by_name)}",
        takes=lambda raw: isinstance(raw, str) and raw in by_name,
        accepts=lambda value: isinstance(value, kind),
        read=by_name.__getitem__,
        show=lambda value: value.name.lower(),
        bare=True,
    )


NUMBER = Kind("a number", _is_number, _is_number)
TEXT = Kind("text", _is_text, _is_text, bare=True)
FLAG = Kind("true or false", lambda raw: isinstance(raw, bool), lambda value: isinstance(value, bool))
PATH = Kind(
    "a path",
    takes=lambda raw: isinstance(raw, str) and raw != "" and "\0" not in raw,
    accepts=lambda value: isinstance(value, Path),
    read=Path,
    show=str,
    bare=True,
)
MAYBE_PATH = Kind(
    "a path",
    takes=PATH.takes,
    accepts=lambda value: value is None or isinstance(value, Path),
    read=Path,
    show=lambda value: None if value is None else str(value),
    bare=True,
)


def setting(kind: Kind, meaning: str, example: Any = None) -> dict[str, Any]:
    """A field's metadata. `example` stands in the printed file for what must be given."""
    return {"kind": kind, "meaning": meaning, "example": example}


def whole_number(default: int, meaning: str, least: int = 1, most: int = UNLIMITED) -> int:
    """A field: a whole number with its default, its meaning, and the least and greatest value it may have."""
    value: int = field(default=default, metadata={"meaning": meaning, "least": least, "most": most})
    return value


def section(meaning: str) -> dict[str, Any]:
    """The metadata of a field that is a settings class itself: a section of the file."""
    return {"section": True, "meaning": meaning}


def more_of(section: str) -> dict[str, Any]:
    """The metadata of a field with the further tables of a section that a file may have several of."""
    return {"more_of": section}


def repeated_of(kind: type) -> dict[str, str]:
    """The sections that may stand in a file several times, and the fields that have all but the first."""
    return {item.metadata["more_of"]: item.name for item in fields(kind) if "more_of" in item.metadata}


def kind_of(item: Field[Any]) -> Kind:
    if "kind" in item.metadata:
        kind: Kind = item.metadata["kind"]
        return kind
    if isinstance(item.default, Enum):
        return names_of(type(item.default))
    if isinstance(item.default, bool):
        return FLAG
    if isinstance(item.default, int):
        return whole(item.metadata.get("least", 0), item.metadata.get("most", UNLIMITED))
    if isinstance(item.default, float):
        return NUMBER
    if isinstance(item.default, str):
        return words(item.metadata["choices"]) if "choices" in item.metadata else TEXT
    raise TypeError(f"{item.name}: a setting of a kind that no file can hold")


def sections_of(kind: type) -> dict[str, type]:
    found = [item for item in fields(kind) if "section" in item.metadata]
    return {item.name: cast("type", item.default_factory) for item in found}


def settings_of(kind: type) -> dict[str, Field[Any]]:
    """The settings of a class, without its sections."""
    return {
        item.name: item
        for item in fields(kind)
        if "section" not in item.metadata and "more_of" not in item.metadata
    }


def check_settings(config: Any) -> None:
    """Every field of a settings class has a value that its kind accepts. A program may also give a value as a
    file has it: a list, the text of a path, a peer or a mode."""
    for name, item in settings_of(type(config)).items():
        kind = kind_of(item)
        value = getattr(config, name)
        if not kind.accepts(value):
            raw = list(value) if isinstance(value, tuple) else value
            if not kind.takes(raw):
                raise refused(name, value, f"give {kind.allowed}")
            object.__setattr__(config, name, kind.read(raw))


def refused(name: str, value: Any, way_out: str) -> ConfigurationError:
    return ConfigurationError(f"{name} = {value_text(value)}: {way_out}")


def value_text(value: Any) -> str:
    """A value as a TOML file has it; what no file could hold, as Python shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, Path)):
        return _quoted(str(value))
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(value_text(item) for item in value)}]"
    return repr(value)


def _quoted(text: str) -> str:
    # JSON leaves the delete character as it is, which TOML forbids.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_settings(kind: type[T], raw: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """The values of a section, each of its right kind. Relative paths start at `base`."""
    known = settings_of(kind)
    values = {}
    for name, value in raw.items():
        if name not in known:
            raise refused(name, value, f"there is no such setting here{nearest(name, known)}")
        values[name] = _read_one(name, value, kind_of(known[name]), base)
    return values


def _read_one(name: str, raw: Any, kind: Kind, base: Path) -> Any:
    if not kind.takes(raw):
        raise refused(name, raw, f"give {kind.allowed}")
    value = kind.read(raw)
    return base / value if isinstance(value, Path) else value


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at what may have been meant, with its own punctuation."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def parse_word(text: str, kind: Kind) -> Any:
    """A value from the command line, as a file would have given it."""
    if kind.bare:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # no value of this kind: what reads it refuses it by name
