"""A node's settings as the text of a TOML file: every one, its value, and what it means."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from totempole.runtime.config import ELSEWHERE, NodeConfig, build, change
from totempole.settings import kind_of, repeated_of, sections_of, settings_of, value_text

WIDTH = 100

HEAD = """\
# Settings of a totempole node: each one, its default and its meaning.
# Start a node with `totem node --config FILE`; see docs/node.md.
"""


def print_config(config: NodeConfig | None = None) -> str:
    """A file that is complete: as `config` is, or with the defaults, and examples of what must be given."""
    lines = [HEAD, *_settings("", NodeConfig, config)]
    meanings = {
        item.name: item.metadata["meaning"] for item in fields(NodeConfig) if "meaning" in item.metadata
    }
    for name, kind in sections_of(NodeConfig).items():
        tables = _tables(config, name)
        title = f"[{name}]" if len(tables) == 1 else f"[[{name}]]"
        for table in tables:
            lines += [f"# {meanings[name]}", title, ""]
            lines += _settings(name, kind, table)
    return "\n".join(lines).rstrip() + "\n"


SHORT = {"processor": 1, "network": {"address": "127.0.0.1"}, "security": {"unsealed": True}}
"""What must be given, for a node that can be tried out as it is, on any host."""


def print_short(changes: Sequence[str] = ()) -> str:
    """A file with just what must be given, and these changes: it runs as it is."""
    raw = change(SHORT, changes)
    return short_text(build({"directory": f"node-{raw['processor']}", **raw}, Path()))


def short_text(config: NodeConfig) -> str:
    """A file with what must be given, and what is not as it is by default."""
    lines = [*_differing(NodeConfig, config)]
    for name, kind in sections_of(NodeConfig).items():
        tables = _tables(config, name)
        for table in tables:
            assignments = [*_differing(kind, table)]
            if assignments or len(tables) > 1:
                lines += [f"[{name}]" if len(tables) == 1 else f"[[{name}]]", *assignments]
    return "\n".join(lines) + "\n"


def _differing(kind: type, values: Any) -> Iterator[str]:
    for name, item in settings_of(kind).items():
        if getattr(values, name) != item.default:  # what must be given has none
            yield _assignment(name, item, values)


def _tables(config: NodeConfig | None, section: str) -> list[Any]:
    if config is None:
        return [None]
    more = repeated_of(NodeConfig).get(section)
    return [getattr(config, section), *(getattr(config, more) if more else ())]


def _settings(section: str, kind: type, values: Any) -> Iterator[str]:
    for name, item in settings_of(kind).items():
        if (section, name) not in ELSEWHERE:
            yield _comment(item)
            yield f"{_assignment(name, item, values)}\n"


def _comment(item: Field[Any]) -> str:
    required = "required: " if item.metadata.get("example") is not None else ""
    sentences = [item.metadata["meaning"], f"{required}{kind_of(item).allowed}"]
    text = " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences)
    return textwrap.fill(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _assignment(name: str, item: Field[Any], values: Any) -> str:
    value = _value(name, item, values)
    return f'# {name} = "…"' if value is None else f"{name} = {value_text(value)}"


def _value(name: str, item: Field[Any], values: Any) -> Any:
    """What stands after the equals sign; nothing where the setting is not given."""
    if values is not None:
        return kind_of(item).show(getattr(values, name))
    if item.metadata.get("example") is not None:
        return item.metadata["example"]
    assert item.default is not MISSING, f"{name} has neither a default nor an example"
    return kind_of(item).show(item.default)
