"""What is known of each run beside its rows, as a table: `checkers.Terms` for Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from totempole.checkers.terms import Terms
from totempole.checkers.terms_file import STRETCHES, read_terms

SCHEMA = (
    "run string, complete boolean, same_clock boolean, "
    "expectation struct<at_us:bigint,groups:array<array<bigint>>,bound_us:bigint>, "
    + ", ".join(f"{name} array<struct<from_us:bigint,settled_us:bigint,to_us:bigint>>" for name in STRETCHES)
    + ", alarmed array<struct<network:bigint,from_us:bigint,told_us:bigint,why:string>>"
)


def terms_table(spark: SparkSession, known: Mapping[str, Terms]) -> DataFrame:
    rows = [
        (run, terms.complete, terms.same_clock, _expectation(terms), *_stretches(terms), _alarmed(terms))
        for run, terms in known.items()
    ]
    return spark.createDataFrame(rows, SCHEMA)


def known_terms(spark: SparkSession, paths: Iterable[Path]) -> DataFrame:
    """What the files `terms.json` in these directories say."""
    found = (read_terms(path) for path in paths if path.is_dir())
    return terms_table(spark, {run: terms for each in found for run, terms in each.items()})


def terms_of(runs: DataFrame, known: DataFrame, otherwise: Terms) -> DataFrame:
    """A row for each run: what is known of it, or else what holds for all."""
    found = runs.select("run").distinct().join(F.broadcast(known), "run", "left")
    return found.select(
        "run",
        F.coalesce("complete", F.lit(otherwise.complete)).alias("complete"),
        F.coalesce("same_clock", F.lit(otherwise.same_clock)).alias("same_clock"),
        F.coalesce("expectation", _literal(otherwise)).alias("expectation"),
        *(
            F.coalesce(name, F.array().cast(known.schema[name].dataType)).alias(name)
            for name in (*STRETCHES, "alarmed")
        ),
    )


def _stretches(terms: Terms) -> list[list[tuple[int, int, int]]]:
    return [
        [(calm.from_us, calm.settled_us, calm.to_us) for calm in getattr(terms, name)] for name in STRETCHES
    ]


def _alarmed(terms: Terms) -> list[tuple[int, int, int, str]]:
    return [(each.network, each.from_us, each.told_us, each.why) for each in terms.alarmed]


def _expectation(terms: Terms) -> tuple[int, list[list[int]], int] | None:
    wanted = terms.expectation
    if wanted is None:
        return None
    return wanted.at_us, [sorted(group) for group in wanted.groups], wanted.bound_us


def _literal(terms: Terms) -> Column:
    kind = "struct<at_us:bigint,groups:array<array<bigint>>,bound_us:bigint>"
    values = _expectation(terms)
    if values is None:
        return F.lit(None).cast(kind)
    at_us, groups, bound_us = values
    return F.struct(F.lit(at_us), F.lit(groups), F.lit(bound_us)).cast(kind)
