"""Compares every seed of the guard with its file (`make guard`), or writes it anew (`make guard WRITE=1`)."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys

from digests import FILE, SEEDS, digests, known


def _one(task: tuple[str, int]) -> tuple[str, int, dict[str, str]]:
    return *task, digests(*task)


def main() -> int:
    tasks = [(kind, seed) for kind, seeds in SEEDS.items() for seed in seeds]
    found: dict[str, dict[str, dict[str, str]]] = {kind: {} for kind in SEEDS}
    with multiprocessing.Pool() as pool:
        for count, (kind, seed, digest) in enumerate(pool.imap(_one, tasks, chunksize=2), start=1):
            found[kind][str(seed)] = digest
            print(f"\r{count} of {len(tasks)} seeds", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if os.environ.get("WRITE"):
        FILE.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    before, differ = known(), 0
    for kind, seed in tasks:
        for what, number in found[kind][str(seed)].items():
            if before[kind][str(seed)][what] != number:
                differ += 1
                print(f"{kind} seed {seed}: another {what}")
    print(f"{len(tasks)} seeds, {differ} digests differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
