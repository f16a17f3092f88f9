"""Packs the code that executors need into a zip file, for clusters whose Python does not have totempole.

    python -m totempole.spark_table.shipping totempole.zip
    spark-submit --py-files totempole.zip program.py

The program registers the format (`spark.dataSource.register(pyspark_totem.DefaultSource)`): one that
registers itself gets no files that are shipped. What is compiled cannot be shipped so: executors need
msgspec, isal, numpy and pyarrow themselves.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import totempole

FINDER = "pyspark_totem.py"
"""By which Spark finds the format."""


def pack_code(file: Path) -> Path:
    """The file, once it is there."""
    root = Path(totempole.__file__).parent
    unfinished = file.with_name(file.name + ".new")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*.py")):
            archive.write(path, path.relative_to(root.parent))
        archive.write(root.parent / FINDER, FINDER)
    return unfinished.replace(file)


def main() -> int:
    if len(sys.argv) != 2:
        print("give the name of the zip file to write, like totempole.zip", file=sys.stderr)
        return 2
    file = pack_code(Path(sys.argv[1]))
    print(f"{file}: {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
