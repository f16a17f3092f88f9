"""How the source's code reaches executors: what they load, and what the zip file has."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import totempole
from totempole.spark_table.shipping import pack_code

LOADED = """
import sys
import totempole.spark_table.reading, totempole.spark_table.streaming, pyspark_totem
print(*sorted({name.split(".")[1] for name in sys.modules if name.startswith("totempole.")}))
print(*sorted({name.split(".")[0] for name in sys.modules} - sys.stdlib_module_names))
print(totempole.__file__)
"""


def loaded(*path: Path) -> list[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    argv = [sys.executable, "-c", LOADED]
    return subprocess.run(
        argv, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_executors_load_nothing_of_the_ring() -> None:
    packages, others, _ = loaded()
    assert packages.split() == [
        "client",
        "corel",
        "errors",
        "groups",
        "log",
        "session",
        "spark_table",
        "types",
    ]
    compiled = {"isal", "msgspec", "numpy", "pyarrow"}
    assert compiled <= set(others.split())
    assert not {"cryptography", "rich", "prometheus_client", "uvloop", "pandas"} & set(others.split())


def test_the_zip_file_has_all_that_they_load(tmp_path: Path) -> None:
    file = pack_code(tmp_path / "totempole.zip")
    assert file == tmp_path / "totempole.zip"
    assert [path.name for path in tmp_path.iterdir()] == ["totempole.zip"]
    names = zipfile.ZipFile(file).namelist()
    assert {"pyspark_totem.py", "totempole/__init__.py", "totempole/spark_table/reading.py"} <= set(names)
    assert not [name for name in names if name.endswith(".pyc")]
    packages, _, where = loaded(file)
    assert packages == loaded()[0]
    assert where == f"{file}/totempole/__init__.py"


def test_the_zip_file_by_a_command(tmp_path: Path) -> None:
    module = "totempole.spark_table.shipping"
    argv = [sys.executable, "-m", module, str(tmp_path / "code.zip")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert f"{tmp_path}/code.zip: " in done.stdout
    assert subprocess.run([sys.executable, "-m", module], capture_output=True, check=False).returncode == 2
    assert Path(totempole.__file__).is_relative_to(Path(__file__).parents[2])
