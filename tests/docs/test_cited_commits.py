"""README and docs name the commit that a figure was measured at: readers must be able to check it out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
HASH = re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{7}\b")
NOT_A_COMMIT = {"ed25519"}


def git(*words: str, given: str = "") -> str:
    argv = ["git", "-C", str(ROOT), *words]
    return subprocess.run(argv, input=given, capture_output=True, text=True, check=True).stdout


def cited() -> list[tuple[str, str]]:
    """Commits, and where they are cited."""
    return sorted(
        (found, str(page.relative_to(ROOT)))
        for page in PAGES
        for found in set(HASH.findall(page.read_text(encoding="utf-8"))) - NOT_A_COMMIT
    )


def test_pages_cite_commits() -> None:
    assert {"README.md", "docs/performance.md", "docs/searching.md"} <= {page for _, page in cited()}


def test_every_commit_that_is_cited_exists() -> None:
    try:
        if git("rev-parse", "--is-shallow-repository").strip() == "true":
            pytest.skip("a shallow clone has no history")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a clone")
    asked = cited()
    answers = git(
        "cat-file", "--batch-check=%(objecttype)", given="".join(f"{name}\n" for name, _ in asked)
    ).splitlines()
    assert [each for each, kind in zip(asked, answers, strict=True) if kind != "commit"] == []
